//! Programs that answer pmcd themselves, with the log, the user and the connection of an agent.

use std::fs::File;
use std::path::Path;

use pmapi::Config;
use pmapi::debug::Debug;
use tracing::warn;

use crate::error::BoxError;
use crate::peer::{self, Starter};
use crate::transport::{Address, Bound};
use crate::user::UserError;
use crate::{log, user};

/// A program that answers pmcd itself, without an [`Agent`](crate::Agent): its log, user and connection.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    debug: Debug,
    user: Option<String>,
    address: Option<Address>,
}

impl Program {
    /// Creates a program with a name for its log lines, which talks over standard input and output.
    pub fn new(name: impl Into<String>) -> Program {
        Program { name: name.into(), debug: Debug::NONE, user: None, address: None }
    }

    /// Sets the debug options of the log.
    #[must_use]
    pub fn debug(mut self, options: Debug) -> Program {
        self.debug = options;
        self
    }

    /// Sets the user that root changes to. By default it is PCP's user.
    #[must_use]
    pub fn user(mut self, user: Option<String>) -> Program {
        self.user = user;
        self
    }

    /// Sets the socket on which the program waits for pmcd; `None` for standard input and output.
    #[must_use]
    pub fn address(mut self, address: Option<Address>) -> Program {
        self.address = address;
        self
    }

    /// Closes the descriptors that the process has inherited, other than standard input, output and error: pmcd leaves
    /// its agents those on which it listens.
    pub fn close_inherited(&self) {
        peer::close_inherited();
    }

    /// Redirects stderr to a log file, with the header that PCP's logs have (pmOpenLog(3)). The path `-` is stderr.
    pub fn open_log(&self, path: &Path) {
        log::open(&self.name, path, intended_user(self.user.as_deref(), &Config::load()));
    }

    /// Writes the events of `tracing` to stderr, and a line for each panic.
    pub fn subscribe(&self) {
        log::subscribe(&self.name, self.debug, Vec::new());
        log::panics();
    }

    /// Writes the number of log lines left out, when that is due. This is cheap enough for a call with each request.
    pub fn tick(&self) {
        log::tick();
    }

    /// Writes the last line of the log.
    pub fn close_log(&self) {
        log::close();
    }

    /// Changes the user, and waits for pmcd to connect if there is an address. Returns input and output. Those of a
    /// pipe are new descriptors; standard input is then empty, and standard output is the log.
    ///
    /// # Errors
    /// A text with the address when the socket cannot be used, or when pmcd, which has started the program, ends without
    /// connecting; and [`UserError`] when the process cannot change to the
    /// user.
    pub fn connect(&self) -> Result<(File, File), BoxError> {
        let config = Config::load();
        let failed = |e: std::io::Error| match &self.address {
            Some(address) => format!("{address}: {e}"),
            None => format!("pipe: {e}"),
        };
        let starter = self.address.as_ref().and_then(|_| Starter::find());
        let bound = match &self.address {
            Some(address) => address.bind(&config, intended_user(self.user.as_deref(), &config)).map_err(failed)?,
            None => Bound::Pipe,
        };
        become_user(self.user.as_deref(), &config)?;
        let connection = bound.accept(&config, starter).map_err(failed)?;
        Ok((connection.input, connection.output))
    }
}

/// Returns the user that root will change to, whose permissions apply to sockets and the log.
pub(crate) fn intended_user(name: Option<&str>, config: &Config) -> Option<user::UserIds> {
    if !user::is_root() {
        return None;
    }
    name.map_or_else(|| user::find(&config.user()), user::find)
}

/// Changes to the user of `-U`, or otherwise to PCP's user. Root stays root on request (`-U root`), and on a host
/// without PCP.
pub(crate) fn become_user(name: Option<&str>, config: &Config) -> Result<(), BoxError> {
    let switched = match name {
        Some(name) => user::change_user(name),
        None if user::is_root() => user::change_user(&config.user()),
        None => Ok(()),
    };
    match switched {
        Err(e @ UserError::Unknown(_)) if name.is_none() && !Config::path().exists() => {
            warn!("{e}: the agent goes on as root");
            Ok(())
        }
        other => Ok(other?),
    }
}
