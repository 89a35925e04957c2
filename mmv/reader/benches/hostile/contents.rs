//! Contents of files.

use std::fs;
use std::path::Path;

use mmv::{Counter, Family, Registry, RegistryBuilder, Text};
use tempfile::TempDir;

/// Writes `count` files with `metrics` metrics each. The metrics are singular if `instances` is 0.
pub(crate) fn files(count: usize, metrics: usize, instances: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in 0..count {
        application(dir.path(), &format!("file{file}"), 1 + file as u16, metrics, instances);
    }
    dir
}

/// Writes the file of an application in a directory.
pub(crate) fn application(dir: &Path, name: &str, cluster: u16, metrics: usize, instances: u32) {
    let registry = Registry::builder(name).directory(dir).cluster(cluster).persistent().build().unwrap();
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

/// Returns the bytes of files with these numbers.
fn made(numbers: std::ops::Range<usize>, fill: impl Fn(&Registry, usize)) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let builder = |number: usize| -> RegistryBuilder {
        let builder = Registry::builder(&format!("file{number}")).directory(dir.path());
        builder.cluster(300).persistent().no_prefix().most_instances(20_000)
    };
    let all = numbers.map(|number| {
        let registry = builder(number).build().unwrap();
        fill(&registry, number);
        registry.try_start().unwrap();
        registry.flush();
        fs::read(registry.path().unwrap()).unwrap()
    });
    all.collect()
}

/// Returns as many metrics as a user may have, in files that share a first component of names. `nodes` is the number of
/// inner nodes of each file, which its metrics take turns in.
pub(crate) fn one_group(nodes: usize) -> Vec<Vec<u8>> {
    made(0..110, |registry, file| {
        for m in 0..1000 {
            registry.counter(&format!("one.n{}.f{file}.m{m}", m % nodes)).register().unwrap();
        }
    })
}

/// Returns files with instances of one domain, 9,000 in each.
pub(crate) fn rows(count: usize) -> Vec<Vec<u8>> {
    made(0..count, |registry, file| {
        let rows = registry.indom("rows").serial(7).register().unwrap();
        let family: Family<Counter> = registry.counter("rows.count").item(7).over(&rows).unwrap();
        for row in 0..9000 {
            rows.add_numbered(9000 * file as u32 + row, &format!("row {file} {row}")).unwrap();
            family.instance(&format!("row {file} {row}")).unwrap().add(1);
        }
    })
}

/// Returns files with instances of one domain, 400 in each, whose names are 250 bytes long. `fill` is the last
/// character of each name, as often as there is room for.
pub(crate) fn long_rows(count: usize, fill: char) -> Vec<Vec<u8>> {
    const FILL: u8 = b'~';
    let mut all = made(0..count, |registry, file| {
        let rows = registry.indom("rows").serial(7).register().unwrap();
        let family: Family<Counter> = registry.counter("rows.count").item(7).over(&rows).unwrap();
        family.instance("first").unwrap().add(1);
        for row in 0..400 {
            rows.add_numbered(400 * file as u32 + row, &format!("{:~<250}", format!("row {file} {row} "))).unwrap();
        }
    });
    let fill = fill.to_string().into_bytes();
    for bytes in &mut all {
        let mut rest = &mut bytes[..];
        while let Some(at) = rest.iter().position(|byte| *byte == FILL) {
            let (_, run) = rest.split_at_mut(at);
            let len = run.iter().take_while(|byte| **byte == FILL).count();
            let (run, behind) = run.split_at_mut(len);
            run.iter_mut().zip(fill.iter().cycle()).for_each(|(byte, new)| *byte = *new);
            run[len / fill.len() * fill.len()..].fill(b'-');
            rest = behind;
        }
    }
    all
}

/// Returns files with 1,000 metrics each, whose names are 250 bytes long.
pub(crate) fn long_names(count: usize) -> Vec<Vec<u8>> {
    made(0..count, |registry, file| {
        (0..1000).for_each(|m| {
            registry.counter(&format!("{:x<250}", format!("one.f{file}_m{m}_"))).register().map(drop).unwrap()
        });
    })
}

/// Returns files with first components of names, 1,000 in each.
pub(crate) fn heads(count: usize) -> Vec<Vec<u8>> {
    made(0..count, |registry, file| {
        (0..1000).for_each(|m| registry.counter(&format!("h{file}_{m}.a")).register().map(drop).unwrap());
    })
}

/// Returns files with one metric each, below one component.
pub(crate) fn small() -> Vec<Vec<u8>> {
    made(0..1000, |registry, file| {
        registry.counter(&format!("small.f{file}")).register().map(drop).unwrap();
    })
}

