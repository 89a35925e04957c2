//! Rules for files of several users, which limit the effect of one user's files on those of others.

use hashbrown::{HashMap, HashSet};
use pmapi::Item;

use super::group::Sets;
use super::source::Source;

/// Assigns clusters. A file gets the cluster that it requests, even if another file has it. Other files get the lowest
/// free one. If the files belong to several users, files keep their clusters, and only new ones get the lowest free
/// one. A user can then change no cluster of another user's file.
pub(super) fn assign_clusters(sources: &mut Vec<Source>) {
    let wanted = |source: &Source| u16::try_from(source.file.header().cluster).unwrap_or_default();
    let mut used = HashSet::new();
    let is_shared = is_shared(sources);
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

/// Most groups of files of other users that one user may join into one.
const BRIDGES: usize = 16;

/// Returns the indexes of files that join too many groups of other users, by common names, clusters or instance
/// domains. The tables of a joined group are rebuilt whenever one of its files changes. Files that existed first, and
/// those of root, are never returned.
pub(super) fn intruders(sources: &[Source]) -> Vec<usize> {
    if !is_shared(sources) {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|index| (sources[*index].uid != 0, sources[*index].since));
    let mut sets = Sets::new(sources.len());
    // Whether a set, identified by its smallest file, has files of several users.
    let mut is_mixed = vec![false; sources.len()];
    let (mut classes, mut heads) = (HashMap::new(), HashMap::new());
    let (mut bridges, mut all): (HashMap<u32, usize>, Vec<usize>) = (HashMap::new(), Vec::new());
    for index in order {
        let source = &sources[index];
        let of_classes = source.classes().filter_map(|class| classes.get(&class).copied());
        let of_heads = source.heads().filter_map(|head| heads.get(head).copied());
        let mut touched: Vec<usize> = of_classes.chain(of_heads).map(|other| sets.first(other)).collect();
        touched.sort_unstable();
        touched.dedup();
        let foreign = touched.iter().filter(|set| is_mixed[**set] || sources[**set].uid != source.uid).count();
        if foreign > 1 && source.uid != 0 {
            let bridges = bridges.entry(source.uid).or_default();
            if *bridges + foreign - 1 > BRIDGES {
                all.push(index);
                continue;
            }
            *bridges += foreign - 1;
        }
        let mixed = foreign > 0;
        touched.into_iter().for_each(|set| sets.join(set, index));
        let first = sets.first(index);
        is_mixed[first] |= mixed;
        source.classes().for_each(|class| _ = classes.entry(class).or_insert(index));
        source.heads().for_each(|head| _ = heads.entry(head).or_insert(index));
    }
    all.sort_unstable();
    all
}

/// Returns whether the files belong to several users.
fn is_shared(sources: &[Source]) -> bool {
    sources.iter().any(|source| sources.first().is_some_and(|first| first.uid != source.uid))
}
