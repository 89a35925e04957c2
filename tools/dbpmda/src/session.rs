//! Session: executes commands one after the other.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::Command as Process;
use std::thread;
use std::time::{Duration, Instant};

use crate::command::Command;
use crate::console::{Console, out};
use crate::grammar::Parser;
use crate::names::{NameSpace, NoNames};
use crate::scanner::Scanner;
use crate::source::Source;
use crate::state::State;
use crate::trace::Trace;
use crate::{help, status};

/// Session of dbpmda: its input, and the state that commands change.
pub struct Session {
    source: Source,
    scanner: Scanner,
    pub(crate) state: State,
}

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

impl Session {
    /// Loads the name space and returns a session with commands from a source.
    ///
    /// # Errors
    /// [`NoNames`] if the name space cannot be loaded. The console has shown the reason.
    pub fn new(source: Source, console: Console, trace: Trace, options: Options) -> Result<Self, NoNames> {
        let names = NameSpace::load(options.names, &console, &trace)?;
        let state = State::new(names, console, trace, options.creds_timeout, options.keep_objects);
        Ok(Session { source, scanner: Scanner::default(), state })
    }

    /// Executes the commands up to `quit` or the end of the input.
    ///
    /// # Errors
    /// [`NoNames`] if `namespace` fails and the first name space cannot be loaded again. The console has shown the
    /// reason.
    pub fn run(mut self) -> Result<(), NoNames> {
        loop {
            let Session { source, scanner, state } = &mut self;
            let command = Parser { source, scanner, meaning: state }.command().unwrap_or(Command::Nothing);
            match command {
                // These commands do not include the end of the line, so they count even in an unterminated last line.
                Command::OpenPipe { program, arguments } => self.state.open_pipe(&program, &arguments),
                Command::OpenSocket(address, name) => self.state.open_socket(&address, &name),
                _ if self.source.has_ended() => {}
                Command::Quit => return Ok(()),
                command => self.execute(command)?,
            }
            if self.source.has_ended() {
                if self.source.is_interactive() {
                    out!(self.state.console, "\n");
                }
                return Ok(());
            }
        }
    }

    fn execute(&mut self, command: Command) -> Result<(), NoNames> {
        let Session { source, state, .. } = self;
        match command {
            Command::Nothing | Command::Quit | Command::OpenPipe { .. } | Command::OpenSocket(..) => {}
            Command::Help(topic, form) => help::show(topic, form, &state.console),
            Command::OpenDso { path, init, domain } => state.open_dso(&path, &init, domain),
            Command::Profile(indom, change) => state.change_profile(indom, change, source),
            Command::Watch(path) => watch(&path),
            Command::NameSpace(path) => {
                state.names.replace(PathBuf::from(OsStr::from_bytes(&path)))?;
            }
            Command::Status => status::show(state),
            Command::Timer(on) => state.timer = on,
            Command::GetDesc(on) => state.getdesc = on,
            Command::GetIname(on) => state.getiname = on,
            Command::Wait(seconds) => {
                state.console.flush();
                thread::sleep(Duration::from_secs(seconds.into()));
            }
            _ if state.agent.is_none() => source.warn("No PMDA currently opened"),
            Command::Close => state.agent = None,
            request => state.request(request),
        }
        Ok(())
    }
}

impl State {
    /// Sends a request to the agent. With `timer on`, shows its duration unless the request failed.
    fn request(&mut self, request: Command) {
        let start = Instant::now();
        let asked = match request {
            Command::Desc(pmid) => self.show_desc(pmid),
            Command::Fetch(pmids) => self.fetch(&pmids),
            Command::Store(pmid, value) => self.store(pmid, &value),
            Command::Text(subject) => self.text(subject),
            Command::Instance(indom, which) => self.instance(indom, &which),
            Command::Label(labels) => self.labels(labels),
            Command::Attribute(..) if self.is_too_old(6, "authentication") => Ok(()),
            Command::Attribute(key, value) => self.attribute(key, value.as_deref()),
            _ if self.is_too_old(4, "dynamic metric names") => Ok(()),
            Command::Names(pmid) => self.names_of(pmid),
            Command::PmId(name) => self.pmid_of(&name),
            Command::Children(name) => self.children(&name),
            Command::Traverse(name) => self.traverse(&name),
            _ => return,
        };
        // The end of the agent and an answer of the wrong type are no failures here.
        if matches!(asked, Ok(()) | Err(0..)) && self.timer {
            out!(self.console, "Timer: {:.6} seconds\n", start.elapsed().as_secs_f64());
        }
    }
}

/// Shows the end of a file in a terminal window.
fn watch(path: &[u8]) {
    let script = "xterm -hold -title \"dbpmda watch $1\" -geometry 80x16 -e tail -f \"$1\" &";
    // The shell reports errors itself.
    let _ = Process::new("sh").args(["-c", script, "sh"]).arg(OsStr::from_bytes(path)).status();
}
