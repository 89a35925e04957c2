//! Cost of a trace event for an application over shared memory: `cargo bench -p pcp-trace`. PCP is not needed. The
//! benches of agent trace compare with PCP's library.

#![allow(clippy::expect_used)]

use std::path::Path;

use divan::Bencher;
use pcp_trace::shared_memory::{Directory, now};
use pcp_trace::{Fields, Options, Tag, Trace, Transport};

fn main() {
    divan::main();
}

/// Calls `f` with a handle whose file is in `/dev/shm`, as in production.
fn traced<R>(f: impl FnOnce(&Trace, &Tag) -> R) -> R {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(parent).expect("a directory");
    let directory = Directory::open(dir.path().join("4323"), dir.path()).expect("a directory for files");
    let options = Options::default().directory(directory.path());
    let trace = Trace::new(options.transport(Transport::SharedMemory));
    let tag = Tag::new("a tag").expect("a tag");
    trace.point(&tag);
    assert_eq!(trace.status().sent, 1);
    let result = f(&trace, &tag);
    assert_eq!(trace.status().missed, 0);
    result
}

#[divan::bench(sample_size = 10_000)]
fn clock(bencher: Bencher<'_, '_>) {
    bencher.bench(now);
}

#[divan::bench(sample_size = 10_000)]
fn point(bencher: Bencher<'_, '_>) {
    traced(|trace, tag| bencher.bench_local(|| trace.point(tag)));
}

#[divan::bench(sample_size = 10_000, threads = 2)]
fn point_in_each_of_two_threads(bencher: Bencher<'_, '_>) {
    traced(|trace, tag| bencher.bench(|| trace.point(tag)));
}

#[divan::bench(sample_size = 10_000)]
fn end_of_a_transaction(bencher: Bencher<'_, '_>) {
    traced(|trace, tag| bencher.with_inputs(|| trace.begin(tag)).bench_local_values(|transaction| transaction.end()));
}

#[divan::bench(sample_size = 10_000)]
fn transaction(bencher: Bencher<'_, '_>) {
    traced(|trace, tag| bencher.bench_local(|| trace.begin(tag).end()));
}

#[divan::bench(sample_size = 10_000)]
fn observation(bencher: Bencher<'_, '_>) {
    traced(|trace, tag| bencher.bench_local(|| trace.observe(tag, 1.5)));
}

#[divan::bench(sample_size = 10_000)]
fn point_with_two_fields(bencher: Bencher<'_, '_>) {
    let fields = Fields::new().with("user", 7).with("path", "/cart");
    traced(|trace, tag| bencher.bench_local(|| trace.point_with(tag, &fields)));
}
