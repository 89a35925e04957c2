//! Where a loader reads from.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The source of a [`Loader`](crate::Loader)'s texts.
pub trait Files {
    /// Returns the content of a file.
    ///
    /// # Errors
    ///
    /// Any error of reading it. For the first file it becomes [`Error::Open`](crate::Error::Open). For an included file
    /// the loader tries the next directory.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Runs the command of a `#shell` line and returns its standard output.
    ///
    /// # Errors
    ///
    /// Any error of running it. The loader reports it as a problem of the `#shell` line.
    fn shell(&self, command: &str) -> io::Result<Vec<u8>>;
}

/// The file system of the process. Commands of `#shell` run with `/bin/sh`, and their exit code is ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl Files for FileSystem {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // pmcpp ignores everything but regular files and character devices. Reading a FIFO could block forever.
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_char_device() {
            const ENOENT: i32 = 2;
            return Err(io::Error::from_raw_os_error(ENOENT));
        }
        std::fs::read(path)
    }

    fn shell(&self, command: &str) -> io::Result<Vec<u8>> {
        let mut sh = Command::new("/bin/sh");
        Ok(sh.arg("-c").arg(command).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?.stdout)
    }
}
