//! The check at the end of Install: the agent's metrics appear.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::names::{self, Which};
use super::outcome::{Outcome, Stop};
use super::pmcd::{self, Probe};
use super::site::Site;
use super::text::{part, tell};

/// How many metrics may have no value in each try, one second apart: at first none.
const TRIES: [usize; 10] = [0, 0, 0, MANY, MANY, MANY, MANY, MANY, MANY, MANY];
const MANY: usize = 9999;

/// Largest number of metrics without values that are named.
const NAMED: usize = 5;

struct Check<'s> {
    site: &'s Site,
    is_dso: bool,
    names: Vec<String>,
    dynamic: HashSet<String>,
    /// The agent has metrics which are not dynamic.
    is_static: bool,
}

/// Checks that the agent's metrics have values, and prints how many.
pub(crate) fn check(site: &Site, is_dso: bool, is_verbose: bool) -> Outcome<()> {
    part(&format!("Check {} metrics have appeared ... ", site.name));
    let mut names = names::names_of(site, Which::All);
    if names.is_empty() {
        names.push(site.name.clone());
    }
    let (dynamic, is_static) = names::kinds(site);
    let check = Check { site, is_dso, names, dynamic: dynamic.into_iter().collect(), is_static };
    for most in TRIES {
        if check.answers(most) || most > 0 && check.has_ended() {
            break;
        }
        sleep(Duration::from_secs(1));
    }
    if is_verbose {
        let _ = site.user_command("pmprobe").arg("-i").args(&check.names).status();
    }
    if check.answers(MANY) {
        part(&summary(&check.probe(), &check.log()));
        return Ok(());
    }
    tell("no values");
    check.failures().iter().for_each(|reason| site.say(reason));
    Err(Stop::new(check.silence()))
}

impl Check<'_> {
    fn probe(&self) -> Probe {
        pmcd::probe(self.site, &self.names, &self.dynamic)
    }

    /// Returns whether metrics have values, and at most `most` have none. An agent may have no metric yet.
    fn answers(&self, most: usize) -> bool {
        if self.site.other_names {
            return true;
        }
        let probe = self.probe();
        probe.answers(most)
            || !self.is_static && probe.is_empty() && pmcd::status(self.site, &self.site.name) == Some(0)
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
        if pmcd::is_newer(&previous, &self.site.tmp("told")) {
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
        let _ = writeln!(text, "  {}: {}", super::text::show(name), super::text::show(why));
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
