//! Definitions from configuration files.

use pmapi::derive::{Controls, Definitions, Scope};
use tracing::{error, warn};

/// What a configuration says.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) definitions: Definitions,
    pub(crate) novalue: bool,
    /// What is wrong with some lines.
    pub(crate) messages: Vec<String>,
}

impl Config {
    /// Loads what there is. What is wrong with a part of it goes to the log and leaves the other parts as they are.
    pub(crate) fn load(path: &str) -> Config {
        let (mut definitions, mut controls) = (Definitions::new(Scope::Global), Controls::default());
        let mut messages = Vec::new();
        match definitions.load(path, &mut controls) {
            Ok(loaded) => {
                loaded.messages.iter().for_each(|message| warn!("{message}"));
                messages.extend(loaded.messages.iter().map(ToString::to_string));
            }
            Err(e) => {
                error!("{path}: {e}");
                messages.push(format!("{path}: {e}"));
            }
        }
        controls.apply(&mut definitions);
        Config { definitions, novalue: controls.novalue(), messages }
    }
}
