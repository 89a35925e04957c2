//! Agents in this process: a library or a shared object.

use pcp_collector::{Channel, Error, Local, SharedObject};
use pcp_pdu::{Header, Pdu, PduType};
use pmda::Agent;
use pmda::host::Engine;

use super::{Each, Host};
use crate::Outcome;
use crate::job::Job;
use crate::spec::Spec;

/// An agent that gets PDUs one by one.
struct Inside {
    channel: Box<dyn Channel>,
    decodes: bool,
    reply: Vec<u8>,
}

/// Loads the agent's shared object.
#[allow(unsafe_code, reason = "the agent is a shared object")]
pub(crate) fn object(spec: &Spec, job: &Job) -> Outcome<Box<dyn Host>> {
    let path = job.order.bin.join(format!("libpmda_{}.so", spec.name));
    // SAFETY: it is an agent of this repository.
    let object = unsafe { SharedObject::open(&path, spec.init, spec.domain.into())? };
    Ok(Box::new(Inside { channel: Box::new(object), decodes: true, reply: Vec::new() }))
}

/// Starts the agent's library.
pub(crate) fn local(spec: &Spec) -> Outcome<Box<dyn Host>> {
    let channel = match spec.name {
        "trivial" => start::<pmda_trivial::Trivial>(spec)?,
        "simple" => start::<pmda_simple::Simple>(spec)?,
        "showcase" => start::<pmda_showcase::Showcase>(spec)?,
        "mmv" => start::<pmda_mmv::Mmv>(spec)?,
        "trace" => start::<pmda_trace::Trace>(spec)?,
        "openmetrics" => start::<pmda_openmetrics::Openmetrics>(spec)?,
        _ => start::<pmda_derived::Derived>(spec)?,
    };
    Ok(Box::new(Inside { channel, decodes: false, reply: Vec::new() }))
}

fn start<A: Agent + 'static>(spec: &Spec) -> Outcome<Box<dyn Channel>> {
    Ok(Box::new(Local::start(Engine::<A>::builder().config(pmapi::Config::load()).domain(spec.domain()))?))
}

impl Inside {
    fn answer(&mut self, each: Each<'_>) -> Outcome {
        let header = self.channel.receive(&mut self.reply, None)?;
        each(header, &self.reply)
    }
}

impl Host for Inside {
    fn exchange(&mut self, mut pdus: &[u8], answers: usize, each: Each<'_>) -> Outcome {
        let mut answered = 0;
        while let Some(header) = Header::parse(pdus)? {
            let (pdu, rest) = pdus.split_at_checked(header.len as usize).ok_or("half a PDU")?;
            pdus = rest;
            match self.channel.send(pdu, None) {
                // These PDUs have no answer that could report an error.
                Err(Error::Agent(_)) if matches!(header.pdu, PduType::PROFILE | PduType::ATTR | PduType::ERROR) => {}
                other => other?,
            }
            if answered < answers && super::answer_to(header.pdu).is_some() {
                self.answer(each)?;
                answered += 1;
            }
        }
        if answered == answers { Ok(()) } else { Err(format!("{} answers are missing", answers - answered).into()) }
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn decodes(&self) -> bool {
        self.decodes
    }

    /// Sends the bytes and closes the channel. There is no process that should exit.
    fn break_off(&mut self, bytes: &[u8]) -> Outcome {
        if !self.decodes && matches!(Header::parse(bytes), Ok(Some(header)) if Pdu::decode(header, bytes).is_ok()) {
            return Err("bytes that break nothing".into());
        }
        let _ = self.channel.send(bytes, None);
        self.channel.close();
        Ok(())
    }
}
