//! Assignment of clusters to files.

use hashbrown::HashSet;
use pmapi::Item;

use super::source::Source;

/// Assigns clusters. A file gets the cluster that it requests, even if another file has it. Other files get the lowest
/// free one. If the files belong to several users, or have `large` records, files keep their clusters, and only new
/// files get the lowest free one. So a user cannot change the cluster of another user's file, and a changed file changes
/// few tables.
pub(super) fn assign_clusters(sources: &mut Vec<Source>, large: u64) {
    let wanted = |source: &Source| u16::try_from(source.file.header().cluster).unwrap_or_default();
    let mut used = HashSet::new();
    let is_shared = is_shared(sources) || sources.iter().map(|source| source.records).sum::<u64>() > large;
    if is_shared {
        used.extend(sources.iter().map(|source| match wanted(source) {
            0 => source.cluster,
            wanted => wanted,
        }));
    }
    let mut clusters = (1..=Item::MAX_CLUSTER).peekable();
    sources.retain_mut(|source| {
        let own = match wanted(source) {
            0 if is_shared => source.cluster,
            wanted => wanted,
        };
        let free = || {
            while clusters.next_if(|cluster| used.contains(cluster)).is_some() {}
            clusters.peek().copied()
        };
        let Some(cluster) = Some(own).filter(|c| *c != 0).or_else(free) else {
            source.log("mmv", format_args!("is left out: no cluster is free"));
            return false;
        };
        used.insert(cluster);
        source.set_cluster(cluster);
        true
    });
}

/// Returns whether the files belong to several users.
fn is_shared(sources: &[Source]) -> bool {
    sources.iter().any(|source| sources.first().is_some_and(|first| first.uid != source.uid))
}
