//! Parses any bytes as a help source. Entries that parse must survive being compiled, looked up, written and parsed
//! again.
#![no_main]

use help::{Compiled, source};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

struct Anything;

impl source::Resolver for Anything {
    fn metric(&self, name: &str) -> Option<pmapi::PmId> {
        name.starts_with('m').then(|| pmapi::PmId::from_word(name.len() as u32 + 0x100_0000)).flatten()
    }

    fn domain(&self, symbol: &str) -> Option<pmapi::Domain> {
        pmapi::Domain::new(symbol.len() as u16)
    }
}

fuzz_target!(|text: &[u8]| {
    let Ok(entries) = source::parse(text, Path::new("help"), &Anything) else {
        return;
    };
    let files = help::compile(&entries).unwrap();
    let help = Compiled::from_bytes(files.dir, files.pag).unwrap();
    for entry in &entries {
        assert_eq!(help.oneline(entry.target), Some(&entry.oneline[..]));
        assert_eq!(help.text(entry.target), Some(&entry.text[..]));
    }
    let written = source::write(&entries).unwrap();
    assert_eq!(source::parse(&written, Path::new("help"), &Anything).unwrap(), entries);
});
