//! The public interface of each library crate equals the recorded one.

use std::fs;

use pcp_interface::{interface, library_crates};

/// With the variable `RENEW_INTERFACE`, the test writes the files instead.
#[test]
fn the_public_interface_of_each_library_is_the_recorded_one() {
    const RENEW: &str = "RENEW_INTERFACE=1 cargo test -p pcp-interface";
    let mut changed = String::new();
    for library in library_crates() {
        let found = interface(&library.root()).unwrap();
        let now = format!("Public interface of {}. To renew: {RENEW}\n{found}", library.package);
        let recorded = fs::read_to_string(library.record()).unwrap_or_default();
        if std::env::var_os("RENEW_INTERFACE").is_some() {
            fs::write(library.record(), now).unwrap();
        } else if now != recorded {
            changed += &format!("\n{}\n{}{}", library.package, only('-', &recorded, &now), only('+', &now, &recorded));
        }
    }
    assert!(changed.is_empty(), "a public interface has changed. If that is intended: {RENEW}\n{changed}");
}

/// Returns the lines of a text that another text does not have.
fn only(mark: char, text: &str, other: &str) -> String {
    let lines = text.lines().filter(|line| !other.lines().any(|other| other == *line));
    lines.map(|line| format!("{mark} {}\n", line.trim())).collect()
}

const ROOT: &str = "
    mod inner;
    pub mod outer { pub use crate::inner::deep::Kind; pub(crate) struct Hidden; }
    pub use inner::{Size as Length, *};
    pub use std::time;
    #[cfg(test)]
    pub mod tests { pub struct Left; }
    impl Size { pub fn meters(&self, mut n: u32) -> u32 { n += 1; n } fn private() {} }
    impl From<u32> for Size { fn from(n: u32) -> Size { Size(n) } }
    impl inner::Secret for Size {}
";

const INNER: &str = "
    pub mod deep { #[derive(Debug)] #[allow(dead_code)] #[non_exhaustive] pub enum Kind { /// One.\n One, Two(u8) } }
    pub struct Size(u32);
    pub(crate) trait Secret {}
    pub trait Shown { const N: u32 = 1; fn show<'a>(&'a self) -> &'a str; fn again(&self) {} }
    bitflags! { /// Flags.\n #[derive(Clone)] pub struct Flags: u8 { const A = 1 << 3; } }
    macro_rules! numbers { ($($n:ident)*) => {} }
    numbers!(One Two);
";

#[test]
fn a_list_has_what_other_crates_can_name() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("lib.rs");
    fs::write(&root, ROOT).unwrap();
    fs::write(dir.path().join("inner.rs"), INNER).unwrap();
    let expected = "
crate::Flags
    #[derive(Clone)]
    #[bitflags(u8)]
    pub struct Flags(_);
    impl Flags:
        pub const A: Flags = 1 << 3;

crate::Length
    pub struct Length(_);
    impl From<u32> for Size
    impl Size:
        pub fn meters(&self, n: u32) -> u32;

crate::Shown
    pub trait Shown {
        const N: u32 = 1;
        fn show<'a>(&'a self) -> &'a str;
        fn again(&self) { .. }
    }

crate::Size
    pub struct Size(_);

crate::deep
    pub mod deep;

crate::deep::Kind
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum Kind {
        One,
        Two(u8),
    }

crate::inner::numbers! {}
    One Two

crate::outer
    pub mod outer;

crate::outer::Kind
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum Kind {
        One,
        Two(u8),
    }

crate::time
    pub use std::time;
";
    let found = interface(&root).unwrap();
    assert_eq!(found, expected);
}
