//! The errors of starting an agent.

use thiserror::Error;

use crate::schema::Mistakes;

/// The reason why an agent cannot start or continue, as a text for the administrator.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The result of the methods of an agent that start it. `?` converts every error.
pub type Start<T> = std::result::Result<T, Failure>;

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
    Help(#[source] Failure),
    /// The error of [`Agent::new`](crate::Agent::new) or [`Agent::open`](crate::Agent::open).
    #[error(transparent)]
    Agent(#[from] Failure),
}
