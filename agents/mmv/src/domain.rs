//! Instance domains of exported metrics.

use pmda::pmapi::escape::{Escaped, is_control};
use pmda::prelude::*;

/// The instances of a domain, in the order of the files. Unlike in a [`Cache`](pmda::Cache), names may occur more than
/// once.
#[derive(Debug)]
pub(crate) struct Domain(Vec<(Inst, Box<str>)>);

impl Domain {
    pub(crate) fn new<'a>(instances: impl Iterator<Item = (Inst, &'a [u8])>) -> Domain {
        Domain(instances.map(|(inst, name)| (inst, shown(name))).collect())
    }
}

/// Returns the exported name of an instance. Control characters are escaped, because PCP's tools print names as they
/// are and a file could act on a terminal.
fn shown(name: &[u8]) -> Box<str> {
    let name = String::from_utf8_lossy(name);
    // Most names are ASCII, of which all bytes are compared at once.
    let is_plain = name.bytes().fold(true, |all, byte| all & (b' '..=b'~').contains(&byte));
    if !is_plain && name.chars().any(is_control) { Escaped(name).to_string().into() } else { (*name).into() }
}

impl Instances for Domain {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        self.0.iter().for_each(|(inst, name)| f(*inst, name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_control_characters_are_escaped() {
        let names = ["1 minute", "a\u{a0}b", "x\x1b[2J", "y\u{202e}z", "\\"];
        let domain = Domain::new((0..).map(Inst::new).zip(names.map(str::as_bytes)));
        let shown: Vec<&str> = (0..5).filter_map(|inst| domain.name(Inst::new(inst))).collect();
        assert_eq!(shown, ["1 minute", "a\u{a0}b", r"x\u{1b}[2J", r"y\u{202e}z", "\\"]);
        assert_eq!(domain.lookup(r"x\u{1b}[2J"), Some(Inst::new(2)));
    }
}
