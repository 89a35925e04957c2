//! A client of pmcd (PMAPI(3)'s host context).
//!
//! A [`Context`] is one connection; its methods are the calls of the PMAPI, with PCP's errors. Each sends a request
//! and waits for the answer, for as long as [`Settings`] say.
//!
//! ```no_run
//! use pcp_client::Context;
//!
//! let mut pmcd = Context::connect("local:")?;
//! let pmid = pmcd.lookup_name("kernel.all.load")?;
//! let desc = pmcd.lookup_desc(pmid)?;
//! for (inst, value) in pmcd.fetch(&[pmid])?.set(0).into_iter().flat_map(|set| set.values()) {
//!     println!("{inst:?} {}", value.atom(desc.ty)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! When pmcd is gone, does not answer in time, or sends what is no PDU, too long, or more than was asked for, the
//! connection is closed. That request fails with `PM_ERR_IPC`, `PM_ERR_TIMEOUT` or `PM_ERR_TOOBIG`, all further ones
//! with `PM_ERR_IPC` until [`Context::reconnect`] has success.
//! libpcp keeps a connection after a time-out, and takes the late answer for that of the next request.
//!
//! Not there, and refused when asked for: encryption (`pcps:`), passwords.

mod channel;
mod connect;
mod descs;
mod fetch;
mod host;
mod instances;
mod labels;
mod local_labels;
mod names;
mod settings;
mod texts;

use std::time::{Duration, Instant};

pub use fetch::{InstValue, Sample};
pub use host::HostSpec;
pub use local_labels::{host_labels, user_labels};
pub use settings::Settings;

use channel::Channel;

use pcp_pdu::client::Answer;
use pcp_pdu::handshake::Flags;
use pcp_pdu::profile::Profile;
use pmapi::spec::SpecError;
use pmapi::{Error, Result};

/// A connection to pmcd, and which instances its fetches are about.
#[derive(Debug)]
pub struct Context {
    spec: HostSpec,
    settings: Settings,
    channel: Channel,
    features: Flags,
    profile: Profile,
    /// Whether pmcd has the profile.
    profile_sent: bool,
    retry: Option<Retry>,
}

/// After an attempt to connect again that failed.
#[derive(Clone, Copy, Debug)]
struct Retry {
    failures: usize,
    not_before: Instant,
}

/// No context: pmcd could not be connected to.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host is not in its syntax.
    #[error("bad host specification\n{0}")]
    Spec(#[from] SpecError),
    /// pmcd refused, or there is none.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The code that pmNewContext(3) returns.
impl From<ConnectError> for Error {
    fn from(e: ConnectError) -> Error {
        match e {
            ConnectError::Spec(_) => Error::GENERIC,
            ConnectError::Failed(e) => e,
        }
    }
}

impl Context {
    /// Connects to the pmcd of a host (pmNewContext(3)), with the settings of the environment.
    ///
    /// # Errors
    /// What is wrong with the host's name; `PM_ERR_NOTHOST` when there is none in it; why there is no connection: a
    /// negative `errno`, or pmcd's reason (`PM_ERR_PERMISSION`, `PM_ERR_CONNLIMIT`, ...).
    pub fn connect(host: &str) -> Result<Context, ConnectError> {
        Ok(Self::new(host.parse()?, Settings::default())?)
    }

    /// Connects to pmcd.
    ///
    /// # Errors
    /// As [`Context::connect`].
    pub fn new(host: HostSpec, settings: Settings) -> Result<Context> {
        let (channel, features) = connect::connect_pmcd(&host, &settings)?;
        let profile = Profile::default();
        Ok(Context { spec: host, settings, channel, features, profile, profile_sent: false, retry: None })
    }

    /// Connects again (pmReconnectContext(3)), be the connection broken or not. The profile stays.
    ///
    /// # Errors
    /// `-ETIMEDOUT` when it is too soon after an attempt that failed, or when this one fails.
    pub fn reconnect(&mut self) -> Result {
        const TIMED_OUT: Error = Error::from_errno(nix::errno::Errno::ETIMEDOUT as i32);
        if !self.retry_in().is_zero() {
            return Err(TIMED_OUT);
        }
        match connect::connect_pmcd(&self.spec, &self.settings) {
            Ok((channel, features)) => {
                (self.channel, self.features) = (channel, features);
                (self.profile_sent, self.retry) = (false, None);
                Ok(())
            }
            Err(_) => {
                self.channel.close();
                let failures = self.retry.map_or(0, |retry| retry.failures) + 1;
                let steps = &self.settings.reconnect;
                let pause = steps.get(failures - 1).or(steps.last()).copied().unwrap_or_default();
                self.retry = Some(Retry { failures, not_before: settings::after(pause) });
                Err(TIMED_OUT)
            }
        }
    }

    /// How long [`Context::reconnect`] has to wait for its next attempt.
    pub fn retry_in(&self) -> Duration {
        self.retry.map_or(Duration::ZERO, |retry| retry.not_before.saturating_duration_since(Instant::now()))
    }

    /// Whether there is a connection, as far as the last request has shown.
    pub fn is_connected(&self) -> bool {
        self.channel.is_open()
    }

    /// The host that it was made for.
    pub fn host(&self) -> &HostSpec {
        &self.spec
    }

    /// What pmcd can do.
    pub fn features(&self) -> Flags {
        self.features
    }

    /// Which instances fetches are about.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The same, to be changed: [`Profile::add`] is pmAddProfile(3) and [`Profile::remove`] pmDelProfile(3).
    pub fn profile_mut(&mut self) -> &mut Profile {
        self.profile_sent = false;
        &mut self.profile
    }

    fn send_profile(&mut self) -> Result {
        if !self.profile_sent {
            self.channel.send(|out| self.profile.encode(out, 0, 0))?;
            self.profile_sent = true;
        }
        Ok(())
    }

    fn ask(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result) -> Result<Answer<'_>> {
        self.channel.ask(encode)
    }
}

/// pmcd takes no longer PDUs from clients.
const MAX_REQUEST: usize = 63 * 1024;
