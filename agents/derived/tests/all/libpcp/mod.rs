//! The agent in the real pmcd, and `--check`, compared with libpcp's answers about the same definitions.

mod generated;
#[path = "../../../../../pmapi/derived/tests/all/derive/generator.rs"]
mod generator;
mod stage;
mod texts;
#[path = "../../../../../pmapi/derived/tests/all/derive/tokens.rs"]
mod tokens;
