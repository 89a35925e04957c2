//! Files designed to be expensive: their cost is in proportion to their contents.
#![allow(clippy::unwrap_used)]

#[path = "common/raw.rs"]
mod raw;

use pcp_pdu::print::Print;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::time::Duration;

use mmv::{Counter, Registry};
use mmv_reader as reader;
use mmv_reader::collection::{Collection, Limit, Limits};
use pmapi::{Error, Item};
use raw::{INDOMS, INSTANCES, METRICS, MetricV1, Raw, STRINGS, VALUES};
use testkit::logged;
use tracing::Level;

/// Returns the number of bytes that this thread has read with system calls, and the number of calls.
fn read() -> (u64, u64) {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap();
    (number("rchar:"), number("syscr:"))
}

/// Returns the bytes read and the calls made by `work`.
fn reads(work: impl FnOnce()) -> (u64, u64) {
    let before = read();
    work();
    let after = read();
    // Leaves out the reads of `/proc` itself.
    ((after.0 - before.0).saturating_sub(100), (after.1 - before.1).saturating_sub(2))
}

/// Returns the resident memory of this process, in bytes.
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn values(collection: &mut Collection, item: Item) -> Result<Vec<String>, Error> {
    let mut values = Vec::new();
    collection.fetch(
        item,
        |_| true,
        |_, value| {
            values.push(value.map_or_else(|e| e.to_string(), |value| Print::new(value, 0).to_string()));
        },
    )?;
    Ok(values)
}

/// Writes a sparse file that begins with these bytes.
fn sparse(path: &Path, raw: &Raw, len: u64) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(&raw.0).unwrap();
    file.set_len(len).unwrap();
    file
}

/// A file of one metric with a value.
fn small(cluster: u32, generation: u64) -> Raw {
    let mut raw = Raw::new(72 + 104 + 32, 2);
    raw.u64(8, generation).u64(16, generation).u32(36, cluster).toc(0, METRICS, 1, 72).toc(1, VALUES, 1, 176);
    raw.metric(72, &MetricV1 { name: "x", item: 1, ..MetricV1::default() }).value(176, generation, 0, 72, 0);
    raw
}

fn export(dir: &Path, name: &str) -> (Registry, Counter) {
    let registry = Registry::builder(name).directory(dir).cluster(4000).persistent().build().unwrap();
    let counter = registry.counter("x").item(1).register().unwrap();
    registry.try_start().unwrap();
    (registry, counter)
}

const HONEST: Item = Item::new(4000, 1);

#[test]
fn a_sparse_file_costs_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let len = 64 << 20;
    let all = (len - 1024) as i32;
    // Values in a hole, with the header at offset 0 as their metric.
    let mut instances = Raw::new(104 + 32, 4);
    instances.u32(36, 300).toc(0, INDOMS, 1, 104).toc(1, INSTANCES, all / 80, 1024).toc(2, METRICS, 1, 4096);
    instances.toc(3, VALUES, 1, 8192).indom(104, 1, all / 80, 1024);
    let mut indoms = Raw::new(1024, 2);
    indoms.u32(36, 301).toc(0, INDOMS, 4_194_303.min(all / 32), 1024).toc(1, METRICS, 1023, 4096);
    let mut values = Raw::new(72 + 104, 2);
    values.u32(36, 302).toc(0, METRICS, 1, 72).toc(1, VALUES, all / 32, 1024);
    values.metric(72, &MetricV1 { name: "x", item: 1, ..MetricV1::default() });
    // A hole as values, whose metric at offset 0 is the header.
    let mut header = Raw::new(72, 2);
    header.u32(36, 303).toc(0, METRICS, 1, 0).toc(1, VALUES, all / 32, 1024);
    let contents = Raw::new(40, (len / 16 - 3) as i32);
    let mut text = Raw::new(72, 2);
    text.toc(0, STRINGS, all / 256, 1024).toc(1, STRINGS, all / 256, 1024);
    let _honest = export(dir.path(), "honest");
    let mut collection = Collection::new("mmv", dir.path());
    let before = memory();
    let cases = [("a", instances), ("b", indoms), ("c", values), ("d", header), ("e", contents), ("f", text)];
    let (bytes, calls) = reads(|| {
        for (name, raw) in &cases {
            sparse(&dir.path().join(name), raw, len);
        }
        collection.refresh();
        assert_eq!(collection.metrics().filter(|(name, _)| name.starts_with("mmv.honest.")).count(), 1);
    });
    assert!(bytes < 1 << 20 && calls < 1000, "{bytes} bytes, {calls} calls");
    let more = memory().saturating_sub(before);
    assert!(more < 32 << 20, "{more} bytes of memory");
    assert_eq!(values_of_honest(&mut collection), "0");
    // The file takes no more memory than estimated.
    let file = reader::File::open(dir.path().join("a")).unwrap();
    assert_eq!(file.indoms().iter().map(|indom| indom.instances().len()).sum::<usize>(), 0);
}

