//! `mmvdump`: prints the contents of a memory mapped values file.

mod json;
mod options;

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use pcp_base::escape::{self, Escaped};

use options::Options;

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        // A shell may have made the arguments of names in a directory of strangers.
        Err(e) if e.use_stderr() => {
            escape::eprint(e);
            return ExitCode::FAILURE;
        }
        Err(e) => {
            // If the help cannot be printed, nothing is left to do.
            _ = e.print();
            return ExitCode::SUCCESS;
        }
    };
    let file = options.file.unwrap_or_else(|| pmapi::Config::load().tmp_dir().join("mmv/test"));
    let shown = read(&file).and_then(|bytes| {
        let is_terminal = io::stdout().is_terminal();
        let mut out = BufWriter::new(io::stdout().lock());
        let valid = match (options.json, is_terminal) {
            (true, _) => json::dump(&mut out, &file, bytes)?,
            (false, true) => mmv_reader::dump::dump_to_terminal(&mut out, file.as_os_str().as_bytes(), &bytes)?,
            (false, false) => mmv_reader::dump::dump(&mut out, file.as_os_str().as_bytes(), &bytes)?,
        };
        out.flush()?;
        Ok(valid)
    });
    match shown {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The program that reads the output, such as a pager, has ended.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(e) => {
            let text = e.raw_os_error().map_or_else(|| e.to_string(), |code| Errno::from_raw(code).desc().to_owned());
            escape::eprint(format_args!("{}: {text}\n", Escaped(file.display())));
            ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a FIFO without a writer must not block.
    let mut file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let metadata: fs::Metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(Errno::ENODEV.into());
    }
    // C maps the file, which fails for an empty one.
    if metadata.len() == 0 {
        return Err(Errno::EINVAL.into());
    }
    if metadata.len() > mmv_reader::MAX_LEN {
        return Err(Errno::EFBIG.into());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    (&mut file).take(metadata.len()).read_to_end(&mut bytes)?;
    Ok(bytes)
}
