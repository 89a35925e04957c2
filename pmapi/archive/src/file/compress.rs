//! Decompression by the suffix of a file's name.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::find::SUFFIXES;

/// Memory that a decoder may need for its window, in KiB: four times that of `xz -9`.
#[cfg(feature = "xz")]
pub(super) const XZ_MEMORY: u32 = 256 * 1024;

/// Bytes of a compressed or plain file.
pub(super) enum Opened {
    Plain(File),
    Compressed(Box<dyn Read>),
}

/// Returns the decoder for an open file, chosen by the file's name.
///
/// # Errors
/// Errors of the decoder, or of the command in its place.
pub(super) fn decoder(path: &Path, file: File) -> io::Result<Opened> {
    let suffix = suffix(path);
    if !SUFFIXES.iter().any(|known| known.strip_prefix('.') == Some(suffix)) {
        return Ok(Opened::Plain(file));
    }
    stream(suffix, file).map(Opened::Compressed)
}

/// Returns the suffix of a file's name, without the dot.
pub(super) fn suffix(path: &Path) -> &str {
    path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default()
}

fn stream(suffix: &str, file: File) -> io::Result<Box<dyn Read>> {
    Ok(match suffix {
        #[cfg(feature = "xz")]
        "xz" => Box::new(lzma_rust2::XzReader::new_mem_limit(BufReader::new(file), true, XZ_MEMORY)),
        #[cfg(feature = "xz")]
        "lzma" => Box::new(lzma_rust2::LzmaReader::new_mem_limit(BufReader::new(file), XZ_MEMORY, None)?),
        #[cfg(feature = "zstd")]
        "zst" => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(BufReader::new(file));
            Box::new(decoder.map_err(io::Error::other)?)
        }
        #[cfg(feature = "gzip")]
        "gz" | "z" => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(file))),
        #[cfg(feature = "bzip2")]
        "bz2" | "bz" => Box::new(bzip2::bufread::MultiBzDecoder::new(BufReader::new(file))),
        "Z" => Box::new(super::lzw::Lzw::new(BufReader::new(file))?),
        _ => Box::new(super::command::start(suffix, file)?),
    })
}
