//! Contexts of all kinds, and their fetches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pcp_archive::{Archive, Interpolation};
use pcp_client::{Context as Host, Sample};
use pcp_derived::{Definitions, RegisterError};
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pmapi::{Error, PmId, Type};

use crate::base::Base;
use crate::derived::Derived;
use crate::error::ContextError;
use crate::local::{Local, LocalAgents};
use crate::recorded::{Mode, Recorded};
use pmapi::zone::Zone;

/// Source of metrics with its profile, position and derived metrics (pmNewContext(3)).
#[derive(Debug)]
pub struct Context {
    pub(crate) base: Base,
    pub(crate) derived: Derived,
}

impl From<Host> for Context {
    fn from(host: Host) -> Context {
        Context { base: Base::Host(Box::new(host)), derived: Derived::default() }
    }
}

impl From<Archive> for Context {
    fn from(archive: Archive) -> Context {
        Context { base: Base::Archive(Box::new(Recorded::new(archive))), derived: Derived::default() }
    }
}

impl Context {
    /// Connects to the pmcd of a host (`PM_CONTEXT_HOST`), with the settings of the environment.
    ///
    /// # Errors
    /// Errors of [`pcp_client::Context::connect`].
    pub fn connect(host: &str) -> Result<Context, ContextError> {
        Ok(Host::connect(host)?.into())
    }

    /// Opens an archive, or several of one host as one (`PM_CONTEXT_ARCHIVE`), at its start in mode [`Mode::Forward`].
    ///
    /// Of several archives, those that are damaged are left out, as is what follows damage in one of them. The
    /// application can warn its user with [`Archive::take_skipped`] of [`Context::archive`].
    ///
    /// # Errors
    /// Errors of [`Archive::open`].
    pub fn open_archive(name: impl AsRef<Path>) -> Result<Context, ContextError> {
        Ok(Archive::open(name)?.into())
    }

    /// Loads agents as shared objects into this process (`PM_CONTEXT_LOCAL`). Agents that cannot be loaded are left
    /// out: [`Context::local_failures`] returns the reasons.
    ///
    /// An agent in C can corrupt the process: [`Context::open_hosted`] keeps it in another. One thread calls all agents.
    ///
    /// # Safety
    /// The caller trusts the files of the list as its own code, as [`pcp_collector::SharedObject::open`] says.
    ///
    /// # Errors
    /// [`LocalError`](crate::LocalError).
    #[allow(unsafe_code, reason = "agents are shared objects")]
    pub unsafe fn open_local(agents: LocalAgents) -> Result<Context, ContextError> {
        Self::open_agents(agents)
    }

    /// Opens a local context whose agents are in processes of their own, so that none can harm this one. Agents that
    /// cannot be started are left out: [`Context::local_failures`] returns the reasons.
    ///
    /// Each agent is served by `HOST --so FILE --entry INIT -d DOMAIN -l -`, which behaves like a daemon on its standard
    /// input and output. pmda-host of this repository is such a program.
    ///
    /// # Errors
    /// [`LocalError`](crate::LocalError).
    pub fn open_hosted(mut agents: LocalAgents, host: impl Into<PathBuf>) -> Result<Context, ContextError> {
        agents.host = Some(host.into());
        Self::open_agents(agents)
    }

    fn open_agents(agents: LocalAgents) -> Result<Context, ContextError> {
        let local = Local::open(agents)?;
        Ok(Context { base: Base::Local(Box::new(local)), derived: Derived::default() })
    }

    /// Returns why agents of a local context could not be loaded, a sentence for each.
    pub fn local_failures(&self) -> &[String] {
        match &self.base {
            Base::Local(local) => &local.failures,
            _ => &[],
        }
    }

    /// Returns another context of the same source with the same profile, position and derived metrics
    /// (pmDupContext(3)). For a pmcd it makes another connection.
    ///
    /// # Errors
    /// Errors of [`Context::connect`].
    pub fn duplicate(&self) -> Result<Context, ContextError> {
        let base = match &self.base {
            Base::Host(host) => {
                let mut new = Host::connect(&host.host().to_string())?;
                *new.profile_mut() = host.profile().clone();
                Base::Host(Box::new(new))
            }
            Base::Archive(recorded) => Base::Archive(Box::new(recorded.duplicate())),
            Base::Local(local) => Base::Local(Box::new(local.duplicate())),
        };
        Ok(Context { base, derived: self.derived.duplicate() })
    }

