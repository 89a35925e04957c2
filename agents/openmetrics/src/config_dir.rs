//! The configuration directory: which sources there are.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tracing::{error, warn};

use crate::reader::Kind;

/// A file of the directory that is a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Name of the source: the path below the directory without the last ending, with dots between its parts.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
}

/// The order in which new sources get their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    ByName,
    /// That of the directory.
    Any,
}

/// The directory with the sources, and below it further ones.
#[derive(Debug)]
pub(crate) struct ConfigDir {
    path: PathBuf,
    order: Order,
    /// Directories as of the last scan, with the times of their last changes.
    seen: Vec<(PathBuf, Option<SystemTime>)>,
    scanned: Option<Instant>,
    /// Whether the directories may have changed since without a change of their times.
    is_fresh: bool,
    /// Files that have been logged.
    logged: HashSet<PathBuf>,
}

/// Most files and directories that are looked at.
const ENTRIES: usize = 100_000;
/// Deepest directory below the configuration directory.
const DEPTH: usize = 16;
/// Twice the coarsest tick of the kernel's clock for files.
const TICK: Duration = Duration::from_millis(20);
/// Time after which changes are looked for that do not change a directory, such as those of modes.
const PERIOD: Duration = Duration::from_secs(5);

impl ConfigDir {
    pub(crate) fn new(path: PathBuf, order: Order) -> ConfigDir {
        ConfigDir { path, order, seen: Vec::new(), scanned: None, is_fresh: false, logged: HashSet::new() }
    }

    /// Returns whether a scan may find other sources than the last one did.
    pub(crate) fn may_have_changed(&self, now: Instant) -> bool {
        let Some(scanned) = self.scanned else { return true };
        let age = now.duration_since(scanned);
        age >= PERIOD || self.is_fresh && age >= TICK || self.seen.iter().any(|(path, time)| changed(path) != *time)
    }

    /// Lists the sources.
    pub(crate) fn scan(&mut self) -> Vec<Found> {
        self.seen.clear();
        let now = SystemTime::now();
        let mut files = Vec::new();
        if let Err(e) = self.walk(&self.path.clone(), 0, &mut files) {
            self.log(&self.path.clone(), &e.to_string());
        }
        let is_new = |time: &SystemTime| now.duration_since(*time).unwrap_or_default() < TICK;
        self.is_fresh = self.seen.iter().any(|(_, time)| time.as_ref().is_none_or(is_new));
        self.scanned = Some(Instant::now());
        if self.order == Order::ByName {
            files.sort_unstable();
        }
        let mut found: Vec<Found> = files.into_iter().filter_map(|path| self.source(path)).collect();
        let mut names = HashSet::new();
        found.retain(|source| names.insert(source.name.clone()));
        found
    }

    fn walk(&mut self, dir: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
        if depth > DEPTH {
            return Err(io::Error::other(format!("more than {DEPTH} directories in each other")));
        }
        self.seen.push((dir.to_owned(), changed(dir)));
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if files.len() >= ENTRIES {
                return Err(io::Error::other(format!("more than {ENTRIES} files; the others are left out")));
            }
            let path = entry.path();
            // Links to directories are not followed, so that there are no circles.
            if entry.file_type()?.is_dir() {
                if let Err(e) = self.walk(&path, depth + 1, files) {
                    self.log(&path, &e.to_string());
                }
            } else if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                files.push(path);
            }
        }
        Ok(())
    }

    /// Returns the source that a file is, if it is one.
    fn source(&mut self, path: PathBuf) -> Option<Found> {
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(e) => {
                self.log(&path, &format!("ignored: {e}"));
                return None;
            }
        };
        if !metadata.is_file() {
            return None;
        }
        let is_script = metadata.mode() & 0o100 != 0;
        if !is_script && path.extension().is_none_or(|end| end != "url") {
            return None;
        }
        let below = path.strip_prefix(&self.path).ok()?.with_extension("");
        let name = below.to_string_lossy().replace('/', ".");
        if name == "control" {
            self.log(&path, "ignored: the names below control are those of the agent itself");
            return None;
        }
        if !is_source_name(&name) {
            self.log(
                &path,
                "ignored: its name is no name of metrics (letters, digits, _ and ., beginning with a letter)",
            );
            return None;
        }
        Some(Found { name, path, kind: if is_script { Kind::Script } else { Kind::Url } })
    }

    /// Logs a problem, once for each file.
    fn log(&mut self, path: &Path, problem: &str) {
        if self.logged.len() < ENTRIES && self.logged.insert(path.to_owned()) {
            if path == self.path {
                error!("{}: {problem}", path.display());
            } else {
                warn!("{}: {problem}", path.display());
            }
        }
    }
}

fn changed(dir: &Path) -> Option<SystemTime> {
    dir.metadata().and_then(|metadata| metadata.modified()).ok()
}

fn is_source_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn files_that_are_sources() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        fs::create_dir_all(path.join("sub/deep")).unwrap();
        fs::create_dir_all(path.join(".git")).unwrap();
        for name in
            ["b.url", "a.url", "twice.url", "sub/deep/x.y.url", "my-source.url", "control.url", ".git/x.url", "text"]
        {
            fs::write(path.join(name), "http://localhost\n").unwrap();
        }
        for name in ["run.sh", "twice"] {
            fs::write(path.join(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink("nowhere", path.join("broken.url")).unwrap();
        symlink("..", path.join("sub/up")).unwrap();
        let mut config = ConfigDir::new(path.to_owned(), Order::ByName);
        assert!(config.may_have_changed(Instant::now()));
        let found: Vec<_> = config.scan().into_iter().map(|found| (found.name, found.kind)).collect();
        let expected = [
            ("a", Kind::Url),
            ("b", Kind::Url),
            ("run", Kind::Script),
            ("sub.deep.x.y", Kind::Url),
            ("twice", Kind::Script),
        ];
        assert_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)));
        fs::write(path.join("sub/new.url"), "http://localhost\n").unwrap();
        let begin = Instant::now();
        while !config.may_have_changed(Instant::now()) {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        assert!(config.scan().iter().any(|found| found.name == "sub.new"));
    }
}
