//! Benchmarks of reading files: `cargo bench -p pcp-mmv-reader --bench reading`.
#![allow(clippy::unwrap_used)]

mod hostile;

use std::time::{Duration, Instant};

use divan::{Bencher, counter::ItemsCount};
use hostile::{Hostile, Kind, files, one_group};
use mmv_reader::File;
use mmv_reader::collection::Collection;
use nix::time::{ClockId, clock_gettime};
use pmapi::Item;

fn main() {
    divan::main();
}

/// Performs the work of a fetch of all values.
fn fetch(collection: &mut Collection, items: &[Item]) -> u64 {
    collection.refresh();
    let mut values = 0;
    for item in items {
        collection.fetch(*item, |_| true, |_, value| values += u64::from(value.unwrap().ty().is_numeric())).unwrap();
    }
    values
}

#[divan::bench(args = [(1, 1000, 0), (1, 10, 1000), (10, 1000, 0), (1000, 100, 0)])]
fn fetch_all(bencher: Bencher<'_, '_>, (count, metrics, instances): (usize, usize, u32)) {
    let dir = files(count, metrics, instances);
    let mut collection = Collection::new("mmv", dir.path());
    while collection.refresh() {}
    let items: Vec<Item> = collection.metrics().map(|(_, desc)| desc.item).collect();
    let values = fetch(&mut collection, &items);
    bencher.counter(ItemsCount::new(values)).bench_local(|| fetch(&mut collection, &items));
}

#[divan::bench(args = [(1, 1000, 0), (1, 10, 1000), (1000, 100, 0)])]
fn load_all(bencher: Bencher<'_, '_>, (count, metrics, instances): (usize, usize, u32)) {
    let dir = files(count, metrics, instances);
    bencher.bench_local(|| {
        let mut collection = Collection::new("mmv", dir.path());
        collection.refresh();
        collection.metric_count()
    });
}

/// Prints the processor time of requests after which the tables of a user's full quota are built again.
#[divan::bench(args = [1, 7], sample_count = 1, sample_size = 1)]
fn change_in_a_large_group(bencher: Bencher<'_, '_>, nodes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut contents = one_group(nodes);
    for (file, bytes) in contents.iter_mut().enumerate() {
        // Each file gets a cluster of its own.
        bytes[36..40].fill(0);
        std::fs::write(dir.path().join(format!("file{file}")), bytes).unwrap();
    }
    let mut bytes = contents.swap_remove(50);
    let mut collection = Collection::new("mmv", dir.path());
    while collection.refresh() {}
    let mut times = Vec::new();
    for generation in 2..402_u64 {
        if generation % 8 == 0 {
            bytes[8..16].copy_from_slice(&generation.to_ne_bytes());
            bytes[16..24].copy_from_slice(&generation.to_ne_bytes());
            std::fs::write(dir.path().join(".new"), &bytes).unwrap();
            std::fs::rename(dir.path().join(".new"), dir.path().join("file50")).unwrap();
        }
        let start = time();
        collection.refresh();
        times.push(time() - start);
    }
    times.sort();
    eprintln!("{nodes} nodes: longest {:?}, of 50 changes the median {:?}", times[399], times[399 - 25]);
    bencher.bench_local(|| collection.metric_count());
}

/// Prints the time of requests in a directory of four users with their full quotas, 40 users with 20 small files each,
/// and 100,000 other names, in which 20 files change before each request. Needs root, for the owners.
#[divan::bench(args = [1, 7], sample_count = 1, sample_size = 1)]
fn hostile_directory(bencher: Bencher<'_, '_>, nodes: usize) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run without root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut hostile = Hostile::fill(Kind::Quotas(nodes), 4, dir.path());
    let mut collection = Collection::new("mmv", dir.path());
    (0..200).for_each(|_| _ = collection.refresh());
    let (mut times, mut walls) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        hostile.change();
        let (start, wall) = (time(), Instant::now());
        collection.refresh();
        times.push(time() - start);
        walls.push(wall.elapsed());
    }
    times.sort();
    walls.sort();
    eprintln!(
        "{nodes} nodes, {} metrics: processor time: longest {:?}, 99 % {:?}, half {:?}; longest by the clock {:?}",
        collection.metric_count(),
        times[999],
        times[989],
        times[499],
        walls[999]
    );
    bencher.bench_local(|| collection.file_count());
}

/// Returns the processor time of this thread.
fn time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

#[divan::bench]
fn parse_a_file(bencher: Bencher<'_, '_>) {
    let dir = files(1, 1000, 0);
    let bytes = std::fs::read(dir.path().join("file0")).unwrap();
    bencher.with_inputs(|| bytes.clone()).bench_values(File::parse);
}
