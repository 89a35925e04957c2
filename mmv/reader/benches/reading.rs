//! Benchmarks of reading files: `cargo bench -p pcp-mmv-reader --bench reading`.
#![allow(clippy::unwrap_used)]

use divan::{Bencher, counter::ItemsCount};
use mmv::{Counter, Family, Registry};
use mmv_reader::File;
use mmv_reader::collection::Collection;
use pmapi::Item;
use tempfile::TempDir;

fn main() {
    divan::main();
}

/// Writes `count` files with `metrics` metrics each, singular ones if there are no instances.
fn files(count: usize, metrics: usize, instances: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in 0..count {
        let builder = Registry::builder(&format!("file{file}")).directory(dir.path()).cluster(1 + file as u16);
        let registry = builder.persistent().build().unwrap();
        let names: Vec<String> = (0..instances).map(|i| format!("instance{i}")).collect();
        let indom = registry.indom("i").serial(1).numbered((0..).zip(names.iter().map(String::as_str)));
        let indom = indom.register().unwrap();
        for m in 0..metrics {
            let name = format!("m{m}");
            let metric = registry.counter(&name).item(m as u16).help("help");
            if instances == 0 {
                metric.register().unwrap();
            } else {
                let _: Family<Counter> = metric.over(&indom).unwrap();
            }
        }
        registry.try_start().unwrap();
    }
    dir
}

/// Does the work of a fetch of all values.
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

#[divan::bench]
fn parse_a_file(bencher: Bencher<'_, '_>) {
    let dir = files(1, 1000, 0);
    let bytes = std::fs::read(dir.path().join("file0")).unwrap();
    bencher.with_inputs(|| bytes.clone()).bench_values(File::parse);
}
