//! The light transport: a process writes into a mapped file of its own what it marks, and the agent on the same host
//! reads it there.
//!
//! A mark costs no system call and no lock, but when a thread or a tag is new. Each thread has a lane of its own in the
//! file: the [sums](Change) of its tags, which are exact however rarely the agent looks, and a ring with a
//! [record](Record) of each mark. The newest records take the place of the oldest; those that the agent has not read
//! before are missed, and counted.
//!
//! [`Reader`] is what the agent uses. The files are described in [`mod@format`].

mod directory;
mod fields;
pub mod format;
mod handle;
mod map;
mod process;
mod reader;
mod ring;
mod sums;
mod writer;

pub use directory::{Directory, base, path};
pub use fields::Fields;
pub(crate) use format::{ABORTED, END};
pub(crate) use handle::Light;
pub(crate) use map::pid;
pub(crate) use process::since;
pub use process::{Process, now};
pub use reader::{Claim, ReadError, Reader};
pub(crate) use ring::Mark;
pub use ring::Record;
pub use sums::Change;
