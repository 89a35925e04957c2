//! Client of pmcd (PMAPI(3)'s host context).
//!
//! A [`Context`] is one connection. Its methods are the calls of the PMAPI, with PCP's errors. Each method sends a
//! request and waits for the answer within the limits of [`Settings`].
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
//! # Connection errors
//!
//! A request fails with `PM_ERR_IPC` when pmcd closes the connection, sends invalid data or sends more than one answer.
//! It fails with `PM_ERR_TIMEOUT` when pmcd does not answer in time, and with `PM_ERR_TOOBIG` when the answer is too
//! long. All of these close the connection. Further requests fail with `PM_ERR_IPC` until [`Context::reconnect`]
//! succeeds. libpcp keeps a connection after a time-out, and takes the late answer for that of the next request.
//!
//! Encryption (`pcps:`) and passwords are not supported: [`Context::connect`] refuses them.
//!
//! Types of [`pmapi`] and [`pcp_pdu`] are in the interface, so both crates are re-exported. A [`Context`] is `Send`: it may be moved
//! to another thread, but serves one thread at a time.

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

use std::time::Duration;

pub use pcp_pdu;
pub use pmapi;

pub use fetch::{InstValue, Sample};
pub use host::HostSpec;
pub use local_labels::{host_labels, user_labels};
pub use settings::Settings;

use channel::Channel;

use pcp_base::backoff::Backoff;
use pcp_pdu::client::Answer;
use pcp_pdu::handshake::Features;
use pcp_pdu::metadata::DescReq;
use pcp_pdu::profile::Profile;
use pmapi::spec::SpecError;
use pmapi::{Error, PmId, Result};

/// Connection to pmcd, with the profile of instances that its fetches include.
#[derive(Debug)]
pub struct Context {
    spec: HostSpec,
    settings: Settings,
    channel: Channel,
    features: Features,
    profile: Profile,
    /// Whether pmcd has received the current profile.
    profile_sent: bool,
    backoff: Backoff,
}

/// Failure to connect to pmcd.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Syntax error in the host specification.
    #[error("bad host specification\n{0}")]
    Spec(#[from] SpecError),
    /// Refusal by pmcd, or no pmcd at this address.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// Converts to the code that pmNewContext(3) returns.
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
    /// [`ConnectError::Spec`] for a syntax error in `host`. [`ConnectError::Failed`] with `PM_ERR_NOTHOST` when `host`
    /// has no name, with a negative `errno`, or with pmcd's reason (`PM_ERR_PERMISSION`, `PM_ERR_CONNLIMIT`, ...).
    pub fn connect(host: &str) -> Result<Context, ConnectError> {
        Ok(Self::new(host.parse()?, Settings::default())?)
    }

    /// Connects to pmcd.
    ///
    /// # Errors
    /// Errors of [`ConnectError::Failed`], see [`Context::connect`].
    pub fn new(host: HostSpec, settings: Settings) -> Result<Context> {
        let (channel, features) = connect::connect_pmcd(&host, &settings)?;
        let profile = Profile::default();
        Ok(Context {
            spec: host,
            settings,
            channel,
            features,
            profile,
            profile_sent: false,
            backoff: Backoff::default(),
        })
    }

    /// Exchanges a request with pmcd, and drops an error that pmcd has sent before it on its own.
    ///
    /// pmcd sends `PM_ERR_AGAIN` to a new client on its Unix socket while an agent that wants to know the clients is not
    /// ready. As for libpcp, this counts as the answer to the first request, and the connection is of no use then. An agent
    /// that is a client of the pmcd that starts it calls this after it has connected.
    ///
    /// # Errors
    /// [Connection errors](crate#connection-errors).
    pub fn settle(&mut self) -> Result {
        // A metric of pmcd itself, which is always ready.
        const METRIC: Option<PmId> = PmId::from_word(2 << 22);
        let first = self.ask(|out| DescReq { pmid: METRIC }.encode(out, 0)).map(drop);
        match first {
            Err(Error::AGAIN) if self.is_connected() => self.channel.receive().map(drop),
            Err(_) if self.is_connected() => Ok(()),
            first => first,
        }
    }

    /// Connects again, whether or not the connection is broken (pmReconnectContext(3)). The profile stays.
    ///
    /// # Errors
    /// `-ETIMEDOUT` when the attempt fails, or comes too soon after a failed one.
    pub fn reconnect(&mut self) -> Result {
        const TIMED_OUT: Error = Error::from_errno(nix::errno::Errno::ETIMEDOUT as i32);
        if !self.backoff.is_due() {
            return Err(TIMED_OUT);
        }
        match connect::connect_pmcd(&self.spec, &self.settings) {
            Ok((channel, features)) => {
                (self.channel, self.features) = (channel, features);
                self.profile_sent = false;
                self.backoff.succeeded();
                Ok(())
            }
            Err(_) => {
                self.channel.close();
                self.backoff.failed(&self.settings.reconnect);
                Err(TIMED_OUT)
            }
        }
    }

    /// Returns the time to wait before [`Context::reconnect`] makes its next attempt.
    pub fn retry_in(&self) -> Duration {
        self.backoff.wait()
    }

    /// Returns whether the connection is open, as far as the last request has shown.
    pub fn is_connected(&self) -> bool {
        self.channel.is_open()
    }

    /// Returns the host specification of the context.
    pub fn host(&self) -> &HostSpec {
        &self.spec
    }

    /// Returns the features that pmcd advertised when connecting.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Returns the profile: the instances that fetches include.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the profile mutably: [`Profile::add`] is pmAddProfile(3) and [`Profile::remove`] pmDelProfile(3).
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

/// Checks that a context may be moved to another thread, as documented.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Context>();
};

/// Limit for lists in a request, in bytes: pmcd accepts no PDUs over 64 KiB from clients.
const MAX_REQUEST: usize = 63 * 1024;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
