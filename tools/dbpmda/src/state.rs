//! State of a session: the open agent, and what requests to it depend on.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use pcp_collector::{Address, LoadError};
use pcp_pdu::names::{Node, Statuses, encode_names};
use pcp_pdu::{Pdu, PduType};
use pmapi::{InDom, OrNull, PmId};

use crate::agent::{Agent, error_text};
use crate::command::Change;
use crate::console::{Console, err, out};
use crate::grammar::Meaning;
use crate::names::{NameSpace, is_dynamic_root};
use crate::profile::Profile;
use crate::source::Source;
use crate::trace::Trace;
use crate::trace_answers;

/// State that commands change.
pub(crate) struct State {
    pub(crate) console: Console,
    pub(crate) trace: Trace,
    pub(crate) names: NameSpace,
    pub(crate) agent: Option<Agent>,
    /// Process identifier of the program that was started last.
    pub(crate) pid: u32,
    pub(crate) profile: Profile,
    /// Whether the agent lacks the current profile.
    pub(crate) profile_changed: bool,
    pub(crate) timer: bool,
    pub(crate) getdesc: bool,
    pub(crate) getiname: bool,
    /// Seconds to wait for an agent's CREDS PDU.
    creds_timeout: u32,
    keep_objects: bool,
}

impl State {
    pub(crate) fn new(
        names: NameSpace,
        console: Console,
        trace: Trace,
        creds_timeout: u32,
        keep_objects: bool,
    ) -> State {
        let state = State {
            names,
            console,
            trace,
            agent: None,
            pid: 0,
            profile: Profile::default(),
            profile_changed: true,
            timer: false,
            getdesc: false,
            getiname: false,
            creds_timeout,
            keep_objects,
        };
        state.trace_profile("After reset_profile ...\n", None);
        state
    }

    pub(crate) fn open_pipe(&mut self, program: &[u8], arguments: &[Vec<u8>]) {
        let shown = String::from_utf8_lossy(program);
        if let Err(e) = fs::metadata(OsStr::from_bytes(program)) {
            err!(self.console, "openpmda: stat {shown} failed: {}\n", pmapi::Error::from(e));
            return;
        }
        self.agent = None;
        let base = program.rsplit(|&c| c == b'/').next().unwrap_or_default();
        let mut line = [b"Start ", base, b" PMDA: ", program].concat();
        for argument in arguments {
            line.push(b' ');
            line.extend(argument);
        }
        line.push(b'\n');
        self.console.out_bytes(&line);
        match Agent::start(program, arguments, &self.trace, &self.console) {
            Ok(agent) => {
                self.pid = agent.pid().unwrap_or_default();
                self.opened(agent);
            }
            Err(e) => err!(self.console, "openpmda: create process failed: {}\n", pmapi::Error::from(e)),
        }
    }

    pub(crate) fn open_socket(&mut self, address: &Address, name: &[u8]) {
        let shown = String::from_utf8_lossy(name);
        let is_unix = matches!(address, Address::Unix(_));
        if is_unix {
            if let Err(e) = fs::metadata(OsStr::from_bytes(name)) {
                err!(self.console, "opensocket: {shown}: {}\n", pmapi::Error::from(e));
                return;
            }
        }
        self.agent = None;
        match Agent::connect(address, name, &self.trace) {
            Ok(agent) => {
                let kind = if is_unix { "socket " } else { "" };
                out!(self.console, "Connect to PMDA on {kind}{shown}\n");
                self.opened(agent);
            }
            Err(e) => err!(self.console, "opensocket: connect: {}\n", pmapi::Error::from(e)),
        }
    }

    pub(crate) fn open_dso(&mut self, path: &[u8], init: &str, domain: i32) {
        let shown = String::from_utf8_lossy(path);
        if let Err(e) = fs::metadata(OsStr::from_bytes(path)) {
            err!(self.console, "opendso: {shown}: {}\n", pmapi::Error::from(e));
            return;
        }
        // A connected agent stays until a new agent is loaded.
        self.agent.take_if(|agent| agent.interface().is_some());
        let e = match Agent::load(path, init, domain, &self.trace) {
            Ok(agent) => {
                let agent = if self.keep_objects { agent.kept() } else { agent };
                if let Some(before) = self.agent.take() {
                    before.leave();
                }
                self.reset_profile();
                self.agent = Some(agent);
                return;
            }
            Err(e) => e,
        };
        match e {
            LoadError::Load { reason, .. } => {
                out!(self.console, "Error attaching DSO \"{shown}\"\n{reason}\n\n");
            }
            LoadError::Entry { .. } => {
                out!(self.console, "Error: couldn't find init function \"{init}\" in DSO \"{shown}\"\n");
            }
            LoadError::Init { error, .. } => {
                let failed = format!("Error: initialization routine \"{init}\" failed in DSO \"{shown}\"");
                out!(self.console, "{failed}: {error}\n");
            }
            LoadError::Interface(version) => self.unsupported("PMDA interface", version, &shown),
            LoadError::Pmapi(version) => self.unsupported("PMAPI", version, &shown),
            e => out!(self.console, "Error: {e} returned by DSO \"{shown}\"\n"),
        }
    }

