//! Parses any text as an expression and as a configuration. Valid definitions are bound and evaluated in two samples.
//!
//! `cargo +nightly fuzz run --fuzz-dir . derive -- -dict=derive.dict` in `qa/fuzz`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../properties/derive.rs"]
mod property;

fuzz_target!(|text: &str| property::check(text).unwrap());
