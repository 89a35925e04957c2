//! Record mode: pmlogger processes that record for an application, and the folio of their archives.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use pcp_pdu::event::Stamp;
use pmapi::Config;

use pmapi::zone::Zone;

/// Failure to record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The folio exists already.
    #[error("{}: the folio exists already", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Name of a host, or of the application, that is not valid in a line of the folio.
    #[error("{0:?} is not valid in a folio: it is empty, or has white space, a slash or a control character")]
    Name(String),
    /// All 27 names for the files of a host are in use.
    #[error("host {0:?} cannot be added again: all 27 names for its files are in use")]
    TooOften(String),
    /// Second default host.
    #[error("host {0:?} cannot be the default host: there is one already")]
    Default(String),
    /// Recording without a host, or a host of another recording.
    #[error("the recording has no host, or not this one")]
    NoHost,
    /// pmlogger cannot be started.
    #[error("{}: {source}", program.display())]
    Start {
        /// Path of pmlogger.
        program: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// pmlogger has ended.
    #[error("the pmlogger for host {0:?} is no longer running")]
    Ended(String),
}

/// Number of a host in a recording, from [`RecordSetup::add_host`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RecordHost(usize);

/// Role of a host in a recording.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HostRole {
    /// The host of all metrics that name no host. Its archive is the first of the folio.
    Default,
    /// Any other host.
    Named,
}

/// Whether the application can show the archives (`pmafm FOLIO replay`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Replay {
    /// The application can show the archives, with the configuration that it writes to [`RecordSetup::replay`].
    Possible,
    /// The application cannot show the archives.
    None,
}

/// Recording that has not begun (pmRecordSetup(3)).
///
/// ```no_run
/// use std::io::Write as _;
/// use pcp_context::{HostRole, RecordSetup, Replay};
///
/// let mut setup = RecordSetup::new("/tmp/today", "example", Replay::None)?;
/// let host = setup.add_host("localhost", HostRole::Default)?;
/// if let Some(config) = setup.config(host) {
///     writeln!(config, "log mandatory on 1 sec {{ kernel.all.load }}")?;
/// }
/// let recording = setup.start()?;
/// std::thread::sleep(std::time::Duration::from_secs(10));
/// recording.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RecordSetup {
    folio: PathBuf,
    folio_file: File,
    dir: PathBuf,
    /// First part of the names of all files except the folio.
    base: String,
    creator: String,
    replay: Option<File>,
    hosts: Vec<Host>,
}

#[derive(Debug)]
struct Host {
    name: String,
    role: HostRole,
    /// Name of the archive.
    base: String,
    config: File,
    arguments: Vec<String>,
}

fn create(path: &Path) -> Result<File, RecordError> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.map_err(|source| RecordError::File { path: path.to_owned(), source })
}

