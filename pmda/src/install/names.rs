//! The name space: the agent's names are added to the file `root` of all names, and removed from it, as pmnsadd(1) and
//! pmnsdel(1) do.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use pcp_base::file;
use pmapi::PmId;
use pmapi::names::is_at_or_below;
use pmns::{Loader, Tree};

use super::report::{Outcome, Stop, say};
use super::site::{PATIENCE, Site, remove, with_suffix};

/// Where the link leads to that is the lock of the name space, by which the lock of an interrupted run is known.
const LOCK: &str = "Install or Remove of an agent";

/// The lock of the name space, which excludes PCP's lockpmns.
struct Lock<'s>(&'s Site);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        unlock(self.0);
    }
}

/// Removes the lock of the name space if it is that of Install or Remove.
pub(crate) fn unlock(site: &Site) {
    let path = with_suffix(&site.namespace, ".lock");
    if fs::read_link(&path).is_ok_and(|text| text == Path::new(LOCK)) {
        let _ = fs::remove_file(path);
    }
}

fn lock(site: &Site) -> Outcome<Lock<'_>> {
    let path = with_suffix(&site.namespace, ".lock");
    for _ in 0..PATIENCE {
        match symlink(LOCK, &path) {
            Ok(()) => return Ok(Lock(site)),
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(Stop::at(path.display())(e)),
            Err(_) => sleep(Duration::from_secs(1)),
        }
    }
    say(format!("{} has been there for two minutes; going on without it.", path.display()));
    Ok(Lock(site))
}

/// Names with their identifiers.
type Leaves = HashSet<(String, PmId)>;

fn leaves(tree: &Tree) -> impl Iterator<Item = (String, PmId)> {
    tree.root().leaves().filter_map(|leaf| Some((leaf.path(), leaf.pmid()?)))
}

/// Parses an agent's file of names, which may lack the root that leads to its first block.
fn parse(text: &str) -> Outcome<Tree> {
    let top = text.lines().find_map(|line| line.trim_end().strip_suffix('{')).map_or("root", str::trim);
    let root = if top == "root" { String::new() } else { format!("root {{\n{top}\n}}\n") };
    Loader::new().parse(root + text, Path::new("pmns")).map_err(|e| Stop::new(format!("{e}.")))
}

/// Returns the names of the agent. Names elsewhere than below its own name that the name space had before Install belong to
/// another agent: an agent of a recorded host has those of the live one.
pub(crate) fn of_agent(site: &Site) -> Vec<(String, PmId)> {
    let tree = file::read_text(&site.own_names).map_err(Stop::from).and_then(|text| parse(&text));
    let earlier: Leaves = load(&saved(site)).map_or_else(|_| Leaves::new(), |tree| leaves(&tree).collect());
    let is_own = |leaf: &(String, PmId)| is_at_or_below(&leaf.0, &site.name) || !earlier.contains(leaf);
    tree.map_or_else(|_| Vec::new(), |tree| leaves(&tree).filter(is_own).collect())
}

/// Returns whether a name is the root of names which the agent defines while it runs.
pub(crate) fn is_dynamic(leaf: &(String, PmId)) -> bool {
    leaf.1.dynamic_root().is_some()
}

/// Returns the path in `.before` of a file of the name space.
pub(crate) fn before(dir: &Path, file: &Path) -> PathBuf {
    dir.join(format!("pmns.{}", file.file_name().unwrap_or_default().to_string_lossy()))
}

/// Returns the path of the name space as it was before Install.
fn saved(site: &Site) -> PathBuf {
    before(&site.place.join(".before"), &site.namespace)
}

fn load(path: &Path) -> Outcome<Tree> {
    Loader::new().load(path).map_err(|e| Stop::new(format!("{e}.")))
}

