//! The start of an agent.

use clap::ArgMatches;
use pmapi::{Config, Domain};

use crate::agent::Agent;
use crate::error::SetupError;
use crate::options;
use crate::schema::{Declarations, Identity, Mistake, Mistakes, Schema};
use crate::setup::Setup;

impl Identity {
    /// Creates the identity of an agent with a name and a domain.
    pub fn new(name: impl Into<String>, domain: Domain) -> Identity {
        Identity { name: name.into(), domain }
    }

    /// Returns the name and domain that an agent declares.
    ///
    /// # Errors
    /// [`SetupError::Domain`] for an [`Agent::DOMAIN`] outside of 1 to 510.
    pub fn of<A: Agent>() -> Result<Identity, SetupError> {
        let domain = Domain::new(A::DOMAIN).ok_or(SetupError::Domain { name: A::NAME, domain: A::DOMAIN })?;
        Ok(Identity { name: A::NAME.to_owned(), domain })
    }
}

impl Schema {
    /// Returns the declarations of an agent, without running it.
    ///
    /// # Errors
    /// The errors of [`Schema::with`].
    pub fn of<A: Agent>() -> Result<Schema, SetupError> {
        Self::with::<A>(Config::load())
    }

    /// Returns the declarations of an agent for another configuration, which locates the files that the agent reads.
    ///
    /// # Errors
    /// A [`SetupError`] other than [`SetupError::Help`].
    pub fn with<A: Agent>(config: Config) -> Result<Schema, SetupError> {
        let (schema, _) = Self::start::<A>(Identity::of::<A>()?, config, options::none::<A>()?)?;
        Ok(schema)
    }

    /// Creates an agent and checks its declarations.
    pub(crate) fn start<A: Agent>(
        identity: Identity,
        config: Config,
        options: ArgMatches,
    ) -> Result<(Schema, A), SetupError> {
        let declared = Declarations::new(A::NAME, A::WANTS, identity);
        let mut setup = Setup::new(declared, config, options);
        let agent = A::new(&mut setup)?;
        let schema = setup.finish()?;
        check_catalogs(&schema, &agent)?;
        Ok((schema, agent))
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
        mistakes.extend(other.map(|other| Mistake::SameItem(declared.name().to_owned(), other, item)));
    }
    if mistakes.is_empty() { Ok(()) } else { Err(Mistakes(mistakes)) }
}
