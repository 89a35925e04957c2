//! Probes: requests whose answers are known, sent among the hostile ones.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::names::{Node, Statuses, encode_names};
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::result::Changes;
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Header, Pdu, PduType};
use pmapi::{Atom, InDom, Inst, PmId, Type};

use crate::Outcome;
use crate::host::{Host, PATIENCE};
use crate::patience::scaled;

/// Client identifier of the probes.
pub(crate) const CLIENT: i32 = 99;

/// An expected answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Bytes equal to those of the first answer.
    Bytes(Vec<u8>),
    /// Values of a metric, the first of which is this number.
    Number(Type, f64),
    /// Values of a metric, the first of which is the time in seconds since 1970, within 6 s.
    Time,
    /// Success.
    Done,
    /// Any answer. The caller checks it.
    Any,
}

/// One or more requests, and the expected answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    pub(crate) pdus: Vec<u8>,
    pub(crate) answers: Vec<Answer>,
}

impl Answer {
    /// Compares an answer with the expected one.
    pub(crate) fn check(&self, header: Header, bytes: &[u8]) -> Outcome {
        match self {
            Answer::Bytes(same) if same == bytes => Ok(()),
            Answer::Bytes(same) => {
                Err(format!("{} other than at first: {bytes:02x?}, not {same:02x?}", header.pdu).into())
            }
            Answer::Number(ty, number) => {
                let value = first_number(header, bytes, *ty)?;
                if value == *number { Ok(()) } else { Err(format!("{value} in place of {number}").into()) }
            }
            Answer::Time => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
                let value = first_number(header, bytes, Type::U64)?;
                if (value - now).abs() <= 6.0 { Ok(()) } else { Err(format!("the time is {value}, not {now}").into()) }
            }
            Answer::Any => Ok(()),
            Answer::Done => match Pdu::decode(header, bytes)? {
                Pdu::Error(e) => Ok(e.status()?),
                other => Err(format!("{other:?} in place of success").into()),
            },
        }
    }
}

/// Returns the first value of the first metric of a RESULT.
pub(crate) fn first_number(header: Header, bytes: &[u8], ty: Type) -> Outcome<f64> {
    let Pdu::Result(result) = Pdu::decode(header, bytes)? else {
        return Err(format!("{} in place of values", header.pdu).into());
    };
    let set = result.sets().next().ok_or("no values")?;
    set.error.map_or(Ok(()), Err)?;
    let (_, value) = set.values().next().ok_or("no value")?;
    number(value.atom(ty)?)
}

pub(crate) fn number(atom: Atom<'_>) -> Outcome<f64> {
    match atom.convert(Type::Double)?.as_atom() {
        Atom::Double(n) => Ok(n),
        other => Err(format!("{other:?} is not a number").into()),
    }
}

impl Probe {
    /// Adds a fetch of all instances of a metric.
    pub(crate) fn fetch(mut self, pmid: PmId, answer: Answer) -> Outcome<Probe> {
        Profile::default().encode(&mut self.pdus, CLIENT, 0)?;
        encode_fetch(&mut self.pdus, CLIENT, 0, [Some(pmid)].into_iter())?;
        self.answers.push(answer);
        Ok(self)
    }

    /// Adds a fetch of one instance of a metric.
    pub(crate) fn fetch_one(mut self, pmid: PmId, indom: InDom, inst: Inst, answer: Answer) -> Outcome<Probe> {
        let mut profile = Profile::new(ProfileState::Exclude);
        profile.set(indom, ProfileState::Exclude, &[inst]);
        profile.encode(&mut self.pdus, CLIENT, 0)?;
        encode_fetch(&mut self.pdus, CLIENT, 0, [Some(pmid)].into_iter())?;
        self.answers.push(answer);
        Ok(self)
    }

    /// Adds a store of a value.
    pub(crate) fn store(mut self, pmid: PmId, atom: Atom<'_>) -> Outcome<Probe> {
        let mut values = ResultWriter::new();
        values.begin();
        values.begin_set(Some(pmid));
        values.push(None, atom.ty(), atom)?;
        values.end_set(Ok(()));
        let (lists, blocks) = values.seal(CLIENT, Changes::default())?;
        self.pdus.extend_from_slice(lists);
        self.pdus.extend_from_slice(blocks);
        self.answers.push(Answer::Done);
        Ok(self)
    }

    /// Adds a request. Sends it to the agent now, and expects the same answer later.
    pub(crate) fn recorded(
        mut self,
        host: &mut dyn Host,
        encode: impl FnOnce(&mut Vec<u8>) -> pmapi::Result,
    ) -> Outcome<Probe> {
        let start = self.pdus.len();
        encode(&mut self.pdus)?;
        let request = self.pdus.get(start..).unwrap_or_default();
        let answers = &mut self.answers;
        host.exchange(request, 1, &mut |header, bytes| {
            if header.pdu == PduType::ERROR {
                return Err(format!("an error at first: {:?}", Pdu::decode(header, bytes)?).into());
            }
            answers.push(Answer::Bytes(bytes.to_vec()));
            Ok(())
        })?;
        Ok(self)
    }

    /// Sends the requests and checks the answers.
    pub(crate) fn ask(&self, host: &mut dyn Host) -> Outcome {
        let mut answers = self.answers.iter();
        host.exchange(&self.pdus, self.answers.len(), &mut |header, bytes| match answers.next() {
            Some(answer) => answer.check(header, bytes),
            None => Err("one answer too many".into()),
        })
    }

    /// Asks the agent for the PMID of a dynamic name.
    pub(crate) fn lookup(host: &mut dyn Host, name: &str) -> Outcome<PmId> {
        let mut request = Vec::new();
        encode_names(&mut request, CLIENT, Statuses::Omitted, [(Node::Leaf, name.as_bytes())])?;
        let mut found = None;
        host.exchange(&request, 1, &mut |header, bytes| {
            if let Pdu::Ids(ids) = Pdu::decode(header, bytes)? {
                found = ids.pmids().next().flatten();
            }
            Ok(())
        })?;
        found.ok_or_else(|| format!("no metric {name}").into())
    }

    /// Requests the PMID of a dynamic name until the agent knows it, for at most 5 s. The agent may bind its metrics in
    /// the background.
    pub(crate) fn lookup_when_bound(host: &mut dyn Host, name: &str) -> Outcome<PmId> {
        let begin = Instant::now();
        loop {
            match Self::lookup(host, name) {
                Err(_) if begin.elapsed() < scaled(PATIENCE) => sleep(Duration::from_millis(5)),
                outcome => return outcome,
            }
        }
    }
}
