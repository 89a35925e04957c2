//! The agent's directory: it is prepared beside its place, and put there in one step. Its `.before` has the state before
//! Install.
//!
//! If Install or Remove ends at any system call, each file and directory is in the old or in the new state, and the next
//! Install or Remove completes the change ([`recover`]). It finds:
//!
//! | name | content |
//! |---|---|
//! | `NAME` | the agent's directory, or the one before Install |
//! | `NAME.kept` | the directory that Install has replaced |
//! | `.NAME.tmp/new` | a complete directory of the agent, to be exchanged with `NAME`, or what `NAME` was before that |
//! | `.NAME.tmp/old` | the agent's directory after Remove, until pmcd has been notified; only a `.before` if `NAME` stays |
//! | `NAME/.before.draft` | an incomplete `.before`, if no Install has placed `NAME` |

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use pcp_base::file;

use super::names;
use super::pmcd::{self, Start};
use super::report::{Outcome, Stop};
use super::site::{Owner, Site, copy, exists, file_names, flush, flush_below, remove, same};

/// Files of the agent's directory that depend on its domain and its options.
const GENERATED: [&str; 5] = ["pmns", "root", "help", "README", "domain.h"];

/// Returns the folders of the agent's directory whose files are copied into directories of PCP, and these directories:
/// configuration, and templates of pmlogconf(1) and pmieconf(1).
pub(crate) fn folders(site: &Site) -> [(&'static str, PathBuf); 3] {
    let template = |folder: &str| site.config.var_dir().join("config").join(folder).join(&site.name);
    [
        ("etc", site.config.sysconf_dir().join(format!("pmda{}", site.name))),
        ("pmlogconf", template("pmlogconf")),
        ("pmieconf", template("pmieconf")),
    ]
}

/// Puts a directory into the agent's place, with the generated files of `fresh`. Files `*.conf` and a directory `config.d`
/// that are there stay in use. A directory that no Install has made is kept as `NAME.kept`. `others` are the lines of agents
/// that Install replaces.
pub(crate) fn place(site: &Site, here: &Path, fresh: &Path, others: &[String]) -> io::Result<()> {
    let (place, again) = (&site.place, site.is_installed());
    let (draft, new) = (site.tmp.join("draft"), site.tmp.join("new"));
    if place.canonicalize().is_ok_and(|path| path == here) {
        if !again {
            let draft = own_draft(site);
            remember(site, &draft, others)?;
            flush_below(&draft)?;
            fs::rename(&draft, place.join(".before"))?;
            flush(place)?;
        }
        return GENERATED.iter().try_for_each(|name| file::replace(&place.join(name), &fs::read(fresh.join(name))?));
    }
    copy(here, &draft, Owner::Root)?;
    remove(&draft.join(".before"))?;
    fs::set_permissions(&draft, Permissions::from_mode(0o755))?;
    GENERATED.iter().try_for_each(|name| fs::copy(fresh.join(name), draft.join(name)).map(drop))?;
    for name in file_names(place).unwrap_or_default() {
        if name == "config.d" || name.ends_with(".conf") && !name.starts_with('.') {
            remove(&draft.join(&name))?;
            copy(&place.join(&name), &draft.join(&name), Owner::Same)?;
        }
    }
    if again {
        copy(&place.join(".before"), &draft.join(".before"), Owner::Same)?;
    } else if exists(&site.kept) {
        return Err(io::Error::other(format!("there is a {}", site.kept.display())));
    } else {
        remember(site, &draft.join(".before"), others)?;
        fs::write(draft.join(".before/placed"), "")?;
    }
    flush_below(&draft)?;
    fs::rename(&draft, &new)?;
    if !exists(place) {
        fs::rename(&new, place)?;
    } else if file::exchange(&new, place).is_ok() {
        if !again {
            fs::rename(&new, &site.kept)?;
        }
    } else if again {
        fs::rename(place, site.tmp.join("old"))?;
        fs::rename(&new, place)?;
    } else {
        // The file system cannot exchange directories, and perhaps cannot rename this one.
        copy(place, &draft, Owner::Same)?;
        flush_below(&draft)?;
        fs::rename(&draft, &site.kept)?;
        remove(place)?;
        fs::rename(&new, place)?;
    }
    flush(&site.pmdas)
}

/// Returns the incomplete `.before` of a directory that is in its place already. It is in this directory, which may be a mount
/// point or a link to another file system.
fn own_draft(site: &Site) -> PathBuf {
    site.place.join(".before.draft")
}

/// Saves the state before Install in a new directory.
fn remember(site: &Site, dir: &Path, others: &[String]) -> io::Result<()> {
    fs::create_dir(dir)?;
    copy(&site.conf, &dir.join("pmcd.conf"), Owner::Same)?;
    for file in [&site.namespace, &site.own_names] {
        if file.is_file() {
            copy(file, &names::before(dir, file), Owner::Same)?;
        }
    }
    if !others.is_empty() {
        fs::write(dir.join("replaced"), others.join("\n") + "\n")?;
    }
    let mut had = String::new();
    for (_, to) in folders(site) {
        let Ok(names) = file_names(&to) else { continue };
        had.push_str(&format!("{}\n", to.display()));
        names.iter().for_each(|name| had.push_str(&format!("{}\n", to.join(name).display())));
    }
    fs::write(dir.join("had"), had)
}

/// Puts the directory of before into its place, and the agent's one into the directory of temporary files.
pub(crate) fn take_away(site: &Site) -> io::Result<()> {
    let old = site.tmp.join("old");
    if !site.before("placed").exists() {
        fs::create_dir_all(old.join(".before"))?;
        fs::rename(site.place.join(".before"), own_draft(site))?;
        flush(&site.place)?;
    } else if site.kept.is_dir() && file::exchange(&site.kept, &site.place).is_ok() {
        fs::rename(&site.kept, old)?;
    } else {
        fs::rename(&site.place, old)?;
        if site.kept.is_dir() {
            fs::rename(&site.kept, &site.place)?;
        }
    }
    flush(&site.pmdas)
}

/// Completes or undoes the changes of an interrupted run, and makes a directory for temporary files. Returns whether a
/// Remove has been completed.
pub(crate) fn recover(site: &Site) -> Outcome<bool> {
    let is_removed = finish(site)?;
    fs::DirBuilder::new().mode(0o700).create(&site.tmp)?;
    Ok(is_removed)
}

/// Removes the files of this run, or of an interrupted one, that must not stay when it ends.
pub(crate) fn finish(site: &Site) -> Outcome<bool> {
    let could_not = |e| Stop::at("could not clean up after an Install or Remove")(e);
    names::unlock(site);
    let is_removed = settle(site).map_err(could_not)?;
    if is_removed && !pmcd::tell(site, Start::Never) {
        return Err(Stop::silent());
    }
    let mut left = vec![site.tmp.clone(), own_draft(site)];
    for file in [&site.domains, &site.conf, &site.own_names, &site.namespace] {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        left.push(file.with_file_name(format!(".{name}.new")));
    }
    for (_, dir) in folders(site) {
        let names = file_names(&dir).unwrap_or_default().into_iter();
        left.extend(names.filter(|name| name.starts_with('.') && name.ends_with(".new")).map(|name| dir.join(name)));
    }
    left.iter().try_for_each(|path| remove(path)).map_err(could_not)?;
    Ok(is_removed)
}

/// Completes or undoes the change of directories. Returns whether the agent is removed, but pmcd has not been notified.
fn settle(site: &Site) -> io::Result<bool> {
    let (place, kept, tmp) = (&site.place, &site.kept, &site.tmp);
    let (new, old) = (tmp.join("new"), tmp.join("old"));
    if new.join(".before").is_dir() {
        if !site.is_installed() && (!exists(place) || exists(kept)) {
            remove(place)?;
            fs::rename(&new, place)?;
        }
    } else if new.is_dir() {
        // The directory of before, which has been exchanged with the agent's one.
        fs::rename(&new, kept)?;
    } else if !exists(place) && kept.is_dir() {
        fs::rename(kept, place)?;
    }
    if kept.join(".before").is_dir() {
        // Remove has exchanged the directories.
        fs::rename(kept, &old)?;
    }
    let is_removed = old.join(".before").is_dir() && !site.is_installed();
    if !is_removed {
        discard(site)?;
    }
    Ok(is_removed)
}

/// Removes directories that are no longer needed. They get a name first under which an incomplete one means nothing.
pub(crate) fn discard(site: &Site) -> io::Result<()> {
    let draft = site.tmp.join("draft");
    for left in ["new", "old"].map(|name| site.tmp.join(name)) {
        remove(&draft)?;
        if left.is_dir() {
            fs::rename(left, &draft)?;
        }
    }
    remove(&draft)
}

/// Copies the agent's configuration and templates into their places, except for files that have been changed or removed
/// there since the last Install, and files that were there before the first one.
pub(crate) fn configure(site: &Site) -> io::Result<()> {
    let had = had(site);
    for (folder, to) in folders(site) {
        let (from, copies) = (site.place.join(folder), site.before(folder));
        if !from.is_dir() {
            continue;
        }
        fs::create_dir_all(&to)?;
        fs::create_dir_all(&copies)?;
        for name in visible(&from)? {
            let (target, copied) = (to.join(&name), copies.join(&name));
            if had.contains(&target) {
                continue;
            }
            let content = file::read(&from.join(&name), file::TEXT_LIMIT)?;
            if if exists(&copied) { same(&copied, &target) } else { !exists(&target) } {
                file::replace(&target, &content)?;
            }
            file::replace(&copied, &content)?;
        }
    }
    Ok(())
}

/// Removes the agent's configuration and templates, except for files that have been changed or were there before Install.
pub(crate) fn remove_configuration(site: &Site) {
    let had = had(site);
    for (folder, to) in folders(site) {
        let (from, copies) = (site.place.join(folder), site.before(folder));
        for name in visible(&from).unwrap_or_default() {
            let (target, copied) = (to.join(&name), copies.join(&name));
            if !had.contains(&target) && (same(&from.join(&name), &target) || same(&copied, &target)) {
                // The copy goes first. A copy without the file would tell the next Install that a person has removed it.
                let _ = remove(&copied);
                let _ = remove(&target);
            }
        }
        if from.is_dir() && !had.contains(&to) {
            let _ = fs::remove_dir(&to);
        }
    }
}

/// Returns what there was before Install in the directories of PCP for the agent's folders.
fn had(site: &Site) -> Vec<PathBuf> {
    let text = fs::read_to_string(site.before("had")).unwrap_or_default();
    text.lines().map(PathBuf::from).collect()
}

/// Returns the names of files in a directory that do not begin with a dot.
fn visible(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = file_names(dir)?;
    names.retain(|name| !name.starts_with('.'));
    Ok(names)
}

/// Saves the directory config.d, which has the administrator's files, with the directory of before. An untouched config.d of
/// an agent that was not there before goes with the agent.
pub(crate) fn keep_sources(site: &Site) -> io::Result<()> {
    let (sources, to) = (site.place.join("config.d"), site.kept.join("config.d"));
    let is_untouched = file_names(&sources).map_or(true, |names| names.iter().all(|name| name == "README"));
    if !sources.is_dir() || is_untouched && !site.kept.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(&site.kept)?;
    remove(&to)?;
    copy(&sources, &to, Owner::Same)?;
    flush_below(&to)
}
