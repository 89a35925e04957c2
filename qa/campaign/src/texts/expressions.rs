//! Damaged expressions of derived metrics, in this process.

use super::damage::{damage, lines};
use crate::Outcome;
use crate::rng::Rng;

#[path = "../../../fuzz/properties/derive.rs"]
mod property;

/// Valid definitions, each a line `name expression`.
const KNOWN: &str = include_str!("../../../../pmapi/derived/tests/data/derive/expressions.txt");
const CONFIGURATION: &str = include_str!("../../../../agents/derived/etc/disk.conf");

/// Parses and evaluates a damaged configuration.
pub(super) fn try_one(rng: &mut Rng) -> Outcome {
    let mut text = Vec::new();
    let known = if rng.one_in(3) { CONFIGURATION } else { KNOWN };
    lines(rng, known, &mut text);
    damage(rng, &mut text);
    Ok(property::check(&String::from_utf8_lossy(&text))?)
}
