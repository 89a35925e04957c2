//! File systems that copy on write. The only unsafe code of this module's parent.
#![allow(unsafe_code)]

use std::fs::File;

/// Returns whether the file system copies a block of the file when it is written again.
///
/// Each store to a mapping of such a file may need room on the disk, even where the file has blocks already. On a full
/// disk a store ends the process (SIGBUS). Below an overlay, a file system that can disable this for a file does so; the
/// file must be empty then.
#[cfg(target_os = "linux")]
pub fn copies_on_write(file: &File) -> bool {
    use nix::sys::statfs::{BTRFS_SUPER_MAGIC, FsType, NILFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, fstatfs};

    const BCACHEFS: FsType = FsType(0xca45_1a4e_u32 as _);
    const ZFS: FsType = FsType(0x2fc1_2fc1);

    match fstatfs(file).map(|statfs| statfs.filesystem_type()) {
        Ok(BTRFS_SUPER_MAGIC | NILFS_SUPER_MAGIC | BCACHEFS | ZFS) => true,
        // An overlay behaves as the file system below it, whose type it hides. But only a file system that copies on
        // write can disable that for a file.
        Ok(OVERLAYFS_SUPER_MAGIC) => attribute::has_no_copies(file),
        _ => false,
    }
}

/// Returns whether the file system copies a block of the file when it is written again; false on this platform.
#[cfg(not(target_os = "linux"))]
pub fn copies_on_write(_: &File) -> bool {
    false
}

#[cfg(target_os = "linux")]
mod attribute {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use nix::libc::{c_int, c_long};

    /// The attribute of a file that is not copied on write (`FS_NOCOW_FL`).
    const NO_COPIES: c_int = 0x0080_0000;

    nix::ioctl_read!(attributes, b'f', 1, c_long);
    nix::ioctl_write_ptr!(set_attributes, b'f', 2, c_long);

    /// Sets the attribute. Returns whether the file has it now.
    pub(super) fn has_no_copies(file: &File) -> bool {
        let mut flags: c_int = 0;
        // SAFETY: both calls read or write an `int`, although their request numbers say `long`.
        unsafe {
            if attributes(file.as_raw_fd(), (&raw mut flags).cast()).is_err() {
                return false;
            }
            flags |= NO_COPIES;
            set_attributes(file.as_raw_fd(), (&raw const flags).cast()).is_ok()
        }
    }
}