    /// Returns the connection to pmcd, or `None` for a context of another kind.
    pub fn host(&mut self) -> Option<&mut Host> {
        match &mut self.base {
            Base::Host(host) => Some(host),
            Base::Archive(_) | Base::Local(_) => None,
        }
    }

    /// Returns the archive, or `None` for a context of another kind.
    pub fn archive(&self) -> Option<&Archive> {
        self.recorded().ok().map(|recorded| &*recorded.archive)
    }

    pub(crate) fn recorded(&self) -> Result<&Recorded, Error> {
        match &self.base {
            Base::Host(_) | Base::Local(_) => Err(Error::NOTARCHIVE),
            Base::Archive(recorded) => Ok(recorded),
        }
    }

    /// Returns the name of the host that the values are from (pmGetContextHostName(3)): from an archive's label, from
    /// pmcd's metric `pmcd.hostname`, or the name of this host.
    ///
    /// # Errors
    /// Errors of [`Context::fetch`]; `PM_ERR_VALUE` if pmcd's metric has no value.
    pub fn host_name(&mut self) -> Result<String, ContextError> {
        if let Ok(recorded) = self.recorded() {
            return Ok(String::from_utf8_lossy(&recorded.archive.label().host).into_owned());
        }
        if let Base::Local(_) = &self.base {
            let labels = pcp_client::host_labels(&pmapi::Config::load()).map_err(Error::from)?;
            return Ok(labels.value("hostname").unwrap_or_default().trim_matches('"').to_owned());
        }
        self.text_of("pmcd.hostname")
    }

    /// Returns the time zone of the host that the values are from (pmNewContextZone(3)).
    ///
    /// # Errors
    /// Errors of [`Context::fetch`], `PM_ERR_VALUE` if pmcd has no value for the zone, and the errors of
    /// [`Zone::named`].
    pub fn zone(&mut self) -> Result<Zone, ContextError> {
        if let Base::Local(_) = &self.base {
            return Ok(Zone::system());
        }
        let text = match self.recorded() {
            Ok(recorded) => String::from_utf8_lossy(&recorded.archive.label().timezone).into_owned(),
            Err(_) => match self.text_of("pmcd.zoneinfo") {
                Ok(text) if !text.is_empty() => text,
                _ => self.text_of("pmcd.timezone")?,
            },
        };
        Ok(Zone::named(&text)?)
    }