    fn unsupported(&mut self, of: &str, version: u8, object: &str) {
        out!(self.console, "Error: Unsupported {of} version {version} returned by DSO \"{object}\"\n");
    }

    fn opened(&mut self, agent: Agent) {
        self.reset_profile();
        self.agent.insert(agent).exchange_versions(self.creds_timeout, &self.console);
    }

    fn reset_profile(&mut self) {
        self.trace_profile("Before reset_profile ...\n", None);
        self.profile = Profile::default();
        self.profile_changed = true;
        self.trace_profile("After reset_profile ...\n", None);
    }

    /// Returns the interface version if the agent is a shared object.
    pub(crate) fn interface(&self) -> Option<u8> {
        self.agent.as_ref()?.interface()
    }

    /// Returns the trace of PDUs. It has no options for a shared object, which exchanges none.
    pub(crate) fn pdus(&self) -> Trace {
        if self.interface().is_some() { Trace::new(self.console.clone()) } else { self.trace.clone() }
    }

    pub(crate) fn change_profile(&mut self, indom: Option<InDom>, change: Change, source: &mut Source) {
        if let Err(code) = self.profile.change(indom, change) {
            source.error(&code.to_string());
            return;
        }
        self.profile_changed = true;
        let function = match change {
            Change::All | Change::Add(_) => "pmAddProfile",
            Change::None | Change::Delete(_) => "pmDelProfile",
        };
        self.trace_profile(&format!("{function}() indom: {}\n", OrNull(indom)), indom);
    }

    fn trace_profile(&self, title: &str, of: Option<InDom>) {
        if self.trace.has("profile") {
            err!(self.console, "{title}{}", self.profile.dump(of));
        }
    }

    /// Requests the PMID of a name below a root of dynamic names.
    fn ask_pmid(&mut self, name: &str, root: PmId) -> Result<Option<PmId>, i32> {
        if self.interface().is_some_and(|version| version < 4) {
            return Ok(Some(root));
        }
        let pdus = self.pdus();
        let Some(agent) = &mut self.agent else { return Ok(Some(root)) };
        let names = [(Node::Leaf, name.as_bytes())];
        trace_answers::names(&pdus, "__pmSendNameList", [(None, name.as_bytes())].into_iter());
        agent.send(|out| encode_names(out, 0, Statuses::Omitted, names))?;
        let reply = match agent.receive() {
            // The end of the agent's output is not an error here.
            Err(0) => return Ok(Some(root)),
            other => other?,
        };
        match reply.pdu() {
            Some(Pdu::Ids(ids)) if ids.pmids().len() == 1 => match ids.status {
                status @ ..0 => Err(status),
                _ => {
                    let pmid = ids.pmids().next().flatten();
                    trace_answers::ids(&pdus, "__pmDecodeIDList", &[pmid]);
                    Ok(pmid)
                }
            },
            Some(Pdu::Error(e)) if e.code < 0 => Err(e.code),
            Some(Pdu::Error(_)) => Ok(Some(root)),
            _ if matches!(reply.header.pdu, PduType::PMNS_IDS | PduType::ERROR) => Err(pmapi::Error::IPC.code()),
            _ => Ok(Some(root)),
        }
    }
}

impl Meaning for State {
    fn lookup(&mut self, name: &str) -> Result<Option<PmId>, String> {
        let pmid = self.names.lookup(name).map_err(|code| code.to_string())?;
        if is_dynamic_root(pmid) { self.ask_pmid(name, pmid).map_err(error_text) } else { Ok(Some(pmid)) }
    }

    fn is_named(&self, pmid: Option<PmId>) -> bool {
        !self.names.all(pmid).is_empty()
    }

    fn debug(&mut self, option: &str) -> bool {
        let mut options = self.trace.options();
        // A large number is negative as an `i32`, so the sign does not clear an option.
        let cleared = option.strip_prefix('-').filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()));
        let Ok(named) = cleared.unwrap_or(option).parse() else { return false };
        match cleared {
            Some(_) => options.clear(named),
            None => options.set(named),
        }
        self.trace.set_options(options);
        if let Some(agent) = &self.agent {
            agent.set_debug(options);
        }
        true
    }
}
