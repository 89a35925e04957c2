//! The state before Install, in the directory `.before` of the agent's directory, and the end of interrupted runs.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use pcp_base::file;

use super::names;
use super::outcome::{Outcome, Stop};
use super::pmcd::{self, Start};
use super::pmcd_conf::PmcdConf;
use super::site::{FOLDERS, Owner, Site, copy, exists, flush, flush_below, had, put, remove, with_suffix};

/// Saves the state before Install in a new directory. `others` are the lines of agents that Install replaces.
pub(crate) fn remember(site: &Site, dir: &Path, others: &[String]) -> io::Result<()> {
    fs::create_dir(dir)?;
    copy(&site.conf, &dir.join("pmcd.conf"), Owner::Same)?;
    for file in [&site.namespace, &site.own_names()] {
        if file.is_file() {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            copy(file, &dir.join(format!("pmns.{name}")), Owner::Same)?;
        }
    }
    if !others.is_empty() {
        fs::write(dir.join("replaced"), others.join("\n") + "\n")?;
    }
    for folder in FOLDERS {
        let to = site.target(folder);
        if to.is_dir() {
            let mut names = file_names(&to)?;
            names.sort();
            names.iter_mut().for_each(|name| name.push('\n'));
            fs::write(dir.join(had(folder)), names.concat())?;
        }
    }
    Ok(())
}

