//! Properties of every help source and of all compiled help. The fuzz targets and the stage `texts` of `qa/campaign`
//! share it.

use std::error::Error;
use std::path::Path;

use pcp_help::{Compiled, Files, compile, source};

/// Success with a value, or an error, which may be the name of a property that does not hold.
pub(crate) type Held<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Anything;

impl source::Resolver for Anything {
    fn metric(&self, name: &str) -> Option<pmapi::PmId> {
        name.starts_with('m').then(|| pmapi::PmId::from_word(name.len() as u32 + 0x100_0000)).flatten()
    }

    fn domain(&self, symbol: &str) -> Option<pmapi::Domain> {
        pmapi::Domain::new(symbol.len() as u16)
    }
}

/// Parses a source. Entries that parse survive being compiled, looked up, written and parsed again. Returns the
/// compiled files, or `None` if the source does not parse.
pub(crate) fn compiles(text: &[u8]) -> Held<Option<Files>> {
    let Ok(entries) = source::parse(text, Path::new("help"), &Anything) else { return Ok(None) };
    let files = compile(&entries)?;
    let compiled = Compiled::from_bytes(files.dir.clone(), files.pag.clone())?;
    for entry in &entries {
        let texts = (compiled.oneline(entry.target), compiled.text(entry.target));
        if texts != (Some(&entry.oneline[..]), Some(&entry.text[..])) {
            return Err(format!("help of {:?} is not what its source says", entry.target).into());
        }
    }
    if source::parse(&source::write(&entries)?, Path::new("help"), &Anything)? != entries {
        return Err("a source that was written has other entries".into());
    }
    Ok(Some(files))
}

/// Opens compiled help. Every target that it lists must have texts.
pub(crate) fn opens(dir: Vec<u8>, pag: Vec<u8>) -> Held<()> {
    let Ok(compiled) = Compiled::from_bytes(dir, pag) else { return Ok(()) };
    for target in compiled.targets() {
        if compiled.oneline(target).is_none() || compiled.text(target).is_none() {
            return Err(format!("{target:?} is listed and has no text").into());
        }
    }
    Ok(())
}
