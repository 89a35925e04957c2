//! Text of units: parsing neither panics nor hangs. The text of parsed units means the same as the original text.
//!
//! `cargo +nightly fuzz run --fuzz-dir . units` in `qa/fuzz`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pmapi::Units;

fuzz_target!(|text: &str| {
    let Ok((units, _)) = Units::parse(text) else { return };
    let shown = units.to_string();
    // Tens of events with an exponent look like another scale, and the syntax has no scale of count without its
    // dimension.
    let ambiguous = units.scale_count() == 1 && units.dim_count().abs() > 1;
    if !ambiguous {
        assert_eq!(Units::parse(&shown), Ok((units, 1.0)), "{text:?} is {shown:?}");
    }
});
