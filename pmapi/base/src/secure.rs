//! What the kernel told this program at its start (getauxval(3)).
#![allow(unsafe_code)]

/// Returns `AT_SECURE` of getauxval(3): whether the program is set-uid or set-gid, has file capabilities, or a security
/// module requires it. On systems without `AT_SECURE`, compares the real and effective user and group.
pub fn is_secure() -> bool {
    #[cfg(target_os = "linux")]
    {
        use nix::libc::{AT_SECURE, getauxval};
        // SAFETY: `getauxval` takes a number, and reads a table that never changes.
        unsafe { getauxval(AT_SECURE) != 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        use nix::unistd::{getegid, geteuid, getgid, getuid};
        getuid() != geteuid() || getgid() != getegid()
    }
}

/// Returns whether a system call that a tool such as valgrind may not know can be tried. valgrind reports each unknown
/// call as an error, and hides the kernel's vDSO from the program.
#[cfg(target_os = "linux")]
pub(crate) fn has_all_calls() -> bool {
    use nix::libc::{AT_SYSINFO_EHDR, getauxval};
    // SAFETY: as in `is_secure`.
    unsafe { getauxval(AT_SYSINFO_EHDR) != 0 }
}
