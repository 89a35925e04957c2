//! The errors of an agent that starts.

/// The reason why an agent cannot start or continue, as a text for the administrator. `?` converts every error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
