//! Output of `data/derive/oracle.c`: descriptors, instances and values of operands, and libpcp's results for
//! definitions.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use pcp_derived::{Load, Metadata, Missing, Operand, Source};
use pmapi::{Atom, Desc, Error, InDom, Inst, PmId, Semantics, Type, Units};

/// Domain of the agent in libpcp's local context.
const LOCAL: u16 = 250;

/// Answers of one run.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) operands: HashMap<String, Result<Desc, Missing>>,
    pub(crate) instances: HashMap<InDom, Vec<(Inst, String)>>,
    pub(crate) definitions: HashMap<String, Outcome>,
    /// Names and expressions of the definitions in a recording.
    pub(crate) asked: Vec<(String, String)>,
    /// Definitions in a recording whose values were not recorded.
    pub(crate) varying: BTreeSet<String>,
    /// Semantic errors of definitions.
    pub(crate) errors: HashMap<String, String>,
    pub(crate) samples: Vec<Sample>,
    /// Index of the sample that the next values belong to.
    current: usize,
}

/// libpcp's result of binding a definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Syntax {
        offset: usize,
        reason: String,
    },
    /// Semantic error, whose text is on standard error.
    Unbound,
    Bound {
        ty: Type,
        indom: Option<InDom>,
        semantics: Semantics,
        units: Units,
    },
}

/// Values of one fetch.
#[derive(Default)]
pub(crate) struct Sample {
    pub(crate) stamp: Duration,
    pub(crate) operands: HashMap<String, Column>,
    pub(crate) results: HashMap<String, Column>,
}

/// Values as printed, by instance.
pub(crate) type Column = Result<Vec<(u32, String)>, Error>;

impl Answers {
    pub(crate) fn parse(text: &str) -> Answers {
        let mut answers = Answers::default();
        answers.add(text);
        answers
    }

    pub(crate) fn add(&mut self, text: &str) {
        text.lines().for_each(|line| self.line(line));
    }

    /// Adds the semantic errors on libpcp's standard error.
    pub(crate) fn add_messages(&mut self, text: &str) {
        let error = |line: &str| {
            let (name, error) = line.strip_prefix("Semantic error: derived metric ")?.split_once(": ")?;
            Some((name.to_owned(), error.to_owned()))
        };
        self.errors.extend(text.lines().filter_map(error));
    }

    /// Continues the sample of this time, or begins it.
    fn sample(&mut self, stamp: Duration) {
        let found = self.samples.iter().position(|sample| sample.stamp == stamp);
        self.current = found.unwrap_or(self.samples.len());
        if found.is_none() {
            self.samples.push(Sample { stamp, ..Sample::default() });
        }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split('\t').collect();
        match words[..] {
            ["D", name, pmid, ty, indom, semantics, units] => {
                let (ty, indom, semantics, units) = descriptor(ty, indom, semantics, units);
                let desc = Desc { pmid: PmId::from_word(word(pmid)).unwrap(), ty, indom, semantics, units };
                self.operands.insert(name.to_owned(), Ok(desc));
            }
            ["U", name] => drop(self.operands.insert(name.to_owned(), Err(Missing::Name))),
            ["N", name] => drop(self.operands.insert(name.to_owned(), Err(Missing::Desc))),
            ["I", indom, inst, name] => {
                let inst = Inst::from_word(id(inst)).unwrap();
                let indom = InDom::from_word(word(indom)).unwrap();
                let instances = self.instances.entry(indom).or_default();
                if !instances.iter().any(|(other, _)| *other == inst) {
                    instances.push((inst, name.to_owned()));
                }
            }
            ["E", name, offset, reason] => {
                let outcome = Outcome::Syntax { offset: offset.parse().unwrap(), reason: reason.to_owned() };
                self.definitions.insert(name.to_owned(), outcome);
            }
            ["B", name, _] => drop(self.definitions.insert(name.to_owned(), Outcome::Unbound)),
            ["M", name, ty, indom, semantics, units] => {
                let (ty, indom, semantics, units) = descriptor(ty, indom, semantics, units);
                self.definitions.insert(name.to_owned(), Outcome::Bound { ty, indom, semantics, units });
            }
            ["S", seconds, nanoseconds] => {
                self.sample(Duration::new(seconds.parse().unwrap(), nanoseconds.parse().unwrap()));
            }
            ["Q", name, ..] => {
                let expr = line.splitn(3, '\t').last().unwrap();
                self.asked.push((name.to_owned(), expr.to_owned()));
            }
            ["K", _] => (),
            ["W", name] => drop(self.varying.insert(name.to_owned())),
            ["C", name, error] => drop(self.errors.insert(name.to_owned(), error.to_owned())),
            ["V", name, number, ref values @ ..] => {
                self.samples[self.current].operands.insert(name.to_owned(), column(number, values));
            }
            ["R", name, number, ref values @ ..] => {
                self.samples[self.current].results.insert(name.to_owned(), column(number, values));
            }
            _ => panic!("{line:?}"),
        }
    }
}

