//! What a client wants of the event records.

use pmda::prelude::*;
use regex::bytes::Regex;

/// Conditions, all of which a record meets.
#[derive(Debug)]
pub(crate) struct Filter(Vec<(Item, Test)>);

/// What a condition is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    Tag,
    Kind,
    Process,
    Longer,
    Field(Item),
}

#[derive(Debug)]
enum Test {
    Text(Box<str>),
    Pattern(Regex),
    Number(u64),
    /// Nanoseconds.
    AtLeast(u64),
}

impl Filter {
    /// Conditions with semicolons between: `tag=look up; longer=0.01; user~^a`. `field` knows the metrics of fields.
    pub(crate) fn parse(text: &str, mut field: impl FnMut(&str) -> Option<Item>) -> Result<Filter, String> {
        let conditions = text.split(';').filter(|condition| !condition.trim().is_empty());
        conditions.map(|condition| parse(condition.trim(), &mut field)).collect::<Result<_, _>>().map(Filter)
    }

    /// Whether a record meets all of them.
    pub(crate) fn passes(&self, event: &Event) -> bool {
        self.0.iter().all(|(item, test)| event.param(*item).is_some_and(|value| test.passes(&value)))
    }
}

fn parse(condition: &str, field: &mut impl FnMut(&str) -> Option<Item>) -> Result<(Item, Test), String> {
    let at =
        condition.find(['=', '~']).filter(|at| *at > 0).ok_or_else(|| format!("{condition}: = or ~ is missing"))?;
    let (key, value) = condition.split_at(at);
    let (is_pattern, value) = (value.starts_with('~'), value.get(1..).unwrap_or_default().trim());
    let key = match key.trim() {
        "tag" => Key::Tag,
        "kind" => Key::Kind,
        "process" => Key::Process,
        "longer" => Key::Longer,
        other => Key::Field(field(other).ok_or_else(|| format!("{other}: there are too many fields"))?),
    };
    let test = match key {
        Key::Process => Test::Number(value.parse().map_err(|e| format!("process {value}: {e}"))?),
        Key::Longer => {
            let seconds = value.parse().map_err(|e| format!("longer {value}: {e}"))?;
            let time = std::time::Duration::try_from_secs_f64(seconds).map_err(|e| format!("longer {value}: {e}"))?;
            Test::AtLeast(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        }
        _ if is_pattern => Test::Pattern(Regex::new(value).map_err(|e| e.to_string())?),
        _ => Test::Text(value.into()),
    };
    Ok((key.into(), test))
}

impl Test {
    fn passes(&self, value: &Atom<'_>) -> bool {
        match (self, value) {
            (Test::Text(text), Atom::String(value)) => text.as_bytes() == *value,
            (Test::Pattern(pattern), Atom::String(value)) => pattern.is_match(value),
            (Test::Number(number), Atom::U32(value)) => *number == u64::from(*value),
            (Test::AtLeast(least), Atom::U64(value)) => least <= value,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let parse = |text| Filter::parse(text, |field| (field != "no").then_some(Item::new(2, 0)));
        assert_eq!(parse("tag=look up; longer=0.01;user~^a;process=7").unwrap().0.len(), 4);
        for bad in ["tag", "=x", "process=x", "longer=-1", "tag~(", "no=1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
