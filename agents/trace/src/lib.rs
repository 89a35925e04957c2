//! An agent that exports what applications mark with the library `pcp-trace`, or with libpcp_trace: the
//! counterpart of pmdatrace(1).
//!
//! Applications connect to a port, and send names of transactions, points, observations and counters. Each
//! name is an instance. Counts and last values are there at once; rates and times are of the last complete
//! parts of a period.
//!
//! The daemon serves clients at any time, in its one thread. A shared object serves them while pmcd asks it
//! something: an application that traces synchronously waits for that.

mod access;
mod metrics;
mod options;
mod server;
mod tags;

use std::sync::OnceLock;
use std::time::Instant;

use clap::FromArgMatches as _;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pmda::Hangups;
use pmda::prelude::*;
use tracing::{info, warn};

use access::Access;
use options::Options;
use server::Server;
use tags::{Tags, Window};

/// Agent trace.
#[derive(Debug)]
pub struct Trace {
    options: Options,
    port: u16,
    tags: Tags,
    server: Option<Server>,
}

/// What the agent waits for.
const PROMPT: usize = 0;
const LATER: usize = 1;
const HANGUP: usize = 2;

impl Agent for Trace {
    const NAME: &'static str = "trace";
    const DOMAIN: u16 = 10;
    const USAGE: Option<&'static str> = Some(options::USAGE);

    fn options(command: clap::Command) -> clap::Command {
        options::augment(command)
    }

    fn new(setup: &mut Setup) -> Start<Self> {
        let options = Options::from_arg_matches(setup.options())?;
        metrics::declare(setup, &options);
        let tags = Tags::new(Window::new(options.period, options.buckets.get()));
        Ok(Trace { port: options.port()?, options, tags, server: None })
    }

    fn open(&mut self) -> Start<()> {
        let access = Access::new(&self.options.access)?;
        let failed = |e: std::io::Error| {
            let reason = e.raw_os_error().map_or_else(|| e.to_string(), |code| Errno::from_raw(code).desc().to_owned());
            format!("bind({}): {reason}", self.port)
        };
        self.server = Some(Server::open(self.port, access).map_err(failed)?);
        self.tags.reset();
        Ok(())
    }

    /// What clients have sent before a request counts in its answer.
    fn refresh(&mut self, _: Request, _: Client) -> Result {
        self.serve(|server, tags| {
            server.serve_prompt(&mut |data| tags.add(data));
            server.serve_later(&mut |data| tags.add(data));
        });
        Ok(())
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        metrics::kind_of(indom).map(|kind| self.tags.of(kind) as &dyn Instances)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        metrics::fetch(item, &self.tags, self.port, out)
    }

    fn store(&mut self, item: Item, _: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        match (item, value) {
            (metrics::RESET, _) => {
                self.tags.reset();
                info!("PMDA reset");
                Ok(())
            }
            (metrics::DEBUG, Atom::String(text)) => {
                let text = std::str::from_utf8(text).map_err(|_| Error::CONV)?;
                pmda::log::set_debug_options(text.parse().map_err(|_| Error::CONV)?);
                info!("debug options set to {text}");
                Ok(())
            }
            // As PCP's agent says of the others.
            _ => Err(Error::PMID),
        }
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        let Some(server) = &self.server else { return };
        set.readable(PROMPT, server.prompt());
        if let Some(later) = server.later() {
            set.readable(LATER, later);
        }
        if let Some(due) = server.due() {
            set.at(due);
        }
        if let Some(hangup) = HANGUPS.get() {
            set.readable(HANGUP, hangup);
        }
    }

    fn wake(&mut self, wake: Wake) {
        match wake {
            Wake::Readable(PROMPT) => self.serve(|server, tags| server.serve_prompt(&mut |data| tags.add(data))),
            Wake::Readable(LATER) => self.serve(|server, tags| server.serve_later(&mut |data| tags.add(data))),
            Wake::Readable(HANGUP) => self.show_clients(),
            Wake::Time => self.serve(|server, tags| server.serve_due(Instant::now(), &mut |data| tags.add(data))),
            _ => {}
        }
    }
}

impl Trace {
    fn serve(&mut self, serve: impl FnOnce(&mut Server, &mut Tags)) {
        self.tags.set_now(Instant::now());
        if let Some(server) = &mut self.server {
            serve(server, &mut self.tags);
        }
    }

    fn show_clients(&self) {
        HANGUPS.get().map(Hangups::take);
        if let Some(server) = &self.server {
            server.show();
        }
    }
}

/// Readable after a SIGHUP.
static HANGUPS: OnceLock<Hangups> = OnceLock::new();

/// For a process that is nothing but the agent: as many connections as the system allows, and a list of
/// the clients in the log on SIGHUP.
pub fn own_process() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap_or_else(|e| warn!("number of descriptors: {e}"));
    }
    if let Ok(hangups) = Hangups::catch() {
        let _ = HANGUPS.set(hangups);
    }
}

pmda::dso!(trace_init, Trace);