fn values_of_honest(collection: &mut Collection) -> String {
    values(collection, HONEST).unwrap().join(" ")
}

#[test]
fn data_behind_holes_is_read() {
    for far in [1 << 20, (1 << 20) + 8, 1128] {
        check_data_behind_holes(far);
    }
}

fn check_data_behind_holes(far: u64) {
    let dir = tempfile::tempdir().unwrap();
    let count = 300_000u64;
    let mut raw = Raw::new(72 + 104, 2);
    raw.u32(36, 300).toc(0, METRICS, 1, 72).toc(1, VALUES, count as i32, far);
    raw.metric(72, &MetricV1 { name: "x", item: 1, ..MetricV1::default() });
    let path = dir.path().join("a");
    let file = sparse(&path, &raw, far + count * 32);
    // At the end of the file, and across the border of a block.
    let written = [count - 1, 127, 128 * 1000 - 1, 128 * 1000];
    let value = |index: u64, word: u64| {
        let mut value = Raw(vec![0; 32]);
        value.value(0, word, 0, 72, 0);
        file.write_all_at(&value.0, far + index * 32).unwrap();
    };
    written.iter().for_each(|index| value(*index, *index));
    let read = reader::File::open(&path).unwrap();
    let mut expected = written.map(|index| index as u32);
    expected.sort_unstable();
    assert_eq!(read.metrics()[0].values().iter().map(|value| value.index).collect::<Vec<_>>(), expected);
    assert_eq!(expected.map(|index| read.value(index).unwrap().word), expected.map(u64::from));
    assert_eq!((read.value(5).unwrap().word, read.value(count as u32)), (0, None));
    let mut collection = Collection::new("mmv", dir.path());
    collection.refresh();
    for word in [7, 8] {
        value(127, word);
        collection.refresh();
        assert_eq!(values(&mut collection, Item::new(300, 1)), Ok(vec![word.to_string()]));
    }
}

#[test]
fn instances_that_lie_over_each_other_are_counted_once() {
    let (indoms, instances) = (4000u64, 1000u64);
    let at = 72 + indoms * 32;
    let mut raw = Raw::new((at + instances * 80) as usize, 2);
    raw.toc(0, INDOMS, indoms as i32, 72).toc(1, INSTANCES, instances as i32, at);
    (0..indoms).for_each(|i| _ = raw.indom(72 + i * 32, i as u32 + 1, instances as i32, at));
    (0..instances).for_each(|i| _ = raw.instance(at + i * 80, 72, i as i32, "name"));
    let file = reader::File::parse(raw.0.clone()).unwrap();
    let all: usize = file.indoms().iter().map(|indom| indom.instances().len()).sum();
    assert!(all * 80 <= raw.0.len(), "{all} instances");
    // The length of the hole does not raise the bound on instances.
    let dir = tempfile::tempdir().unwrap();
    sparse(&dir.path().join("a"), &raw, 64 << 20);
    let file = reader::File::open(dir.path().join("a")).unwrap();
    let all: usize = file.indoms().iter().map(|indom| indom.instances().len()).sum();
    assert!(all * 80 <= raw.0.len() + (64 << 10), "{all} instances");
}

