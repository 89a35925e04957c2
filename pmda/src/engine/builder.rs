//! The start of an agent.

use std::fmt;
use std::marker::PhantomData;

use pmapi::{Config, Domain};
use thiserror::Error;

use super::Engine;
use crate::agent::Agent;
use crate::error::BoxError;
#[cfg(feature = "daemon")]
use crate::options;
use crate::schema::{Declarations, Identity, Mistake, Mistakes, Schema};
use crate::setup::{OwnOptions, Setup};
use crate::values::Getters;

impl<A: Agent> Engine<A> {
    /// Returns a builder of an engine, which starts the agent.
    pub fn builder() -> EngineBuilder<A> {
        EngineBuilder { name: None, domain: None, config: None, options: None, agent: PhantomData }
    }
}

/// The reason why a host cannot start an agent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// [`Agent::DOMAIN`](crate::Agent::DOMAIN) is outside of 1 to 510.
    #[error("{name}: domain {domain} is not in 1 to 510")]
    Domain {
        /// Name of the agent.
        name: &'static str,
        /// Domain that the agent declares.
        domain: u16,
    },
    /// The [options](crate::Agent::options) of the agent have no default values.
    #[cfg(feature = "daemon")]
    #[error(transparent)]
    Options(#[from] clap::Error),
    /// The declarations have mistakes.
    #[error(transparent)]
    Declarations(#[from] Mistakes),
    /// The declared help cannot be compiled.
    #[error("help: {0}")]
    Help(#[source] BoxError),
    /// The error of [`Agent::new`](crate::Agent::new) or [`Agent::open`](crate::Agent::open).
    #[error(transparent)]
    Agent(#[from] BoxError),
}

/// Builder of an [`Engine`]: starts an agent under another name or domain, or with another configuration.
///
/// ```
/// # use pmda::prelude::*;
/// # struct Mine;
/// # impl Agent for Mine {
/// #     const NAME: &'static str = "mine";
/// #     const DOMAIN: u16 = 400;
/// #     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
/// #         setup.metric("mine.answer", Item::new(0, 0), Type::U32);
/// #         Ok(Mine)
/// #     }
/// #     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
/// #         out.put(42)
/// #     }
/// # }
/// use pmda::host::Engine;
/// use pmda::pmapi::{Config, Domain};
///
/// let config = Config::new(b"PCP_VAR_DIR=/tmp", []);
/// let engine = Engine::<Mine>::builder().domain(Domain::new(401).unwrap()).config(config).build()?;
/// assert_eq!(engine.schema().domain(), Domain::new(401).unwrap());
/// # Ok::<(), pmda::host::SetupError>(())
/// ```
#[must_use]
pub struct EngineBuilder<A> {
    name: Option<String>,
    domain: Option<Domain>,
    config: Option<Config>,
    options: Option<OwnOptions>,
    agent: PhantomData<fn() -> A>,
}

impl<A: Agent> EngineBuilder<A> {
    /// Sets the agent's name, [`Agent::NAME`] by default.
    pub fn name(mut self, name: impl Into<String>) -> EngineBuilder<A> {
        self.name = Some(name.into());
        self
    }

    /// Sets the domain of the metrics, [`Agent::DOMAIN`] by default.
    pub fn domain(mut self, domain: Domain) -> EngineBuilder<A> {
        self.domain = Some(domain);
        self
    }

    /// Sets the configuration, which locates the files that the agent reads. The default is PCP's on this host.
    pub fn config(mut self, config: Config) -> EngineBuilder<A> {
        self.config = Some(config);
        self
    }

    /// Returns whether a configuration has been set with [`EngineBuilder::config`].
    pub fn has_config(&self) -> bool {
        self.config.is_some()
    }

    /// Sets the values of [the agent's own options](Agent::options), in place of their defaults.
    #[cfg(feature = "daemon")]
    pub fn options(mut self, options: clap::ArgMatches) -> EngineBuilder<A> {
        self.options = Some(options);
        self
    }

    /// Creates the agent, with the help that it declares.
    ///
    /// # Errors
    /// A [`SetupError`]: the error of [`Agent::new`], mistakes in the declarations, or help that cannot be compiled.
    pub fn build(self) -> Result<Engine<A>, SetupError> {
        let (identity, config, options) = self.parts()?;
        let (mut schema, agent, getters) = Schema::start::<A>(identity, config.clone(), options)?;
        schema.compiled_help = Some(schema.compile_help().map_err(|e| SetupError::Help(e.into()))?);
        Ok(Engine::new(agent, schema, getters, config))
    }

    /// Creates the agent, and returns its declarations.
    ///
    /// # Errors
    /// A [`SetupError`] other than [`SetupError::Help`].
    pub fn schema(self) -> Result<Schema, SetupError> {
        let (identity, config, options) = self.parts()?;
        Ok(Schema::start::<A>(identity, config, options)?.0)
    }

    fn parts(self) -> Result<(Identity, Config, OwnOptions), SetupError> {
        let name = self.name.unwrap_or_else(|| A::NAME.to_owned());
        let domain = self.domain.map_or_else(own_domain::<A>, Ok)?;
        let config = self.config.unwrap_or_else(Config::load);
        #[cfg(feature = "daemon")]
        let options = self.options.map_or_else(options::none::<A>, Ok)?;
        #[cfg(not(feature = "daemon"))]
        let options = OwnOptions;
        Ok((Identity { name, domain }, config, options))
    }
}

impl<A> fmt::Debug for EngineBuilder<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EngineBuilder { name, domain, config, .. } = self;
        f.debug_struct("EngineBuilder")
            .field("name", name)
            .field("domain", domain)
            .field("config", config)
            .finish_non_exhaustive()
    }
}

/// Returns the domain that an agent declares.
///
/// # Errors
/// [`SetupError::Domain`] for an [`Agent::DOMAIN`] outside of 1 to 510.
pub(crate) fn own_domain<A: Agent>() -> Result<Domain, SetupError> {
    Domain::new(A::DOMAIN).ok_or(SetupError::Domain { name: A::NAME, domain: A::DOMAIN })
}

impl Schema {
    /// Returns the declarations of an agent with PCP's configuration of this host, without running it.
    /// [`EngineBuilder::schema`](crate::host::EngineBuilder::schema) does so with another configuration.
    ///
    /// # Errors
    /// A [`SetupError`] other than [`SetupError::Help`].
    pub fn of<A: Agent>() -> Result<Schema, SetupError> {
        Engine::<A>::builder().schema()
    }

    /// Creates an agent and checks its declarations.
    pub(crate) fn start<A: Agent>(
        identity: Identity,
        config: Config,
        options: OwnOptions,
    ) -> Result<(Schema, A, Getters<A>), SetupError> {
        let declared = Declarations::new(A::NAME, A::WANTS, identity);
        let mut setup = Setup::new(declared, config, options);
        let agent = A::new(&mut setup)?;
        let schema = setup.finish()?;
        let getters = schema.getters()?;
        check_catalogs(&schema, &agent)?;
        Ok((schema, agent, getters))
    }
}

/// Checks the metrics that the agent added before its declarations were complete.
fn check_catalogs(schema: &Schema, agent: &impl Agent) -> Result<(), Mistakes> {
    let mut mistakes = Vec::new();
    for declared in schema.metrics() {
        let (item, pmid) = (declared.item(), declared.desc(schema.domain()).pmid);
        let other = agent.catalogs().into_iter().find_map(|catalog| {
            let mut newest = None;
            catalog.names(pmid, &mut |name| _ = newest.get_or_insert(name.to_owned()))?;
            newest
        });
        mistakes.extend(other.map(|second| Mistake::SameItem { first: declared.name().to_owned(), second, item }));
    }
    if mistakes.is_empty() { Ok(()) } else { Err(Mistakes(mistakes)) }
}
