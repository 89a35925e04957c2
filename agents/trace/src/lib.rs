//! Agent that exports the trace events of applications: the counterpart of pmdatrace(1). Applications use the library
//! `pcp-trace`, or `libpcp_trace`.
//!
//! Applications connect to a TCP port, and send trace events: transactions, points, observations and counter values.
//! Each tag is an instance. Counts and last values change at once. Rates and times cover the last complete parts
//! (buckets) of a period.
//!
//! The daemon serves TCP clients at any time, in its only thread. A shared object serves them only during requests of
//! pmcd: an application that traces synchronously waits until then.
//!
//! Applications on the same host can write into mapped files instead ([`trace::shared_memory`]). These count in the
//! same metrics, and also provide event records.

mod access;
mod client;
mod directory;
mod events;
mod fields;
mod filter;
mod limits;
mod metrics;
mod names;
mod options;
mod processes;
mod records;
mod server;
mod shared_memory;
mod sums;
mod tag;
mod tags;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use clap::FromArgMatches as _;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pmda::limits::Setting;
use pmda::prelude::*;
use pmda::{Features, PollSet, Sighup, Wake};
use trace::protocol::Data;
use tracing::{debug, info, warn};

use access::Access;
use events::Events;
use limits::{Account, Limits};
use options::Options;
use processes::Processes;
use server::Server;
use tags::{Tags, Window};

/// Agent `trace`, which exports the trace events of applications.
#[derive(Debug)]
pub struct Trace {
    options: Options,
    limits: Limits,
    port: u16,
    tags: Tags,
    server: Option<Server>,
    directory: PathBuf,
    /// Parent of the directory of files.
    base: PathBuf,
    processes: Option<Processes>,
    events: Events,
}

/// Key of the event source that the agent waits for.
const CLIENTS: usize = 0;

impl Agent for Trace {
    const NAME: &'static str = "trace";
    const DOMAIN: u16 = 10;
    const WANTS: Features = Features::AUTHORIZE;
    const USAGE: Option<&'static str> = Some(options::USAGE);

    fn options(command: clap::Command) -> clap::Command {
        options::augment(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let options = Options::from_arg_matches(setup.options())?;
        options::ask(setup);
        metrics::declare(setup, &options);
        shared_memory::declare(setup);
        limits::METRICS.declare(setup);
        let limits = Setting::change(&options.limits, Limits::default());
        let events = Events::new(setup, &limits);
        let tags = Tags::new(Window::new(options.period, options.buckets.get()), limits.clone());
        let port = options.port()?;
        let directory = trace::shared_memory::path(setup.config(), port);
        let base = trace::shared_memory::base(setup.config());
        Ok(Trace { port, options, limits, tags, server: None, directory, base, processes: None, events })
    }

    fn open(&mut self) -> Result<(), BoxError> {
        let mut access = Access::new(&self.options.access)?;
        let own = access.allows_own();
        self.server = Some(Server::open(self.port, access, self.limits.clone(), HANGUPS.get()).map_err(|e| {
            let reason = e.raw_os_error().map_or_else(|| e.to_string(), |code| Errno::from_raw(code).desc().to_owned());
            format!("bind({}): {reason}", self.port)
        })?);
        self.tags.reset();
        if own {
            let processes = Processes::open(self.directory.clone(), self.base.clone(), &self.limits);
            self.processes = processes.inspect_err(|e| self.say_no_files(e)).ok();
        }
        Ok(())
    }

    /// Counts all trace events up to the request before it is answered.
    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        self.serve(|server, counts, now| {
            server.serve_all(now, &mut |account, data| counts.add(account, data));
            // A shared object is called for requests only.
            server.serve_due(now, &mut |account, data| counts.add(account, data));
        });
        // A store may be a reset, which must clear earlier trace events of files as well.
        if matches!(request, Request::Fetch(_) | Request::Instance(_) | Request::Store) {
            self.read();
        }
        Ok(())
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [self.events.names() as &dyn Catalog]
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        metrics::kind_of(indom).map(|kind| self.tags.of(kind) as &dyn Instances)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            _ if limits::is_own(item) => out.put(limits::METRICS.value(item, &self.left_out()).ok_or(Error::PMID)?),
            _ if shared_memory::is_own(item) => shared_memory::fetch(item, self.processes.as_ref(), out),
            _ if records::is_own(item) => self.events.fetch(item, out),
            _ => metrics::fetch(item, &self.tags, self.port, out),
        }
    }

    fn store(&mut self, item: Item, _: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        match (item, value) {
            _ if records::is_own(item) => self.events.store(item, value, client),
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
            // PCP's agent returns this error for all other metrics.
            _ => Err(Error::PMID),
        }
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        let Some(server) = &self.server else { return };
        set.readable(CLIENTS, server.poll());
        if let Some(due) = server.due() {
            set.at(due);
        }
        if let Some(processes) = &self.processes {
            set.at(processes.due(&self.events, &self.tags));
        }
    }

    fn wake(&mut self, wake: Wake) {
        match wake {
            Wake::Readable(CLIENTS) => {
                self.serve(|server, counts, now| server.serve(now, &mut |account, data| counts.add(account, data)));
            }
            Wake::Time => {
                self.serve(|server, counts, now| server.serve_due(now, &mut |account, data| counts.add(account, data)));
                self.go_on();
            }
            _ => {}
        }
    }
}

