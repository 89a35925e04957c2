//! The check at the end of Install: the agent's metrics appear.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use pmapi::PmId;
use pmapi::names::is_at_or_below;

use super::names;
use super::pmcd;
use super::report::{Outcome, Stop, part, say, show, tell};
use super::site::Site;

/// How many metrics may have no value in each try, one second apart: at first none.
const TRIES: [usize; 10] = [0, 0, 0, MANY, MANY, MANY, MANY, MANY, MANY, MANY];
const MANY: usize = 9999;

/// Largest number of metrics without values that are named.
const NAMED: usize = 5;

/// Metrics of the agent as pmprobe(1) prints them.
#[derive(Default)]
struct Probe {
    /// Names with their numbers of values.
    metrics: Vec<(String, u64)>,
    /// Names without values, with the reason.
    failures: Vec<(String, String)>,
}

impl Probe {
    fn parse(text: &str, is_dynamic: impl Fn(&str) -> bool) -> Probe {
        let mut probe = Probe::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(count)) = (words.next(), words.next()) else { continue };
            let name = name.to_owned();
            match count.parse::<i64>() {
                Ok(-12345) => probe.failures.push((name, "a panic or another failure in the agent".to_owned())),
                // A dynamic name without any name below it is no metric.
                Ok(..0) if is_dynamic(&name) => {}
                Ok(..0) => probe.failures.push((name, words.collect::<Vec<_>>().join(" "))),
                Ok(count) => probe.metrics.push((name, count.unsigned_abs())),
                Err(_) => {}
            }
        }
        probe
    }

    /// Returns whether there are values, and at most `most` metrics without.
    fn answers(&self, most: usize) -> bool {
        !self.metrics.is_empty() && self.failures.len() <= most
    }
}

struct Check<'s> {
    site: &'s Site,
    is_dso: bool,
    names: Vec<(String, PmId)>,
}

/// Checks that the agent's metrics have values, and prints how many.
pub(crate) fn check(site: &Site, is_dso: bool, is_verbose: bool) -> Outcome<()> {
    part(&format!("Check {} metrics have appeared ... ", site.name));
    let check = Check { site, is_dso, names: names::of_agent(site) };
    for most in TRIES {
        if check.answers(most) || most > 0 && check.has_ended() {
            break;
        }
        sleep(Duration::from_secs(1));
    }
    if is_verbose {
        let _ = site.command("pmprobe").arg("-i").args(check.arguments()).status();
    }
    if check.answers(MANY) {
        part(&summary(&check.probe(), &check.log()));
        return Ok(());
    }
    tell("no values");
    check.failures().iter().for_each(say);
    Err(Stop::new(check.silence()))
}

impl Check<'_> {
    /// Returns the names for pmprobe: the agent's own, and those of its names that are not below it.
    fn arguments(&self) -> impl Iterator<Item = &str> {
        let elsewhere =
            self.names.iter().map(|(name, _)| &**name).filter(|name| !is_at_or_below(name, &self.site.name));
        let own = Some(&*self.site.name)
            .filter(|own| self.names.is_empty() || self.names.iter().any(|(name, _)| is_at_or_below(name, own)));
        own.into_iter().chain(elsewhere)
    }

    fn probe(&self) -> Probe {
        let output = self.site.command("pmprobe").args(self.arguments()).stderr(Stdio::null()).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        Probe::parse(&text, |name| self.names.iter().any(|leaf| leaf.0 == name && names::is_dynamic(leaf)))
    }

    /// Returns whether metrics have values, and at most `most` have none. An agent may have no metric yet.
    fn answers(&self, most: usize) -> bool {
        if self.site.is_other_namespace {
            return true;
        }
        let probe = self.probe();
        let may_be_empty = self.names.iter().all(names::is_dynamic) && probe.failures.is_empty();
        probe.answers(most)
            || may_be_empty && probe.metrics.is_empty() && pmcd::status(self.site, &self.site.name) == Some(0)
    }

    /// Returns the agent's log. A shared object has that of pmcd, which has lines about other agents, too.
    fn log(&self) -> PathBuf {
        let name = if self.is_dso { "pmcd" } else { &self.site.name };
        self.site.config.log_dir().join(format!("pmcd/{name}.log"))
    }

    fn failures(&self) -> Vec<String> {
        pmcd::failures(self.site, &self.log(), if self.is_dso { &self.site.name } else { "" })
    }

    /// Returns whether the agent has ended for a reason.
    fn has_ended(&self) -> bool {
        !self.is_dso && pmcd::processes(self.site).is_empty() && !self.failures().is_empty()
    }

    /// Returns the message if no metric has a value.
    fn silence(&self) -> String {
        let log = self.log();
        let previous = pmcd::previous(&log);
        let mut also = String::new();
        if pmcd::is_newer(&previous, &self.site.tmp.join("told")) {
            let _ = write!(also, ", {}", previous.display());
        }
        if !self.is_dso {
            let _ = write!(also, " and {}", self.site.config.log_dir().join("pmcd/pmcd.log").display());
        }
        format!(
            "the metrics do not answer; see {}{also}. The agent stays installed; {} removes it.",
            log.display(),
            self.site.place.join("Remove").display()
        )
    }
}

fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Returns the numbers of metrics and values, and the metrics without values.
fn summary(probe: &Probe, log: &Path) -> String {
    let mut text = String::new();
    let warnings = probe.failures.len();
    if warnings > 0 {
        let _ = write!(text, "{}, ", count(warnings as u64, "warning"));
    }
    let values = probe.metrics.iter().map(|(_, values)| values).sum();
    let _ = writeln!(text, "{} and {}", count(probe.metrics.len() as u64, "metric"), count(values, "value"));
    for (name, why) in probe.failures.iter().take(NAMED) {
        let _ = writeln!(text, "  {}: {}", show(name), show(why));
    }
    if warnings > NAMED {
        text.push_str("  ...\n");
    }
    if warnings > 0 {
        let _ = writeln!(text, "  See {}", log.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_pmprobe_are_counted() {
        let text =
            "x.one 1\nx.two 5\nx.dyn -12357 Unknown metric name\nx.bad -12351 Missing metric value(s)\nx.p -12345 z\n";
        let probe = Probe::parse(text, |name| name == "x.dyn");
        assert_eq!(probe.metrics, [("x.one".to_owned(), 1), ("x.two".to_owned(), 5)]);
        let failed = [("x.bad", "Missing metric value(s)"), ("x.p", "a panic or another failure in the agent")];
        assert_eq!(probe.failures, failed.map(|(name, why)| (name.to_owned(), why.to_owned())));
        assert!(probe.answers(2) && !probe.answers(1) && !Probe::default().answers(9));
    }

    #[test]
    fn metrics_are_counted_and_failures_named() {
        let failures = |n: usize| (0..n).map(|n| (format!("x.f{n}"), "why".to_owned())).collect();
        let probe = |metrics: Vec<(String, u64)>, n| Probe { metrics, failures: failures(n) };
        let one = vec![("x.a".to_owned(), 1)];
        assert_eq!(summary(&probe(one.clone(), 0), Path::new("/l")), "1 metric and 1 value\n");
        let two = vec![("x.a".to_owned(), 1), ("x.b".to_owned(), 4)];
        let text = "1 warning, 2 metrics and 5 values\n  x.f0: why\n  See /l\n";
        assert_eq!(summary(&probe(two, 1), Path::new("/l")), text);
        let text = summary(&probe(one, 6), Path::new("/l"));
        assert!(text.starts_with("6 warnings, ") && text.contains("  x.f4: why\n  ...\n") && !text.contains("x.f5"));
    }
}
