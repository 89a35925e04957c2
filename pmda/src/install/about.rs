//! What Install needs to know of an agent, in the file `install.json` of the agent's directory.

use std::path::Path;

use pcp_base::file;
use serde::{Deserialize, Serialize};

use crate::schema::ArgumentDef;

/// Name of the file.
pub(crate) const FILE: &str = "install.json";

/// Facts of an agent for Install and Remove. The agent writes them with its directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct About {
    /// Name of the agent in PCP.
    pub(crate) name: String,
    /// The name is not the agent's own.
    pub(crate) is_renamed: bool,
    /// Domain that the directory was written with.
    pub(crate) domain: u16,
    /// Name of the domain as a macro of the C preprocessor.
    pub(crate) symbol: String,
    /// Initialization function of the shared object.
    pub(crate) entry: String,
    /// User that the agent changes to, instead of PCP's user.
    pub(crate) user: Option<String>,
    /// pmcd must be restarted: it can start an agent of another user only before it gives up the rights of root.
    pub(crate) restart: bool,
    /// pmcd must wait until the agent reports that it is ready. pmcd waits over pipes only.
    pub(crate) not_ready: bool,
    pub(crate) spelling: Spelling,
    /// Options of the agent that Install asks for.
    pub(crate) questions: Vec<Question>,
}

/// How the options of the framework are written for this agent: a letter, or the name if the agent has the letter itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spelling {
    pub(crate) debug: String,
    pub(crate) domain: String,
    pub(crate) inet: String,
    pub(crate) ipv6: String,
    pub(crate) unix: String,
}

/// A question for the value of an option of the agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) option: String,
    pub(crate) prompt: String,
    pub(crate) default: String,
    pub(crate) help: String,
}

impl From<&ArgumentDef> for Question {
    fn from(argument: &ArgumentDef) -> Question {
        let ArgumentDef { option, prompt, default, help } = argument.clone();
        Question { option, prompt, default, help }
    }
}

impl About {
    /// Reads the file in an agent's directory.
    pub(crate) fn read(dir: &Path) -> Result<About, String> {
        let path = dir.join(FILE);
        let text = file::read(&path, file::TEXT_LIMIT).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
    }
}
