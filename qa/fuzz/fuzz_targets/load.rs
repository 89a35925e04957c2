//! Loads any bytes as a name space that can include itself. If the name space loads, it must survive being written and
//! loaded again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../properties/pmns.rs"]
mod property;

fuzz_target!(|text: &[u8]| property::check(text).unwrap());
