//! Parses any text as an expression and as a configuration. Valid definitions are bound and evaluated in two samples.
//!
//! `cargo +nightly fuzz run derive -- -dict=derive.dict` in this folder.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../property.rs"]
mod property;

fuzz_target!(|text: &str| property::check(text).unwrap());
