//! Agent `template`: a counter, a measured value, and a limit that is an option and can be changed.

use std::fs;

use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;

/// Options of this agent, besides those of every agent: `cargo pmda run -- --limit 4`, and
/// `cargo pmda install -- --limit 4`, which the next installation keeps.
#[derive(clap::Args, Debug)]
struct Options {
    /// Load from which the machine counts as busy
    #[arg(long, default_value_t = 1.0)]
    limit: f64,
}

/// The agent, with its state between two requests.
#[derive(Debug)]
pub struct Template {
    fetches: u64,
    limit: f64,
}

impl Agent for Template {
    const NAME: &'static str = "template";
    // From 1 to 510. Each agent of a host has its own.
    const DOMAIN: u16 = 510;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    /// Declares the metrics, each with the function that returns its value. The type of the metric
    /// is that of the value.
    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let options = Options::from_arg_matches(setup.options())?;
        // Install adds the domain to `stdpmid`, the host's list of domains.
        setup.reserve_domain();

        // Archives refer to metrics by number, so do not reuse or change a number (cluster and item)
        // when you add or remove metrics.
        let fetches = setup.counter("template.fetches", Item::new(0, 0), |agent: &Self| {
            agent.fetches
        });
        fetches.units(Units::COUNT).help(
            "Requests for values",
            "Counts the requests for values since the agent started.",
        );
        // After an error this metric has no value, and the others do.
        setup
            .gauge("template.load", Item::new(0, 1), |_: &Self| load())
            .help(
                "Processes that run or wait",
                "The average of the last minute, which the kernel has in /proc/loadavg.",
            );
        let limit = setup.discrete("template.limit", Item::new(0, 2), |agent: &Self| {
            agent.limit
        });
        limit.storable().help(
            "Load from which the machine counts as busy",
            "The option --limit sets it. pmstore(1) changes it while the agent runs.",
        );
        let busy = setup.gauge("template.busy", Item::new(0, 3), |agent: &Self| {
            Ok::<_, Error>(f64::from(load()?) >= agent.limit)
        });
        busy.help(
            "Whether the load has reached template.limit",
            "1 if it has, otherwise 0.",
        );
        Ok(Template {
            fetches: 0,
            limit: options.limit,
        })
    }

    /// Runs once for each request, before the values of its metrics are taken.
    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if let Request::Fetch(_) = request {
            self.fetches += 1;
        }
        Ok(())
    }

    /// Applies a value that a client stores. This is called only for metrics that are `storable`.
    fn store(&mut self, _: Item, _: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        let limit: f64 = value.try_into()?;
        if limit.is_nan() || limit < 0.0 {
            return Err(Error::BADSTORE);
        }
        self.limit = limit;
        Ok(())
    }
}

/// Returns the average load of the last minute.
fn load() -> Result<f32> {
    let text = fs::read_to_string("/proc/loadavg")?;
    text.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or(Error::VALUE)
}

// Lets pmcd load the agent as a shared object: cargo pmda install --dso.
pmda::dso!(template_init, Template);

#[cfg(test)]
mod tests {
    use pcp_collector::Local;

    use super::*;

    #[test]
    fn fetches_are_counted() {
        // Sends requests to the agent in this process, by the same protocol as pmcd.
        let mut agent = Local::<Template>::collector().unwrap();
        let fetches = agent.metric("template.fetches").unwrap();
        assert_eq!(agent.value(fetches).unwrap(), Atom::U64(1));
        assert_eq!(agent.value(fetches).unwrap(), Atom::U64(2));
    }

    #[test]
    fn clients_can_change_the_limit() {
        let mut agent = Local::<Template>::collector().unwrap();
        let limit = agent.metric("template.limit").unwrap();
        assert_eq!(agent.value(limit).unwrap(), Atom::Double(1.0));
        agent.store(limit, None, Atom::Double(0.0)).unwrap();
        let busy = agent.metric("template.busy").unwrap();
        assert_eq!(agent.value(busy).unwrap(), Atom::U32(1));
        assert!(agent.store(limit, None, Atom::Double(-1.0)).is_err());
        assert_eq!(agent.value(limit).unwrap(), Atom::Double(0.0));
    }
}
