//! Where a loader reads from.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Longest text of a name space with everything that it includes, in bytes. That of all PCP's agents has 1 MiB.
pub(crate) const LONGEST: usize = 64 << 20;

/// The source of a [`Loader`](crate::Loader)'s texts.
pub trait Files {
    /// Returns the content of a file.
    ///
    /// # Errors
    ///
    /// Any error of reading it. For the first file it becomes [`Error::Open`](crate::Error::Open). For an included file
    /// the loader tries the next directory.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Returns the content of an included file. Its path is relative to the working directory. By default, this is
    /// [`Files::read`].
    ///
    /// # Errors
    ///
    /// Those of [`Files::read`], or any other reason not to read a file there. The loader tries the next directory.
    fn read_relative(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read(path)
    }

    /// Runs the command of a `#shell` line and returns its standard output.
    ///
    /// # Errors
    ///
    /// Any error of running it. The loader reports it as a problem of the `#shell` line.
    fn shell(&self, command: &str) -> io::Result<Vec<u8>>;
}

/// The file system of the process. Commands of `#shell` run with `/bin/sh`, and their exit code is ignored.
///
/// A file, or the output of a command, has at most 64 MiB. If the process is root's, included files in its working
/// directory must belong to root: that directory may be another user's, and the file could have `#shell` lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl Files for FileSystem {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read(path, |_| true)
    }

    fn read_relative(&self, path: &Path) -> io::Result<Vec<u8>> {
        read(path, pcp_base::file::is_trusted)
    }

    fn shell(&self, command: &str) -> io::Result<Vec<u8>> {
        let mut sh = Command::new("/bin/sh");
        let sh = sh.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = sh.spawn()?;
        let mut text = Vec::new();
        // The end of the pipe is closed before the wait, so that a command with more output ends.
        let read = child.stdout.take().map_or(Ok(0), |out| out.take(LONGEST as u64 + 1).read_to_end(&mut text));
        child.wait()?;
        read?;
        if text.len() > LONGEST { Err(too_long()) } else { Ok(text) }
    }
}

fn read(path: &Path, trusts: impl FnOnce(u32) -> bool) -> io::Result<Vec<u8>> {
    // Opening a FIFO could block forever.
    let file = File::options().read(true).custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits()).open(path)?;
    let status = file.metadata()?;
    // pmcpp ignores everything but regular files and character devices.
    if !status.is_file() && !status.file_type().is_char_device() {
        return Err(Errno::ENOENT.into());
    }
    if !trusts(status.uid()) {
        let text = format!("it belongs to user {}", status.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    pcp_base::file::read_from(&file, LONGEST as u64)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("over {} MiB of output", LONGEST >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_end_are_not_read_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let [sparse, fifo, file] = ["sparse", "fifo", "file"].map(|name| dir.path().join(name));
        File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(&file, "root {}").unwrap();
        let kind = |path: &Path| FileSystem.read(path).unwrap_err().kind();
        assert_eq!(kind(&sparse), io::ErrorKind::FileTooLarge);
        assert_eq!(kind(Path::new("/dev/zero")), io::ErrorKind::FileTooLarge);
        assert_eq!(kind(&fifo), io::ErrorKind::NotFound);
        assert_eq!(FileSystem.shell("yes").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(FileSystem.read(Path::new("/dev/null")).unwrap(), b"");
        assert_eq!(FileSystem.shell("echo root").unwrap(), b"root\n");
        assert_eq!(read(&file, |_| true).unwrap(), b"root {}");
        assert_eq!(read(&file, |_| false).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
