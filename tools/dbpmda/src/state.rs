//! State of a session: the open agent, and the settings that its requests depend on.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use pcp_collector::{Address, LoadError};
use pcp_pdu::names::{Node, Statuses, encode_names};
use pcp_pdu::profile::ProfileState;
use pcp_pdu::{Pdu, PduType};
use pmapi::{InDom, OrNull, PmId};

use crate::agent::{Agent, error_text};
use crate::console::{Console, err, out};
use crate::grammar::Meaning;
use crate::names::{NameSpace, NoNames, is_dynamic_root};
use crate::profile::Profile;
use crate::source::Source;
use crate::token::Word;
use crate::trace_answers as trace;

/// Settings of a session.
#[derive(Debug)]
pub struct Options {
    /// File of the name space; `None` for the default name space.
    pub names: Option<PathBuf>,
    /// Seconds to wait for an agent's CREDS PDU.
    pub creds_timeout: u32,
    /// Whether shared objects stay loaded, so that valgrind still knows their functions at the end.
    pub keep_objects: bool,
}

/// State that commands change.
pub(crate) struct State {
    pub(crate) console: Console,
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
    options: Options,
}

impl State {
    pub(crate) fn new(console: Console, options: Options) -> Result<State, NoNames> {
        let state = State {
            names: NameSpace::load(options.names.clone(), &console)?,
            console,
            agent: None,
            pid: 0,
            profile: Profile::default(),
            profile_changed: true,
            timer: false,
            getdesc: false,
            getiname: false,
            options,
        };
        state.trace_profile("After reset_profile ...", None);
        Ok(state)
    }

    pub(crate) fn open_pipe<'a>(&mut self, program: &'a [u8], arguments: impl Iterator<Item = &'a [u8]> + Clone) {
        if let Err(e) = fs::metadata(OsStr::from_bytes(program)) {
            let (shown, e) = (String::from_utf8_lossy(program), pmapi::Error::from(e));
            return err!(self.console, "openpmda: stat {shown} failed: {e}\n");
        }
        self.agent = None;
        let base = program.rsplit(|&c| c == b'/').next().unwrap_or_default();
        let words = [program].into_iter().chain(arguments.clone()).collect::<Vec<_>>().join(&b' ');
        self.console.out_bytes(&[b"Start ", base, b" PMDA: ", &*words, b"\n"].concat());
        match Agent::start(program, arguments, &self.console) {
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
        if let Err(e) = if is_unix { fs::metadata(OsStr::from_bytes(name)).map(drop) } else { Ok(()) } {
            return err!(self.console, "opensocket: {shown}: {}\n", pmapi::Error::from(e));
        }
        self.agent = None;
        match Agent::connect(address, name, &self.console) {
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
            return err!(self.console, "opendso: {shown}: {}\n", pmapi::Error::from(e));
        }
        // A connected agent stays until a new agent is loaded.
        self.agent.take_if(|agent| agent.interface().is_some());
        let e = match Agent::load(path, init, domain, &self.console) {
            Ok(mut agent) => {
                if let Some(object) = agent.object().filter(|_| self.options.keep_objects) {
                    object.keep_loaded();
                }
                if let Some(before) = self.agent.take() {
                    before.leave();
                }
                self.reset_profile();
                self.agent = Some(agent);
                return;
            }
            Err(e) => e,
        };
        let of = |version: &str, number| format!("Unsupported {version} version {number} returned by DSO \"{shown}\"");
        let message = match e {
            LoadError::Load { reason, .. } => {
                return out!(self.console, "Error attaching DSO \"{shown}\"\n{reason}\n\n");
            }
            LoadError::Entry { .. } => format!("couldn't find init function \"{init}\" in DSO \"{shown}\""),
            LoadError::Init { error, .. } => {
                format!("initialization routine \"{init}\" failed in DSO \"{shown}\": {error}")
            }
            LoadError::Interface(version) => of("PMDA interface", version),
            LoadError::Pmapi(version) => of("PMAPI", version),
            e => format!("{e} returned by DSO \"{shown}\""),
        };
        out!(self.console, "Error: {message}\n");
    }

    fn opened(&mut self, agent: Agent) {
        self.reset_profile();
        self.agent.insert(agent).exchange_versions(self.options.creds_timeout);
    }

    fn reset_profile(&mut self) {
        self.trace_profile("Before reset_profile ...", None);
        self.profile = Profile::default();
        self.profile_changed = true;
        self.trace_profile("After reset_profile ...", None);
    }

    /// Returns the interface version if the agent is a shared object.
    pub(crate) fn interface(&self) -> Option<u8> {
        self.agent.as_ref()?.interface()
    }

    /// Returns the console for the trace of PDUs if a debug option is set. A shared object exchanges no PDUs.
    pub(crate) fn pdus(&self, option: &str) -> Option<&Console> {
        Some(&self.console).filter(|console| self.interface().is_none() && console.has(option))
    }

    /// Changes the profile for an instance of a domain, or for all of them.
    pub(crate) fn change_profile(
        &mut self,
        indom: Option<InDom>,
        change: Word,
        inst: Option<i32>,
        source: &mut Source,
    ) {
        let (to, function) = match change {
            Word::All | Word::Add => (ProfileState::Include, "pmAddProfile"),
            _ => (ProfileState::Exclude, "pmDelProfile"),
        };
        if let Err(code) = self.profile.change(indom, to, inst) {
            return source.error(&code.to_string());
        }
        self.profile_changed = true;
        self.trace_profile(&format!("{function}() indom: {}", OrNull(indom)), indom);
    }

    fn trace_profile(&self, title: &str, of: Option<InDom>) {
        if self.console.has("profile") {
            err!(self.console, "{title}\n{}", self.profile.dump(of));
        }
    }

    /// Requests the PMID of a name below a root of dynamic names.
    fn ask_pmid(&mut self, name: &str, root: PmId) -> Result<Option<PmId>, i32> {
        if self.agent.is_none() || self.interface().is_some_and(|version| version < 4) {
            return Ok(Some(root));
        }
        trace::names(self.pdus("pmns"), "__pmSendNameList", [(None, name.as_bytes())].into_iter());
        let Some(agent) = &mut self.agent else { return Ok(Some(root)) };
        let names = [(Node::Leaf, name.as_bytes())];
        agent.send(|out| encode_names(out, 0, Statuses::Omitted, names))?;
        let reply = match agent.receive() {
            // The end of the agent's output is not an error here.
            Err(0) => return Ok(Some(root)),
            other => other?,
        };
        match reply.pdu() {
            Some(Pdu::Ids(ids)) if ids.pmids().len() == 1 && ids.status < 0 => Err(ids.status),
            Some(Pdu::Ids(ids)) if ids.pmids().len() == 1 => {
                let pmid = ids.pmids().next().flatten();
                trace::ids(self.pdus("pmns"), "__pmDecodeIDList", &[pmid]);
                Ok(pmid)
            }
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
        let mut options = self.console.options();
        // A large number is negative as an `i32`, so the sign does not clear an option.
        let cleared = option.strip_prefix('-').filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()));
        let Ok(named) = cleared.unwrap_or(option).parse() else { return false };
        match cleared {
            Some(_) => options.clear(named),
            None => options.set(named),
        }
        self.console.set_options(options);
        if let Some(object) = self.agent.as_mut().and_then(Agent::object) {
            object.set_debug(options);
        }
        true
    }
}
