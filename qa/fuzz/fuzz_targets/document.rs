//! Reads arbitrary text as a document: `cargo +nightly fuzz run --fuzz-dir . document` in `qa/fuzz`.
#![no_main]

use exposition::{Line, Lines, Sample, number};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for (_, line) in Lines::new(text) {
        match Line::parse(line) {
            Ok(Line::Sample(sample)) => {
                let known = Sample::parse_known(line, sample.key());
                assert_eq!(known, Some((sample.value(), sample.rest())));
                sample.labels().for_each(|label| assert!(label.value.text().len() <= label.value.raw().len()));
                let _ = (number::float(sample.value()), number::integer(sample.value()));
            }
            Ok(_) => {}
            Err(refusal) => assert!((1..=line.len() + 1).contains(&refusal.column)),
        }
    }
});
