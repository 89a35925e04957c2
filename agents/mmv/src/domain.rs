//! Instance domains of exported metrics.

use pcp_base::escape::exported_name;
use pmda::prelude::*;

/// The instances of a domain, in the order of the files. Unlike in a [`Cache`](pmda::Cache), names may occur more than
/// once.
#[derive(Debug)]
pub(crate) struct Domain(Vec<(Inst, Box<str>)>);

impl Domain {
    pub(crate) fn new<'a>(instances: impl Iterator<Item = (Inst, &'a [u8])>) -> Domain {
        Domain(instances.map(|(inst, name)| (inst, exported_name(name).into())).collect())
    }
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