#[test]
fn a_request_reads_no_more_values_than_there_are() {
    let dir = tempfile::tempdir().unwrap();
    // Each metric has a value at the beginning, and one at the end.
    let (metrics, count) = (100u64, 100_000u64);
    let at = 104 + 32 + 160;
    let values_at = at + metrics * 104;
    let mut raw = Raw::new((values_at + count * 32) as usize, 4);
    raw.u32(36, 300).toc(0, INDOMS, 1, 104).toc(1, INSTANCES, 2, 136).toc(2, METRICS, metrics as i32, at);
    raw.toc(3, VALUES, count as i32, values_at).indom(104, 1, 2, 136);
    raw.instance(136, 104, 1, "a").instance(216, 104, 2, "b");
    for i in 0..metrics {
        let metric = at + i * 104;
        raw.metric(metric, &MetricV1 { name: "m", item: i as u32, indom: 1, ..MetricV1::default() });
        raw.put(metric, format!("m{i}").as_bytes());
        raw.value(values_at + (1 + i) * 32, 1, 0, metric, 136);
        raw.value(values_at + (count - 2 - i) * 32, 2, 0, metric, 216);
    }
    fs::write(dir.path().join("a"), &raw.0).unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    while collection.refresh() {}
    let (bytes, calls) = reads(|| {
        collection.refresh();
        for i in 0..metrics as u16 {
            assert_eq!(values(&mut collection, Item::new(300, i)), Ok(vec!["1".into(), "2".into()]));
        }
    });
    assert!(bytes <= 2 * count * 32 && calls < 300, "{bytes} bytes, {calls} calls");
    // Values of all metrics, alternately: the ranges of all metrics overlap completely.
    for i in 0..count {
        raw.value(values_at + i * 32, i, 0, at + i % metrics * 104, if i < count / 2 { 136 } else { 216 });
    }
    fs::write(dir.path().join("a"), raw.u64(8, 2).u64(16, 2).0.clone()).unwrap();
    while collection.refresh() {}
    let (bytes, _) = reads(|| {
        collection.refresh();
        (0..metrics as u16).for_each(|i| _ = values(&mut collection, Item::new(300, i)).unwrap());
    });
    assert!(bytes <= 3 * count * 32, "{bytes} bytes");
}

#[test]
fn a_file_being_written_costs_its_header() {
    let dir = tempfile::tempdir().unwrap();
    let _honest = export(dir.path(), "honest");
    let mut raw = small(300, 1);
    raw.u64(16, 0);
    for name in ["a", "b", "c", "d"] {
        fs::write(dir.path().join(name), [&raw.0[..], &vec![1; 4 << 20]].concat()).unwrap();
    }
    let mut collection = Collection::new("mmv", dir.path());
    for _ in 0..3 {
        let (bytes, calls) = reads(|| _ = collection.refresh());
        assert!(bytes < 20_000 && calls < 50, "{bytes} bytes, {calls} calls");
    }
    assert_eq!((collection.file_count(), collection.reload()), (1, 1));
}

