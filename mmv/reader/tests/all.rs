//! Tests of reading files and directories.
#![allow(clippy::unwrap_used, unsafe_code)]

#[path = "common/raw.rs"]
mod raw;

mod all {
    mod collection;
    mod defects;
    mod flux;
    mod names;
    mod pcp;
    mod properties;
}
