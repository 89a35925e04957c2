//! Derived metrics: the language of pmRegisterDerived(3).

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
mod parser;
mod program;
mod rules;
mod select;
mod source;
mod values;

pub use config::{Loaded, Message};
pub use control::{Control, ControlError, Controls, Setter, Severity};
pub use definitions::{Definition, Definitions, Scope, Text};
pub use error::{BindError, RegisterError, SyntaxError};
pub use evaluator::{Evaluator, Plan};
pub use program::Operand;
pub use source::{Metadata, Missing, Source};
pub use values::{Load, Values};
