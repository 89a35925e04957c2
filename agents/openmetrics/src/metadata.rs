//! Descriptions of metrics: name, type, semantics, units and help, from the comments of the document, from a line
//! `METADATA:`, or from the name.

use exposition::Comment;
use pmapi::{Semantics, Type, Units};

use crate::url_file::Metadata;

/// The comments before a group of samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block<'a> {
    /// `# PCP` or `# PCP5`.
    pub(crate) pcp: Option<Comment<'a>>,
    pub(crate) help: Option<Comment<'a>>,
    pub(crate) ty: Option<Comment<'a>>,
    pub(crate) samples: Samples,
}

/// Meaning of a metric's samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Samples {
    #[default]
    Values,
    /// Texts of exemplars.
    Exemplars,
}

/// Description of a metric.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Description {
    /// Name below the source's.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) semantics: Semantics,
    pub(crate) units: Units,
    /// Whether the metric is singular although its samples have labels.
    pub(crate) singular: bool,
    /// Whether the description is PCP's metadata. Then the label `instname` or `instance` names instances.
    pub(crate) by_pcp: bool,
    /// Reason why the units in PCP's metadata were not used for the metric.
    pub(crate) warning: Option<String>,
}

impl Description {
    fn guessed(name: &str, ty: Type, semantics: Semantics, units: Units) -> Description {
        let name = name.replace(':', ".");
        Description { name, ty, semantics, units, singular: false, by_pcp: false, warning: None }
    }
}

impl<'a> Block<'a> {
    /// Adds a comment to the block.
    ///
    /// # Errors
    /// The reason why PCP's metadata are incomplete. They are left out.
    pub(crate) fn add(&mut self, comment: Comment<'a>) -> Result<(), String> {
        match comment.keyword() {
            Some("PCP" | "PCP5") => {
                self.pcp = None;
                of_comment(comment)?;
                self.pcp = Some(comment);
            }
            Some("HELP") => self.help = Some(comment),
            Some("TYPE") => self.ty = Some(comment),
            _ => {}
        }
        Ok(())
    }

    /// Returns whether there is a comment that describes a metric.
    pub(crate) fn has_metadata(&self) -> bool {
        self.pcp.or(self.help).or(self.ty).is_some()
    }

    /// Describes the metric that the document calls `name`. A line `METADATA:` comes before the comments.
    ///
    /// # Errors
    /// The reason why the line `METADATA:` is incomplete.
    pub(crate) fn describe(&self, name: &str, metadata: Option<&Metadata>) -> Result<Description, String> {
        if let Some(metadata) = metadata {
            let words: Vec<&str> = [name].into_iter().chain(metadata.text.split(' ')).collect();
            return of_pcp5(&words);
        }
        self.pcp.map_or_else(|| Ok(self.guess(name)), of_comment)
    }

    /// Guesses from the name and the type.
    fn guess(&self, name: &str) -> Description {
        let words: Vec<&str> = name.split('_').collect();
        let has = |word: &str| words.contains(&word);
        let ty: Vec<&str> = self.ty.map(|ty| ty.description().collect()).unwrap_or_default();
        let is = |word: &str| ty == [word];
        let is_bucket = is("histogram") && has("bucket");
        if self.samples == Samples::Exemplars {
            let (ty, semantics, units) = (Type::String, Semantics::Discrete, Units::NONE);
            return Description::guessed(name, ty, semantics, units);
        }
        let counts = is("counter") || has("total") || has("count") || has("sum") || is_bucket;
        let units = if (is("histogram") || is("summary")) && has("count") || is_bucket {
            Units::COUNT
        } else if has("seconds") {
            Units::SECONDS
        } else if has("microseconds") {
            Units::MICROSECONDS
        } else if has("bytes") {
            Units::BYTES
        } else {
            Units::NONE
        };
        let semantics = if counts { Semantics::Counter } else { Semantics::Instant };
        Description::guessed(name, Type::Double, semantics, units)
    }

    /// Returns the help: its first line, and the others.
    pub(crate) fn help(&self) -> (String, String) {
        let words: Vec<&str> = self.help.map(|help| help.description().collect()).unwrap_or_default();
        let text = words.join(" ").replace("\\\\", "\\").replace("\\n", "\n");
        // Clients would end the text at a NUL byte.
        let text = text.replace('\0', "\u{fffd}");
        let (first, others) = text.split_once('\n').unwrap_or((&text, ""));
        (first.to_owned(), others.to_owned())
    }
}

/// Describes a metric by a comment `# PCP` or `# PCP5`.
fn of_comment(comment: Comment<'_>) -> Result<Description, String> {
    let words: Vec<&str> = comment.words().skip(1).collect();
    if comment.keyword() == Some("PCP") {
        return of_pcp(&words);
    }
    // The second word is a PMID, which does not count.
    let words: Vec<&str> = words.iter().take(1).chain(words.iter().skip(2)).copied().collect();
    of_pcp5(&words)
}

/// Describes a metric by name, type, instance domain, semantics and units.
fn of_pcp5(words: &[&str]) -> Result<Description, String> {
    let [name, ty, _, semantics, units @ ..] = words else {
        return Err("PCP's metadata need a name, a type, an instance domain and semantics".into());
    };
    let (units, warning) = parse_units(&units.join(" "));
    Ok(Description {
        name: (*name).to_owned(),
        ty: type_of(ty),
        semantics: semantics_of(semantics),
        units,
        singular: words.contains(&"PM_INDOM_NULL"),
        by_pcp: true,
        warning,
    })
}

