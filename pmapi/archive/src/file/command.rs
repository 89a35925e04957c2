//! Decompression by the external command of a format, used if the build lacks the decoder.

use std::fs::File;
use std::io::{self, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Command that writes the decompressed bytes.
pub(super) struct Decompressed {
    name: &'static str,
    child: Child,
    out: ChildStdout,
}

/// Starts the command that decompresses a file, by the suffix of its name.
///
/// # Errors
/// `Unsupported` for a suffix of no format, `NotFound` if the command is not installed.
pub(super) fn start(suffix: &str, file: File) -> io::Result<Decompressed> {
    let (name, args) = match suffix {
        "xz" | "lzma" => ("xz", &["-dc", "--memlimit-decompress=256MiB"][..]),
        "zst" => ("zstd", &["-dcq"][..]),
        "gz" | "z" => ("gzip", &["-dc"][..]),
        "bz2" | "bz" => ("bzip2", &["-dc"][..]),
        _ => {
            let reason = format!("compression .{suffix} is not supported");
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
    };
    let mut command = Command::new(name);
    command.args(args).stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| io::Error::new(e.kind(), format!("cannot start {name}(1): {e}")))?;
    let out = child.stdout.take().ok_or_else(|| io::Error::other("the command has no output"))?;
    Ok(Decompressed { name, child, out })
}

impl Read for Decompressed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.out.read(to)?;
        if read > 0 || to.is_empty() {
            return Ok(read);
        }
        let status = self.child.wait()?;
        if status.success() {
            return Ok(0);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}(1) failed: {status}", self.name)))
    }
}

impl Drop for Decompressed {
    fn drop(&mut self) {
        // The process has ended, or no reader of its output is left.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    #[test]
    fn gzip() {
        let mut file = tempfile::tempfile().unwrap();
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        to.write_all(&[7; 100_000]).unwrap();
        let mut bytes = to.finish().unwrap();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        let mut all = Vec::new();
        start("gz", file).unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all, vec![7; 100_000]);

        bytes.truncate(50);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        let error = start("gz", file).unwrap().read_to_end(&mut all).unwrap_err();
        assert!(error.to_string().starts_with("gzip(1) failed: "), "{error}");
        let error = start("rar", tempfile::tempfile().unwrap()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
