//! Instances of a domain.

use pmapi::Inst;
use pmapi::names::instance_key;

/// The active instances of a domain. An implementation that can find an instance without a search overrides the
/// defaults.
///
/// A [`Cache`](crate::Cache) has these methods. Instances that already have numbers, such as processes, implement
/// them:
///
/// ```
/// use pmda::prelude::*;
///
/// /// Names of processes, by their identifiers.
/// struct Processes(std::collections::BTreeMap<u32, String>);
///
/// impl Instances for Processes {
///     fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
///         self.0.iter().for_each(|(pid, name)| f(Inst::new(*pid), name));
///     }
///
///     fn name(&self, inst: Inst) -> Option<&str> {
///         self.0.get(&inst.word()).map(String::as_str)
///     }
/// }
///
/// let processes = Processes([(1, "000001 init".to_owned()), (40, "000040 sshd".to_owned())].into());
/// assert_eq!(processes.lookup("000040"), Some(Inst::new(40)));
/// ```
///
/// Clients ask for names after they have got values. A domain that changes all the time, such as the ten busiest
/// processes, should therefore still name the instances of its last answer:
/// [`Agent::refresh`](crate::Agent::refresh) reads the source for [`Request::Fetch`](crate::Request::Fetch) alone.
pub trait Instances {
    /// Calls `f` for each active instance, in the order in which clients see them.
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str));

    /// Returns the name of an active instance.
    ///
    /// The default walks through all instances.
    fn name(&self, inst: Inst) -> Option<&str> {
        let mut found = None;
        self.each(&mut |other, name| {
            if other == inst {
                found.get_or_insert(name);
            }
        });
        found
    }

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
        self.numbers
            .iter()
            .copied()
            .zip(starts.zip(&self.ends).map(move |(start, &end)| self.names.get(start..end).unwrap_or_default()))
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
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        for (number, name) in self.iter() {
            if let Some(inst) = Inst::from_word(number) {
                f(inst, name);
            }
        }
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
