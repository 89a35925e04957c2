//! Filters of a source: which of its metrics are exported, and which of its labels name instances.

use regex::{Regex, RegexBuilder};

/// What a filter does with a metric or label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Designation {
    Include,
    /// A label that is exported, but is not part of the instance's name.
    Optional,
    Exclude,
}

/// A regular expression that matches at the beginning of a name, as Python's `re.match` does.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

/// Largest compiled regular expression, in bytes.
const LARGEST: usize = 1 << 20;

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Pattern, String> {
        let compiled = RegexBuilder::new(&format!(r"\A(?:{text})")).size_limit(LARGEST).build();
        compiled.map(Pattern).map_err(|e| {
            // Only the last line of the error has the reason. The lines before it draw the expression.
            let reason = e.to_string();
            let reason = reason.lines().last().unwrap_or_default();
            format!("invalid regular expression {text:?}: {}", reason.strip_prefix("error: ").unwrap_or(reason))
        })
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// The filters of a source. The first filter that matches counts. Names that no filter matches are included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    metrics: Vec<(Designation, Pattern)>,
    labels: Vec<(Designation, Pattern)>,
}

impl Filters {
    /// Adds the filter `INCLUDE|EXCLUDE|OPTIONAL METRIC|LABEL PATTERN`. Any other first word means `EXCLUDE`, and a
    /// filter with any other second word matches nothing, as in PCP's agent. Returns a warning in these cases.
    pub(crate) fn add(&mut self, text: &str) -> Result<Option<String>, String> {
        let mut words = text.split_whitespace();
        let (Some(first), Some(kind)) = (words.next(), words.next()) else {
            return Err("a filter has three parts: INCLUDE, EXCLUDE or OPTIONAL, METRIC or LABEL, and a pattern".into());
        };
        let (designation, known) = match first {
            "INCLUDE" => (Designation::Include, true),
            "OPTIONAL" => (Designation::Optional, true),
            other => (Designation::Exclude, other == "EXCLUDE"),
        };
        let filters = match kind {
            "METRIC" => &mut self.metrics,
            "LABEL" => &mut self.labels,
            _ => return Ok(Some(format!("a filter for {kind} has no effect: only METRIC and LABEL are known"))),
        };
        let pattern: Vec<&str> = words.collect();
        filters.push((designation, Pattern::new(&pattern.join(" "))?));
        Ok((!known).then(|| format!("unknown word {first} is treated as EXCLUDE")))
    }

    /// Returns the number of filters.
    pub(crate) fn len(&self) -> usize {
        self.metrics.len() + self.labels.len()
    }

    /// Returns whether a metric is exported.
    pub(crate) fn includes_metric(&self, name: &str) -> bool {
        first(&self.metrics, name) == Designation::Include
    }

    pub(crate) fn label(&self, name: &str) -> Designation {
        first(&self.labels, name)
    }
}

fn first(filters: &[(Designation, Pattern)], name: &str) -> Designation {
    filters.iter().find(|(_, pattern)| pattern.matches(name)).map_or(Designation::Include, |(found, _)| *found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_counts() {
        let mut filters = Filters::default();
        for text in ["INCLUDE METRIC m1", "EXCLUDE METRIC m.*|x y$", "OPTIONAL LABEL zone", "EXCLUDE LABEL ^host$"] {
            assert_eq!(filters.add(text), Ok(None));
        }
        let metrics = ["m1", "m1x", "m2", "am2", "x y", "x yz"].map(|name| filters.includes_metric(name));
        assert_eq!(metrics, [true, true, false, true, false, true]);
        let labels = ["zone", "zones", "host", "hostname"].map(|name| filters.label(name));
        use Designation::{Exclude, Include, Optional};
        assert_eq!(labels, [Optional, Optional, Exclude, Include]);
    }

    #[test]
    fn odd_filters() {
        let mut filters = Filters::default();
        assert!(filters.add("EXCLUDE").is_err());
        assert!(filters.add("EXCLUDE METRIC m[").unwrap_err().starts_with("invalid regular expression \"m[\": "));
        assert!(filters.add("EXCLUDE METRIC (?!a)b").is_err());
        assert!(filters.add("REMOVE METRIC a").unwrap().is_some());
        assert!(filters.add("EXCLUDE METRICS b").unwrap().is_some());
        assert_eq!(["a", "b"].map(|name| filters.includes_metric(name)), [false, true]);
        // A filter without a pattern matches everything.
        assert_eq!(filters.add("EXCLUDE METRIC"), Ok(None));
        assert!(!filters.includes_metric("b"));
    }
}
