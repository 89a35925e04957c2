//! Agent `template`: metrics whose names only the source knows. Each line of /proc/vmstat becomes a
//! metric.

use std::collections::HashMap;
use std::fs;

use pmda::prelude::*;

/// The name below which the metrics are.
const ROOT: &str = "template.vm";
/// Cluster of the dynamic metrics.
const CLUSTER: u16 = 1;

/// The agent, with the metrics and values that it has read last.
#[derive(Debug)]
pub struct Template {
    names: Dynamic,
    values: HashMap<Item, u64>,
}

impl Agent for Template {
    const NAME: &'static str = "template";
    // From 1 to 510. Each agent of a host has its own.
    const DOMAIN: u16 = 510;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        // Install adds the domain to `stdpmid`, the host's list of domains.
        setup.reserve_domain();
        // This metric always exists. Its cluster differs from that of the dynamic metrics.
        let lines = setup.gauge("template.lines", Item::new(0, 0), |agent: &Self| {
            agent.values.len()
        });
        lines.units(Units::COUNT).help(
            "Metrics below template.vm",
            "As many as /proc/vmstat has lines.",
        );
        Ok(Template {
            names: setup.dynamic([ROOT]),
            values: HashMap::new(),
        })
    }

    /// Returns the metrics that are added and removed while the agent runs.
    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.names as &dyn Catalog]
    }

    /// Reads the source before names are looked up, and before values are fetched. Clients that
    /// know the old names are notified of new ones with the next values.
    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if matches!(request, Request::Fetch(_) | Request::Names(_)) || self.values.is_empty() {
            let text = fs::read_to_string("/proc/vmstat")?;
            self.read(&text);
        }
        Ok(())
    }

    /// Supplies the value of a dynamic metric. Declared metrics have their functions in `new`.
    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        out.put(self.values.get(&item).ok_or(Error::VALUE)?)
    }
}

impl Template {
    /// Reads the lines of the source. New lines become metrics, and metrics without a line are removed.
    fn read(&mut self, text: &str) {
        let mut old = std::mem::take(&mut self.values);
        for line in text.lines() {
            let Some((name, value)) = line.split_once(' ') else {
                continue;
            };
            let Ok(value) = value.trim().parse() else {
                continue;
            };
            let name = format!("{ROOT}.{name}");
            let known = self.names.item(&name);
            let Some(item) = known.or_else(|| self.add(&name, &old)) else {
                continue;
            };
            old.remove(&item);
            self.values.insert(item, value);
        }
        for item in old.into_keys() {
            let gone: Vec<String> = self.names.names(item).map(str::to_owned).collect();
            for name in gone {
                self.names.remove(&name);
            }
        }
    }

    /// Adds a metric under the next free number. The order of the source determines the numbers. Archives refer to
    /// metrics by number. If the order of a source changes with restarts, keep the numbers, for example in a `Cache`
    /// with a file.
    fn add(&mut self, name: &str, old: &HashMap<Item, u64>) -> Option<Item> {
        let mut items = (0..=Item::MAX_ITEM).map(|number| Item::new(CLUSTER, number));
        let item = items.find(|item| !self.values.contains_key(item) && !old.contains_key(item))?;
        let mut metric = MetricDef::new(name, item, Type::U64);
        metric.help(
            "A line of /proc/vmstat",
            "The kernel's documentation explains the names.",
        );
        // These are the names of events. Their numbers only grow, and tools show their rates.
        if name.starts_with(&format!("{ROOT}.pg")) {
            metric.counter().units(Units::COUNT);
        }
        // A name may have characters that PCP does not allow.
        let added = self.names.insert(&metric);
        added
            .inspect_err(|mistake| pmda::tracing::warn!("no metric {name}: {mistake}"))
            .ok()?;
        Some(item)
    }
}

// Lets pmcd load the agent as a shared object: cargo pmda install --dso.
pmda::dso!(template_init, Template);

#[cfg(test)]
mod tests {
    use pcp_collector::Local;

    use super::*;

    #[test]
    fn lines_are_metrics() {
        let mut agent = Local::<Template>::collector().unwrap();
        // Dynamic names are looked up by a request, as pmcd does.
        let free = agent.pmid("template.vm.nr_free_pages").unwrap();
        assert!(matches!(agent.value(free).unwrap(), Atom::U64(_)));
        let names = agent.traverse("template.vm").unwrap();
        let lines = agent.metric("template.lines").unwrap();
        assert_eq!(agent.value(lines).unwrap(), Atom::U64(names.len() as u64));
    }

    #[test]
    fn metrics_come_and_go() {
        let mut collector = Local::<Template>::collector().unwrap();
        let agent = collector.agent_mut();
        agent.read("one 1\ntwo 2\nthree x\nbad-name 4\n");
        assert_eq!(agent.names.len(), 2);
        let two = agent.names.item("template.vm.two").unwrap();
        agent.read("two 3\nfour 4\n");
        assert_eq!(agent.names.item("template.vm.two"), Some(two));
        assert_eq!(agent.values.get(&two), Some(&3));
        assert_eq!(agent.names.item("template.vm.one"), None);
        assert!(agent.names.item("template.vm.four").is_some());
    }
}
