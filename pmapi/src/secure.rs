//! Whether the kernel started this program with more rights than its caller has.
#![allow(unsafe_code)]

/// Returns `AT_SECURE` of getauxval(3): whether the program is set-uid or set-gid, has file capabilities, or a security
/// module says so. False on systems without it.
pub(crate) fn is_secure() -> bool {
    #[cfg(target_os = "linux")]
    {
        use nix::libc::{AT_SECURE, getauxval};
        // SAFETY: `getauxval` takes a number, and reads a table that never changes.
        unsafe { getauxval(AT_SECURE) != 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        false
    }
}
