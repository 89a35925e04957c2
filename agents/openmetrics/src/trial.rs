//! A source without an agent, a file or a thread, for programs that read very many documents.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use pmapi::{Atom, Inst, Type};

use crate::metric::{Metric, NO_SLOT, Named, Sample, Shape};
use crate::model::Model;
use crate::url_file::{Rules, UrlFile};

/// A source that reads documents from memory, and writes no files.
///
/// ```
/// use pmda_openmetrics::Trial;
///
/// let mut trial = Trial::new("http://localhost\nFILTER: EXCLUDE METRIC b", 100)?;
/// let seen = trial.read(b"a 1\nb 2\nc{} 3\nd{\n");
/// assert_eq!((seen.values, seen.refused), (2, Some(4)));
/// assert_eq!(trial.number("c"), Some(3.0));
/// # Ok::<(), (usize, String)>(())
/// ```
#[derive(Debug)]
pub struct Trial {
    model: Model,
    rules: Rules,
    last: Option<Sample>,
}

/// Outcome of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Seen {
    /// Number of instances with a value.
    pub values: usize,
    /// Hash of names, instances and values.
    pub hash: u64,
    /// Number of the first line that was refused.
    pub refused: Option<usize>,
    /// Metrics and instances that were left out.
    pub left_out: u64,
}

impl Trial {
    /// Creates a source from the text of a `.url` file, with at most `instances` instances.
    ///
    /// # Errors
    /// The line that was refused, and the reason.
    pub fn new(url_file: &str, instances: usize) -> Result<Trial, (usize, String)> {
        let file = UrlFile::parse(url_file)?;
        Ok(Trial { model: Model::unsaved("trial".into(), instances), rules: file.rules, last: None })
    }

    /// Reads a document as the agent does.
    pub fn read(&mut self, document: &[u8]) -> Seen {
        let sample = self.model.read(&String::from_utf8_lossy(document), &self.rules);
        let (mut values, mut hasher) = (0, DefaultHasher::new());
        for (metric, inst, slot) in sample.metrics.iter().flat_map(slots) {
            let Some(atom) = sample.values.get(slot).and_then(|value| value.atom()) else { continue };
            values += 1;
            (&metric.name, inst, name(metric, inst)).hash(&mut hasher);
            match atom {
                Ok(Atom::Double(number)) => number.to_bits().hash(&mut hasher),
                Ok(atom) => atom.to_string().hash(&mut hasher),
                Err(e) => e.to_string().hash(&mut hasher),
            }
        }
        let refused = sample.refused.first.first().map(|(line, _)| *line);
        let seen = Seen { values, hash: hasher.finish(), refused, left_out: sample.left_out };
        self.last = Some(sample);
        seen
    }

    /// Returns the first value of a metric in the last document, as a number.
    pub fn number(&self, metric: &str) -> Option<f64> {
        let sample = self.last.as_ref()?;
        let metric = sample.metrics.iter().find(|known| *known.name == *metric)?;
        let mut values = slots(metric).filter_map(|(_, _, slot)| sample.values.get(slot)?.atom()?.ok());
        match values.next()?.convert(Type::Double).ok()?.as_atom() {
            Atom::Double(number) => Some(number),
            _ => None,
        }
    }
}

/// Iterates over the instances of a metric that have had values, with their slots.
fn slots(metric: &std::sync::Arc<Metric>) -> impl Iterator<Item = (&Metric, Inst, usize)> {
    let single = match metric.shape {
        Shape::Singular(slot) if slot != NO_SLOT => Some((Inst::new(0), slot as usize)),
        _ => None,
    };
    let many = metric.instances().into_iter().flat_map(Named::slots);
    single.into_iter().chain(many).map(|(inst, slot)| (&**metric, inst, slot))
}

fn name(metric: &Metric, inst: Inst) -> Option<&str> {
    metric.instances()?.names.get(inst.word() as usize).map(|name| &**name)
}
