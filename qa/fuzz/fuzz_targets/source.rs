//! Parses any bytes as a help source. Entries that parse must survive being compiled, looked up, written and parsed
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../properties/help.rs"]
mod property;

fuzz_target!(|text: &[u8]| {
    if let Some(files) = property::compiles(text).unwrap() {
        property::opens(files.dir, files.pag).unwrap();
    }
});
