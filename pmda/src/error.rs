//! The errors of an agent that starts.

/// The reason why an agent cannot start or continue, as a text for the administrator.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The result of the methods of an agent that start it. `?` converts every error.
pub type Start<T> = std::result::Result<T, Failure>;
