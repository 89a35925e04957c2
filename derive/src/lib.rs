//! Derived metrics: the language of pmRegisterDerived(3), that of PCP 7.2.
//!
//! [`Definitions`] are named expressions, from calls or from configuration files. An [`Evaluator`] is what they are
//! bound to: with [`Metadata`] each gets a descriptor, or an error. From then on each sample's values come from a
//! [`Source`]. Nothing here does any input or output but reading configuration files.
//!
//! ```
//! use std::time::Duration;
//! use pcp_derive::{Definitions, Evaluator, Load, Metadata, Missing, Operand, Scope, Source};
//! use pmapi::{Atom, Desc, Domain, Error, InDom, Inst, Item, PmId, Semantics, Type, Units};
//!
//! struct Disk { reads: u64 }
//!
//! impl Metadata for Disk {
//!     fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
//!         let domain = Domain::new(60).ok_or(Missing::Name)?;
//!         match name {
//!             "disk.read" => Ok(Desc {
//!                 pmid: PmId::new(domain, Item::new(0, 24)),
//!                 ty: Type::U64,
//!                 indom: None,
//!                 semantics: Semantics::Counter,
//!                 units: Units::COUNT,
//!             }),
//!             _ => Err(Missing::Name),
//!         }
//!     }
//! }
//!
//! impl Source for Disk {
//!     fn values(&mut self, _: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
//!         load.push(None, Atom::U64(self.reads));
//!         Ok(())
//!     }
//! #   fn instances(&mut self, _: InDom, _: &mut Vec<Inst>) -> Result<(), Error> { Err(Error::INDOM) }
//! #   fn instance_name(&mut self, _: InDom, _: Inst, _: &mut Vec<u8>) -> Result<(), Error> { Err(Error::INDOM) }
//! #   fn instance_id(&mut self, _: InDom, _: &str) -> Result<Inst, Error> { Err(Error::INDOM) }
//!     // And what instances there are.
//! }
//!
//! let mut definitions = Definitions::new(Scope::Global);
//! definitions.register("disk.iops", "rate(disk.read)")?;
//! let mut disk = Disk { reads: 100 };
//! let mut evaluator = Evaluator::bind(&definitions, &mut disk, false);
//! assert_eq!(evaluator.desc(0).map(|desc| desc.units.to_string()), Ok("count / sec".to_owned()));
//!
//! let plan = evaluator.plan([0]);
//! evaluator.evaluate(&plan, Duration::from_secs(10), &mut disk);
//! disk.reads = 350;
//! evaluator.evaluate(&plan, Duration::from_secs(15), &mut disk);
//! let values = evaluator.values(0)?;
//! assert_eq!(values.iter().next(), Some((None, Atom::Double(50.0))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Differences from libpcp
//!
//! Types, semantics, units, instance domains, values and the texts and places of errors are those of libpcp 7.2.1,
//! but for these:
//!
//! Descriptors
//! * A comparison, `&&` or `||` of a counter is no counter itself, and what is a counter times or over something else
//!   is a counter, whatever stands on its left. libpcp takes the semantics of one operand.
//! * `!` gives a `U32` without units that is no counter; its operand must be a number. libpcp takes the descriptor of
//!   the operand and fills in 32 bits of its values.
//! * When a scale has to be converted the result has the larger one even if a constant is on the left. The direction
//!   of a conversion depends on the dimension of the operand that is converted, and its factor may be of any size.
//! * `rescale` looks at dimensions alone, so temperatures below zero do not matter when it is bound.
//! * Definitions may refer to one another, unless that leads back to where it began.
//!
//! Values
//! * A ternary takes values by their instance, not by their place: guard and chosen arm must have the instance, and
//!   one for which `novalue()` is chosen is left out.
//! * `max` and `min` of nothing are nothing.
//! * The rate of a metric that is no counter and falls is negative, for all types. No difference for a rate wraps
//!   around, but that of a counter of type `32`.
//! * After an error, or a sample without values, `delta` and `rate` begin anew. Without time between two samples there
//!   is no rate.
//! * The instances that `matchinst` has seen are remembered as long as they are there, and asked for again after that.
//!   One that `[instance]` has found and that is gone is looked for again by its name.
//!
//! Texts
//! * Two `novalue()` in one ternary are always an error: libpcp has the message for it, but takes the expression that
//!   it parsed before.
//! * Every definition has a name that a metric may have; in libpcp only those of configurations have to.
//! * An expression stands for itself: in libpcp a `matchinst` that was never closed and an unfinished `mkconst` have
//!   effects on the expressions after them.
//! * Patterns are of characters in UTF-8, in libpcp of those of the locale. Back references in them are refused, and
//!   so is `indom=` with a number that no instance domain has; libpcp takes the latter's last 32 bits.
//! * What is nested more than 10,000 deep has a message.
//! * The last line of a configuration needs no newline. The files of a directory are read in the order of their names.
//!   `#control novalue=1`, which is how the manual has it, works, and so does `CONTEXT_LIMIT` before there is a
//!   context. The warning about text behind a value of several lines has all of it; libpcp's lacks the first character.
//!
//! What looks odd and is the same as in libpcp: `?:` groups from the left; `!` and unary minus bind more loosely than
//! what is to their right; `&&` and `||` bind alike; there is no division within `matchinst`; a backslash in a pattern
//! is dropped; integer constants have no sign, so neither has a comparison of a `32` with one; a comparison with
//! anything of type `U32` need not have the same dimension; of a constant to the left of `*` or `/` the dimensions
//! count and the scale is lost; `avg` is of type `FLOAT`; nothing divided by nothing is nothing; the rate of a counter
//! of type `32` that falls is negative; a ternary is neither of aggregates nor of event records.

mod bind;
mod check;
mod config;
mod constants;
mod control;
mod data;
mod definitions;
mod emit;
mod ere;
mod error;
mod eval;
mod evaluator;
mod expr;
mod filter;
mod history;
mod join;
mod lexer;
mod live;
mod parser;
mod program;
mod rules;
mod select;
mod source;
mod values;

pub use config::{Loaded, Message, read_files};
pub use control::{Control, ControlError, Controls, Setter, Severity};
pub use definitions::{Definition, Definitions, Scope, Text};
pub use error::{BindError, RegisterError, SyntaxError};
pub use evaluator::{Evaluator, Plan};
pub use live::{Live, Names, OperandValues};
pub use program::Operand;
pub use source::{Metadata, Missing, Source};
pub use values::{Load, Values};
