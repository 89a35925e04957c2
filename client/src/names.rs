//! The name space.

use super::{Context, MAX_REQUEST};
use pcp_pdu::Pdu;
use pcp_pdu::client::Answer;
use pcp_pdu::names::{Child, Names, Node, Traverse, encode_ids, encode_names};
use pmapi::{Error, PmId, Result};

impl Context {
    /// The metric with a name (pmLookupName(3) for one).
    ///
    /// # Errors
    /// `PM_ERR_NAME` when there is none, `PM_ERR_NONLEAF` when there are only names below it.
    pub fn lookup_name(&mut self, name: &str) -> Result<PmId> {
        self.lookup_names(&[name])?.pop().flatten().ok_or(Error::NAME)
    }

    /// The metrics with these names (pmLookupName(3)): one for each, `None` where there is none.
    ///
    /// # Errors
    /// `PM_ERR_TOOSMALL` for an empty list. For one name those of [`Context::lookup_name`], except that `PM_ERR_NAME`
    /// can be an answer with `None`.
    pub fn lookup_names(&mut self, names: &[&str]) -> Result<Vec<Option<PmId>>> {
        if names.is_empty() {
            return Err(Error::TOOSMALL);
        }
        let mut pmids = Vec::with_capacity(names.len());
        while let Some(rest) = names.get(pmids.len()..).filter(|rest| !rest.is_empty()) {
            let part = rest.get(..fitting(rest)).unwrap_or(rest);
            let list = part.iter().map(|name| (Node::Leaf, name.as_bytes()));
            match self.ask(|out| encode_names(out, 0, false, list))? {
                Answer::Pdu(Pdu::Ids(ids)) if ids.pmids().len() == part.len() => {
                    Error::from_code(ids.status).map_or(Ok(()), Err)?;
                    pmids.extend(ids.pmids());
                }
                _ => return Err(Error::IPC),
            }
        }
        Ok(pmids)
    }

    /// A name of a metric (pmNameID(3)).
    ///
    /// # Errors
    /// `PM_ERR_PMID` when it has none, `PM_ERR_NOAGENT` when nobody has its domain.
    pub fn name_id(&mut self, pmid: PmId) -> Result<String> {
        self.name_all(pmid)?.into_iter().next().ok_or(Error::PMID)
    }

    /// All names of a metric (pmNameAll(3)).
    ///
    /// # Errors
    /// As [`Context::name_id`].
    pub fn name_all(&mut self, pmid: PmId) -> Result<Vec<String>> {
        match self.ask(|out| encode_ids(out, 0, 0, &[Some(pmid)]))? {
            Answer::Pdu(Pdu::Names(names)) if !names.is_empty() => collect(names, |_, name| name),
            Answer::Pdu(Pdu::Names(_)) => Err(Error::PMID),
            _ => Err(Error::IPC),
        }
    }

    /// The last components of the names right below a name (pmGetChildrenStatus(3)); below "" those at the root. A
    /// metric has none.
    ///
    /// # Errors
    /// `PM_ERR_NAME` when there is no such name.
    pub fn children(&mut self, name: &str) -> Result<Vec<(String, Node)>> {
        match self.ask(|out| Child { with_status: true, name: name.as_bytes() }.encode(out, 0))? {
            Answer::Pdu(Pdu::Names(names)) => collect(names, |node, name| (name, node.unwrap_or(Node::Leaf))),
            _ => Err(Error::IPC),
        }
    }

    /// The names of all metrics below a name, or its own when it is a metric's (pmTraversePMNS(3)). "" stands for all.
    ///
    /// # Errors
    /// `PM_ERR_NAME` when there is no such name.
    pub fn traverse(&mut self, name: &str) -> Result<Vec<String>> {
        match self.ask(|out| Traverse { name: name.as_bytes() }.encode(out, 0))? {
            Answer::Pdu(Pdu::Names(names)) => collect(names, |_, name| name),
            _ => Err(Error::IPC),
        }
    }
}

/// Names of metrics are ASCII.
fn collect<T>(names: Names<'_>, item: impl Fn(Option<Node>, String) -> T) -> Result<Vec<T>> {
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).map_err(|_| Error::IPC);
    names.iter().map(|(node, name)| text(name).map(|name| item(node, name))).collect()
}

/// How many names fit into a request, at least one.
fn fitting(names: &[&str]) -> usize {
    let mut room = MAX_REQUEST;
    let mut fits = |name: &&&str| {
        let need = 4 + name.len().next_multiple_of(4);
        let fits = need <= room;
        room = room.saturating_sub(need);
        fits
    };
    names.iter().take_while(|name| fits(name)).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_not_too_long() {
        let name = "a".repeat(1020);
        assert_eq!(fitting(&[&*name; 62]), 62);
        assert_eq!(fitting(&[&*name; 64]), 63);
        assert_eq!(fitting(&[&*"a".repeat(100_000)]), 1);
    }
}