/// Returns the names in a directory.
pub(crate) fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Returns the lines of the agents that Install has replaced.
pub(crate) fn replaced(site: &Site) -> Vec<String> {
    let text = file::read_text(site.before("replaced")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns whether the replaced agents, which may have the same name, are already in the configuration again.
pub(crate) fn has_replaced(site: &Site, conf: &PmcdConf) -> bool {
    let replaced = replaced(site);
    !replaced.is_empty() && conf.has_all(&replaced)
}

/// Puts a directory into the agent's place. Files `*.conf` and a directory `config.d` that are there stay in use. A
/// directory that no Install has made is kept as `NAME.kept`.
pub(crate) fn place(site: &Site, here: &Path, others: &[String]) -> io::Result<()> {
    let (place, kept, again) = (&site.place, site.kept(), site.is_installed());
    if place.canonicalize().is_ok_and(|path| path == here) {
        if again {
            return Ok(());
        }
        let draft = place.join(".before.draft");
        remember(site, &draft, others)?;
        flush_below(&draft)?;
        return fs::rename(&draft, place.join(".before"));
    }
    let (draft, new, old) = (site.aside("draft"), site.aside("new"), site.aside("old"));
    copy(here, &draft, Owner::Root)?;
    remove(&draft.join(".before"))?;
    fs::set_permissions(&draft, Permissions::from_mode(0o755))?;
    for name in file_names(place).unwrap_or_default() {
        if name == "config.d" || name.ends_with(".conf") && !name.starts_with('.') {
            remove(&draft.join(&name))?;
            copy(&place.join(&name), &draft.join(&name), Owner::Same)?;
        }
    }
    if again {
        copy(&place.join(".before"), &draft.join(".before"), Owner::Same)?;
    } else if exists(&kept) {
        return Err(io::Error::other(format!("there is a {}", kept.display())));
    } else {
        remember(site, &draft.join(".before"), others)?;
        fs::write(draft.join(".before/placed"), "")?;
    }
    flush_below(&draft)?;
    fs::rename(&draft, &new)?;
    if !exists(place) {
        fs::rename(&new, place)?;
    } else if file::exchange(&new, place).is_ok() {
        if again {
            forget(site, &new)?;
        } else {
            fs::rename(&new, &kept)?;
        }
    } else if again {
        fs::rename(place, &old)?;
        fs::rename(&new, place)?;
        forget(site, &old)?;
    } else {
        // The file system cannot exchange directories, and perhaps cannot rename this one.
        let copied = site.aside("copy");
        copy(place, &copied, Owner::Same)?;
        flush_below(&copied)?;
        fs::rename(&copied, &kept)?;
        remove(place)?;
        fs::rename(&new, place)?;
    }
    flush(&site.pmdas)
}

/// Removes the files of an Install or Remove that must not stay when it ends.
pub(crate) fn finish(site: &Site) {
    names::unlock(site);
    let _ = remove(&with_suffix(&site.names_lock(), &format!(".{}", site.name)));
    for suffix in ["tmp", "draft"] {
        let _ = remove(&site.aside(suffix));
    }
    names::forget_draft(site);
}

/// Completes or undoes the changes of an interrupted run. Returns whether a Remove has been completed.
pub(crate) fn recover(site: &Site) -> Outcome<bool> {
    let could_not = |stop: Stop| stop.or("could not clean up after an Install or Remove that was interrupted");
    recovered(site).map_err(could_not)
}

fn recovered(site: &Site) -> Outcome<bool> {
    for path in [site.aside("tmp"), site.aside("draft"), site.aside("copy"), site.place.join(".before.draft")] {
        remove(&path)?;
    }
    for folder in FOLDERS {
        let dir = site.target(folder);
        for name in file_names(&dir).unwrap_or_default() {
            if name.starts_with('.') && name.ends_with(".new") {
                remove(&dir.join(name))?;
            }
        }
    }
    for file in [&site.domains, &site.conf, &site.own_names()] {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        remove(&file.with_file_name(format!(".{name}.new")))?;
    }
    names::forget_draft(site);
    let tmp = site.aside("tmp");
    fs::DirBuilder::new().mode(0o700).create(&tmp)?;
    names::unlock(site);
    let (place, kept, new, old) = (&site.place, site.kept(), site.aside("new"), site.aside("old"));
    if new.is_dir() {
        if !new.join(".before").is_dir() {
            // It is the directory of before, already exchanged with the new one.
            fs::rename(&new, &kept)?;
        } else if !exists(place) {
            fs::rename(&new, place)?;
        } else if !site.is_installed() && exists(&kept) {
            remove(place)?;
            fs::rename(&new, place)?;
        } else {
            forget(site, &new)?;
        }
    } else if !exists(place) && kept.is_dir() {
        fs::rename(&kept, place)?;
    }
    // A Remove has exchanged the directories, and was interrupted before it removed the agent's one.
    if kept.join(".before").is_dir() {
        fs::rename(&kept, &old)?;
    }
    if !old.is_dir() {
        return Ok(false);
    }
    if !pmcd::tell(site, Start::Never) {
        return Err(Stop::silent());
    }
    forget(site, &old)?;
    Ok(true)
}

/// Removes a directory that is no longer needed. It becomes a draft first: an incomplete one means nothing.
pub(crate) fn forget(site: &Site, dir: &Path) -> io::Result<()> {
    let draft = site.aside("draft");
    fs::rename(dir, &draft)?;
    remove(&draft)
}

/// Copies the agent's configuration and templates into their places, except for files that have been changed or removed
/// there since the last Install, and files that were there before the first one.
pub(crate) fn configure(site: &Site) -> io::Result<()> {
    for folder in FOLDERS {
        let (from, to) = (site.place.join(folder), site.target(folder));
        if !from.is_dir() {
            continue;
        }
        let copies = site.before(folder);
        fs::create_dir_all(&to)?;
        fs::create_dir_all(&copies)?;
        let had = site.had(folder).unwrap_or_default();
        for name in visible(&from)? {
            if had.lines().any(|known| known == name) {
                continue;
            }
            let content = file::read(&from.join(&name), file::TEXT_LIMIT)?;
            let (target, copied) = (to.join(&name), copies.join(&name));
            let read = |path: &Path| file::read(path, file::TEXT_LIMIT).ok();
            let is_unchanged = match read(&copied) {
                Some(last) => read(&target) == Some(last),
                None => !exists(&target),
            };
            if is_unchanged {
                put(&target, &content)?;
            }
            put(&copied, &content)?;
        }
    }
    Ok(())
}

/// Removes the agent's configuration and templates, except for files that have been changed or were there before Install.
pub(crate) fn remove_configuration(site: &Site) {
    for folder in FOLDERS {
        let (from, to) = (site.place.join(folder), site.target(folder));
        if !from.is_dir() {
            continue;
        }
        let (copies, had) = (site.before(folder), site.had(folder));
        for name in visible(&from).unwrap_or_default() {
            let (target, copied) = (to.join(&name), copies.join(&name));
            let was_there = had.iter().any(|list| list.lines().any(|known| known == name));
            let is_ours = || super::site::same(&from.join(&name), &target) || super::site::same(&copied, &target);
            if !was_there && is_ours() {
                // The copy goes first. A copy without the file would tell the next Install that a person has removed it.
                let _ = remove(&copied);
                let _ = remove(&target);
            }
        }
        if had.is_none() {
            let _ = fs::remove_dir(&to);
        }
    }
}

/// Returns the names of files in a directory that do not begin with a dot.
fn visible(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = file_names(dir)?;
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    Ok(names)
}
