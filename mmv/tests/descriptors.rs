//! Applications that close all descriptors which they do not know, and change their working directory, as daemons do when
//! they start.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "common/all.rs"]
mod all;

use std::path::Path;

use all::{All, read, registry, word};
use testkit::{Child, Taken};

/// Closes the descriptors of a registry that has started (if `starts`) or not. Values go on, and the application's own
/// files stay as they are.
fn close_all(dir: &Path, own: &Path, starts: bool) {
    Child::new(|| {
        let registry = registry(dir);
        let all = All::new(&registry);
        (0..3).for_each(|n| all.update(n));
        if starts {
            registry.try_start().unwrap();
        }
        let taken = Taken::new(own);
        (3..5).for_each(|n| all.update(n));
        registry.try_start().unwrap();
        registry.flush();
        all.check(&read(dir), 5);
        // They need further segments.
        let more: Vec<mmv::Counter> =
            (0..500).map(|n| registry.counter(&format!("more{n}")).register().unwrap()).collect();
        more.iter().for_each(|counter| counter.add(7));
        (5..9).for_each(|n| all.update(n));
        registry.flush();
        let file = read(dir);
        all.check(&file, 9);
        assert_eq!((word(&file, "more0"), word(&file, "more499")), (7, 7));
        taken.assert_untouched();
        drop((registry, all, more));
        assert!(!dir.join("app").exists());
        taken.assert_untouched();
    })
    .ends();
}

#[test]
fn files_of_an_application_that_has_closed_those_of_the_registry_stay_as_they_are() {
    for starts in [true, false] {
        let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        close_all(dir.path(), own.path(), starts);
    }
}

#[test]
fn a_relative_directory_stays_the_same() {
    let dir = tempfile::tempdir().unwrap();
    Child::new(|| {
        std::env::set_current_dir(dir.path()).unwrap();
        let registry = registry(Path::new("."));
        registry.try_start().unwrap();
        std::env::set_current_dir("/").unwrap();
        registry.counter("later").register().unwrap().add(3);
        registry.flush();
        assert_eq!(word(&read(dir.path()), "later"), 3);
    })
    .ends();
}
