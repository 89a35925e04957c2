//! An agent as a line of pmcd's configuration.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// How pmcd reaches an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Transport {
    Pipe,
    Unix,
    Inet,
    Ipv6,
    /// Loaded, by this entry point.
    Dso(String),
}

/// An agent that a private pmcd shall start: over a pipe unless told otherwise.
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
            binary: binary.into(),
            arguments: Vec::new(),
            transport: Transport::Pipe,
            not_ready: false,
        }
    }

    /// The names of the agent's metrics, as its `pmns` file has them (see [`crate::NameSpace::add`]).
    pub fn names(mut self, pmns: &str) -> Self {
        pmns.clone_into(&mut self.pmns);
        self
    }

    /// The names of the agent's metrics, from its `pmns` file.
    #[track_caller]
    pub fn pmns(self, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.names(&text)
    }

    /// More arguments on the agent's command line.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// A Unix socket, in the private pmcd's directory.
    pub fn unix(mut self) -> Self {
        self.transport = Transport::Unix;
        self
    }

    /// An internet socket, on a port that is free now.
    pub fn inet(mut self) -> Self {
        self.transport = Transport::Inet;
        self
    }

    /// An IPv6 socket, on a port that is free now.
    pub fn ipv6(mut self) -> Self {
        self.transport = Transport::Ipv6;
        self
    }

    /// The binary is a shared object that pmcd loads, with its entry point.
    pub fn dso(mut self, init: &str) -> Self {
        self.transport = Transport::Dso(init.to_owned());
        self
    }

    /// The agent says by itself when it is ready (`notready` in pmcd's configuration); pipes only.
    pub fn not_ready(mut self) -> Self {
        self.not_ready = true;
        self
    }

    /// The line for pmcd's configuration; a Unix socket goes into `dir`.
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

/// A port that nobody listens on at this moment; somebody may by the time it is used.
pub(crate) fn free_port(address: &str) -> u16 {
    TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr()).expect("a free port").port()
}
