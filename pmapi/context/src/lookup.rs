//! Names, descriptors, instances and texts.

use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::names::Node;
use pmapi::{Desc, Error, InDom, Inst, PmId, Result};

use crate::base::Base;
use crate::context::Context;
use crate::events;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Context {
    /// Looks up the metric with a name (pmLookupName(3)). Every context has `event.flags` and `event.missed`, whose
    /// values [`unpack_events`](crate::unpack_events) creates. Lists of names do not contain them.
    ///
    /// # Errors
    /// `PM_ERR_NAME` for an unknown name, `PM_ERR_NONLEAF` for a name with only names below it. [Connection
    /// errors](pcp_client#connection-errors) of a pmcd.
    pub fn lookup_name(&mut self, name: &str) -> Result<PmId> {
        let found = self.base.lookup_name(name);
        match (found, self.derived.pmid(name).or_else(|| events::pmid(name))) {
            (Err(Error::NAME | Error::NONLEAF), Some(pmid)) => Ok(pmid),
            (found, _) => found,
        }
    }

    /// Returns the descriptor of a metric (pmLookupDesc(3)).
    ///
    /// # Errors
    /// `PM_ERR_PMID` or `PM_ERR_PMID_LOG` for an unknown metric, `PM_ERR_BADDERIVE` for a derived metric whose
    /// definition is wrong. [Connection errors](pcp_client#connection-errors) of a pmcd.
    pub fn lookup_desc(&mut self, pmid: PmId) -> Result<Desc> {
        match self.derived.desc(&mut self.base, pmid) {
            Some(found) => found,
            None => self.base.lookup_desc(pmid).or_else(|e| events::desc(pmid).ok_or(e)),
        }
    }

    /// Returns all names of a metric (pmNameAll(3)).
    ///
    /// # Errors
    /// `PM_ERR_PMID` for a metric without a name; [connection errors](pcp_client#connection-errors) of a pmcd.
    pub fn name_all(&mut self, pmid: PmId) -> Result<Vec<String>> {
        if let Some(definition) = self.derived.definition(pmid) {
            return Ok(vec![definition.name().to_owned()]);
        }
        let found: Result<Vec<String>> = match &mut self.base {
            Base::Host(host) => host.name_all(pmid),
            Base::Local(local) => local.name_all(pmid),
            Base::Archive(recorded) => Ok(recorded.archive.metadata().names().names(pmid).map(text).collect()),
        };
        match (found, events::name(pmid)) {
            (Ok(names), None) if names.is_empty() => Err(Error::PMID),
            (Ok(names), Some(name)) if names.is_empty() => Ok(vec![name.to_owned()]),
            (Err(Error::PMID | Error::NOAGENT), Some(name)) => Ok(vec![name.to_owned()]),
            (found, _) => found,
        }
    }

    /// Returns a name of a metric (pmNameID(3)).
    ///
    /// # Errors
    /// Errors of [`Context::name_all`].
    pub fn name_id(&mut self, pmid: PmId) -> Result<String> {
        self.name_all(pmid)?.into_iter().next().ok_or(Error::PMID)
    }

    /// Returns the names of all metrics at or below a name, or of all metrics for "" (pmTraversePMNS(3)).
    ///
    /// # Errors
    /// `PM_ERR_NAME` for an unknown name; [connection errors](pcp_client#connection-errors) of a pmcd.
    pub fn traverse(&mut self, name: &str) -> Result<Vec<String>> {
        let found = match &mut self.base {
            Base::Host(host) => host.traverse(name),
            Base::Local(local) => local.traverse(name),
            Base::Archive(recorded) => {
                let below = recorded.archive.metadata().names().below(name.as_bytes());
                below.map(|all| all.iter().map(|(name, _)| text(name)).collect())
            }
        };
        let derived = self.derived.below(&mut self.base, name);
        match found {
            Ok(mut names) => {
                let known: std::collections::HashSet<_> = names.iter().cloned().collect();
                names.extend(derived.into_iter().filter(|name| !known.contains(name)));
                Ok(names)
            }
            Err(Error::NAME) if !derived.is_empty() => Ok(derived),
            Err(e) => Err(e),
        }
    }

    /// Returns the last components of the names right below a name, or at the root for "", in alphabetical order
    /// (pmGetChildrenStatus(3)). A metric has no names below it.
    ///
    /// # Errors
    /// Errors of [`Context::traverse`].
    pub fn children(&mut self, name: &str) -> Result<Vec<(String, Node)>> {
        let mut found = std::collections::BTreeMap::new();
        for full in self.traverse(name)? {
            let rest = full.strip_prefix(name).unwrap_or_default();
            let rest = if name.is_empty() { Some(rest) } else { rest.strip_prefix('.') };
            let Some(rest) = rest else { continue };
            match rest.split_once('.') {
                Some((first, _)) => _ = found.insert(first.to_owned(), Node::NonLeaf),
                None => _ = found.entry(rest.to_owned()).or_insert(Node::Leaf),
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Returns all instances of a domain with their names (pmGetInDom(3)). For an archive, the instances are as of the
    /// last fetch.
    ///
    /// # Errors
    /// `PM_ERR_INDOM` or `PM_ERR_INDOM_LOG` for an unknown domain; [connection
    /// errors](pcp_client#connection-errors) of a pmcd.
    pub fn indom(&mut self, indom: InDom) -> Result<Vec<(Inst, Vec<u8>)>> {
        self.base.indom(indom)
    }

    /// Looks up an instance by name (pmLookupInDom(3)). For an archive, the lookup is as of the last fetch. The part of
    /// an instance's name before its first blank is enough.
    ///
    /// # Errors
    /// `PM_ERR_INST` or `PM_ERR_INST_LOG` when no instance has the name; errors of [`Context::indom`].
    pub fn lookup_indom(&mut self, indom: InDom, name: &[u8]) -> Result<Inst> {
        self.base.lookup_indom(indom, name)
    }

    /// Returns the name of an instance (pmNameInDom(3)). For an archive, the name is as of the last fetch.
    ///
    /// # Errors
    /// `PM_ERR_INST` or `PM_ERR_INST_LOG` for an unknown instance; errors of [`Context::indom`].
    pub fn name_indom(&mut self, indom: InDom, inst: Inst) -> Result<Vec<u8>> {
        self.base.name_indom(indom, inst)
    }

    /// Returns every instance that a domain has at any time in an archive, with its latest name (pmGetInDomArchive(3)).
    ///
    /// # Errors
    /// `PM_ERR_NOTARCHIVE` for a pmcd, `PM_ERR_INDOM_LOG` for an unknown domain.
    pub fn indom_ever(&self, indom: InDom) -> Result<Vec<(Inst, Vec<u8>)>> {
        let all = self.recorded()?.archive.metadata().instances_ever(indom)?;
        Ok(all.into_iter().map(|instance| (Inst::new(instance.inst), instance.name.to_vec())).collect())
    }

    /// Looks up an instance that has a name at any time in an archive (pmLookupInDomArchive(3)).
    ///
    /// # Errors
    /// `PM_ERR_NOTARCHIVE` for a pmcd, `PM_ERR_INDOM_LOG` for an unknown domain, `PM_ERR_INST_LOG` for an unknown name.
    pub fn lookup_indom_ever(&self, indom: InDom, name: &[u8]) -> Result<Inst> {
        Ok(Inst::new(self.recorded()?.archive.metadata().lookup_ever(indom, name)?))
    }

    /// Returns the name that an instance has at any time in an archive (pmNameInDomArchive(3)).
    ///
    /// # Errors
    /// `PM_ERR_NOTARCHIVE` for a pmcd, `PM_ERR_INDOM_LOG` for an unknown domain, `PM_ERR_INST_LOG` for an unknown
    /// instance.
    pub fn name_indom_ever(&self, indom: InDom, inst: Inst) -> Result<Vec<u8>> {
        let word = pmapi::OptionWord::word(Some(inst));
        Ok(self.recorded()?.archive.metadata().name_ever(indom, word)?.to_vec())
    }

    /// Returns the help text of a metric (pmLookupText(3)) or an instance domain (pmLookupInDomText(3)). If the full
    /// text is missing, returns the one-line text.
    ///
    /// # Errors
    /// `PM_ERR_TEXT` when there is no text, `PM_ERR_NOTHOST` in an archive without any. Errors of a pmcd for an unknown
    /// subject; [connection errors](pcp_client#connection-errors).
    pub fn lookup_text(&mut self, about: Subject, kind: TextKind) -> Result<Vec<u8>> {
        if let Subject::Metric(pmid) = about {
            if let Some(definition) = self.derived.definition(pmid) {
                let line = definition.text(TextKind::OneLine);
                let full = definition.text(TextKind::Help).filter(|_| kind == TextKind::Help);
                return full.or(line).map(|text| text.as_bytes().to_vec()).ok_or(Error::TEXT);
            }
        }
        match &mut self.base {
            Base::Host(host) => host.lookup_text(about, kind),
            Base::Local(local) => local.lookup_text(about, kind),
            Base::Archive(recorded) => {
                let meta = recorded.archive.metadata();
                let found = match about {
                    Subject::Metric(pmid) => meta.text(pmid, kind),
                    Subject::InDom(indom) => meta.indom_text(indom, kind),
                };
                found.map(<[u8]>::to_vec)
            }
        }
    }
}
