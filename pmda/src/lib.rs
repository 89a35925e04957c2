//! A framework for Performance Co-Pilot agents (PMDAs): what libpcp_pmda is in C.
//!
//! An agent implements [`Agent`]; its `main` is [`main::<A>()`](main).

pub mod agent;
pub mod cache;
pub mod collector;
mod daemon;
pub mod engine;
mod files;
pub mod indom;
mod labels;
pub mod local;
pub mod log;
mod options;
pub mod schema;
pub mod session;
mod transport;
mod user;
pub mod values;
pub mod watch;

pub use agent::{Agent, Client, Failure, Request, Start};
pub use cache::Cache;
pub use daemon::{main, run};
pub use engine::{Engine, Reply};
pub use indom::Instances;
pub use local::Local;
pub use schema::{Schema, Setup};
pub use values::Values;
pub use watch::Watch;

/// What an agent's source file needs.
pub mod prelude {
    pub use crate::agent::{Agent, Client, Request, Start};
    pub use crate::cache::Cache;
    pub use crate::indom::Instances;
    pub use crate::schema::Setup;
    pub use crate::values::Values;
    pub use crate::watch::Watch;
    pub use pmapi::label::LabelSet;
    pub use pmapi::{Atom, Error, Inst, Item, Result, Serial, Type, Units};
    pub use serde_json::json;
}
