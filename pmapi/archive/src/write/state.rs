//! What an archive describes so far: metrics, their names, instance domains, labels and texts.

use std::collections::HashMap;

use pcp_pdu::desc::RawDesc;
use pmapi::{Error, InDom, PmId};

use super::encode::Extent;

/// Longest name of a metric in bytes: libpcp reads names into a buffer of `MAXPATHLEN`.
const MAX_NAME: usize = 4095;

/// Code that libpcp returns for refused metadata, and the reason.
pub(super) type Refused = (Error, String);

pub(super) const EINVAL: Error = Error::from_errno(22);

/// Metadata that is in the archive.
#[derive(Debug, Default)]
pub(super) struct State {
    descs: HashMap<PmId, RawDesc>,
    names: HashMap<Box<[u8]>, PmId>,
    indoms: HashMap<InDom, Vec<Named>>,
    /// Latest label sets by level and identifier, encoded.
    labels: HashMap<(u32, u32), Vec<u8>>,
    texts: HashMap<(u32, u32), Box<[u8]>>,
}

/// Instance and its name.
type Named = (u32, Box<[u8]>);

/// Changes of an instance domain.
pub(super) type Changes<'a> = Vec<(u32, Option<&'a [u8]>)>;

/// Kind of record that has to be written for an instance domain.
#[derive(Debug)]
pub(super) enum Update {
    Nothing,
    Write(Extent),
}

/// Returns the code for the difference between two descriptors, or `None` if they are equal.
fn difference(old: &RawDesc, new: &RawDesc) -> Option<(Error, &'static str)> {
    match () {
        () if old.ty != new.ty => Some((Error::LOGCHANGETYPE, "type")),
        () if old.semantics != new.semantics => Some((Error::LOGCHANGESEM, "semantics")),
        () if old.indom != new.indom => Some((Error::LOGCHANGEINDOM, "instance domain")),
        () if old.units != new.units => Some((Error::LOGCHANGEUNITS, "units")),
        () => None,
    }
}

impl State {
    /// Returns the descriptor of a metric that the archive has.
    pub(super) fn desc(&self, pmid: PmId) -> Option<&RawDesc> {
        self.descs.get(&pmid)
    }

    /// Adds a metric. Returns the names that must be written with its descriptor, or `None` if the archive already has
    /// the metric and the names.
    ///
    /// # Errors
    /// `PM_ERR_PMID`, `PM_ERR_NAME` for a wrong name, `PM_ERR_LOGCHANGE*` for another description of the same metric.
    pub(super) fn metric<'n>(&mut self, desc: &RawDesc, names: &[&'n [u8]]) -> Result<Option<Vec<&'n [u8]>>, Refused> {
        let pmid = desc.pmid.ok_or_else(|| (Error::PMID, "a metric needs an identifier".to_owned()))?;
        let old = self.descs.get(&pmid);
        if let Some((code, what)) = old.and_then(|old| difference(old, desc)) {
            return Err((code, format!("metric {pmid} is in the archive with another {what}")));
        }
        for name in names {
            let text = String::from_utf8_lossy(name);
            if name.is_empty() || name.len() > MAX_NAME || name.contains(&0) {
                return Err((Error::NAME, format!("name {text:?} of metric {pmid} is empty, too long, or has a NUL")));
            }
            if let Some(other) = self.names.get(*name).filter(|other| **other != pmid) {
                return Err((Error::NAME, format!("name {text:?} of metric {pmid} is that of metric {other}")));
            }
        }
        let new: Vec<_> = names.iter().copied().filter(|name| !self.names.contains_key(*name)).collect();
        if new.is_empty() && old.is_some() {
            return Ok(None);
        }
        if names.is_empty() {
            return Err((Error::NAME, format!("metric {pmid} has no name")));
        }
        self.descs.insert(pmid, *desc);
        self.names.extend(new.iter().map(|name| (Box::from(*name), pmid)));
        Ok(Some(new))
    }

    /// Records a metric that the archive already has.
    pub(super) fn set_metric<'n>(&mut self, pmid: PmId, desc: &RawDesc, names: impl Iterator<Item = &'n [u8]>) {
        self.descs.insert(pmid, *desc);
        self.names.extend(names.map(|name| (Box::from(name), pmid)));
    }

    /// Records the instances of a domain, in ascending order, without writing them.
    pub(super) fn set_instances<'n>(&mut self, indom: InDom, list: impl Iterator<Item = (u32, &'n [u8])>) {
        self.indoms.insert(indom, list.map(|(inst, name)| (inst, name.into())).collect());
    }

    /// Changes an instance domain to `list`, which is sorted here, and collects what must be written in `changes`.
    /// A delta is chosen, where the version has deltas, if it is not longer than the domain.
    ///
    /// # Errors
    /// `-EINVAL` for an instance that does not fit into 31 bits or is a duplicate, and for a name with a NUL.
    pub(super) fn instances<'n>(
        &mut self,
        indom: InDom,
        list: &mut [(u32, &'n [u8])],
        changes: &mut Changes<'n>,
        longest_delta: impl Fn(usize) -> Option<usize>,
    ) -> Result<Update, Refused> {
        list.sort_by_key(|(inst, _)| *inst);
        let wrong = |inst: u32, what: &str| Err((EINVAL, format!("instance {inst} of domain {indom} {what}")));
        for (at, (inst, name)) in list.iter().enumerate() {
            match () {
                () if *inst > i32::MAX as u32 => return wrong(*inst, "is greater than 2147483647"),
                () if name.contains(&0) => return wrong(*inst, "has a name with a NUL"),
                () if list.get(at + 1).is_some_and(|(next, _)| next == inst) => {
                    return wrong(*inst, "is in the list twice");
                }
                () => (),
            }
        }
        changes.clear();
        let known = self.indoms.get(&indom);
        let is_renamed = known.is_some_and(|old| differences(old, list, changes));
        if known.is_some() && !is_renamed && changes.is_empty() {
            return Ok(Update::Nothing);
        }
        let is_delta =
            known.is_some() && !is_renamed && longest_delta(list.len()).is_some_and(|longest| changes.len() <= longest);
        self.set_instances(indom, list.iter().copied());
        if is_delta {
            return Ok(Update::Write(Extent::Delta));
        }
        changes.clear();
        changes.extend(list.iter().map(|(inst, name)| (*inst, Some(*name))));
        Ok(Update::Write(Extent::Full))
    }

    /// Returns whether label sets differ from those that the archive has of the subject.
    pub(super) fn is_new_labels(&mut self, subject: (u32, u32), encoded: &[u8]) -> bool {
        match self.labels.get_mut(&subject) {
            Some(old) if old == encoded => false,
            Some(old) => {
                old.clear();
                old.extend_from_slice(encoded);
                true
            }
            None => {
                self.labels.insert(subject, encoded.to_vec());
                true
            }
        }
    }

    /// Returns whether a text differs from the one that the archive has of the subject.
    pub(super) fn is_new_text(&mut self, subject: (u32, u32), text: &[u8]) -> bool {
        let old = self.texts.insert(subject, text.into());
        old.is_none_or(|old| *old != *text)
    }
}