fn word(text: &str) -> u32 {
    u32::from_str_radix(text, 16).unwrap()
}

fn id(text: &str) -> u32 {
    text.parse::<i32>().unwrap() as u32
}

fn descriptor(ty: &str, indom: &str, semantics: &str, units: &str) -> (Type, Option<InDom>, Semantics, Units) {
    let ty = Type::from_code(ty.parse().unwrap()).unwrap();
    // An unsupported metric may have no valid semantics.
    let semantics = Semantics::from_code(semantics.parse().unwrap()).unwrap_or(Semantics::Instant);
    (ty, InDom::from_word(word(indom)), semantics, Units::from_word(word(units)))
}

fn column(number: &str, values: &[&str]) -> Column {
    if let Some(error) = Error::from_code(number.parse().unwrap()) {
        return Err(error);
    }
    Ok(values.chunks(2).map(|pair| (id(pair[0]), pair[1].to_owned())).collect())
}

/// Prints a value as `oracle.c` does.
pub(crate) fn printed(atom: Atom<'_>) -> String {
    match atom {
        Atom::I32(v) => v.to_string(),
        Atom::U32(v) => v.to_string(),
        Atom::I64(v) => v.to_string(),
        Atom::U64(v) => v.to_string(),
        Atom::Float(v) => format!("{:08x}", v.to_bits()),
        Atom::Double(v) => format!("{:016x}", v.to_bits()),
        Atom::String(bytes) => format!("{}00", hex(bytes)),
        Atom::Aggregate(bytes) | Atom::Event(bytes) | Atom::HighResEvent(bytes) => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Metadata for &Answers {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        self.operands.get(name).copied().unwrap_or(Err(Missing::Name))
    }
}

/// Sample as a source of values.
pub(crate) struct Fetched<'a> {
    pub(crate) answers: &'a Answers,
    pub(crate) sample: &'a Sample,
}

impl Source for Fetched<'_> {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        let column = self.sample.operands.get(&*operand.name).ok_or(Error::PMID)?;
        for (inst, text) in column.as_ref().map_err(|error| *error)? {
            let bytes: Vec<u8> = match load.ty() {
                ty if ty.is_numeric() => Vec::new(),
                _ => (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect(),
            };
            let atom = match load.ty() {
                Type::I32 => Atom::I32(text.parse().unwrap()),
                Type::U32 => Atom::U32(text.parse().unwrap()),
                Type::I64 => Atom::I64(text.parse().unwrap()),
                Type::U64 => Atom::U64(text.parse().unwrap()),
                Type::Float => Atom::Float(f32::from_bits(word(text))),
                Type::Double => Atom::Double(f64::from_bits(u64::from_str_radix(text, 16).unwrap())),
                Type::String => Atom::String(bytes.strip_suffix(&[0]).unwrap_or(&bytes)),
                Type::Event => Atom::Event(&bytes),
                Type::HighResEvent => Atom::HighResEvent(&bytes),
                _ => Atom::Aggregate(&bytes),
            };
            load.push(Inst::from_word(*inst), atom);
        }
        Ok(())
    }

    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<(), Error> {
        let instances = self.answers.instances.get(&indom).ok_or(Error::INDOM)?;
        list.extend(instances.iter().map(|(inst, _)| *inst));
        Ok(())
    }

    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error> {
        let instances = self.answers.instances.get(&indom).ok_or(Error::INDOM)?;
        let (_, text) = instances.iter().find(|(other, _)| *other == inst).ok_or(Error::INST)?;
        name.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst, Error> {
        let instances = self.answers.instances.get(&indom).ok_or(Error::INDOM)?;
        // Agents accept different texts as the name of an instance: libpcp_pmda also accepts the first word of a name.
        // The sample agent compares only first words, and accepts an empty name for any.
        let first = |text: &str| text.split(' ').next().map(str::to_owned);
        let is_sample = indom.domain().get() != LOCAL;
        let is_named = |full: &str| {
            full == name
                || first(full).as_deref() == Some(name)
                || is_sample && (first(name).as_deref() == Some(full) || name.is_empty())
        };
        instances.iter().find(|(_, full)| is_named(full)).map(|(inst, _)| *inst).ok_or(Error::INST)
    }
}