/// Creates a file with a unique name.
fn unique(dir: &Path) -> Result<(String, File), RecordError> {
    const TRIES: u64 = 1000;
    const NAMES: u64 = 0x100_0000;
    let seed = u64::from(Stamp::now().nanoseconds) + u64::from(std::process::id()) * 7919;
    let mut nth = 0;
    loop {
        let base = format!("{:06x}", (seed + nth) % NAMES);
        nth += 1;
        match create(&dir.join(&base)) {
            Ok(file) => return Ok((base, file)),
            Err(RecordError::File { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists && nth < TRIES => {}
            Err(e) => return Err(e),
        }
    }
}

fn named(text: &str) -> Result<String, RecordError> {
    let is_plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/');
    if is_plain { Ok(text.to_owned()) } else { Err(RecordError::Name(text.to_owned())) }
}

/// Returns the name of this host.
fn this_host(config: &Config) -> String {
    let labels = pcp_client::host_labels(config).unwrap_or_default();
    labels.value("hostname").map_or_else(|| "localhost".into(), |name| name.trim_matches('"').to_owned())
}

impl RecordSetup {
    /// Creates a folio, which pmafm(1) reads, for archives in its directory. `creator` is the name of the application's
    /// command.
    ///
    /// # Errors
    /// [`RecordError::Exists`] for a folio that exists, [`RecordError::Name`] for an invalid creator,
    /// [`RecordError::File`].
    pub fn new(folio: impl Into<PathBuf>, creator: &str, replay: Replay) -> Result<RecordSetup, RecordError> {
        let (folio, creator) = (folio.into(), named(creator)?);
        // The files are found even if the application changes its directory.
        let path = std::path::absolute(&folio).map_err(|source| RecordError::File { path: folio.clone(), source })?;
        let dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let folio_file = create(&folio).map_err(|e| match e {
            RecordError::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                RecordError::Exists(folio.clone())
            }
            e => e,
        })?;
        let mut setup =
            RecordSetup { folio, folio_file, dir, base: String::new(), creator, replay: None, hosts: Vec::new() };
        match unique(&setup.dir) {
            Ok((base, file)) => {
                (setup.base, setup.replay) = (base, Some(file));
                if replay == Replay::None {
                    setup.replay = None;
                    _ = std::fs::remove_file(setup.dir.join(&setup.base));
                }
            }
            Err(e) => return Err(setup.given_up(e)),
        }
        match setup.write_head() {
            Ok(()) => Ok(setup),
            Err(source) => {
                let path = setup.folio.clone();
                Err(setup.given_up(RecordError::File { path, source }))
            }
        }
    }

    fn given_up(&self, error: RecordError) -> RecordError {
        _ = std::fs::remove_file(&self.folio);
        error
    }

    fn write_head(&mut self) -> io::Result<()> {
        let host = this_host(&Config::load());
        let time = Zone::system().ctime(Stamp::now().seconds);
        let replay = if self.replay.is_some() { format!(" {}", self.base) } else { String::new() };
        write!(
            self.folio_file,
            "PCPFolio\nVersion: 1\n# pmafm(1) lists and replays these archives\n#\nCreated: on {host} at {time}\n\
             Creator: {}{replay}\n#               Host                    Basename\n#\n",
            self.creator
        )
    }

    /// Returns the file to which the application writes its configuration for showing the archives, or `None` with
    /// [`Replay::None`].
    pub fn replay(&mut self) -> Option<&mut File> {
        self.replay.as_mut()
    }

    /// Adds a host to record (pmRecordAddHost(3)). A host may be added several times.
    ///
    /// # Errors
    /// [`RecordError::Default`] for a second default host, [`RecordError::Name`] for an invalid name,
    /// [`RecordError::TooOften`], [`RecordError::File`].
    pub fn add_host(&mut self, host: &str, role: HostRole) -> Result<RecordHost, RecordError> {
        let name = named(host)?;
        if role == HostRole::Default && self.hosts.iter().any(|host| host.role == HostRole::Default) {
            return Err(RecordError::Default(name));
        }
        for suffix in std::iter::once(String::new()).chain(('a'..='z').map(String::from)) {
            let base = format!("{}{suffix}.{name}", self.base);
            match create(&self.dir.join(format!("{base}.config"))) {
                Ok(config) => {
                    self.hosts.push(Host { name, role, base, config, arguments: Vec::new() });
                    return Ok(RecordHost(self.hosts.len() - 1));
                }
                Err(RecordError::File { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => (),
                Err(e) => return Err(e),
            }
        }
        Err(RecordError::TooOften(name))
    }

    /// Returns the file for pmlogger's configuration of a host, in the form of pmlogger(1); or `None` for a host of
    /// another recording.
    pub fn config(&mut self, host: RecordHost) -> Option<&mut File> {
        self.hosts.get_mut(host.0).map(|host| &mut host.config)
    }

    /// Returns the path of pmlogger's log for a host; `None` for a host of another recording.
    pub fn log(&self, host: RecordHost) -> Option<PathBuf> {
        self.hosts.get(host.0).map(|host| self.dir.join(format!("{}.log", host.base)))
    }

    /// Returns the path of a host's archive, without suffixes; `None` for a host of another recording.
    pub fn archive(&self, host: RecordHost) -> Option<PathBuf> {
        self.hosts.get(host.0).map(|host| self.dir.join(&host.base))
    }

    /// Adds an argument of pmlogger's command line, for a host or for all (`PM_REC_SETARG`).
    pub fn argument(&mut self, host: Option<RecordHost>, argument: &str) {
        for (at, known) in self.hosts.iter_mut().enumerate() {
            if host.is_none_or(|host| host.0 == at) {
                known.arguments.push(argument.to_owned());
            }
        }
    }

    /// Completes the folio and starts a pmlogger for each host (`PM_REC_ON`).
    ///
    /// # Errors
    /// [`RecordError::NoHost`], [`RecordError::File`]; [`RecordError::Start`] if there is no pmlogger. After an error,
    /// pmloggers that have been started are stopped.
    pub fn start(mut self) -> Result<Recording, RecordError> {
        if self.hosts.is_empty() {
            return Err(RecordError::NoHost);
        }
        let mut lines = String::new();
        let (first, rest): (Vec<&Host>, Vec<&Host>) =
            self.hosts.iter().partition(|host| host.role == HostRole::Default);
        for host in first.into_iter().chain(rest) {
            lines.push_str(&format!("{:<15} {:<23} {}\n", "Archive:", host.name, host.base));
        }
        let folio = self.folio.clone();
        self.folio_file.write_all(lines.as_bytes()).map_err(|source| RecordError::File { path: folio, source })?;
        let program = Config::load().binadm_dir().join("pmlogger");
        let mut recording = Recording { loggers: Vec::new() };
        for host in &self.hosts {
            let started = logger(&program, &self.dir, host);
            let mut child = started.map_err(|source| RecordError::Start { program: program.clone(), source })?;
            let mut control = child.stdin.take();
            let replay = if self.replay.is_some() { "R\n" } else { "" };
            let head = format!("V0\nF{}\nP{}\n{replay}", self.folio.display(), self.creator);
            if let Some(pipe) = &mut control {
                // If pmlogger has already ended, the next request reports it.
                _ = pipe.write_all(head.as_bytes());
            }
            recording.loggers.push(Logger { host: host.name.clone(), child, control });
        }
        Ok(recording)
    }
}

/// Starts pmlogger in the folio's directory. Its standard input is the control of the session.
fn logger(program: &Path, dir: &Path, host: &Host) -> io::Result<Child> {
    let (log, config) = (format!("{}.log", host.base), format!("{}.config", host.base));
    let mut command = Command::new(program);
    command.args(&host.arguments).args(["-x", "0", "-h", &host.name, "-l", &log, "-c", &config, &host.base]);
    command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}

#[derive(Debug)]
struct Logger {
    host: String,
    child: Child,
    /// Pipe to pmlogger; `None` after its last command.
    control: Option<std::process::ChildStdin>,
}

impl Logger {
    fn send(&mut self, command: &str) -> Result<(), RecordError> {
        let ended = || RecordError::Ended(self.host.clone());
        let is_running = matches!(self.child.try_wait(), Ok(None));
        let pipe = self.control.as_mut().filter(|_| is_running).ok_or_else(ended)?;
        pipe.write_all(command.as_bytes()).map_err(|_| ended())
    }

    /// Sends the last command, and closes the pipe.
    fn send_last(&mut self, command: &str) -> Result<(), RecordError> {
        let sent = self.send(command);
        self.control = None;
        sent
    }
}

/// Recording: a pmlogger for each host. Dropping it stops the pmloggers, unless they were detached.
#[derive(Debug)]
pub struct Recording {
    loggers: Vec<Logger>,
}

impl Recording {
    fn logger(&mut self, host: RecordHost) -> Result<&mut Logger, RecordError> {
        self.loggers.get_mut(host.0).ok_or(RecordError::NoHost)
    }

    /// Makes the pmlogger of a host, or each of them, show its state to the user, with a dialog (`PM_REC_STATUS`).
    ///
    /// # Errors
    /// [`RecordError::Ended`] if a pmlogger has ended or is no longer controlled. The others get the request.
    /// [`RecordError::NoHost`].
    pub fn status(&mut self, host: Option<RecordHost>) -> Result<(), RecordError> {
        if let Some(host) = host {
            return self.logger(host)?.send("?\n");
        }
        let sent: Vec<_> = self.loggers.iter_mut().map(|logger| logger.send("?\n")).collect();
        sent.into_iter().collect()
    }

    /// Returns the exit status of each pmlogger, in the order of the hosts. `None` means that it still runs.
    pub fn ended(&mut self) -> Vec<Option<ExitStatus>> {
        self.loggers.iter_mut().map(|logger| logger.child.try_wait().ok().flatten()).collect()
    }

    /// Returns the process of a host's pmlogger; `None` for a host of another recording.
    pub fn process(&self, host: RecordHost) -> Option<u32> {
        self.loggers.get(host.0).map(|logger| logger.child.id())
    }

    /// Lets the pmlogger of a host continue without the application (`PM_REC_DETACH`).
    ///
    /// # Errors
    /// [`RecordError::Ended`] if it has ended or is no longer controlled, [`RecordError::NoHost`].
    pub fn detach_host(&mut self, host: RecordHost) -> Result<(), RecordError> {
        self.logger(host)?.send_last("D\n")
    }

    /// Lets every pmlogger continue without the application (`PM_REC_DETACH`).
    ///
    /// # Errors
    /// [`RecordError::Ended`] if a pmlogger has ended. The others continue.
    pub fn detach(mut self) -> Result<(), RecordError> {
        let controlled = self.loggers.iter_mut().filter(|logger| logger.control.is_some());
        let sent: Vec<_> = controlled.map(|logger| logger.send_last("D\n")).collect();
        sent.into_iter().collect()
    }

    /// Ends the pmlogger of a host, and waits until its archive is complete (`PM_REC_OFF`).
    ///
    /// # Errors
    /// [`RecordError::Ended`] if it had ended before or is no longer controlled, [`RecordError::NoHost`].
    pub fn stop_host(&mut self, host: RecordHost) -> Result<(), RecordError> {
        let logger = self.logger(host)?;
        let sent = logger.send_last("Q\n");
        if sent.is_ok() {
            _ = logger.child.wait();
        }
        sent
    }

    /// Ends every pmlogger, and waits until its archive is complete (`PM_REC_OFF`).
    ///
    /// # Errors
    /// [`RecordError::Ended`] if a pmlogger had ended before.
    pub fn stop(mut self) -> Result<(), RecordError> {
        self.end()
    }

    /// Ends every pmlogger that is still controlled.
    fn end(&mut self) -> Result<(), RecordError> {
        let controlled = self.loggers.iter_mut().filter(|logger| logger.control.is_some());
        let sent: Vec<_> = controlled
            .map(|logger| {
                let sent = logger.send_last("Q\n");
                (logger, sent)
            })
            .collect();
        // All of them end at the same time.
        let wait = |(logger, sent): (&mut Logger, _)| {
            _ = logger.child.wait();
            sent
        };
        let sent: Vec<_> = sent.into_iter().map(wait).collect();
        sent.into_iter().collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        _ = self.end();
    }
}
