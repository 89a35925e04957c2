//! Mapped pages and fork handlers: the one module with unsafe code.
#![allow(unsafe_code)]

pub(crate) mod forks;
#[cfg_attr(mmv_loom, allow(dead_code))]
pub(crate) mod pages;

use nix::unistd::{SysconfVar, sysconf};

/// Returns the size of a page, in bytes.
pub(crate) fn page_size() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|n| u64::try_from(n).ok()).unwrap_or(4096)
}
