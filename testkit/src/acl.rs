//! Access control lists (acl(5)).

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Lets a user write to a file or directory by an access control list. The owner, the group and others keep their
/// permissions, but the mode then shows the group with write permission, because it shows the list's mask.
///
/// # Panics
/// If the file system has no access control lists.
pub fn let_user_write(path: &Path, uid: u32) {
    let mode = path.metadata().expect("a file").mode();
    let [owner, group, others] = [6, 3, 0].map(|shift| (mode >> shift & 7) as u16);
    let of_user = others | 2;
    let (none, mut list) = (u32::MAX, 2_u32.to_le_bytes().to_vec());
    // The owner, the user, the group, the mask and others.
    for (tag, rights, id) in [
        (0x01_u16, owner, none),
        (0x02, of_user, uid),
        (0x04, group, none),
        (0x10, group | of_user, none),
        (0x20, others, none),
    ] {
        list.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    let set = rustix::fs::setxattr(path, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty());
    set.expect("a file system with access control lists");
}
