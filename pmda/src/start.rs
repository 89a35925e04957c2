//! The start of an agent.

use clap::ArgMatches;
use pmapi::Domain;
use pmapi::config::Config;

use crate::agent::{Agent, Start};
use crate::dynamic::Dynamic;
use crate::options;
use crate::schema::{Declarations, Identity, Metric, Mistake, Mistakes, Schema};
use crate::setup::Setup;

impl Identity {
    /// Returns the name and domain that an agent declares.
    ///
    /// # Errors
    /// An [`Agent::DOMAIN`] outside of 1 to 510.
    pub fn of<A: Agent>() -> Start<Identity> {
        let domain =
            Domain::new(A::DOMAIN).ok_or_else(|| format!("{}: domain {} is not in 1 to 510", A::NAME, A::DOMAIN))?;
        Ok(Identity { name: A::NAME.to_owned(), domain })
    }
}

impl Schema {
    /// Returns the declarations of an agent, without running it.
    ///
    /// # Errors
    /// The errors of [`Schema::with`].
    pub fn of<A: Agent>() -> Start<Schema> {
        Self::with::<A>(Config::load())
    }

    /// Returns the declarations of an agent for another configuration, which locates the files that the agent reads.
    ///
    /// # Errors
    /// An [`Agent::DOMAIN`] outside of 1 to 510, the error of [`Agent::new`], or [`Mistakes`] in the declarations.
    pub fn with<A: Agent>(config: Config) -> Start<Schema> {
        let (schema, _) = Self::start::<A>(Identity::of::<A>()?, config, options::none::<A>()?)?;
        Ok(schema)
    }

    /// Creates an agent and checks its declarations.
    pub(crate) fn start<A: Agent>(identity: Identity, config: Config, options: ArgMatches) -> Start<(Schema, A)> {
        let declared = Declarations::new(A::NAME, A::WANTS, identity);
        let mut setup = Setup::new(declared, config, options);
        let agent = A::new(&mut setup)?;
        let schema = setup.finish()?;
        check_dynamic(&schema, agent.dynamic())?;
        Ok((schema, agent))
    }
}

/// Checks the metrics that the agent added before its declarations were complete.
fn check_dynamic(schema: &Schema, dynamic: Option<&Dynamic>) -> Result<(), Mistakes> {
    let clash = |m: &Metric| {
        let other = dynamic?.names(m.item()).next()?;
        Some(Mistake::SameItem(m.name().to_owned(), other.to_owned(), m.item()))
    };
    let mistakes: Vec<Mistake> = schema.metrics().iter().filter_map(clash).collect();
    if mistakes.is_empty() { Ok(()) } else { Err(Mistakes(mistakes)) }
}
