//! The requests of pmcd, a method each.

use pcp_pdu::handshake::{Attr, Attribute, Features, encode_error};
use pcp_pdu::instance::InstanceReq;
use pcp_pdu::metadata::{DescReq, Subject, TextKind, TextReq, encode_fetch};
use pcp_pdu::names::{Child, Names, Node, Statuses, Traverse, encode_ids, encode_names};
use pcp_pdu::profile::Profile;
use pcp_pdu::result::Changes;
use pcp_pdu::{Pdu, PduType};
use pmapi::{Atom, Desc, InDom, Inst, LabelSet, PmId};

use crate::reply::{label_set, text};
use crate::{Channel, Collector, Error, Fetched, LabelTarget, MetricValues, Result};

impl<C: Channel> Collector<C> {
    /// Sets the profile of the client: the instances that it wants (pmAddProfile(3)). The profile is sent before the
    /// client's next fetch. As with pmcd, every client's first fetch is preceded by a profile.
    pub fn set_profile(&mut self, profile: Profile) {
        self.profiles.insert(self.client, profile);
        self.profiled.take_if(|client| *client == self.client);
    }

    /// Fetches metrics (pmFetch(3)). The value sets are in the order of `pmids`; the types of values are in the
    /// descriptors.
    ///
    /// # Errors
    /// The errors of all requests (see [`Collector`]), and [`Error::Count`] for another number of sets.
    pub fn fetch(&mut self, pmids: &[PmId]) -> Result<Fetched<'_>> {
        if self.profiled != Some(self.client) {
            let profile = self.profiles.remove(&self.client);
            let sent = match &profile {
                Some(profile) => self.notify(|out, from| profile.encode(out, from, 0)),
                None => self.notify(|out, from| Profile::default().encode(out, from, 0)),
            };
            if let Some(profile) = profile {
                self.profiles.insert(self.client, profile);
            }
            if sent? {
                self.profiled = Some(self.client);
            }
        }
        self.request(
            PduType::FETCH,
            |out, from| encode_fetch(out, from, 0, pmids.iter().copied().map(Some)),
            |pdu| match pdu {
                Pdu::Result(result) => {
                    let check = count(PduType::FETCH, "value sets", result.len(), pmids.len());
                    Some(check.map(|()| Fetched::new(result)))
                }
                _ => None,
            },
        )
    }

    /// Returns the descriptor of a metric (pmLookupDesc(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_PMID` for an unknown metric, and the errors of all requests (see [`Collector`]).
    pub fn desc(&mut self, pmid: PmId) -> Result<Desc> {
        self.request(
            PduType::DESC_REQ,
            |out, from| DescReq { pmid: Some(pmid) }.encode(out, from),
            |pdu| match pdu {
                Pdu::Desc(desc) => Some(Ok(desc.desc)),
                _ => None,
            },
        )
    }

    /// Requests the descriptor of a metric, and fetches its values.
    ///
    /// # Errors
    /// The errors of [`Collector::desc`], [`Collector::fetch`] and [`MetricValues::new`].
    pub fn values(&mut self, pmid: PmId) -> Result<MetricValues<'_>> {
        let ty = self.desc(pmid)?.ty;
        let set = self.fetch(&[pmid])?.sets().next().ok_or(Error::Agent(pmapi::Error::VALUE))?;
        MetricValues::new(set, ty)
    }

    /// Requests the descriptor of a metric and fetches its only value: that of a singular metric, or the only one that
    /// the profile selects.
    ///
    /// # Errors
    /// The errors of [`Collector::values`], [`Error::Agent`] with `PM_ERR_VALUE` without a value, [`Error::Count`] for
    /// several values.
    pub fn value(&mut self, pmid: PmId) -> Result<Atom<'_>> {
        let values = self.values(pmid)?;
        count(PduType::FETCH, "values", values.len().max(1), 1)?;
        values.iter().next().map(|(_, atom)| atom).ok_or(Error::Agent(pmapi::Error::VALUE))
    }

    /// Stores a value (pmStore(3)).
    ///
    /// # Errors
    /// The errors of [`Collector::store_values`].
    pub fn store(&mut self, pmid: PmId, inst: Option<Inst>, value: Atom<'_>) -> Result {
        self.store_values(&[(pmid, inst, value)])
    }

    /// Stores several values in one request. Successive values of the same metric are sent as one set.
    ///
    /// # Errors
    /// [`Error::Agent`] with the error of the first value that the agent refuses, and the errors of all requests (see
    /// [`Collector`]).
    pub fn store_values(&mut self, values: &[(PmId, Option<Inst>, Atom<'_>)]) -> Result {
        let mut writer = std::mem::take(&mut self.values);
        writer.begin();
        let mut added = Ok(());
        for set in values.chunk_by(|a, b| a.0 == b.0) {
            writer.begin_set(set.first().map(|(pmid, ..)| *pmid));
            for (_, inst, value) in set {
                added = added.and(writer.push(*inst, value.ty(), *value));
            }
            writer.end_set(Ok(()));
        }
        let outcome = self.request(
            PduType::RESULT,
            |out, from| {
                added?;
                let (lists, blocks) = writer.seal(from, Changes::default())?;
                out.extend_from_slice(lists);
                out.extend_from_slice(blocks);
                Ok(())
            },
            |pdu| matches!(pdu, Pdu::Error(_)).then_some(Ok(())),
        );
        self.values = writer;
        outcome
    }

    /// Returns all instances of a domain (pmGetInDom(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_INDOM` for an unknown domain, and the errors of all requests (see [`Collector`]).
    pub fn instances(&mut self, indom: InDom) -> Result<Vec<(Inst, String)>> {
        self.instance(InstanceReq { indom: Some(indom), inst: None, name: None }, |entries| {
            Ok(entries.filter_map(|(inst, name)| Some((inst?, text(name)))).collect())
        })
    }

    /// Finds an instance by its name (pmLookupInDom(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_INDOM` or `PM_ERR_INST` for an unknown domain or name, and the errors of all
    /// requests (see [`Collector`]).
    pub fn instance_of(&mut self, indom: InDom, name: &str) -> Result<Inst> {
        self.instance(InstanceReq { indom: Some(indom), inst: None, name: Some(name.as_bytes()) }, |entries| {
            entries.next().and_then(|(inst, _)| inst).ok_or(Error::Agent(pmapi::Error::INST))
        })
    }

    /// Returns the name of an instance (pmNameInDom(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_INDOM` or `PM_ERR_INST` for an unknown domain or instance, and the errors of all
    /// requests (see [`Collector`]).
    pub fn instance_name(&mut self, indom: InDom, inst: Inst) -> Result<String> {
        self.instance(InstanceReq { indom: Some(indom), inst: Some(inst), name: None }, |entries| {
            entries.next().map(|(_, name)| text(name)).ok_or(Error::Agent(pmapi::Error::INST))
        })
    }

    fn instance<T>(
        &mut self,
        req: InstanceReq<'_>,
        take: impl FnOnce(&mut dyn Iterator<Item = (Option<Inst>, &[u8])>) -> Result<T>,
    ) -> Result<T> {
        self.request(
            PduType::INSTANCE_REQ,
            |out, from| req.encode(out, from),
            |pdu| match pdu {
                Pdu::Instance(instances) => Some(take(&mut instances.iter())),
                _ => None,
            },
        )
    }

    /// Returns the help of a metric or instance domain (pmLookupText(3), pmLookupInDomText(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_TEXT` without help, and the errors of all requests (see [`Collector`]).
    pub fn text(&mut self, subject: Subject, kind: TextKind) -> Result<String> {
        self.request(
            PduType::TEXT_REQ,
            |out, from| TextReq::new(subject, kind).encode(out, from),
            |pdu| match pdu {
                Pdu::Text(reply) => Some(Ok(text(reply.text))),
                _ => None,
            },
        )
    }

    /// Returns the metric of a dynamic name (pmLookupName(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_NAME` for an unknown name, and the errors of all requests (see [`Collector`]).
    pub fn pmid(&mut self, name: &str) -> Result<PmId> {
        let names = [(Node::Leaf, name.as_bytes())];
        self.request(
            PduType::PMNS_NAMES,
            |out, from| encode_names(out, from, Statuses::Omitted, names),
            |pdu| match pdu {
                Pdu::Ids(ids) => Some(match pmapi::Error::from_code(ids.status) {
                    Some(code) => Err(Error::Agent(code)),
                    None => count(PduType::PMNS_NAMES, "PMIDs", ids.pmids().len(), 1)
                        .and(ids.pmids().next().flatten().ok_or(Error::Agent(pmapi::Error::NAME))),
                }),
                _ => None,
            },
        )
    }

    /// Returns the names of a dynamic metric (pmNameAll(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_PMID` for an unknown metric, and the errors of all requests (see [`Collector`]).
    pub fn names(&mut self, pmid: PmId) -> Result<Vec<String>> {
        self.name_list(PduType::PMNS_IDS, |out, from| encode_ids(out, from, 0, &[Some(pmid)]), full_names)
    }

    /// Returns the last components of the dynamic names directly below a name (pmGetChildren(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_NAME` for an unknown name, and the errors of all requests (see [`Collector`]).
    pub fn children(&mut self, name: &str) -> Result<Vec<String>> {
        let child = Child { statuses: Statuses::Omitted, name: name.as_bytes() };
        self.name_list(PduType::PMNS_CHILD, |out, from| child.encode(out, from), full_names)
    }

    /// Returns the last components of the dynamic names directly below a name, each with its kind: a metric or a node
    /// (pmGetChildrenStatus(3)).
    ///
    /// # Errors
    /// The errors of [`Collector::children`], and [`Error::Count`] for an answer without statuses.
    pub fn children_status(&mut self, name: &str) -> Result<Vec<(String, Node)>> {
        let child = Child { statuses: Statuses::Included, name: name.as_bytes() };
        self.name_list(
            PduType::PMNS_CHILD,
            |out, from| child.encode(out, from),
            |names| {
                let nodes: Option<Vec<_>> = names.iter().map(|(node, name)| Some((text(name), node?))).collect();
                nodes.ok_or(Error::Count {
                    request: PduType::PMNS_CHILD,
                    what: "statuses",
                    got: 0,
                    wanted: names.len(),
                })
            },
        )
    }

    /// Returns the full names of all dynamic metrics at or below a name (pmTraversePMNS(3)).
    ///
    /// # Errors
    /// [`Error::Agent`] with `PM_ERR_NAME` for an unknown name, and the errors of all requests (see [`Collector`]).
    pub fn traverse(&mut self, name: &str) -> Result<Vec<String>> {
        let traverse = Traverse { name: name.as_bytes() };
        self.name_list(PduType::PMNS_TRAVERSE, |out, from| traverse.encode(out, from), full_names)
    }

    fn name_list<T>(
        &mut self,
        request: PduType,
        encode: impl FnOnce(&mut Vec<u8>, i32) -> pmapi::Result,
        take: impl FnOnce(Names<'_>) -> Result<T>,
    ) -> Result<T> {
        self.request(request, encode, |pdu| match pdu {
            Pdu::Names(names) => Some(take(names)),
            _ => None,
        })
    }

    /// Returns the labels of one level (pmLookupLabels(3)). Instances have a set each, which may be an error.
    ///
    /// # Errors
    /// The errors of all requests (see [`Collector`]).
    pub fn labels(&mut self, of: LabelTarget) -> Result<Vec<(Option<Inst>, pmapi::Result<LabelSet>)>> {
        self.request(
            PduType::LABEL_REQ,
            |out, from| of.request().encode(out, from),
            |pdu| match pdu {
                Pdu::Label(labels) => Some(Ok(labels.sets().map(|set| (set.inst, label_set(&set))).collect())),
                _ => None,
            },
        )
    }

    /// Sends the agent an attribute of the client. Returns false when nothing was sent, because the agent's CREDS PDU
    /// did not ask for attributes, or the agent is not ready.
    ///
    /// # Errors
    /// The errors of [`Collector::settle`], [`Error::Request`] for a value that does not fit into a PDU, and errors of
    /// the connection.
    pub fn attribute(&mut self, attribute: Attribute, value: &str) -> Result<bool> {
        if !self.features().intersects(Features::AUTHORIZE | Features::CONTAINER) {
            return Ok(false);
        }
        self.notify(|out, from| Attr { attribute, value: value.as_bytes() }.encode(out, from))
    }

    /// Notifies the agent that the client has disconnected, and drops the client's profile. Returns false when nothing
    /// was sent, because the agent is not ready.
    ///
    /// # Errors
    /// The errors of [`Collector::settle`], and errors of the connection.
    pub fn end_client(&mut self) -> Result<bool> {
        self.profiles.remove(&self.client);
        self.profiled.take_if(|client| *client == self.client);
        self.notify(|out, from| encode_error(out, from, Err(pmapi::Error::NOTCONN)))
    }
}

fn full_names(names: Names<'_>) -> Result<Vec<String>> {
    Ok(names.iter().map(|(_, name)| text(name)).collect())
}

fn count(request: PduType, what: &'static str, got: usize, wanted: usize) -> Result {
    if got == wanted { Ok(()) } else { Err(Error::Count { request, what, got, wanted }) }
}
