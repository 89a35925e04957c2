//! Decompression by the suffix of a file's name.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::find::SUFFIXES;

/// Memory that a decoder may need for its window, in KiB: four times that of `xz -9`.
#[cfg(feature = "xz")]
const XZ_MEMORY: u32 = 256 * 1024;

/// Bytes of a compressed or plain file.
pub(super) enum Opened {
    Plain(File),
    Compressed(Box<dyn Read>),
}

/// Returns the decoder for a file that has been opened, by its name.
///
/// # Errors
/// `Unsupported` for a compression that is unknown or whose feature is off; errors of the decoder.
pub(super) fn decoder(path: &Path, file: File) -> io::Result<Opened> {
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    if !SUFFIXES.iter().any(|known| known.strip_prefix('.') == Some(suffix)) {
        return Ok(Opened::Plain(file));
    }
    stream(suffix, BufReader::new(file)).map(Opened::Compressed)
}

fn stream(suffix: &str, file: BufReader<File>) -> io::Result<Box<dyn Read>> {
    match suffix {
        #[cfg(feature = "xz")]
        "xz" => Ok(Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, XZ_MEMORY))),
        #[cfg(feature = "xz")]
        "lzma" => Ok(Box::new(lzma_rust2::LzmaReader::new_mem_limit(file, XZ_MEMORY, None)?)),
        #[cfg(feature = "zstd")]
        "zst" => Ok(Box::new(ruzstd::decoding::StreamingDecoder::new(file).map_err(io::Error::other)?)),
        #[cfg(feature = "gzip")]
        "gz" | "z" => Ok(Box::new(flate2::bufread::MultiGzDecoder::new(file))),
        #[cfg(feature = "bzip2")]
        "bz2" | "bz" => Ok(Box::new(bzip2::bufread::MultiBzDecoder::new(file))),
        _ => {
            drop(file);
            let reason = format!("compression .{suffix} is not supported by this build");
            Err(io::Error::new(io::ErrorKind::Unsupported, reason))
        }
    }
}
