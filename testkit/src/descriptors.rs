//! Programs that close all descriptors which they do not know.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Files of a program, at descriptors that the kernel had given to libraries before.
#[derive(Debug)]
pub struct Taken(Vec<(PathBuf, File)>);

/// Bytes of each file.
const CONTENT: [u8; 8192] = [b'x'; 8192];

impl Taken {
    /// Closes all descriptors from 3 on, as a program does that becomes a daemon, and opens 64 files of the program
    /// instead, in `dir`. Call it in a [`Child`](crate::Child).
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn new(dir: &Path) -> Taken {
        let open =
            fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let open: Vec<i32> = open.map(|number| number.parse().unwrap()).filter(|number| *number > 2).collect();
        // The descriptor that has listed them is closed already.
        open.into_iter().for_each(|number| _ = nix::unistd::close(number));
        let paths = (0..64).map(|n| dir.join(format!("own{n}")));
        Taken(
            paths
                .map(|path| {
                    fs::write(&path, CONTENT).unwrap();
                    let file = File::options().read(true).write(true).open(&path).unwrap();
                    (path, file)
                })
                .collect(),
        )
    }

    /// Asserts that each file is still open, and has its content.
    ///
    /// # Panics
    /// When another part of the program has written or closed a file.
    #[track_caller]
    pub fn assert_untouched(&self) {
        for (path, file) in &self.0 {
            let (own, named) = (file.metadata().unwrap(), fs::metadata(path).unwrap());
            assert_eq!((own.dev(), own.ino()), (named.dev(), named.ino()), "{}", path.display());
            assert!(fs::read(path).unwrap() == CONTENT, "{}", path.display());
        }
    }
}
