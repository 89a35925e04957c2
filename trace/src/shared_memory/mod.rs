//! The shared-memory transport: each process writes its trace events into two mapped files of its own, and the agent on
//! the same host reads them.
//!
//! A trace event needs no system call and no lock, except the first one of a thread or a tag. The [`sums`] of each tag are
//! metrics of an MMV file: they are exact however rarely the agent reads them. The other file has a *lane* for each thread:
//! a ring with a [record](Record) of each trace event. New records overwrite the oldest ones. The agent counts records as
//! missed that were overwritten before it could read them.
//!
//! The agent reads records with [`Reader`], and sums with crate `pcp-mmv-reader`. The module [`mod@format`] describes the
//! files.

mod agent;
mod agent_file;
mod directory;
pub(crate) mod fields;
mod file_lock;
pub mod format;
mod handle;
mod map;
mod per_process;
mod process;
mod reader;
mod ring;
pub mod sums;
mod writer;

pub(crate) use agent::Agent;
pub use directory::{Directory, base, path};
pub(crate) use fields::Fields;
pub(crate) use format::{ABORTED, END};
pub(crate) use handle::SharedMemory;
pub(crate) use per_process::{Inherited, PerProcess, this_process};
pub(crate) use process::since;
pub use process::{Process, now};
pub use reader::{Claim, ReadError, Reader};
pub(crate) use ring::Mark;
pub use ring::Record;
#[cfg(trace_loom)]
pub use ring::tried;
