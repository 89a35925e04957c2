//! Lookup of names.

use super::{Context, MAX_REQUEST};
use pcp_pdu::Pdu;
use pcp_pdu::client::Answer;
use pcp_pdu::names::{Child, Names, Node, Statuses, Traverse, encode_ids, encode_names};
use pmapi::{Error, PmId, Result};

impl Context {
    /// Looks up the metric with a name (pmLookupName(3)).
    ///
    /// # Errors
    /// `PM_ERR_NAME` for an unknown name, `PM_ERR_NONLEAF` for a name with only names below it. [Connection
    /// errors](crate#connection-errors).
    pub fn lookup_name(&mut self, name: &str) -> Result<PmId> {
        self.lookup_names(&[name])?.pop().flatten().ok_or(Error::NAME)
    }

    /// Looks up the metrics with several names, `None` for an unknown name (pmLookupName(3)).
    ///
    /// # Errors
    /// `PM_ERR_TOOSMALL` for an empty list. For a list of one name the errors of [`Context::lookup_name`], though an
    /// unknown name may also be `None`. The error of an agent that is not ready fails the whole request. [Connection
    /// errors](crate#connection-errors).
    pub fn lookup_names(&mut self, names: &[&str]) -> Result<Vec<Option<PmId>>> {
        if names.is_empty() {
            return Err(Error::TOOSMALL);
        }
        let mut pmids = Vec::with_capacity(names.len());
        while let Some(rest) = names.get(pmids.len()..).filter(|rest| !rest.is_empty()) {
            let part = rest.get(..fitting(rest)).unwrap_or(rest);
            let list = part.iter().map(|name| (Node::Leaf, name.as_bytes()));
            match self.ask(|out| encode_names(out, 0, Statuses::Omitted, list))? {
                Answer::Pdu(Pdu::Ids(ids)) if ids.pmids().len() == part.len() => {
                    Error::from_code(ids.status).map_or(Ok(()), Err)?;
                    pmids.extend(ids.pmids());
                }
                _ => return Err(Error::IPC),
            }
        }
        Ok(pmids)
    }

    /// Returns a name of a metric (pmNameID(3)).
    ///
    /// # Errors
    /// `PM_ERR_PMID` for a metric without a name, `PM_ERR_NOAGENT` when no agent has its domain. [Connection
    /// errors](crate#connection-errors).
    pub fn name_id(&mut self, pmid: PmId) -> Result<String> {
        self.name_all(pmid)?.into_iter().next().ok_or(Error::PMID)
    }

    /// Returns all names of a metric (pmNameAll(3)).
    ///
    /// # Errors
    /// Errors of [`Context::name_id`].
    pub fn name_all(&mut self, pmid: PmId) -> Result<Vec<String>> {
        match self.ask(|out| encode_ids(out, 0, 0, &[Some(pmid)]))? {
            Answer::Pdu(Pdu::Names(names)) if !names.is_empty() => collect(names, |_, name| name),
            Answer::Pdu(Pdu::Names(_)) => Err(Error::PMID),
            _ => Err(Error::IPC),
        }
    }

    /// Returns the last components of the names right below a name, or at the root for "" (pmGetChildrenStatus(3)). A
    /// metric has no names below it.
    ///
    /// # Errors
    /// `PM_ERR_NAME` for an unknown name; [connection errors](crate#connection-errors).
    pub fn children(&mut self, name: &str) -> Result<Vec<(String, Node)>> {
        match self.ask(|out| Child { statuses: Statuses::Included, name: name.as_bytes() }.encode(out, 0))? {
            Answer::Pdu(Pdu::Names(names)) => collect(names, |node, name| (name, node.unwrap_or(Node::Leaf))),
            _ => Err(Error::IPC),
        }
    }

    /// Returns the names of all metrics at or below a name, or of all metrics for "" (pmTraversePMNS(3)).
    ///
    /// # Errors
    /// `PM_ERR_NAME` for an unknown name; [connection errors](crate#connection-errors).
    pub fn traverse(&mut self, name: &str) -> Result<Vec<String>> {
        match self.ask(|out| Traverse { name: name.as_bytes() }.encode(out, 0))? {
            Answer::Pdu(Pdu::Names(names)) => collect(names, |_, name| name),
            _ => Err(Error::IPC),
        }
    }
}

/// Converts names of metrics, which are ASCII, to strings.
fn collect<T>(names: Names<'_>, item: impl Fn(Option<Node>, String) -> T) -> Result<Vec<T>> {
    let names = names.iter();
    names.map(|(node, name)| Ok(item(node, String::from_utf8(name.to_vec()).map_err(|_| Error::IPC)?))).collect()
}

/// Returns how many names fit into one request, at least one.
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