/// Returns a file with strings in the instances of a metric.
pub(crate) fn strings() -> Vec<Vec<u8>> {
    made(0..1, |registry, _| {
        let rows = registry.indom("texts").serial(8).register().unwrap();
        let family: Family<Text> = registry.text("texts.all").item(8).over(&rows).unwrap();
        for row in 0..5_700 {
            rows.add_numbered(row, &format!("row {row}")).unwrap();
            family.instance(&format!("row {row}")).unwrap().set(&"x".repeat(250));
        }
    })
}

/// Returns the same file with the strings in the reverse order.
pub(crate) fn scattered_strings() -> Vec<Vec<u8>> {
    let mut files = strings();
    for bytes in &mut files {
        let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        // The table of contents, whose entries are a kind, a count and an offset; 4 is the kind of the values.
        let toc = (0..word(bytes, 24)).map(|n| 40 + 16 * n).find(|at| word(bytes, *at) == 4).unwrap();
        let (count, values) = (word(bytes, toc + 4), word(bytes, toc + 8));
        let place = |n: usize| values + 32 * n + 8..values + 32 * n + 16;
        for n in 0..count / 2 {
            let (first, last) = (place(n), place(count - 1 - n));
            let text: [u8; 8] = bytes[first.clone()].try_into().unwrap();
            bytes.copy_within(last.clone(), first.start);
            bytes[last].copy_from_slice(&text);
        }
    }
    files
}

/// Returns files with 250 labels each, for one metric, one domain and some instances.
pub(crate) fn labels(count: usize) -> Vec<Vec<u8>> {
    made(0..count, |registry, file| {
        let rows = registry.indom("rows").serial(9).instances(["a", "b"]).register().unwrap();
        let value = "x".repeat(200);
        let mut metric = registry.counter("labels.count").item(9);
        for n in 0..120 {
            metric = metric.label(&format!("a{file}_{n}"), &value);
            rows.label_instance("a", &format!("b{file}_{n}"), &value).unwrap();
        }
        let _: Family<Counter> = metric.over(&rows).unwrap();
    })
}

/// Returns files with 240 instances of one domain each, whose labels are nested: the text of a set has the common part of
/// their names with each of them.
pub(crate) fn nested_labels(count: usize) -> Vec<Vec<u8>> {
    let mut all = made(0..count, |registry, file| {
        let rows = registry.indom("rows").serial(9).register().unwrap();
        let family: Family<Counter> = registry.counter("labels.count").item(9).over(&rows).unwrap();
        for row in 0..240 {
            let name = format!("row {file} {row}");
            rows.add_numbered(240 * file as u32 + row, &name).unwrap();
            rows.label_instance(&name, "a", "~".repeat(200)).unwrap();
        }
        family.instance(&format!("row {file} 0")).unwrap().add(1);
    });
    for bytes in &mut all {
        let mut rest = &mut bytes[..];
        while let Some(at) = rest.windows(2).position(|pair| pair == b"~~") {
            // The label ends in a quotation mark and a brace.
            let start = rest[..at].iter().rposition(|byte| *byte == b'{').unwrap();
            let end = at + rest[at..].iter().position(|byte| *byte == b'}').unwrap() + 1;
            let (label, behind) = rest.split_at_mut(end);
            let label = &mut label[start..];
            let mut text = format!("{{\"{}\":{{\"k\":1", "n".repeat(80));
            (10..)
                .map(|n| format!(",\"{n}\":1"))
                .take_while(|part| {
                    let fits = text.len() + part.len() + 2 <= label.len();
                    if fits {
                        text.push_str(part);
                    }
                    fits
                })
                .for_each(drop);
            text.push_str("}}");
            label.fill(b' ');
            label[..text.len()].copy_from_slice(text.as_bytes());
            rest = behind;
        }
    }
    all
}

/// Returns headers that claim very many records, with and without data.
pub(crate) fn huge() -> Vec<Vec<u8>> {
    (0..8)
        .map(|n| {
            let len = if n % 2 == 0 { 4096 } else { 7 << 20 };
            let mut bytes = vec![if n == 3 { b'a' } else { 0 }; len];
            bytes[..40].fill(0);
            bytes[..8].copy_from_slice(b"MMV\0\x02\0\0\0");
            bytes[24..28].copy_from_slice(&5_i32.to_ne_bytes());
            for (toc, count) in (0..5).zip([1_i32 << 16, 1 << 18, 1000, 1 << 17, 1 << 14]) {
                let at = 40 + 16 * toc;
                bytes[at..at + 4].copy_from_slice(&(toc as i32 + 1).to_ne_bytes());
                bytes[at + 4..at + 8].copy_from_slice(&count.to_ne_bytes());
                bytes[at + 8..at + 16].copy_from_slice(&160_u64.to_ne_bytes());
            }
            bytes
        })
        .collect()
}
