//! Who may store what changes an agent for all its clients.

use pmapi::{Config, Error, PmId, Result};
use tracing::warn;

use crate::client::Client;
use crate::user;

/// Decides about stores of [restricted](crate::schema::Metric::restricted) metrics.
///
/// Root, PCP's user and the agent's own user may. pmcd tells who a client is that has come over its Unix socket or has
/// authenticated, and local contexts (`pminfo -L`) say so of themselves. Clients without a name may not, except where the
/// collector has no clients but is one itself: a program that embeds the agent, and dbpmda(1) over a pipe or a socket,
/// which unlike pmcd does not answer that it tells about clients.
#[derive(Debug)]
pub(crate) struct Access {
    open: bool,
    trusts_collector: bool,
    pcp_user: String,
}

/// Opens what is restricted to every client: in pcp.conf, or in the environment of the agent or of the process that
/// loads it.
const OPEN: &str = "PMDA_OPEN_CONTROL";

impl Access {
    pub(crate) fn new(config: &Config) -> Access {
        let open = config.var(OPEN).is_some_and(|value| !value.is_empty() && value != "0");
        Access { open, trusts_collector: false, pcp_user: config.user() }
    }

    /// Lets every client store.
    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Lets clients store that the collector says nothing of.
    pub(crate) fn trust_collector(&mut self) {
        self.trusts_collector = true;
    }

    /// Refuses a store, with a line in the log.
    pub(crate) fn check(&self, client: Client, pmid: PmId) -> Result {
        if self.open || self.is_admin(client) {
            return Ok(());
        }
        match client.uid() {
            Some(uid) => {
                warn!(source = %format_args!("uid {uid}"), "refused to let user {uid} store metric {pmid}, which is for administrators (see --open-control)");
            }
            None => {
                warn!(
                    source = "unknown clients",
                    "refused to let an unknown user store metric {pmid}, which is for administrators (see --open-control)"
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
