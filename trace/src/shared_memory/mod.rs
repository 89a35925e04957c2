//! The shared-memory transport: each process writes its trace events into a mapped file of its own, and the agent on
//! the same host reads the file.
//!
//! A trace event needs no system call and no lock, except the first one of a thread or a tag. Each thread writes a
//! *lane* of the file. A lane has the [sums](Change) of each tag, which are exact however rarely the agent reads them.
//! It also has a ring with a [record](Record) of each trace event. New records overwrite the oldest ones. The agent
//! counts records as missed that were overwritten before it could read them.
//!
//! The agent reads files with [`Reader`]. The module [`mod@format`] describes every byte of them.

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
mod sums;
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
#[cfg(mmv_loom)]
pub use ring::tried;
pub use sums::Change;
