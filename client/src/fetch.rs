//! Values: fetch and store.

use super::Context;
use pcp_pdu::Pdu;
use pcp_pdu::client::{Answer, encode_high_res_fetch};
use pcp_pdu::event::Stamp;
use pcp_pdu::handshake::Flags;
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::result::{Changes, ValueSet, ValueSets};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Domain, Error, Inst, PmId, Result};

/// The values of metrics at one time (`pmResult`, `pmHighResResult`).
#[derive(Clone, Debug, Default)]
pub struct Sample {
    time: Stamp,
    changes: Changes,
    pdu: Vec<u8>,
    /// Where the value sets are in the PDU.
    sets: Vec<usize>,
}

impl Sample {
    /// When pmcd took it: with nanoseconds, or with microseconds when pmcd is older.
    pub fn time(&self) -> Stamp {
        self.time
    }

    /// What has changed since the fetch before (the result of pmFetch(3)).
    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// How many value sets: one for each metric that was asked for.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The value set of a metric, by its place in the request.
    pub fn set(&self, at: usize) -> Option<ValueSet<'_>> {
        let (mut set, _) = ValueSet::at(&self.pdu, *self.sets.get(at)?)?;
        // Nobody has the domain of metrics that clients make up themselves.
        if set.error == Some(Error::NOAGENT) && set.pmid.is_none_or(|pmid| pmid.domain() == Domain::DYNAMIC) {
            set.error = Some(Error::PMID);
        }
        Some(set)
    }

    /// The value sets, in the order of the request.
    pub fn sets(&self) -> impl Iterator<Item = ValueSet<'_>> {
        (0..self.len()).map_while(|at| self.set(at))
    }

    /// Takes over what an agent has answered itself, without pmcd between.
    pub fn assign(&mut self, sets: ValueSets<'_>) {
        self.pdu.clear();
        self.pdu.extend_from_slice(sets.pdu());
        self.sets.clear();
        self.sets.extend(sets.offsets());
    }
}

/// A value and its instance, which is absent in a singular metric.
pub type InstValue<'a> = (Option<Inst>, Atom<'a>);

/// As many PDUs of news as may come before values; pmcd sends one.
const MAX_NEWS: usize = 16;

impl Context {
    /// The values of metrics, for the instances that the profile includes (pmFetch(3), pmFetchHighRes(3)).
    ///
    /// # Errors
    /// `PM_ERR_TOOSMALL` for an empty list. What is wrong with one metric stands in its value set.
    pub fn fetch(&mut self, pmids: &[PmId]) -> Result<Sample> {
        let mut sample = Sample::default();
        self.fetch_into(pmids, &mut sample)?;
        Ok(sample)
    }

    /// The same into a sample whose memory is used again. Upon an error it is as it was.
    ///
    /// # Errors
    /// As [`Context::fetch`].
    pub fn fetch_into(&mut self, pmids: &[PmId], sample: &mut Sample) -> Result {
        if pmids.is_empty() {
            return Err(Error::TOOSMALL);
        }
        self.send_profile()?;
        let list = pmids.iter().copied().map(Some);
        if self.features.contains(Flags::HIGH_RES) {
            self.channel.send(|out| encode_high_res_fetch(out, 0, 0, list))?;
        } else {
            self.channel.send(|out| encode_fetch(out, 0, 0, list))?;
        }
        let mut changes = Changes::default();
        for _ in 0..MAX_NEWS {
            let answer = self.channel.receive()?;
            let (values, time) = match answer {
                // News of pmcd come before the values.
                Answer::Pdu(Pdu::Error(news)) if news.code > 0 => {
                    changes = changes.union(Changes(news.code as u8));
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

    /// Changes values of one metric (pmStore(3)). They have the metric's type.
    ///
    /// # Errors
    /// `PM_ERR_VALUE` without values, `PM_ERR_TYPE` for values of several types, `PM_ERR_PERMISSION`, what the agent
    /// says to them.
    pub fn store(&mut self, pmid: PmId, values: &[InstValue<'_>]) -> Result {
        self.store_all(&[(pmid, values)])
    }

    /// Changes values of metrics (pmStore(3)), up to the first that fails.
    ///
    /// # Errors
    /// As [`Context::store`]; `PM_ERR_TOOSMALL` for an empty list.
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