/// Loads the name space, and removes the agent's names.
fn without_agent(site: &Site) -> Outcome<Tree> {
    let mut tree = load(&site.namespace)?;
    for (name, pmid) in of_agent(site) {
        if tree.lookup(&name) == Ok(pmid) {
            tree.remove(&name);
        }
    }
    tree.remove(&site.name);
    Ok(tree)
}

fn insert(tree: &mut Tree, names: impl Iterator<Item = (String, PmId)>) -> Outcome<()> {
    for (name, pmid) in names {
        tree.insert(&name, pmid).map_err(|e| Stop::new(format!("{e}.")))?;
    }
    Ok(())
}

/// Adds the names of the file `pmns` in an agent's directory, in place of those of the last Install.
pub(crate) fn add(site: &Site, pmns: &Path, symbol: &str, domain: u16) -> Outcome<()> {
    let rebuild = site.namespace.with_file_name("Rebuild");
    if !site.namespace.is_file() && rebuild.exists() {
        let _ = site.command(&rebuild).arg("-us").current_dir(rebuild.parent().unwrap_or(Path::new("/"))).status();
    }
    let added = || -> Outcome<()> {
        let text = file::read_text(pmns)?.replace(&format!("{symbol}:"), &format!("{domain}:"));
        let _lock = lock(site)?;
        let mut tree = without_agent(site)?;
        insert(&mut tree, leaves(&parse(&text)?))?;
        file::replace(&site.own_names, text.as_bytes())?;
        Ok(file::replace(&site.namespace, pmns::write::root(&tree).as_bytes())?)
    };
    added().map_err(|stop| Stop::new(format!("could not add the names to {}: {}", site.namespace.display(), stop.0)))
}

/// Removes the agent's names and restores those of replaced agents: the file of before, if nothing else has changed.
pub(crate) fn take_out(site: &Site) -> Outcome<()> {
    let removed = || -> Outcome<()> {
        let _lock = lock(site)?;
        let mut tree = without_agent(site)?;
        let before = saved(site);
        let old = if before.is_file() { Some(load(&before)?) } else { None };
        let others = |tree: &Tree| leaves(tree).filter(|leaf| !is_at_or_below(&leaf.0, &site.name)).collect::<Leaves>();
        match &old {
            Some(old) if others(old) == others(&tree) => {
                file::replace(&site.namespace, &file::read(&before, file::TEXT_LIMIT)?)?;
            }
            _ => {
                let replaced = old.iter().filter(|_| !site.replaced().is_empty());
                insert(&mut tree, replaced.flat_map(leaves).filter(|leaf| is_at_or_below(&leaf.0, &site.name)))?;
                file::replace(&site.namespace, pmns::write::root(&tree).as_bytes())?;
            }
        }
        let own = self::before(&site.place.join(".before"), &site.own_names);
        match file::read(&own, file::TEXT_LIMIT) {
            Ok(text) => file::replace(&site.own_names, &text)?,
            Err(_) => remove(&site.own_names)?,
        }
        Ok(())
    };
    removed()
        .map_err(|stop| Stop::new(format!("could not take the names out of {}: {}", site.namespace.display(), stop.0)))
}

/// Returns whether the name space has one of the names.
pub(crate) fn has(site: &Site, names: &[(String, PmId)]) -> bool {
    load(&site.namespace).is_ok_and(|tree| names.iter().any(|(name, pmid)| tree.lookup(name) == Ok(*pmid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_agent_have_identifiers() {
        let text =
            "root {\n\tsimple\n\tdisk\n}\nsimple {\n\tnow\t253:2:3\n\tdyn\t253:*:*\n}\n\ndisk {\n\tavg\t253:4:1\n}\n";
        let found: Vec<_> = leaves(&parse(text).unwrap()).collect();
        let names: Vec<_> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["simple.now", "simple.dyn", "disk.avg"]);
        assert_eq!(found.iter().map(is_dynamic).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(leaves(&parse("mmv {\n\ta\t70:0:1\n}\n").unwrap()).count(), 1);
        assert!(parse("mmv {\n\ta\n").is_err());
    }
}
