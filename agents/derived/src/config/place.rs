//! Names of derived metrics in pmcd's name space.

use std::path::PathBuf;

use pmapi::{Config, Domain, PmId, names::is_at_or_below};
use pmns::{InsertError, Loader, Tree, dynamic_root};

use super::{Problem, ROOT};

/// Name space without this agent's names.
#[derive(Debug)]
pub struct NameSpace {
    names: Tree,
    own: Domain,
    /// Names at or below which pmcd knows this agent's metrics. `None` if pmcd's name space cannot be read.
    roots: Option<Vec<String>>,
}

impl NameSpace {
    /// Reads the name space of this host's pmcd: `$PMNS_DEFAULT`, or `pmns/root` in `$PCP_VAR_DIR`. Leaves out the
    /// names of the agent's own domain. If the file cannot be read, the name space is empty.
    pub fn installed(own: Domain) -> NameSpace {
        let file = match std::env::var_os("PMNS_DEFAULT") {
            Some(file) => PathBuf::from(file),
            None => Config::load().var_dir().join("pmns/root"),
        };
        match Loader::new().load(&file) {
            Ok(names) => NameSpace::new(names, own),
            Err(_) => NameSpace { names: Tree::new(), own, roots: None },
        }
    }

    pub(crate) fn new(mut names: Tree, own: Domain) -> NameSpace {
        let roots: Vec<String> = {
            let leaves = names.root().leaves().filter_map(|node| Some((node.path(), node.pmid()?)));
            let own = leaves.filter(|(_, pmid)| pmid.domain() == own || *pmid == dynamic_root(own));
            own.map(|(name, _)| name).collect()
        };
        for name in &roots {
            names.remove(name);
        }
        NameSpace { names, own, roots: Some(roots) }
    }

    /// Returns whether pmcd is known not to send requests about a name to this agent.
    fn lacks(&self, name: &str) -> bool {
        self.roots.as_ref().is_some_and(|roots| !roots.iter().any(|root| is_at_or_below(name, root)))
    }
}

impl super::Config {
    /// Sets the name of each definition in the name space: the configured name if it is free, otherwise `derived.NAME`.
    /// Other definitions may use that name as well. Removes definitions for which neither name is free.
    pub(super) fn set_names(&mut self, others: &NameSpace) {
        let mut taken = Taken { names: others.names.clone(), root: dynamic_root(others.own) };
        // Reserved for the metrics about the agent itself.
        let _ = taken.reserve(&format!("{ROOT}.control"));
        for group in &mut self.groups {
            let names: Vec<String> = group.definitions.iter().map(|definition| definition.name().to_owned()).collect();
            for name in names {
                // Each definition has a place.
                let Some(place) = group.place(&name).cloned() else { continue };
                let own = format!("{ROOT}.{name}");
                let mut candidates = vec![own];
                candidates.extend(group.shown.get(&name).and_then(|shown| shown.name.clone()));
                let (free, mut texts) = taken.reserve_last(candidates);
                match free {
                    Some(full) => {
                        if !is_below_root(&full) && others.lacks(&full) {
                            texts.push(format!(
                                "Warning: pmcd's name space does not have {full} yet: run Install again"
                            ));
                        }
                        if let Some(definition) = group.definitions.get_mut(&name) {
                            definition.set_alias(&full);
                        }
                        group.shown.entry(name.clone()).or_default().name = Some(full);
                    }
                    None => {
                        // The lookup just above has found it.
                        let _ = group.definitions.unregister(&name);
                        group.refused += 1;
                    }
                }
                for text in texts {
                    let place = place.clone();
                    self.problems.push(Problem { place, definition: Some(name.clone()), text });
                }
            }
        }
    }
}

impl super::Config {
    /// Returns the roots of the agent's names in pmcd's name space: `derived`, and each metric elsewhere.
    pub(crate) fn roots(&self) -> Vec<String> {
        let names = self.groups.iter().flat_map(|group| group.shown.values().filter_map(|shown| shown.name.clone()));
        let mut roots: Vec<String> = names.filter(|name| !is_below_root(name)).collect();
        roots.sort_unstable();
        roots.insert(0, ROOT.to_owned());
        roots
    }
}

fn is_below_root(name: &str) -> bool {
    is_below(name, ROOT)
}

/// Returns whether `name` is below `node` in the name space.
fn is_below(name: &str, node: &str) -> bool {
    name.strip_prefix(node).is_some_and(|rest| rest.starts_with('.'))
}

/// Names that are not free.
struct Taken {
    names: Tree,
    /// PMID that stands for the agent's own metrics.
    root: PmId,
}

impl Taken {
    /// Reserves the last free name of the list. Returns this name, and a message about each later name, which is not
    /// free.
    fn reserve_last(&mut self, mut names: Vec<String>) -> (Option<String>, Vec<String>) {
        names.dedup();
        let mut texts = Vec::new();
        while let Some(name) = names.pop() {
            match self.reserve(&name) {
                Ok(()) => return (Some(name), texts),
                Err(why) => texts.push(format!("Error: {why}")),
            }
        }
        (None, texts)
    }

    /// Reserves a name. If it is not free, returns the reason.
    fn reserve(&mut self, name: &str) -> Result<(), String> {
        if let Some(node) = self.names.node(name) {
            return Err(match node.pmid() {
                None => format!("{name} has other metrics below it"),
                Some(pmid) if pmid == self.root => format!("{name} is the name of another metric of this agent"),
                Some(pmid) => format!("{name} is a metric of {}", owner(pmid)),
            });
        }
        self.names.insert(name, self.root).map_err(|e| match e {
            InsertError::BelowMetric { name, metric, pmid } if pmid.dynamic_root().is_some() && pmid != self.root => {
                format!("{name} is below {metric}, whose names belong to {}", owner(pmid))
            }
            InsertError::BelowMetric { name, metric, .. } => format!("{name} is below {metric}, which is a metric"),
            e => e.to_string(),
        })
    }
}

/// Describes the agent that has a metric, or the names below a dynamic root.
fn owner(pmid: PmId) -> String {
    format!("the agent with domain {}", pmid.dynamic_root().unwrap_or(pmid.domain()))
}
