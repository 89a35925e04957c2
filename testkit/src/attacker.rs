//! An attack by another user on the directory that a test's programs write to.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// The attacking user, `nobody` on every Linux.
const USER: u32 = 65534;

/// Swaps names of a directory for symbolic links to a file outside of it, repeatedly, until dropped. A program that
/// follows a link writes to that file, or changes its mode or owner.
///
/// When root runs the test, directory and links belong to user nobody. Everything is in temporary directories, so a
/// program that follows a link causes no damage.
#[derive(Debug)]
pub struct Attacker {
    dir: tempfile::TempDir,
    _elsewhere: tempfile::TempDir,
    target: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const CONTENT: &str = "not to be touched\n";

impl Attacker {
    /// Begins to swap names in a new directory.
    ///
    /// # Panics
    /// When the directory cannot be created.
    pub fn swaps<const N: usize>(names: [&str; N]) -> Attacker {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = elsewhere.path().join("target");
        fs::write(&target, CONTENT).unwrap();
        if nix::unistd::geteuid().is_root() {
            chown(dir.path(), Some(USER), Some(USER)).unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let paths = names.map(|name| dir.path().join(name)).to_vec();
        let (link, done, to) = (dir.path().join(".link"), Arc::clone(&stop), target.clone());
        let thread = Some(thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for path in &paths {
                    swap(&link, &to, path);
                }
            }
        }));
        Attacker { dir, _elsewhere: elsewhere, target, stop, thread }
    }

    /// Returns the path of the directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends the attack, and checks that it had no effect.
    ///
    /// # Panics
    /// When the content, mode or owner of the target has changed.
    pub fn has_failed(mut self) {
        self.end();
        let metadata = fs::metadata(&self.target).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o644, "the mode of the target has changed");
        assert_eq!(metadata.uid(), nix::unistd::geteuid().as_raw(), "the owner of the target has changed");
        assert_eq!(fs::read_to_string(&self.target).unwrap(), CONTENT);
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Creates a link for a moment, and then removes it. Errors are ignored, because the next call tries again.
fn swap(link: &Path, target: &Path, path: &Path) {
    let _ = symlink(target, link);
    let _ = lchown(link, Some(USER), Some(USER));
    let _ = fs::rename(link, path);
    thread::yield_now();
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        let _ = fs::remove_file(path);
    }
    thread::yield_now();
}