/// Parses PCP's metadata: name, semantics and units of a metric. The last two may be missing.
fn of_pcp(words: &[&str]) -> Result<Description, String> {
    let [name, rest @ ..] = words else { return Err("# PCP needs the name of a metric".into()) };
    let (semantics, units) = rest.split_first().map_or(("", &[][..]), |(semantics, units)| (*semantics, units));
    let (units, warning) = if units.is_empty() { (Units::NONE, None) } else { parse_units(&units.join(" ")) };
    Ok(Description {
        name: (*name).to_owned(),
        ty: Type::Double,
        semantics: semantics_of(semantics),
        units,
        singular: words.contains(&"PM_INDOM_NULL"),
        by_pcp: true,
        warning,
    })
}

fn parse_units(text: &str) -> (Units, Option<String>) {
    if text == "none" {
        return (Units::NONE, None);
    }
    match Units::parse(text) {
        Ok((units, _)) => (units, None),
        Err(e) => (Units::NONE, Some(format!("units {text:?} are ignored: {e}"))),
    }
}

fn semantics_of(word: &str) -> Semantics {
    match word {
        "counter" => Semantics::Counter,
        "discrete" => Semantics::Discrete,
        _ => Semantics::Instant,
    }
}

fn type_of(word: &str) -> Type {
    match word {
        "float" => Type::Float,
        "u64" => Type::U64,
        "64" => Type::I64,
        "u32" => Type::U32,
        "32" => Type::I32,
        "string" => Type::String,
        "aggregate" => Type::Aggregate,
        _ => Type::Double,
    }
}

/// Returns whether a metric's name in a document is acceptable: it begins with a letter, and consists of letters,
/// digits, `_`, `.` and `:`.
pub(crate) fn is_name(name: &str) -> bool {
    let mut rest = name.chars().filter(|c| !matches!(c, '_' | '.' | ':')).peekable();
    name.chars().next().is_some_and(char::is_alphabetic) && rest.peek().is_some() && rest.all(char::is_alphanumeric)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use exposition::{Line, Lines};

    use super::*;

    fn describe(comments: &str, name: &str) -> Result<Description, String> {
        let mut block = Block::default();
        for (_, line) in Lines::new(comments) {
            if let Ok(Line::Comment(comment)) = Line::parse(line) {
                block.add(comment)?;
            }
        }
        block.describe(name, None)
    }

    #[test]
    fn guesses() {
        use Semantics::{Counter, Instant};
        for (ty, name, semantics, units) in [
            ("counter", "x", Counter, Units::NONE),
            ("gauge", "x_total", Counter, Units::NONE),
            ("gauge", "xtotal", Instant, Units::NONE),
            ("gauge", "x_bytes_seconds", Instant, Units::SECONDS),
            ("histogram", "x_seconds_bucket", Counter, Units::COUNT),
            ("histogram", "x_seconds_sum", Counter, Units::SECONDS),
            ("summary", "x_bytes_count", Counter, Units::COUNT),
            ("untyped", "x_bytes_count", Counter, Units::BYTES),
            ("gauge", "x_microseconds", Instant, Units::MICROSECONDS),
            ("counter extra", "x", Instant, Units::NONE),
        ] {
            let description = describe(&format!("# TYPE {name} {ty}"), name).unwrap();
            assert_eq!((description.semantics, description.units), (semantics, units), "{ty} {name}");
            assert_eq!(description.ty, Type::Double);
        }
        assert_eq!(describe("", "a:b").unwrap().name, "a.b");
    }

    #[test]
    fn metadata_of_pcp() {
        let metric = describe("# PCP5 a.b 1.2.3 u64 PM_INDOM_NULL counter byte / sec", "a_b").unwrap();
        assert_eq!((&*metric.name, metric.ty, metric.semantics), ("a.b", Type::U64, Semantics::Counter));
        assert!(metric.singular && metric.by_pcp && metric.warning.is_none());
        assert_eq!(metric.units, Units::parse("byte / sec").unwrap().0);
        let metric = describe("# PCP a.b discrete foo", "a_b").unwrap();
        assert_eq!(
            (metric.semantics, metric.units, metric.warning.is_some()),
            (Semantics::Discrete, Units::NONE, true)
        );
        assert!(describe("# PCP a.b", "a_b").is_ok());
        for bad in ["# PCP", "# PCP5", "# PCP5 a.b 1.2.3 double PM_INDOM_NULL", "# PCP5 a.b"] {
            assert!(describe(bad, "a_b").is_err(), "{bad}");
        }
    }

    #[test]
    fn names() {
        for name in ["a", "a_b", "a.b:c", "aé1", "a___"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "_a", ":a", "1a", "a-b", "a/b", "a b", "{a"] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn help_has_a_first_line() {
        let help = |text: &str| {
            let Ok(Line::Comment(comment)) = Line::parse(text) else { return Default::default() };
            Block { help: Some(comment), ..Block::default() }.help()
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(help(r"# HELP a one\ntwo\nthree"), pair("one", "two\nthree"));
        assert_eq!(help(r"# HELP a  many   spaces \\ x"), pair(r"many spaces \ x", ""));
        assert_eq!(help("# HELP a"), pair("", ""));
        assert_eq!(help("# HELP a b\0c"), pair("b\u{fffd}c", ""));
    }
}
