//! Derived metrics: the expression language of pmRegisterDerived(3), as in PCP 7.2.
//!
//! [`Definitions`] holds named expressions, from calls or from configuration files. [`Evaluator::bind`] checks them
//! against the descriptors of a [`Metadata`] and gives each definition a descriptor or an error. In each sample the
//! evaluator reads operands from a [`Source`] and computes the values. Reading configuration files is the only input or
//! output of this module.
//!
//! ```
//! use std::time::Duration;
//! use pcp_derived::{Definitions, Evaluator, Load, Metadata, Missing, Operand, Scope, Source, UnknownNames};
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
//! let mut evaluator = Evaluator::bind(&definitions, &mut disk, UnknownNames::Refused);
//! let iops = evaluator.find("disk.iops").ok_or("no such definition")?;
//! assert_eq!(evaluator.desc(iops).map(|desc| desc.units.to_string()), Ok("count / sec".to_owned()));
//!
//! let plan = evaluator.plan([iops]);
//! evaluator.evaluate(&plan, Duration::from_secs(10), &mut disk);
//! disk.reads = 350;
//! evaluator.evaluate(&plan, Duration::from_secs(15), &mut disk);
//! let values = evaluator.values(iops)?;
//! assert_eq!(values.iter().next(), Some((None, Atom::Double(50.0))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Differences from libpcp
//!
//! Types, semantics, units, instance domains, values, error texts and error positions are those of libpcp 7.2.1, with
//! these exceptions:
//!
//! Descriptors
//! * A comparison, `&&` or `||` of a counter is not a counter. A counter multiplied or divided by something else is a
//!   counter, on either side. libpcp uses the semantics of one operand. What follows is refused only if it is wrong
//!   with either semantics: after `gauge * counter`, a factor with units and the sum with a gauge are accepted.
//! * `!` gives a `U32` without units that is not a counter; its operand must be a number. libpcp uses the descriptor of
//!   the operand and fills in 32 bits of its values.
//! * When a scale has to be converted, the result has the larger one, even if a constant is on the left. The direction
//!   of a conversion depends on the dimension of the converted operand. The factor may be of any size.
//! * Binding a `rescale` compares dimensions only, so temperatures below zero do not matter.
//! * Definitions may refer to one another, but not in a cycle.
//!
//! Values
//! * A ternary matches values by instance, not by position. An instance has a value if the guard and the chosen arm
//!   have it, and none if `novalue()` is chosen.
//! * `max` and `min` of an operand without values have no value.
//! * The rate of a metric that falls and is not a counter is negative, for all types. A difference for a rate wraps
//!   around only for a counter of type `32`.
//! * `delta` and `rate` start again after an error or a sample without values. Without time between two samples there
//!   is no rate. A record of an archive that does not have their operand has no effect on them ([`Presence`]); libpcp
//!   evaluates all metrics of a fetch in each record.
//! * `delta` and `rate` of a selected instance, `metric[instance]`, have values; in libpcp they never have.
//! * A constant whose type is not a number, from `meta=`, has no value but an error.
//! * `matchinst` asks for the name of an instance once, and again only after the instance was absent from a sample.
//!   `[instance]` looks its instance up by name again when the instance is gone.
//!
//! Texts
//! * Two `novalue()` in one ternary are accepted, and never have values. libpcp has a message against them, but uses the
//!   expression that it parsed before, if there is one.
//! * Every definition needs a valid metric name; libpcp requires one only in configuration files.
//! * The meaning of an expression depends on nothing before it. In libpcp an unclosed `matchinst` and an unfinished
//!   `mkconst` affect the expressions after them.
//! * Patterns match characters in UTF-8, and their classes are those of Unicode ([`pcp_ere`]); libpcp uses the locale,
//!   which is `C` in programs of PCP in C. Back references in them are refused. A compiled pattern may have 16 MiB, and
//!   those of all definitions in a process 64 MiB; equal ones are compiled once.
//! * An `indom=` with a number that no instance domain has is refused; libpcp uses the low 32 bits.
//! * An expression nested more than 10,000 deep gets a message.
//! * The last line of a configuration needs no newline. The files of a directory are read in the order of their names.
//! * `#control novalue=1`, as the manual spells it, works. `CONTEXT_LIMIT` works before there is a context.
//! * The warning about text after a value of several lines quotes all of the text; libpcp omits the first character.
//!
//! These oddities are the same as in libpcp:
//! * `?:` groups from the left; `&&` and `||` have the same precedence. `!` binds more loosely than comparisons and
//!   arithmetic, unary minus more loosely than `*` and `/`.
//! * There is no division within `matchinst`. A backslash in a pattern is dropped.
//! * Integer constants are unsigned, so a comparison of a `32` with one is unsigned too. A comparison with an operand
//!   of type `U32` does not require the same dimension.
//! * The dimensions of a constant to the left of `*` or `/` count, but its scale is lost.
//! * `avg` has type `FLOAT`; `0 / 0` is 0. The rate of a counter of type `32` that falls is negative.
//! * A ternary of aggregates or event records has no values.
//!
//! Types of [`pmapi`] are in the interface, so this crate is re-exported; and, for [`Live`], which asks pmcd,
//! [`pcp_client`] and [`pcp_pdu`].

mod bind;
mod check;
mod config;
mod constants;
mod control;
mod data;
mod definitions;
mod emit;
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
mod presence;
mod program;
mod rules;
mod scope;
mod select;
mod source;
mod trace;
mod values;

pub use pcp_client;
pub use pcp_pdu;
pub use pmapi;

pub use bind::UnknownNames;
pub use config::{Loaded, Message, read_files};
pub use control::{Control, ControlError, Controls, Setter, Severity};
pub use definitions::{Definition, Definitions};
pub use error::{BindError, RegisterError, SyntaxError};
pub use evaluator::{DefinitionId, Evaluator, Plan};
pub use live::{Descs, Live, OperandValues};
pub use presence::Presence;
pub use program::Operand;
pub use scope::Scope;
pub use source::{Metadata, Missing, Source};
pub use values::{Column, Load};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