/// The parts of the agent that count trace events of TCP clients.
struct Counts<'a> {
    tags: &'a mut Tags,
    events: &'a mut Events,
}

impl Counts<'_> {
    #[inline]
    fn add(&mut self, account: Account, data: &Data<'_>) {
        self.tags.add(account, data);
        self.events.add(account, data);
    }
}

impl Trace {
    fn serve(&mut self, serve: impl FnOnce(&mut Server, &mut Counts<'_>, Instant)) {
        let Trace { tags, server, events, .. } = self;
        let now = Instant::now();
        tags.set_now(now);
        if let Some(server) = server {
            serve(server, &mut Counts { tags, events }, now);
        }
    }

    /// Logs the reason why files of processes cannot be read. If PCP's run directory does not exist, this is only a
    /// debug line.
    fn say_no_files(&self, e: &std::io::Error) {
        let directory = self.directory.display();
        match e.kind() {
            std::io::ErrorKind::NotFound => debug!("{directory}: {e}: applications can trace over TCP only"),
            _ => warn!("{directory}: {e}: applications can trace over TCP only"),
        }
    }

    /// Reads all files of processes, and publishes event records.
    fn read(&mut self) {
        let Trace { tags, processes, events, .. } = self;
        tags.set_now(Instant::now());
        match processes {
            Some(processes) => processes.read(tags, events),
            None => events.publish(),
        }
    }

    fn left_out(&self) -> limits::Counts {
        let [connections, silent] = self.server.as_ref().map_or([0; 2], |s| [s.connected.refused(), s.silent.count()]);
        let [filters, fields] = self.events.left_out();
        let [files, bad, memory] = self.processes.as_ref().map_or([0; 3], Processes::left_out);
        let Tags { names, values, .. } = &self.tags;
        [connections, silent, names.refused(), values.count(), filters, fields, files, bad, memory]
    }

    /// Reads all files if that is due.
    fn go_on(&mut self) {
        let Trace { tags, processes, events, .. } = self;
        tags.set_now(Instant::now());
        if let Some(processes) = processes {
            processes.go_on(tags, events);
        }
    }
}

/// Descriptor that becomes readable when the process receives SIGHUP.
static HANGUPS: OnceLock<Sighup> = OnceLock::new();

/// Prepares a process that runs only this agent, before `pmda::main`.
///
/// Raises the soft limit of open files to the hard one, and with it the default limits of connections. SIGHUP lists the
/// clients in the log from then on.
pub fn own_process() {
    limits::set_alone();
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap_or_else(|e| warn!("limit of open files not raised: {e}"));
    }
    if let Ok(hangups) = Sighup::catch() {
        let _ = HANGUPS.set(hangups);
    }
}

pmda::dso!(trace_init, Trace);
