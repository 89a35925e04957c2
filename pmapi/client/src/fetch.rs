//! Fetching and storing values.

use super::Context;
use pcp_pdu::Pdu;
use pcp_pdu::client::{Answer, encode_high_res_fetch};
use pcp_pdu::event::Stamp;
use pcp_pdu::handshake::Features;
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::result::{Changes, ValueSet, ValueSets};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Domain, Error, Inst, PmId, Result};

/// Values of metrics at one time (`pmResult`, `pmHighResResult`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    time: Stamp,
    changes: Changes,
    pdu: Vec<u8>,
    /// Offsets of the value sets in the PDU.
    sets: Vec<usize>,
}

impl Sample {
    /// Returns the timestamp of pmcd, in nanoseconds, or in microseconds from a pmcd without high-resolution results.
    pub fn time(&self) -> Stamp {
        self.time
    }

    /// Returns the changes in pmcd since the previous fetch (the result of pmFetch(3)).
    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// Returns the number of value sets: one for each requested metric.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Returns whether the sample has no value sets.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns the value set of a metric, by its index in the request.
    pub fn set(&self, at: usize) -> Option<ValueSet<'_>> {
        let (mut set, _) = ValueSet::at(&self.pdu, *self.sets.get(at)?)?;
        // Clients, not agents, define derived metrics. So a metric in their domain that pmcd does not know is unknown.
        if set.error == Some(Error::NOAGENT) && set.pmid.is_none_or(|pmid| pmid.domain() == Domain::DYNAMIC) {
            set.error = Some(Error::PMID);
        }
        Some(set)
    }

    /// Iterates over the value sets, in the order of the request.
    pub fn sets(&self) -> impl Iterator<Item = ValueSet<'_>> {
        (0..self.len()).map_while(|at| self.set(at))
    }

    /// Returns a sample of values that are not from pmcd, for instance from an archive.
    pub fn at(time: Stamp, sets: ValueSets<'_>) -> Sample {
        let mut sample = Sample { time, ..Sample::default() };
        sample.assign(sets);
        sample
    }

    /// Returns the sample with these changes in pmcd, for instance those of a fetch whose values it was computed from.
    #[must_use]
    pub fn with_changes(mut self, changes: Changes) -> Sample {
        self.changes = changes;
        self
    }

    /// Sorts the values of each metric by instance (pmSortInstances(3)).
    pub fn sort_instances(&mut self) {
        for at in &self.sets {
            let Some((set, after)) = ValueSet::at(&self.pdu, *at) else { continue };
            let len = set.len() * 8;
            let Some(list) = after.checked_sub(len).and_then(|start| self.pdu.get_mut(start..after)) else { continue };
            // Each pair is an instance, and a value or its offset.
            let mut pairs: Vec<[u8; 8]> = list.chunks_exact(8).filter_map(|pair| pair.try_into().ok()).collect();
            pairs.sort_by_key(|[a, b, c, d, ..]| i32::from_be_bytes([*a, *b, *c, *d]));
            list.copy_from_slice(&pairs.concat());
        }
    }

    /// Copies value sets that an agent returned without pmcd. Timestamp and changes stay.
    pub fn assign(&mut self, sets: ValueSets<'_>) {
        self.pdu.clear();
        self.pdu.extend_from_slice(sets.pdu());
        self.sets.clear();
        self.sets.extend(sets.offsets());
    }
}

/// Value with its instance, which is `None` for a singular metric.
pub type InstValue<'a> = (Option<Inst>, Atom<'a>);

/// Largest number of PDUs with changes that are accepted before the values; pmcd sends one.
const MAX_NEWS: usize = 16;

impl Context {
    /// Fetches the values of metrics, for the instances that the profile includes (pmFetch(3), pmFetchHighRes(3)).
    ///
    /// # Errors
    /// `PM_ERR_TOOSMALL` for an empty list; [connection errors](crate#connection-errors). The error of a
    /// single metric is in its value set.
    pub fn fetch(&mut self, pmids: &[PmId]) -> Result<Sample> {
        let mut sample = Sample::default();
        self.fetch_into(pmids, &mut sample)?;
        Ok(sample)
    }

    /// Fetches the values of metrics into `sample`, whose memory is reused. After an error `sample` is unchanged.
    ///
    /// # Errors
    /// Errors of [`Context::fetch`].
    pub fn fetch_into(&mut self, pmids: &[PmId], sample: &mut Sample) -> Result {
        if pmids.is_empty() {
            return Err(Error::TOOSMALL);
        }
        self.send_profile()?;
        let list = pmids.iter().copied().map(Some);
        if self.features.contains(Features::HIGH_RES) {
            self.channel.send(|out| encode_high_res_fetch(out, 0, 0, list))?;
        } else {
            self.channel.send(|out| encode_fetch(out, 0, 0, list))?;
        }
        let mut changes = Changes::default();
        for _ in 0..MAX_NEWS {
            let answer = self.channel.receive()?;
            let (values, time) = match answer {
                // pmcd reports changes before the values.
                Answer::Pdu(Pdu::Error(news)) if news.code > 0 => {
                    changes |= Changes::from_bits_retain(news.code as u8);
                    continue;
                }
                Answer::Pdu(Pdu::Result(r)) => {
                    let nanoseconds = u32::try_from(r.microseconds).unwrap_or_default().saturating_mul(1000);
                    (r.values(), Stamp { seconds: r.seconds.into(), nanoseconds })
                }
                Answer::HighResResult(r) => {
                    let nanoseconds = u32::try_from(r.nanoseconds).unwrap_or_default();
                    (r.values, Stamp { seconds: r.seconds, nanoseconds })
                }
                _ => return Err(Error::IPC),
            };
            if values.len() != pmids.len() {
                return Err(Error::IPC);
            }
            sample.assign(values);
            (sample.time, sample.changes) = (time, changes);
            return Ok(());
        }
        self.channel.close();
        Err(Error::IPC)
    }

    /// Stores values of one metric, which must have the metric's type (pmStore(3)).
    ///
    /// # Errors
    /// `PM_ERR_VALUE` for an empty list, `PM_ERR_TYPE` for values of different types, `PM_ERR_PERMISSION` when pmcd
    /// forbids it. The agent's own error; [connection errors](crate#connection-errors).
    pub fn store(&mut self, pmid: PmId, values: &[InstValue<'_>]) -> Result {
        self.store_all(&[(pmid, values)])
    }

    /// Stores values of several metrics, up to the first that fails (pmStore(3)).
    ///
    /// # Errors
    /// Errors of [`Context::store`]; `PM_ERR_TOOSMALL` for an empty list.
    pub fn store_all(&mut self, metrics: &[(PmId, &[InstValue<'_>])]) -> Result {
        if metrics.is_empty() {
            return Err(Error::TOOSMALL);
        }
        let mut writer = ResultWriter::new();
        writer.begin();
        for (pmid, values) in metrics {
            let ty = values.first().ok_or(Error::VALUE)?.1.ty();
            writer.begin_set(Some(*pmid));
            for (inst, value) in *values {
                writer.push(*inst, ty, *value)?;
            }
            writer.end_set(Ok(()));
        }
        let (head, blocks) = writer.seal(0, Changes::default())?;
        self.channel.send_bytes(&[head, blocks])?;
        match self.channel.receive()? {
            Answer::Pdu(Pdu::Error(_)) => Ok(()),
            _ => Err(Error::IPC),
        }
    }
}
