//! Instance domains of exported metrics.

use pmda::prelude::*;

/// The instances of a domain, in the order of the files. Unlike in a [`Cache`](pmda::Cache), names may occur more than
/// once.
#[derive(Debug)]
pub(crate) struct Domain(Vec<(Inst, Box<str>)>);

impl Domain {
    pub(crate) fn new<'a>(instances: impl Iterator<Item = (Inst, &'a [u8])>) -> Domain {
        Domain(instances.map(|(inst, name)| (inst, String::from_utf8_lossy(name).into())).collect())
    }
}

impl Instances for Domain {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        self.0.iter().for_each(|(inst, name)| f(*inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.0.iter().find(|(other, _)| *other == inst).map(|(_, name)| &**name)
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        let begins = |full: &str| full.split(' ').next() == Some(name);
        let matches = |full: &str| full == name || begins(full);
        self.0.iter().find(|(_, full)| matches(full)).map(|(inst, _)| *inst)
    }
}