#[test]
fn a_bad_file_is_read_again_when_it_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut bad = small(300, 1);
    bad.i32(4, 9).0.resize(60_000, 1);
    fs::write(&path, &bad.0).unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    // Within this time another change could have the same time stamp, so the file counts as changed.
    std::thread::sleep(std::time::Duration::from_millis(60));
    while collection.refresh() {}
    for i in 0..5 {
        fs::write(dir.path().join(format!(".{i}")), "").unwrap();
        let (bytes, _) = reads(|| _ = collection.refresh());
        assert!(bytes < 10_000, "{bytes} bytes");
    }
    assert_eq!(collection.file_count(), 0);
    // Written in place with the same length, so the directory does not change.
    let mut good = small(300, 1);
    good.0.resize(60_000, 1);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&good.0, 0).unwrap();
    // Such files are checked once a second.
    while collection.file_count() == 0 {
        collection.refresh();
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
// Slow: 2,100 names are scanned ten times.
fn names_beyond_the_limit_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let _honest = export(dir.path(), "honest");
    let mut collection = Collection::new("mmv", dir.path());
    collection.set_limits(Limits { user_files: 50, ..Limits::default() });
    collection.refresh();
    assert_eq!(values_of_honest(&mut collection), "0");
    for i in 0..2000 {
        fs::write(dir.path().join(format!("z{i}")), "MMV").unwrap();
    }
    // Each link to the same file is a name. No file is opened for them.
    (0..100).for_each(|i| symlink("z1", dir.path().join(format!("link{i}"))).unwrap());
    for _ in 0..10 {
        let (_, calls) = reads(|| _ = collection.refresh());
        assert!(calls < 400, "{calls} calls");
        assert_eq!(values_of_honest(&mut collection), "0", "the honest file stays");
    }
    assert_eq!(collection.left_out(Limit::Files), 2100 + 1 - 50);
    // Removed files are forgotten.
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "honest" {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    fs::write(dir.path().join("new"), small(5, 1).0).unwrap();
    collection.refresh();
    assert_eq!((collection.file_count(), collection.left_out(Limit::Files)), (2, 2051));
}

#[test]
fn a_user_is_left_out_who_wants_too_much() {
    let dir = tempfile::tempdir().unwrap();
    let (_registry, counter) = export(dir.path(), "honest");
    let mut collection = Collection::new("mmv", dir.path());
    collection.set_limits(Limits { user_values: 10, file_bytes: 50_000, ..Limits::default() });
    collection.refresh();
    let mut huge = small(300, 1);
    huge.0.resize(60_000, 1);
    fs::write(dir.path().join("huge"), &huge.0).unwrap();
    for i in 0..30 {
        fs::write(dir.path().join(format!("z{i}")), small(301 + i, 1).0).unwrap();
    }
    let lines = logged(Level::WARN, || while collection.refresh() {});
    assert_eq!(Limit::ALL.map(|limit| collection.left_out(limit)), [0, 1, 21]);
    // The file that is too long, and a line for each limit.
    assert_eq!(lines.len(), 3, "{lines:?}");
    // Nothing is read or logged while nothing changes, and the exported file stays.
    std::thread::sleep(Duration::from_millis(60));
    collection.set_reload(1);
    collection.refresh();
    for _ in 0..10 {
        assert_eq!(logged(Level::WARN, || _ = collection.refresh()), [""; 0]);
        counter.inc();
        collection.refresh();
    }
    assert_eq!(values_of_honest(&mut collection), "10");
    // Other changes do not cause reads of files without room.
    fs::write(dir.path().join(".change"), "").unwrap();
    let (_, calls) = reads(|| _ = collection.refresh());
    assert!(calls < 30, "{calls} calls");
    // Removing a file makes room for others.
    fs::remove_file(dir.path().join("z0")).unwrap();
    let before = collection.file_count();
    collection.refresh();
    assert_eq!(collection.file_count(), before);
    assert!(values(&mut collection, Item::new(301, 1)).is_err());
    assert_eq!(collection.left_out(Limit::Values), 21);
}

/// A writer reserves room for records and values behind the published ones. The holes cost nothing.
#[test]
fn reserved_sections_cost_what_is_published() {
    let dir = tempfile::tempdir().unwrap();
    let (metrics, strings, values_at, len) = (104u64, 8 << 20, 16 << 20, 20 << 20);
    let file = |count: i32, generation: u64| {
        let path = dir.path().join("a");
        let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(len).unwrap();
        let mut raw = Raw::new(104, 3);
        raw.i32(4, 2).u32(36, 300).u64(8, generation).u64(16, 0);
        raw.toc(0, METRICS, count, metrics).toc(1, STRINGS, count, strings).toc(2, VALUES, count, values_at);
        file.write_all_at(&raw.0, 0).unwrap();
        // One record more than is published.
        for n in 0..=count as u64 {
            let mut metric = Raw(vec![0; 48]);
            metric.u64(0, strings + 256 * n).u32(8, n as u32).i32(12, 1).i32(16, 1).u32(24, u32::MAX);
            file.write_all_at(&metric.0, metrics + 48 * n).unwrap();
            file.write_all_at(format!("m{n}").as_bytes(), strings + 256 * n).unwrap();
            let mut value = Raw(vec![0; 32]);
            value.value(0, 10 * n, 0, metrics + 48 * n, 0);
            file.write_all_at(&value.0, values_at + 32 * n).unwrap();
        }
        file.write_all_at(&generation.to_ne_bytes(), 16).unwrap();
    };
    file(2, 1);
    let mut collection = Collection::new("mmv", dir.path());
    // More than the file's pages, and much less than its length.
    collection.set_limits(Limits { user_memory: 64 << 10, user_values: 10, file_bytes: 64 << 10, ..Limits::default() });
    let (bytes, _) = reads(|| _ = collection.refresh());
    assert!(bytes < 64 << 10, "{bytes} bytes");
    let shown = |collection: &mut Collection| -> Vec<_> {
        let items: Vec<Item> = collection.metrics().map(|(_, desc)| desc.item).collect();
        items.into_iter().map(|item| values(collection, item).unwrap().concat()).collect()
    };
    assert_eq!(shown(&mut collection), ["0", "10"]);
    // A record is appended, and the generation raised: the next request shows it.
    file(3, 2);
    assert!(collection.refresh());
    assert_eq!(shown(&mut collection), ["0", "10", "20"]);
    assert_eq!(Limit::ALL.map(|limit| collection.left_out(limit)), [0; 3]);
}

#[test]
fn links_lead_to_regular_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("mmv");
    fs::create_dir(&files).unwrap();
    fs::write(dir.path().join("elsewhere"), small(300, 1).0).unwrap();
    nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    nix::unistd::mkfifo(&files.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let targets = ["elsewhere", "fifo", "/dev/zero", "/proc/self/mem", "/", "mmv/loop", "nothing"];
    for (i, target) in targets.iter().enumerate() {
        symlink(dir.path().join(target), files.join(format!("l{i}"))).unwrap();
    }
    symlink(files.join("loop"), files.join("loop")).unwrap();
    let mut collection = Collection::new("mmv", &files);
    collection.refresh();
    assert_eq!(collection.metrics().map(|(name, _)| name).collect::<Vec<_>>(), ["mmv.l0.x"]);
    let now = |collection: &mut Collection| values(collection, Item::new(300, 1)).unwrap().join(" ");
    assert_eq!(now(&mut collection), "1");
    // Another file replaces the target of a link.
    fs::write(dir.path().join("other"), small(300, 5).0).unwrap();
    fs::rename(dir.path().join("other"), dir.path().join("elsewhere")).unwrap();
    fs::write(files.join(".change"), "").unwrap();
    collection.refresh();
    assert_eq!(now(&mut collection), "5");
}

#[test]
fn texts_are_kept_without_the_zeros_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("a").directory(dir.path()).cluster(300).persistent().build().unwrap();
    let texts: Vec<String> = (0..200).map(|i| "x".repeat(i % 251) + &format!("{i:03}")).collect();
    for (i, text) in (0..).zip(&texts) {
        let (name, long) = (format!("m{i}"), format!("l{i}"));
        let counter = registry.counter(&name).item(i).help(text).long_help(&long);
        counter.register().unwrap().add(i.into());
    }
    registry.try_start().unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    collection.refresh();
    for (i, text) in (0..).zip(&texts) {
        let item = Item::new(300, i);
        assert_eq!(collection.help(item, mmv_reader::TextKind::OneLine), Ok(text.as_bytes()));
        assert_eq!(values(&mut collection, item), Ok(vec![i.to_string()]));
    }
}

