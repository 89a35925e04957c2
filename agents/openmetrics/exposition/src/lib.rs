//! Parser of the documents that Prometheus exporters publish: the Prometheus text format 0.0.4 and `OpenMetrics` 1.0.
//!
//! [`Lines`] splits a document, and [`Line::parse`] reads a line: [`Comment`]s carry type, help and unit, [`Sample`]s
//! a name, labels and a value. All of them borrow from the document. Nothing is allocated, nothing is read or written,
//! and the time is linear in the length of the document.
//!
//! ```
//! use exposition::{Line, Lines};
//!
//! let text = "# TYPE sent_bytes counter\nsent_bytes{device=\"eth0\"} 1027\n";
//! let lines: Vec<Line<'_>> = Lines::new(text).map(|(_, line)| Line::parse(line)).collect::<Result<_, _>>()?;
//! let [Line::Comment(comment), Line::Sample(sample)] = lines[..] else { panic!("a comment and a sample") };
//! assert_eq!((comment.keyword(), comment.words().nth(2)), (Some("TYPE"), Some("counter")));
//! assert_eq!((sample.name(), exposition::number::float(sample.value())), ("sent_bytes", Some(1027.0)));
//! let label = sample.labels().next().expect("a label");
//! assert_eq!((label.name, &*label.value.text()), ("device", "eth0"));
//! # Ok::<(), exposition::Refusal>(())
//! ```
//!
//! The grammar of samples is that of PCP's agent pmdaopenmetrics(1), so an exporter that works there works here. It is
//! wider than the two formats: spaces may stand anywhere between the parts of a sample, and names have any characters.
//! [`Line::parse`] reports why it refuses a line. `promtool check metrics` checks a document against the formats themselves.

mod comment;
mod lines;
pub mod number;
mod sample;
mod space;

pub use comment::Comment;
pub use lines::Lines;
pub use sample::{Label, LabelValue, Labels, Reason, Refusal, Sample};

/// A line of a document.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Line<'a> {
    /// A line of white space.
    Blank,
    /// A line that begins with `#`.
    Comment(Comment<'a>),
    /// A name, labels and a value.
    Sample(Sample<'a>),
}

impl<'a> Line<'a> {
    /// Parses a line without its end. White space around it is ignored.
    ///
    /// # Errors
    /// A [`Refusal`], with the column, if the line is neither blank nor a comment nor a sample.
    #[inline]
    pub fn parse(line: &'a str) -> Result<Line<'a>, Refusal> {
        let text = space::trim(line);
        match text.as_bytes().first() {
            None => Ok(Line::Blank),
            Some(b'#') => Ok(Line::Comment(Comment::new(text))),
            Some(_) => match Sample::parse(text) {
                Ok(sample) => Ok(Line::Sample(sample)),
                Err(refusal) => Err(refusal.moved(line.len() - space::trim_start(line).len())),
            },
        }
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
