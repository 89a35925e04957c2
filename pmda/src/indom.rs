//! Instances of a domain.

use pmapi::Inst;

/// The active instances of a domain.
pub trait Instances {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Goes through them, in the order in which clients see them.
    fn each(&self, f: &mut dyn FnMut(Inst, &str));

    /// The name of one.
    fn name(&self, inst: Inst) -> Option<&str>;

    /// The one of a name. A name without a space stands also for an instance whose name goes on
    /// after a space: `"1"` for `"1 minute"`.
    fn lookup(&self, name: &str) -> Option<Inst>;
}

/// The part of an instance's name that identifies it: up to the first space.
pub(crate) fn key(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// A domain whose instances are known from the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fixed {
    list: Vec<(Inst, String)>,
}

impl Fixed {
    pub(crate) fn new(list: Vec<(Inst, String)>) -> Self {
        Fixed { list }
    }
}

impl Instances for Fixed {
    fn len(&self) -> usize {
        self.list.len()
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        self.list.iter().for_each(|(inst, name)| f(*inst, name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.list.iter().find(|(i, _)| *i == inst).map(|(_, name)| name.as_str())
    }

    fn lookup(&self, name: &str) -> Option<Inst> {
        let matches = |full: &str| full == name || (!name.contains(' ') && key(full) == name);
        self.list.iter().find(|(_, full)| matches(full)).map(|(inst, _)| *inst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_matches_up_to_its_first_space() {
        let load = ["1 minute", "5 minute", "15 minute"];
        let load = Fixed::new((1..).map(Inst::new).zip(load.map(String::from)).collect());
        assert_eq!(load.lookup("5"), Some(Inst::new(2)));
        assert_eq!(load.lookup("5 minute"), Some(Inst::new(2)));
        assert_eq!(load.lookup("5 min"), None);
        assert_eq!(load.lookup("minute"), None);
        assert_eq!(load.name(Inst::new(3)), Some("15 minute"));
    }
}
