//! Shared objects of agents in this process, and the code of processes between fork(2) and exec(2).
//!
//! This module has all unsafe code of the crate.
#![allow(unsafe_code)]

mod answers;
mod calls;
pub(crate) mod child;
mod shared;

pub use calls::Answered;
pub use shared::{LoadError, SharedObject};
