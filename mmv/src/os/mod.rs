//! Mapped pages, and forks of the process: the one module with unsafe code.
#![allow(unsafe_code)]

pub(crate) mod forks;
pub(crate) mod pages;

use nix::unistd::{SysconfVar, sysconf};

/// Returns the size of a page, in bytes.
pub(crate) fn page_size() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|n| u64::try_from(n).ok()).unwrap_or(4096)
}
