//! HTTPS of a program that has none.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use crate::access::Access;

/// Settings for connections, of which there are none.
pub(crate) type Config = Arc<Infallible>;

/// Returns an error.
///
/// # Errors
/// The program has no HTTPS.
pub(crate) fn config(_: &Access) -> Result<Config, String> {
    Err("this program has no HTTPS".to_owned())
}

/// Stands for the function of builds with HTTPS. [`config`] fails, so no caller gets here.
///
/// # Errors
/// None.
pub(crate) async fn secured<T>(config: Config, _: T, _: &str) -> io::Result<T> {
    match *config {}
}

/// Returns no reason.
pub(crate) fn reason(_: &io::Error) -> Option<String> {
    None
}
