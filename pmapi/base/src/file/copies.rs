//! File systems on which a store to a mapped file can fail. The only unsafe code of this module's parent.
#![allow(unsafe_code)]

use std::fs::File;

/// Returns whether a store to a mapping of the file can fail although the file has blocks for it. Such a store ends the
/// process (SIGBUS).
///
/// A file system that copies on write puts a changed block to a new place, for which a full disk has no room. One that is
/// on a network, or that a program implements (FUSE), fails when the server or the program has gone, or has truncated the
/// file. Below an overlay, a file system that can disable copies for a file does so; the file must be empty then.
#[cfg(target_os = "linux")]
pub fn stores_may_fail(file: &File) -> bool {
    use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};

    match fstatfs(file).map(|statfs| statfs.filesystem_type()) {
        // An overlay behaves like the file system below it, but hides its type. Only a file system that copies on write
        // can disable this for a file.
        Ok(OVERLAYFS_SUPER_MAGIC) => attribute::has_no_copies(file),
        // The type of the field differs between systems. All types have 32 bits.
        #[allow(clippy::unnecessary_cast)]
        Ok(other) => FAILING.contains(&(other.0 as u32)),
        Err(_) => false,
    }
}

/// Types of file systems: of statfs(2), and those that are not part of Linux.
#[cfg(target_os = "linux")]
const FAILING: [u32; 20] = [
    0x9123_683e, // btrfs
    0x0000_3434, // nilfs2
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // zfs
    0x2405_1905, // ubifs
    0x0000_6969, // nfs
    0x0000_517b, // smb
    0xfe53_4d42, // smb2
    0xff53_4d42, // cifs
    0x0102_1997, // 9p
    0x6573_5546, // fuse, virtiofs
    0x00c3_6400, // ceph
    0x5346_414f, // afs
    0x6b41_4653, // kafs
    0x7375_7245, // coda
    0x0bd0_0bd0, // lustre
    0x7461_636f, // ocfs2
    0x0116_1970, // gfs2
    0x786f_4256, // vboxsf
    0xbacb_acbc, // vmhgfs
];

/// Always returns false on this platform.
#[cfg(not(target_os = "linux"))]
pub fn stores_may_fail(_: &File) -> bool {
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use nix::libc;

    use super::*;

    #[test]
    fn network_and_fuse_file_systems_are_not_mapped() {
        let remote = [libc::NFS_SUPER_MAGIC, libc::SMB_SUPER_MAGIC, libc::FUSE_SUPER_MAGIC, libc::CODA_SUPER_MAGIC];
        let copying = [libc::BTRFS_SUPER_MAGIC, libc::NILFS_SUPER_MAGIC];
        assert!(remote.iter().chain(&copying).all(|kind| FAILING.contains(&(*kind as u32))));
        // The C library has no name for UBIFS_SUPER_MAGIC of the kernel.
        assert!(FAILING.contains(&0x2405_1905));
        let local = [libc::TMPFS_MAGIC, libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::OVERLAYFS_SUPER_MAGIC];
        assert!(!local.iter().any(|kind| FAILING.contains(&(*kind as u32))));
        assert!(!stores_may_fail(&std::fs::File::open("/proc/self/status").unwrap()));
    }
}
