//! Instances of a domain.

use pmapi::Inst;
use pmapi::names::instance_key;

/// The active instances of a domain.
pub trait Instances {
    /// Returns the number of active instances.
    fn len(&self) -> usize;

    /// Returns whether no instance is active.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` for each active instance, in the order in which clients see them.
    fn each(&self, f: &mut dyn FnMut(Inst, &str));

    /// Returns the name of an active instance.
    fn name(&self, inst: Inst) -> Option<&str>;

    /// Finds an active instance by its name. A name without a space also matches an instance whose name continues after
    /// a space: `"1"` finds `"1 minute"`. A whole name comes first.
    ///
    /// The default walks through all instances.
    fn lookup(&self, name: &str) -> Option<Inst> {
        let (mut whole, mut begins) = (None, None);
        self.each(&mut |inst, full| {
            if full == name {
                whole.get_or_insert(inst);
            } else if instance_key(full) == name {
                begins.get_or_insert(inst);
            }
        });
        whole.or(begins)
    }
}

/// A fixed list of instances, known from the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fixed {
    /// Numbers as declared. They may be invalid until the declarations are checked.
    numbers: Vec<u32>,
    /// All names, one after the other.
    names: String,
    /// End of each name in `names`.
    ends: Vec<usize>,
}

impl<N: AsRef<str>> FromIterator<(u32, N)> for Fixed {
    fn from_iter<I: IntoIterator<Item = (u32, N)>>(instances: I) -> Self {
        let mut fixed = Fixed::default();
        for (number, name) in instances {
            fixed.numbers.push(number);
            fixed.names.push_str(name.as_ref());
            fixed.ends.push(fixed.names.len());
        }
        fixed
    }
}

impl Fixed {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let name = move |(start, &end)| self.names.get(start..end).unwrap_or_default();
        self.numbers.iter().copied().zip(starts.zip(&self.ends).map(name))
    }

    fn get(&self, at: usize) -> Option<(u32, &str)> {
        let start = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        Some((*self.numbers.get(at)?, self.names.get(start..*self.ends.get(at)?)?))
    }

    /// Finds instances that repeat the number or the name of an earlier one.
    ///
    /// This sorts indexes, which takes little memory, and almost no time for names in order.
    pub(crate) fn twice(&self) -> impl Iterator<Item = (Inst, &str)> {
        fn repeated<K: Ord>(len: usize, key: impl Fn(usize) -> K) -> Vec<usize> {
            let mut places: Vec<usize> = (0..len).collect();
            places.sort_by_key(|at| key(*at));
            places.windows(2).filter(|two| key(two[0]) == key(two[1])).map(|two| two[1]).collect()
        }
        let number = |at| self.get(at).map(|(number, _)| number);
        let name = |at| self.get(at).map(|(_, name)| instance_key(name));
        let mut places = repeated(self.numbers.len(), number);
        places.extend(repeated(self.numbers.len(), name));
        places.sort_unstable();
        places.dedup();
        places
            .into_iter()
            .filter_map(|at| self.get(at))
            .filter_map(|(number, name)| Some((Inst::from_word(number)?, name)))
    }
}

impl Instances for Fixed {
    fn len(&self) -> usize {
        self.numbers.len()
    }

    fn each(&self, f: &mut dyn FnMut(Inst, &str)) {
        self.iter().for_each(|(number, name)| Inst::from_word(number).into_iter().for_each(|inst| f(inst, name)));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.iter().find(|(number, _)| *number == inst.word()).map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_matches_up_to_its_first_space() {
        let load = ["1 minute", "5 minute", "15 minute"];
        let load: Fixed = (1..).zip(load).collect();
        assert_eq!(load.lookup("5"), Some(Inst::new(2)));
        assert_eq!(load.lookup("5 minute"), Some(Inst::new(2)));
        assert_eq!(load.lookup("5 min"), None);
        assert_eq!(load.lookup("minute"), None);
        assert_eq!(load.name(Inst::new(3)), Some("15 minute"));
    }
}
