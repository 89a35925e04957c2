//! Applications that have closed standard input, output and error, or that cannot write to them.
#![cfg(target_os = "linux")]
#![allow(clippy::panic, clippy::unwrap_used, unsafe_code)]

#[path = "common/all.rs"]
mod all;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use all::{All, read, registry};
use mmv::Registry;
use nix::unistd::{close, dup2_stderr};
use testkit::Child;

/// Asserts that standard input, output and error are closed.
fn assert_closed() {
    for fd in 0..3 {
        // SAFETY: the call reads the flags of a descriptor, if it is open.
        assert_eq!(unsafe { nix::libc::fcntl(fd, nix::libc::F_GETFD) }, -1, "descriptor {fd} is open");
    }
}

#[test]
fn no_file_has_the_descriptor_of_a_closed_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    Child::new(|| {
        (0..3).for_each(|fd| close(fd).unwrap());
        let registry = registry(dir.path());
        let all = All::new(&registry);
        assert_closed();
        registry.try_start().unwrap();
        assert_closed();
        all.update(0);
        registry.counter("later").register().unwrap();
        registry.flush();
        assert_closed();
        all.check(&read(dir.path()), 1);
    })
    .ends();
}

/// Starts an export that fails.
fn start_in(missing: &Path) {
    let registry = Registry::builder("shop").directory(missing).build().unwrap();
    let sales = registry.counter("sales").register().unwrap();
    registry.start();
    sales.inc();
    registry.counter("more").register().unwrap();
    registry.flush();
    assert_eq!(sales.get(), 1);
}

#[test]
fn a_program_without_a_log_is_told_on_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let (missing, told) = (dir.path().join("missing"), dir.path().join("told"));
    Child::new(|| {
        dup2_stderr(fs::File::create(&told).unwrap()).unwrap();
        // Every later failure of the process is silent, or a loop would fill the disk.
        (0..3).for_each(|_| start_in(&missing));
    })
    .ends();
    let path = missing.join("shop");
    let line = format!(
        "shop: metrics are not exported to PCP: {path:?}: No such file or directory (os error 2); mkdir -p {} creates the \
         directory\n",
        missing.display()
    );
    assert_eq!(fs::read_to_string(&told).unwrap(), line);
}

#[test]
fn a_program_without_pcp_is_told_which_directory_to_create() {
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    Child::new(|| {
        dup2_stderr(fs::File::create(&told).unwrap()).unwrap();
        // SAFETY: the child has no other thread.
        unsafe { std::env::set_var("PCP_TMP_DIR", dir.path()) };
        mmv::Registry::new("shop").unwrap().start();
    })
    .ends();
    let text = fs::read_to_string(&told).unwrap();
    let hint = format!("; mkdir -p {}/mmv creates the directory; or PCP_TMP_DIR=T, ", dir.path().display());
    assert!(text.contains(&hint) && text.lines().count() == 1, "{text}");
}

#[test]
#[ignore = "needs root"]
fn a_user_without_the_right_learns_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    for (mode, who) in [(0o755, "only its owner and root"), (0o775, "members of the directory's group, and root,")] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        Child::new(|| {
            dup2_stderr(fs::File::create(&told).unwrap()).unwrap();
            nix::unistd::setgroups(&[]).unwrap();
            nix::unistd::setgid(nix::unistd::Gid::from_raw(65534)).unwrap();
            nix::unistd::setuid(nix::unistd::Uid::from_raw(65534)).unwrap();
            start_in(dir.path());
        })
        .ends();
        let text = fs::read_to_string(&told).unwrap();
        assert!(text.starts_with("shop: metrics are not exported to PCP: ") && text.lines().count() == 1, "{text}");
        assert!(text.ends_with(&format!("Permission denied (os error 13); {who} may export\n")), "{text}");
    }
}

#[test]
fn a_standard_error_that_takes_nothing_stops_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    for path in ["/dev/full", "/dev/null"] {
        Child::new(|| {
            // A full disk, and a descriptor that cannot be written.
            dup2_stderr(fs::File::options().read(path == "/dev/null").write(path == "/dev/full").open(path).unwrap())
                .unwrap();
            start_in(&missing);
        })
        .ends();
    }
    Child::new(|| {
        close(2).unwrap();
        start_in(&missing);
    })
    .ends();
}