/// Collects added and deleted instances in ascending order. Returns whether an instance has another name.
fn differences<'n>(old: &[Named], new: &[(u32, &'n [u8])], changes: &mut Changes<'n>) -> bool {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return false,
            (Some((before, was)), Some((inst, name))) if before == inst => {
                if **was != **name {
                    return true;
                }
                _ = (old.next(), new.next());
            }
            (Some((before, _)), after) if after.is_none_or(|(inst, _)| before < inst) => {
                changes.push((*before, None));
                old.next();
            }
            (_, Some((inst, name))) => {
                changes.push((*inst, Some(name)));
                new.next();
            }
            // The arm before handles all other cases with an old instance.
            (Some(_), None) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update<'n>(state: &mut State, list: &[(u32, &'n str)]) -> (Option<Extent>, Vec<(u32, Option<&'n str>)>) {
        let indom = InDom::from_word(5).unwrap();
        let mut list: Vec<_> = list.iter().map(|(inst, name)| (*inst, name.as_bytes())).collect();
        let mut changes = Vec::new();
        let update = state.instances(indom, &mut list, &mut changes, Some).unwrap();
        let text = |name: Option<&'n [u8]>| name.map(|name| std::str::from_utf8(name).unwrap());
        let changes = changes.into_iter().map(|(inst, name)| (inst, text(name))).collect();
        match update {
            Update::Nothing => (None, changes),
            Update::Write(extent) => (Some(extent), changes),
        }
    }

    #[test]
    fn domains_that_change() {
        let mut state = State::default();
        let (a, b, c) = ((1, "a"), (2, "b"), (3, "c"));
        let full = |list: &[(u32, &'static str)]| {
            (Some(Extent::Full), list.iter().map(|(inst, name)| (*inst, Some(*name))).collect::<Vec<_>>())
        };
        assert_eq!(update(&mut state, &[c, a, b]), full(&[a, b, c]));
        assert_eq!(update(&mut state, &[a, b, c]), (None, vec![]));
        assert_eq!(update(&mut state, &[a, c]), (Some(Extent::Delta), vec![(2, None)]));
        assert_eq!(update(&mut state, &[a, c, (0, "z")]), (Some(Extent::Delta), vec![(0, Some("z"))]));
        assert_eq!(update(&mut state, &[a, b]), full(&[a, b]));
        assert_eq!(update(&mut state, &[a, (2, "other")]), full(&[a, (2, "other")]));
        assert_eq!(update(&mut state, &[]), full(&[]));
        assert_eq!(update(&mut state, &[]), (None, vec![]));
        assert_eq!(update(&mut state, &[a]), (Some(Extent::Delta), vec![(1, Some("a"))]));
        let indom = InDom::from_word(5).unwrap();
        for list in [&mut [(1, &b"a"[..]), (1, b"b")][..], &mut [(u32::MAX, b"a")], &mut [(1, b"a\0")]] {
            assert_eq!(state.instances(indom, list, &mut Vec::new(), Some).unwrap_err().0, EINVAL);
        }
    }
}