    /// Returns the value of a singular metric that is text.
    fn text_of(&mut self, name: &str) -> Result<String, ContextError> {
        let pmid = self.base.lookup_name(name)?;
        let sample = self.base.fetch(&[pmid])?;
        let value = sample.set(0).and_then(|set| set.values().next()).ok_or(Error::VALUE)?;
        match value.1.atom(Type::String)? {
            pmapi::Atom::String(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            _ => Err(Error::CONV.into()),
        }
    }

    /// Returns the times of the first and the last record of an archive. For a pmcd, returns the current time and no
    /// end.
    ///
    /// # Errors
    /// Errors of [`Archive::end`].
    pub fn bounds(&self) -> Result<(Stamp, Option<Stamp>), ContextError> {
        match self.archive() {
            Some(archive) => Ok((archive.label().start, Some(archive.end()?))),
            None => Ok((Stamp::now(), None)),
        }
    }

    /// Returns the mode, which determines the values that fetches return.
    pub fn mode(&self) -> Mode {
        self.recorded().map_or(Mode::Live, |recorded| recorded.mode)
    }

    /// Returns the time of the last sample of an archive, or the origin before the first sample. Metadata is as of this
    /// time.
    ///
    /// # Errors
    /// `PM_ERR_NOTARCHIVE` for a pmcd.
    pub fn time(&self) -> Result<Stamp, Error> {
        Ok(self.recorded()?.time)
    }

    /// Sets the mode, and the origin if it is not `None` (pmSetMode(3)).
    ///
    /// # Errors
    /// `PM_ERR_MODE` for [`Mode::Live`] of an archive, and for any other mode of a pmcd.
    pub fn set_mode(&mut self, mode: Mode, origin: Option<Stamp>) -> Result<(), Error> {
        match (&mut self.base, mode) {
            (Base::Host(_) | Base::Local(_), Mode::Live) => (),
            (Base::Archive(recorded), Mode::Forward | Mode::Backward | Mode::Interpolated { .. }) => {
                recorded.set_mode(mode, origin);
            }
            _ => return Err(Error::MODE),
        }
        self.derived.forget();
        Ok(())
    }

    /// Sets the rules of mode [`Mode::Interpolated`].
    ///
    /// # Errors
    /// `PM_ERR_NOTARCHIVE` for a pmcd.
    pub fn set_interpolation(&mut self, rules: Interpolation) -> Result<(), Error> {
        match &mut self.base {
            Base::Host(_) | Base::Local(_) => Err(Error::NOTARCHIVE),
            Base::Archive(recorded) => {
                recorded.rules = rules;
                recorded.has_changed();
                Ok(())
            }
        }
    }

    /// Returns the profile: the instances that fetches include.
    pub fn profile(&self) -> &Profile {
        self.base.profile()
    }

    /// Returns the profile mutably: [`Profile::add`] is pmAddProfile(3) and [`Profile::remove`] pmDelProfile(3).
    pub fn profile_mut(&mut self) -> &mut Profile {
        match &mut self.base {
            Base::Host(host) => host.profile_mut(),
            Base::Local(local) => {
                local.is_sent = false;
                &mut local.profile
            }
            Base::Archive(recorded) => {
                recorded.has_changed();
                &mut recorded.profile
            }
        }
    }

    /// Adds a derived metric to this context (pmAddDerived(3)), and returns its PMID. It takes precedence over a
    /// definition of the same name for all contexts. A metric of the source takes precedence over both.
    ///
    /// # Errors
    /// Errors of [`Definitions::register`].
    pub fn add_derived(&mut self, name: &str, expression: &str) -> Result<PmId, RegisterError> {
        let pmid = self.derived.own.register(name, expression)?.pmid();
        self.derived.has_changed();
        Ok(pmid)
    }

    /// Sets the derived metrics that several contexts share (pmRegisterDerived(3)).
    pub fn set_global_derived(&mut self, definitions: Arc<Definitions>) {
        self.derived.global = Some(definitions);
        self.derived.has_changed();
    }

    /// Fetches values of metrics, for the instances that the profile includes (pmFetch(3)).
    ///
    /// # Errors
    /// `PM_ERR_EOL` at the end of an archive, or outside of it. An [`ArchiveError`](pcp_archive::ArchiveError) for damage in the archive.
    /// `PM_ERR_TOOSMALL` for an empty list. [Connection errors](pcp_client#connection-errors) of a pmcd. The error of a
    /// single metric is in its value set.
    pub fn fetch(&mut self, pmids: &[PmId]) -> Result<Sample, ContextError> {
        if pmids.is_empty() {
            return Err(Error::TOOSMALL.into());
        }
        if self.derived.is_empty() { self.base.fetch(pmids) } else { self.derived.fetch(&mut self.base, pmids) }
    }

    /// Returns the next complete record of an archive, without derived metrics (pmFetchArchive(3)). The profile has no
    /// effect. A `<mark>` has no value sets.
    ///
    /// # Errors
    /// `PM_ERR_NOTARCHIVE` for a pmcd, `PM_ERR_MODE` in mode [`Mode::Interpolated`], `PM_ERR_EOL` at the end; damage.
    pub fn fetch_archive(&mut self) -> Result<Sample, ContextError> {
        match &mut self.base {
            Base::Host(_) | Base::Local(_) => Err(Error::NOTARCHIVE.into()),
            Base::Archive(recorded) => recorded.whole(),
        }
    }
}
