//! The tests of pcp-pmda-host, but for those that need a process of their own.

#![allow(clippy::unwrap_used, clippy::panic)]

mod equal;
mod hostile;
mod rough;
mod scene;
mod strangers;
mod trouble;
mod unread;
