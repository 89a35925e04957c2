//! Text of an agent in place of its directory.

use std::error::Error;
use std::fmt;

/// What an agent prints instead of writing its directory (`--write-pmda`), because of an option such as `--help`.
#[derive(Debug)]
pub struct Printed(pub String);

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Printed {}
