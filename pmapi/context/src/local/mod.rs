//! Local contexts: agents as shared objects in this process.

mod agents;
mod source;
mod worker;

pub use agents::{LocalAgent, LocalAgents, LocalSpecError};
pub(crate) use source::Local;
pub use worker::LocalError;
