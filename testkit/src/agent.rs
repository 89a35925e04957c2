//! An agent as a line of pmcd's configuration.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::one_word;

/// The transport between pmcd and an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Transport {
    Pipe,
    Unix,
    Inet,
    Ipv6,
    /// A shared object that pmcd loads, with this entry point.
    Dso(String),
}

/// An agent that a private pmcd should start, by default over a pipe.
#[derive(Debug, Clone)]
pub struct Agent {
    pub(crate) name: String,
    pub(crate) domain: u16,
    pub(crate) pmns: String,
    binary: PathBuf,
    arguments: Vec<OsString>,
    transport: Transport,
    not_ready: bool,
}

impl Agent {
    /// The agent `name` with `domain`, started as `binary -d domain`.
    pub fn new(name: &str, domain: u16, binary: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            domain,
            pmns: String::new(),
            binary: one_word(binary.into()),
            arguments: Vec::new(),
            transport: Transport::Pipe,
            not_ready: false,
        }
    }

    /// Sets the names of the agent's metrics, in the format of a `pmns` file (see [`crate::NameSpace::add`]).
    pub fn names(mut self, pmns: &str) -> Self {
        pmns.clone_into(&mut self.pmns);
        self
    }

    /// Reads the names of the agent's metrics from its `pmns` file.
    ///
    /// # Panics
    /// When the file cannot be read.
    #[track_caller]
    pub fn pmns(self, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.names(&text)
    }

    /// Adds arguments to the agent's command line.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Uses a Unix socket, in the private pmcd's directory.
    pub fn unix(mut self) -> Self {
        self.transport = Transport::Unix;
        self
    }

    /// Uses an internet socket, on a port that is free now.
    pub fn inet(mut self) -> Self {
        self.transport = Transport::Inet;
        self
    }

    /// Uses an IPv6 socket, on a port that is free now.
    pub fn ipv6(mut self) -> Self {
        self.transport = Transport::Ipv6;
        self
    }

    /// Declares that the binary is a shared object that pmcd loads, with its entry point.
    pub fn dso(mut self, init: &str) -> Self {
        self.transport = Transport::Dso(init.to_owned());
        self
    }

    /// Declares that the agent reports when it is ready (`notready` in pmcd's configuration). This works only with a
    /// pipe.
    pub fn not_ready(mut self) -> Self {
        self.not_ready = true;
        self
    }

    /// Returns the line for pmcd's configuration. A Unix socket is placed in `dir`.
    pub(crate) fn line(&self, dir: &Path) -> String {
        let (kind, option) = match &self.transport {
            Transport::Dso(init) => {
                return format!("{} {} dso {init} {}", self.name, self.domain, self.binary.display());
            }
            Transport::Pipe if self.not_ready => ("pipe binary notready".to_owned(), String::new()),
            Transport::Pipe => ("pipe binary".to_owned(), String::new()),
            Transport::Unix => {
                let path = dir.join(format!("{}.socket", self.name));
                (format!("socket unix {}", path.display()), format!(" -u {}", path.display()))
            }
            Transport::Inet => {
                let port = free_port("127.0.0.1");
                (format!("socket inet {port}"), format!(" -i {port}"))
            }
            Transport::Ipv6 => {
                let port = free_port("::1");
                (format!("socket ipv6 {port}"), format!(" -6 {port}"))
            }
        };
        let mut line =
            format!("{} {} {kind} {} -d {}{option}", self.name, self.domain, self.binary.display(), self.domain);
        for word in &self.arguments {
            line.push(' ');
            line.push_str(&word.to_string_lossy());
        }
        line
    }
}

/// Returns a port that no process uses at this moment.
///
/// The port is outside the range from which the kernel chooses ports itself, and each test program begins its search at
/// another number. So it is still free when it is used.
///
/// # Panics
/// When no port is free.
pub fn free_port(address: &str) -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: &u16| TcpListener::bind((address, *port)).is_ok();
    let offset = std::process::id().wrapping_mul(61);
    let mut ports = (0..COUNT).map(|_| {
        let n = offset.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        u16::try_from(FIRST + n % COUNT).expect("below 32,000")
    });
    ports.find(is_free).expect("a free port")
}
