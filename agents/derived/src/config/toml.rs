//! Configurations in TOML, with settings that the format of pmLoadDerivedConfig(3) does not have.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use pcp_base::file::{check_place, check_writers};
use pcp_derived::SyntaxError;
use pcp_pdu::metadata::TextKind;
use pmapi::{Domain, LabelSet};
use serde_json::Value as Json;

use super::loader::{DERIVED, Loader};
use super::{AgentSpec, Operands, Place, Problem, Shown};
use crate::options;

/// Reads a TOML file. A mistake in one part leaves the other parts in effect.
pub(super) fn read(loader: &mut Loader, file: &Arc<str>, text: &[u8]) {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(e) => return loader.problem(file, 0, format!("Error: {e}")),
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut reader = Reader { loader, file, text, lines };
    for error in errors {
        reader.problem(error.span().map_or(0, |span| span.start), error.message());
    }
    reader.document(table.get_ref());
}

struct Reader<'a> {
    loader: &'a mut Loader,
    file: &'a Arc<str>,
    text: &'a str,
    /// Offsets of the ends of the lines.
    lines: Vec<usize>,
}

/// Value with its key, and the offset of the key.
#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a str,
    at: usize,
    value: &'a Spanned<DeValue<'a>>,
}

/// Returns the entries of a table in the order of the file.
fn entries<'a>(table: &'a DeTable<'a>) -> Vec<Entry<'a>> {
    let mut entries: Vec<_> =
        table.iter().map(|(key, value)| Entry { key: key.get_ref(), at: key.span().start, value }).collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

/// Longest part of a line that a message shows on each side of a mistake, in bytes.
const SHOWN: usize = 100;

const OF_METRIC: &str = "expr, name, oneline, help, labels";
const OF_GROUP: &str = "interval, host, agent, novalue, labels, metric";
const OF_AGENT: &str = "name, domain, command, pmns";

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|end| *end < at) + 1
    }

    /// Records a problem at an offset. The message contains the line, or the part around the offset, and a caret below
    /// it.
    fn problem(&mut self, at: usize, what: &str) {
        let line = self.line(at);
        let start = line.checked_sub(2).and_then(|before| self.lines.get(before)).map_or(0, |end| end + 1);
        let end = self.lines.get(line - 1).copied().unwrap_or(self.text.len());
        let is_boundary = |at: &usize| self.text.is_char_boundary(*at);
        let from = (start.max(at.saturating_sub(SHOWN))..at).find(is_boundary).unwrap_or(at);
        let to = (at..=end.min(at + SHOWN)).rfind(is_boundary).unwrap_or(at);
        let (before, after) =
            self.text.get(from..to).unwrap_or_default().split_at_checked(at - from).unwrap_or_default();
        let indent: String = before.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
        self.loader.problem(self.file, line, format!("Error: {what}\n{before}{after}\n{indent}^"));
    }

    fn unknown(&mut self, entry: Entry<'_>, known: &str) {
        self.problem(entry.at, &format!("unknown key {:?}; the known keys are {known}", entry.key));
    }

    /// Converts a value with `take`. Records a problem if `take` returns `None`.
    fn value<'e, T>(
        &mut self,
        entry: Entry<'e>,
        wanted: &str,
        take: impl FnOnce(&'e DeValue<'e>) -> Option<T>,
    ) -> Option<T> {
        let value = entry.value.get_ref();
        let taken = take(value);
        if taken.is_none() {
            let text = format!("{:?} must be {wanted}, not {}", entry.key, value.type_str());
            self.problem(entry.value.span().start, &text);
        }
        taken
    }

    fn string<'e>(&mut self, entry: Entry<'e>) -> Option<&'e str> {
        self.value(entry, "a string", DeValue::as_str)
    }

    fn table<'e>(&mut self, entry: Entry<'e>) -> Vec<Entry<'e>> {
        self.value(entry, "a table", DeValue::as_table).map(entries).unwrap_or_default()
    }

    /// Parses a string. Records a problem if it is invalid.
    fn parsed<T, E: std::fmt::Display>(&mut self, entry: Entry<'_>, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        let text = self.string(entry)?;
        parse(text).map_err(|e| self.problem(entry.value.span().start, &format!("{:?}: {e}", entry.key))).ok()
    }

    fn document(&mut self, table: &DeTable<'_>) {
        for entry in entries(table) {
            match entry.key {
                "metric" => self.metrics(DERIVED, &LabelSet::new(), "", entry),
                "group" => {
                    for group in self.table(entry) {
                        self.group(group);
                    }
                }
                _ => self.unknown(entry, "metric, group"),
            }
        }
    }

    fn group(&mut self, group: Entry<'_>) {
        let known = self.table(group);
        let place = self.place(group.at);
        let name = group.key;
        if name.is_empty() {
            return self.problem(group.at, "a group must have a name");
        }
        if let Some(other) = self.loader.group(name).described.replace(place) {
            return self.problem(group.at, &format!("group {name:?} is also in {}, line {}", other.file, other.line));
        }
        let (mut labels, mut operands) = (LabelSet::new(), None);
        for entry in known.iter().filter(|entry| entry.key != "metric") {
            match entry.key {
                "interval" => {
                    let interval = self.parsed(*entry, options::time);
                    self.loader.group(name).interval = interval;
                }
                "host" | "agent" if operands.is_some() => {
                    self.problem(entry.at, "operands come from a host or from agents, not from both");
                }
                "host" => operands = self.parsed(*entry, |text| text.parse().map(Operands::Host)),
                "agent" => match self.check_writers() {
                    Ok(()) => operands = self.agents(*entry).map(Operands::Agents),
                    Err(e) => self.problem(entry.at, &format!("this file may start no agents: {e}")),
                },
                "novalue" => {
                    let novalue = self.value(*entry, "true or false", DeValue::as_bool);
                    let group = self.loader.group(name);
                    group.novalue = novalue.unwrap_or(group.novalue);
                }
                "labels" => labels = self.labels(*entry),
                _ => self.unknown(*entry, OF_GROUP),
            }
        }
        match operands {
            Some(operands) => self.loader.group(name).operands = operands,
            // With an invalid source, the metrics must not be read from the default host instead.
            None if known.iter().any(|entry| ["host", "agent"].contains(&entry.key)) => return,
            None => {}
        }
        for entry in known.into_iter().filter(|entry| entry.key == "metric") {
            self.metrics(name, &labels, "", entry);
        }
    }

    /// Checks that no user other than root and this process's user can have written this file, which names programs.
    fn check_writers(&self) -> Result<(), String> {
        let path = Path::new(&**self.file);
        check_writers(&path.metadata().map_err(|e| e.to_string())?)?;
        check_place(path)
    }

    /// Parses one agent or a list of agents. Returns `None` if any of them is invalid.
    fn agents(&mut self, entry: Entry<'_>) -> Option<Vec<AgentSpec>> {
        let tables: Vec<Entry<'_>> = match entry.value.get_ref() {
            DeValue::Array(list) => list.iter().map(|value| Entry { value, at: value.span().start, ..entry }).collect(),
            _ => vec![entry],
        };
        tables.into_iter().map(|table| self.agent(table)).collect()
    }

    fn agent(&mut self, agent: Entry<'_>) -> Option<AgentSpec> {
        let (mut name, mut domain, mut command, mut pmns) = (None, None, None, None);
        for entry in self.table(agent) {
            match entry.key {
                "name" => name = self.string(entry).map(str::to_owned),
                "domain" => {
                    domain = self.value(entry, "a number from 1 to 510", |value| {
                        Domain::new(u16::try_from(integer(value)?).ok()?)
                    });
                }
                "command" => command = self.words(entry),
                "pmns" => pmns = self.string(entry).map(|file| self.path(file)),
                _ => self.unknown(entry, OF_AGENT),
            }
        }
        let (Some(domain), Some(command)) = (domain, command) else {
            self.problem(agent.at, "an agent must have a domain and a command");
            return None;
        };
        let program = command.first().map(|program| Path::new(program).file_name().unwrap_or_default());
        let name = name.or_else(|| Some(program?.to_string_lossy().trim_start_matches("pmda").to_owned()));
        Some(AgentSpec { name: name.unwrap_or_default(), domain, command, pmns })
    }

    /// Resolves a path relative to the directory of this file.
    fn path(&self, file: &str) -> PathBuf {
        Path::new(&**self.file).parent().unwrap_or(Path::new("")).join(file)
    }

    /// Parses words: an array of strings, or one string with words separated by blanks.
    fn words(&mut self, entry: Entry<'_>) -> Option<Vec<String>> {
        self.value(entry, "words, in an array or with spaces between", |value| {
            let words: Vec<String> = match value {
                DeValue::String(line) => line.split_whitespace().map(str::to_owned).collect(),
                value => value
                    .as_array()?
                    .iter()
                    .map(|word| Some(word.get_ref().as_str()?.to_owned()))
                    .collect::<Option<_>>()?,
            };
            Some(words).filter(|words| !words.is_empty())
        })
    }

    fn labels(&mut self, entry: Entry<'_>) -> LabelSet {
        let wanted = "a table of strings, numbers and truth values";
        let labels = self.value(entry, wanted, |value| json(value).filter(Json::is_object));
        let Some(labels) = labels else { return LabelSet::new() };
        LabelSet::from_serialize(labels).unwrap_or_else(|e| {
            self.problem(entry.value.span().start, &e.to_string());
            LabelSet::new()
        })
    }

    /// Parses metrics whose names begin with `prefix`. Each is an expression, a table with an expression, or a table of
    /// metrics with longer names.
    fn metrics(&mut self, group: &str, labels: &LabelSet, prefix: &str, entry: Entry<'_>) {
        for metric in self.table(entry) {
            let name = format!("{prefix}{}", metric.key);
            match metric.value.get_ref() {
                DeValue::Table(table) if !table.contains_key("expr") => {
                    match entries(table).iter().find(|entry| OF_METRIC.split(", ").any(|key| key == entry.key)) {
                        Some(_) => self.problem(metric.at, &format!("metric {name} has no expr")),
                        None => self.metrics(group, labels, &format!("{name}."), metric),
                    }
                }
                _ => self.metric(group, labels.clone(), &name, metric),
            }
        }
    }

    fn metric(&mut self, group: &str, mut labels: LabelSet, name: &str, metric: Entry<'_>) {
        let (mut expr, mut shown, mut oneline, mut help) = (None, None, None, None);
        match metric.value.get_ref() {
            DeValue::String(_) => expr = Some(metric),
            _ => {
                for entry in self.table(metric) {
                    match entry.key {
                        "expr" => expr = Some(entry),
                        "name" => shown = self.string(entry).map(str::to_owned),
                        "oneline" => oneline = self.string(entry),
                        "help" => help = self.string(entry),
                        "labels" => {
                            let own = self.labels(entry);
                            labels.merge(&own).unwrap_or_else(|e| self.problem(entry.at, &e.to_string()));
                        }
                        _ => self.unknown(entry, OF_METRIC),
                    }
                }
            }
        }
        let Some((expr, text)) = expr.and_then(|expr| Some((expr, self.string(expr)?))) else { return };
        // The caret of an error message needs an expression in one line.
        let text = text.trim().replace(['\n', '\r'], " ");
        let place = self.place(expr.at);
        let target = self.loader.group(group);
        let definition = match target.definitions.register(name, &text) {
            Ok(definition) => definition,
            Err(e) => {
                let (detail, definition) = (SyntaxError::from(e).detail(&text).join("\n"), Some(name.to_owned()));
                let text = format!("Error: pmRegisterDerived({name}, ...) syntax error\n{detail}");
                target.refused += 1;
                return self.loader.config.problems.push(Problem { place, definition, text });
            }
        };
        for (kind, text) in [(TextKind::OneLine, oneline), (TextKind::Help, help)] {
            if let Some(text) = text {
                // Cannot fail, because the definition has no texts yet.
                let _ = definition.set_text(kind, text.trim_end());
            }
        }
        target.places.insert(name.to_owned(), place);
        let labels = labels.labels().map(|label| (label.name.to_owned(), label.value.to_owned())).collect();
        target.shown.insert(name.to_owned(), Shown { name: shown, labels });
    }

    fn place(&self, at: usize) -> Place {
        Place { file: Arc::clone(self.file), line: self.line(at) }
    }
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn json(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(_) => integer(value)?.into(),
        DeValue::Float(number) => Json::from(number.as_str().parse::<f64>().ok().filter(|number| number.is_finite())?),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(list) => list.iter().map(|value| json(value.get_ref())).collect::<Option<Vec<_>>>()?.into(),
        DeValue::Table(table) => {
            let members = table.iter().map(|(key, value)| Some((key.get_ref().to_string(), json(value.get_ref())?)));
            Json::Object(members.collect::<Option<_>>()?)
        }
    })
}
