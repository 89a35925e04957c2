//! Valid files of memory mapped values that are expensive, or interfere with the honest application: names of very many
//! components, the honest application's instance domain, files that are never complete.

use std::fs;

use mmv::format::{MAX_COMPONENTS, STRING_LEN};
use mmv::{Counter, Family, Registry};

use super::Format;
use super::values::{get32, get64, put, put32, put64};
use crate::Outcome;
use crate::honest::{CLUSTER, ROWS};
use crate::job::Job;
use crate::rng::Rng;

/// Kind of the strangers' files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// Damaged files.
    Damaged,
    /// Metrics whose names have up to 125 components.
    Components,
    /// Files over the honest application's instance domain, with other instances.
    Domains,
    /// Files that change between complete and incomplete all the time.
    Flux,
}

impl Style {
    /// Returns the style of a job, from the last part of its name.
    pub(crate) fn of(job: &Job) -> Style {
        match job.order.name.split(':').nth(3) {
            Some("components") => Style::Components,
            Some("domains") => Style::Domains,
            Some("flux") => Style::Flux,
            _ => Style::Damaged,
        }
    }
}

/// Generator of files, from a pool of valid ones.
#[derive(Debug)]
pub(crate) struct Pool {
    style: Style,
    good: Vec<Vec<u8>>,
}

impl Pool {
    pub(crate) fn new(job: &Job, style: Style) -> Outcome<Pool> {
        let dir = job.dir("good")?;
        let mut good = Vec::new();
        for n in 0..12 {
            let new = Registry::builder(&format!("good{n}")).directory(&dir).persistent();
            let registry = match style {
                Style::Components => new.build()?,
                Style::Domains => new.cluster(CLUSTER).build()?,
                Style::Damaged | Style::Flux => new.cluster(3000).build()?,
            };
            match style {
                Style::Components => components(&registry, n)?,
                Style::Domains => domain(&registry, n)?,
                Style::Damaged | Style::Flux => registry.counter("count").register()?.add(7),
            }
            registry.try_start()?;
            registry.flush();
            good.push(fs::read(registry.path().ok_or("no path")?)?);
            registry.stop();
        }
        Ok(Pool { style, good })
    }
}

/// Registers metrics whose names have up to the allowed number of components, and differ in the first component, in the
/// last one, or in length.
fn components(registry: &Registry, n: usize) -> Outcome {
    let metrics = [3, 30, 300, 1000].get(n % 4).copied().unwrap_or(1);
    let most = [6, 12, MAX_COMPONENTS - 1].get(n % 3).copied().unwrap_or(1);
    for metric in 0..metrics {
        let name = match n / 4 {
            0 => format!("n{metric}{}", ".a".repeat(most)),
            1 => format!("{}n{metric}", "a.".repeat(most)),
            _ => format!("{}n{metric}", "a.".repeat(metric % most)),
        };
        registry.counter(&name).register()?;
    }
    Ok(())
}

/// Registers metrics over a domain that has the same number as the honest application's. Some instances have the honest
/// names with other numbers, or the honest numbers with other names.
fn domain(registry: &Registry, n: usize) -> Outcome {
    let names: Vec<String> = (0..[2, 20, 400].get(n % 3).copied().unwrap_or(1)).map(|i| format!("row {i}")).collect();
    let rows = registry.indom("rows").serial(ROWS.0);
    let rows = match n / 3 {
        0 => rows.instances(names.iter().map(String::as_str)),
        1 => rows.numbered((7..).zip(["one", "two"])),
        2 => rows.numbered((0..).zip(names.iter().map(String::as_str))),
        _ => rows.instances(["one", "two", "three"]),
    };
    let rows = rows.register()?;
    for item in 0..8 {
        // The honest application's items are lower.
        let name = format!("rows{item}");
        let family: Family<Counter> = registry.counter(&name).item(100 + item).over(&rows)?;
        for name in names.iter().map(String::as_str).chain(["one", "two"]) {
            // Some of these domains lack the instance.
            if let Ok(row) = family.instance(name) {
                row.add(1000 + u64::from(item));
            }
        }
    }
    Ok(())
}

impl Format for Pool {
    fn make(&mut self, rng: &mut Rng, _: usize, out: &mut Vec<u8>) -> u64 {
        let good = self.good.get(rng.below(self.good.len())).map(Vec::as_slice).unwrap_or_default();
        out.clear();
        out.extend_from_slice(good);
        let generation = 1 + rng.next() / 2;
        put64(out, 8, generation);
        put64(out, 16, if self.style == Style::Flux && rng.one_in(2) { 0 } else { generation });
        match self.style {
            Style::Components => {
                // Without a prefix, and without a cluster.
                put32(out, 28, rng.below(2) as u32);
                put32(out, 36, if rng.one_in(2) { 0 } else { 256 + rng.below(3000) as u32 });
                (0..rng.below(40)).for_each(|_| change_string(rng, out));
            }
            Style::Domains => {
                // The domains of both clusters have the same number.
                put32(out, 36, u32::from(CLUSTER) + rng.pick(&[0, 0, 2048]));
                (0..rng.below(6)).for_each(|_| change_instance(rng, out));
            }
            Style::Damaged | Style::Flux => put32(out, 36, 3000 + rng.below(900) as u32),
        }
        out.len() as u64
    }
}

/// Returns the offset of a random record of a section.
fn record(rng: &mut Rng, file: &[u8], section: usize, len: usize) -> Option<usize> {
    let entry = (0..get32(file, 24).min(8)).map(|n| 40 + 16 * n).find(|at| get32(file, *at) == section)?;
    let count = get32(file, entry + 4);
    (count > 0).then(|| get64(file, entry + 8) as usize + len * rng.below(count))
}

/// Joins or splits components of a name.
fn change_string(rng: &mut Rng, file: &mut [u8]) {
    let Some(at) = record(rng, file, 5, STRING_LEN) else { return };
    let at = at + rng.below(STRING_LEN - 1);
    let byte = match file.get(at) {
        Some(b'.') => b'x',
        Some(b'a') => b'.',
        _ => return,
    };
    put(file, at, &[byte]);
}

/// Changes the number of an instance to one near the honest ones, or its name to bytes that are not UTF-8.
fn change_instance(rng: &mut Rng, file: &mut [u8]) {
    let Some(at) = record(rng, file, 2, 24) else { return };
    if rng.one_in(2) {
        return put32(file, at + 12, rng.below(4) as u32);
    }
    let text = get64(file, at + 16) as usize;
    put(file, text, &[rng.pick(&[0xff, 0xc3, 0x1b, b'1'])]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Order, Pace};

    #[test]
    fn files_that_cost_much_are_valid() {
        let dir = std::env::temp_dir().join(format!("campaign-pools-{}", std::process::id()));
        for style in [Style::Components, Style::Domains] {
            let order = Order {
                name: String::new(),
                seed: 1,
                from: 0,
                pace: Pace::Once,
                dir: dir.join(format!("{style:?}")),
                port: 0,
                bin: dir.clone(),
            };
            let pool = Pool::new(&Job::new(order), style).unwrap();
            for file in &pool.good {
                let file = mmv_reader::File::parse(file.clone()).unwrap();
                assert_eq!(file.problems().first(), []);
                assert!(file.metrics().len() >= 3);
            }
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
