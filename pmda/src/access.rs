//! Access control for metrics that change an agent for all its clients.

use pmapi::{Config, Error, Result};
use tracing::warn;

use crate::client::Client;
use crate::unserved::Named;
use crate::user;

/// Decides whether stores to [restricted](crate::MetricDef::restricted) metrics are allowed.
///
/// Root, PCP's user and the agent's own user may store. pmcd reports the user of clients on its Unix socket and of
/// those that have authenticated; local contexts (`pminfo -L`) report their own. Clients of unknown users may not
/// store, unless the collector itself is the only client: a program that embeds the agent, or dbpmda(1). Unlike pmcd,
/// dbpmda(1) does not return the flag `AUTHORIZE`.
#[derive(Debug)]
pub(crate) struct Access {
    open: bool,
    trusts_collector: bool,
    pcp_user: String,
}

/// Variable that gives all clients access: in `pcp.conf`, or in the environment of the agent or of the process that
/// loads it.
const OPEN: &str = "PMDA_OPEN_CONTROL";

impl Access {
    pub(crate) fn new(config: &Config) -> Access {
        let open = config.var(OPEN).is_some_and(|value| !value.is_empty() && value != "0");
        Access { open, trusts_collector: false, pcp_user: config.user() }
    }

    /// Gives all clients access.
    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Grants access to clients without a known user.
    pub(crate) fn trust_collector(&mut self) {
        self.trusts_collector = true;
    }

    /// Refuses a store without access, with a line in the log.
    pub(crate) fn check(&self, client: Client, metric: &Named) -> Result {
        if self.open || self.is_admin(client) {
            return Ok(());
        }
        match client.uid() {
            Some(uid) => {
                warn!(source = %format_args!("uid {uid}"), "refused to let user {uid} store {metric}, which is for administrators (see --open-control)");
            }
            None => {
                warn!(
                    source = "unknown clients",
                    "refused to let an unknown user store {metric}, which is for administrators (see --open-control)"
                );
            }
        }
        Err(Error::PERMISSION)
    }

    fn is_admin(&self, client: Client) -> bool {
        match client.uid() {
            Some(uid) => user::is_admin(uid, &self.pcp_user),
            None => self.trusts_collector,
        }
    }
}