#[test]
fn the_log_has_a_few_lines_for_a_file() {
    let dir = tempfile::tempdir().unwrap();
    // Contradictory instances, texts outside of the file, metrics without a name, and values without a metric.
    let count = 500u64;
    let (metrics, ids) = (120u64, 120 + 104 * 51);
    let values_at = ids + 32 * 2 + (count + 1) * 80;
    let mut raw = Raw::new((values_at + 2 * count * 32) as usize, 4);
    raw.u32(36, 300).toc(0, METRICS, 51, metrics).toc(1, INDOMS, 2, ids).toc(2, VALUES, 2 * count as i32, values_at);
    raw.toc(3, INSTANCES, 1 + count as i32, ids + 64);
    raw.indom(ids, 1, 1, ids + 64).indom(ids + 32, 1, count as i32, ids + 144).instance(ids + 64, ids, 0, "one");
    raw.metric(metrics, &MetricV1 { name: "text", item: 0, ty: 6, indom: 1, ..MetricV1::default() });
    for i in 1..51u32 {
        let metric = MetricV1 { name: "no name", item: i, ..MetricV1::default() };
        raw.metric(metrics + u64::from(i) * 104, &metric);
    }
    for i in 0..count {
        raw.instance(ids + 144 + i * 80, ids, 0, "other");
        raw.value(values_at + i * 32, 1, -1, metrics, ids + 64).value(values_at + (count + i) * 32, 1, 0, 7, 0);
    }
    let name: OsString = "evil\nroot: \x1b[31m forged".into();
    fs::write(dir.path().join(name), &raw.0).unwrap();
    fs::write(dir.path().join("plain"), raw.u32(36, 301).0.clone()).unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    let lines = logged(Level::WARN, || {
        for generation in 1..20u64 {
            collection.refresh();
            for cluster in [300, 301] {
                _ = values(&mut collection, Item::new(cluster, 0));
            }
            // Another generation with the same problems is not logged again.
            let generations = [generation.to_ne_bytes(), generation.to_ne_bytes()].concat();
            let plain = OpenOptions::new().write(true).open(dir.path().join("plain")).unwrap();
            plain.write_all_at(&generations, 8).unwrap();
        }
    });
    assert!((4..40).contains(&lines.len()), "{} lines: {:#?}", lines.len(), &lines[..40]);
}
