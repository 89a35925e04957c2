//! The name space: the agent's names are added and removed by PCP's pmnsadd(1) and pmnsdel(1) in a draft beside it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

use pcp_base::file;

use super::outcome::{Outcome, Stop};
use super::site::{Owner, PATIENCE, Site, copy, flush, put, remove, same, with_suffix};
use super::text::said;

/// Content of the lock of the name space, by which an interrupted run's lock is known.
const LOCK: &str = "Install or Remove of an agent\n";

/// The lock of the name space, as PCP's lockpmns takes it.
struct Lock<'s>(&'s Site);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        unlock(self.0);
    }
}

/// Removes the lock of the name space if it is that of Install or Remove.
pub(crate) fn unlock(site: &Site) {
    let path = site.names_lock();
    if file::read_text(&path).is_ok_and(|text| text == LOCK) {
        let _ = fs::remove_file(path);
    }
}

fn lock(site: &Site) -> Outcome<Lock<'_>> {
    let path = site.names_lock();
    let own = with_suffix(&path, &format!(".{}", site.name));
    let taken = || -> io::Result<()> {
        remove(&own)?;
        fs::write(&own, LOCK)?;
        fs::hard_link(&own, &path)
    };
    for waited in 0.. {
        match taken() {
            Ok(()) => break,
            // Another program may release the lock before this one looks whether it is there.
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                let _ = remove(&own);
                return Err(Stop::new(format!("{}: {e}", path.display())));
            }
            Err(_) if waited >= PATIENCE => {
                site.say(format!("{} has been there for two minutes; going on without it.", path.display()));
                break;
            }
            Err(_) => sleep(Duration::from_secs(1)),
        }
    }
    let _ = remove(&own);
    Ok(Lock(site))
}

fn run(command: &mut Command) -> Outcome<Output> {
    command.output().map_err(|e| Stop::new(format!("{}: {e}", command.get_program().to_string_lossy())))
}

/// Removes a name, and the names below it, from a name space if it has them.
fn drop_name(site: &Site, namespace: &Path, name: &str) -> Outcome<()> {
    let output = run(site.admin_command("pmnsdel").arg("-n").arg(namespace).arg(name))?;
    let text = [output.stdout, output.stderr].concat();
    let lossy = String::from_utf8_lossy(&text);
    if output.status.success() || lossy.contains("not defined") || lossy.contains("not found") {
        return Ok(());
    }
    said(&text);
    Err(Stop::silent())
}

/// Selection among the names of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// Names of the agent that are not below its own name.
    Elsewhere,
    /// All names of the agent, also those below its own name.
    All,
}

/// Returns whether a word is an identifier such as `253:0:1` or `253:0:*`.
fn is_identifier(word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<_> = word.split(':').collect();
    parts.len() == 3 && is_number(parts[0]) && parts[1..].iter().all(|part| *part == "*" || is_number(part))
}

/// Returns the paths of an agent's names, with their identifiers, in a file for pmnsadd(1).
fn leaves(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut path = String::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
        if value == "{" {
            path = if name == "root" { String::new() } else { format!("{name}.") };
        } else if is_identifier(value) {
            found.push((format!("{path}{name}"), value.to_owned()));
        }
    }
    found
}

/// Returns the agent's names. Names elsewhere that the name space had before Install belong to another agent: an agent of a
/// recorded host has those of the live one.
pub(crate) fn names_of(site: &Site, which: Which) -> Vec<String> {
    let Ok(text) = file::read_text(site.own_names()) else { return Vec::new() };
    let earlier = file::read_text(before(site)).unwrap_or_default();
    let earlier: HashSet<_> = leaves(&earlier).into_iter().collect();
    let (mine, others): (Vec<_>, Vec<_>) =
        leaves(&text).into_iter().partition(|(path, _)| pmapi::names::is_at_or_below(path, &site.name));
    let mut names: Vec<_> = others.into_iter().filter(|leaf| !earlier.contains(leaf)).map(|(path, _)| path).collect();
    if !mine.is_empty() && which == Which::All {
        names.push(site.name.clone());
    }
    names
}

/// Returns the agent's dynamic names, and whether it has any other metric.
pub(crate) fn kinds(site: &Site) -> (Vec<String>, bool) {
    let text = file::read_text(site.own_names()).unwrap_or_default();
    let (dynamic, fixed): (Vec<_>, Vec<_>) = leaves(&text).into_iter().partition(|(_, id)| id.ends_with(":*:*"));
    (dynamic.into_iter().map(|(path, _)| path).collect(), !fixed.is_empty())
}

/// Path of the name space as it was before Install.
fn before(site: &Site) -> std::path::PathBuf {
    let name = site.namespace.file_name().unwrap_or_default().to_string_lossy();
    site.before(&format!("pmns.{name}"))
}

/// Removes the draft of the name space.
pub(crate) fn forget_draft(site: &Site) {
    let draft = site.draft_names();
    let _ = remove(&draft);
    let prefix = format!("{}.", draft.file_name().unwrap_or_default().to_string_lossy());
    for entry in fs::read_dir(&site.pmns_dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = remove(&entry.path());
        }
    }
}

/// Creates the draft of the name space, without the agent's names and with those of a file.
fn draft(site: &Site, elsewhere: &[String], names: Option<&Path>) -> Outcome<()> {
    let draft = site.draft_names();
    forget_draft(site);
    copy(&site.namespace, &draft, Owner::Same).map_err(|e| Stop::new(format!("{}: {e}", draft.display())))?;
    for name in std::iter::once(&site.name).chain(elsewhere) {
        drop_name(site, &draft, name)?;
    }
    if let Some(names) = names {
        // In its directory, because the draft includes files beside it.
        let mut command = site.admin_command("pmnsadd");
        command.current_dir(&site.pmns_dir).env("PCP_TMPFILE_DIR", site.aside("tmp"));
        let output = run(command.arg("-n").arg(&draft).arg(names))?;
        said(&[output.stdout, output.stderr].concat());
        if !output.status.success() {
            return Err(Stop::silent());
        }
    }
    // A truncated name space has names without a definition.
    let output = run(site.user_command("pminfo").env("PMNS_DEFAULT", &draft).arg("-n").arg(&draft))?;
    let text = String::from_utf8_lossy(&output.stderr).to_lowercase();
    let is_empty = draft.metadata().is_ok_and(|found| found.len() == 0);
    if is_empty || !output.status.success() && (text.contains("pmns") || text.contains("namespace")) {
        said(&output.stderr);
        return Err(Stop::silent());
    }
    Ok(())
}

/// Replaces the name space by the draft, and the agent's own file by `own`.
fn commit(site: &Site, own: Option<&[u8]>) -> io::Result<()> {
    if let Some(own) = own {
        put(&site.own_names(), own)?;
    }
    let draft = site.draft_names();
    flush(&draft)?;
    fs::rename(&draft, &site.namespace)?;
    if own.is_none() {
        remove(&site.own_names())?;
    }
    flush(&site.pmns_dir)
}

/// Adds the names of the file `pmns` in an agent's directory, in place of the agent's `elsewhere` and own ones.
pub(crate) fn add(site: &Site, pmns: &Path, symbol: &str, domain: u16, elsewhere: &[String]) -> Outcome<()> {
    let could_not = |stop: Stop| stop.or(format!("could not add the names to {}", site.namespace.display()));
    let rebuild = site.pmns_dir.join("Rebuild");
    if !site.namespace.is_file() && rebuild.exists() {
        let status = site.command(rebuild).arg("-us").current_dir(&site.pmns_dir).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(could_not(Stop::silent()));
        }
    }
    let added = || -> Outcome<()> {
        let text = file::read_text(pmns)?.replace(&format!("{symbol}:"), &format!("{domain}:"));
        let file = site.tmp("names");
        fs::write(&file, &text)?;
        let _lock = lock(site)?;
        draft(site, elsewhere, Some(&file))?;
        Ok(commit(site, Some(text.as_bytes()))?)
    };
    let result = added().map_err(could_not);
    forget_draft(site);
    result
}

/// Removes the agent's names and restores those of replaced agents, in the old order if nothing else has changed.
pub(crate) fn take_out(site: &Site) -> Outcome<()> {
    let could_not = |stop: Stop| stop.or(format!("could not take the names out of {}", site.namespace.display()));
    let (before, old_own, own) = (before(site), site.before(&format!("pmns.{}", site.name)), site.own_names());
    if site.is_installed() && same(&before, &site.namespace) && (!own.exists() || same(&old_own, &own)) {
        return Ok(());
    }
    let removed = || -> Outcome<()> {
        let is_replacing = site.before("replaced").exists();
        let mut restored = None;
        let mut names = None;
        if is_replacing && old_own.is_file() {
            restored = Some(file::read(&old_own, file::TEXT_LIMIT)?);
            names = Some(old_own.clone());
        } else if is_replacing && before.is_file() {
            // PCP's packages add the names of some agents without a file of their own.
            let text = names_in(&file::read_text(&before)?, &site.name);
            if !text.is_empty() {
                let file = site.tmp("names");
                fs::write(&file, text)?;
                names = Some(file);
            }
        }
        let elsewhere = names_of(site, Which::Elsewhere);
        let _lock = lock(site)?;
        draft(site, &elsewhere, names.as_deref())?;
        same_order(site, &before)?;
        Ok(commit(site, restored.as_deref())?)
    };
    let result = removed().map_err(could_not);
    forget_draft(site);
    result
}

/// Returns the agent's part of a name space.
fn names_in(text: &str, name: &str) -> String {
    let (mut in_root, mut is_inside) = (false, false);
    let mut found = String::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if words.next() == Some("{") {
            in_root = first == "root";
            is_inside = pmapi::names::is_at_or_below(first, name);
        }
        if in_root && first == name {
            found.push_str(&format!("root {{\n{line}\n}}\n"));
        }
        if is_inside {
            found.push_str(&format!("{line}\n"));
        }
        if first == "}" {
            (in_root, is_inside) = (false, false);
        }
    }
    found
}

fn sorted(path: &Path) -> io::Result<Vec<String>> {
    let text = file::read_text(path)?;
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

/// Replaces the draft by the name space before Install, if the two differ only in order, or in names of the agent that had
/// no file.
fn same_order(site: &Site, before: &Path) -> Outcome<()> {
    if !before.is_file() {
        return Ok(());
    }
    let (without, draft) = (site.tmp("without"), site.draft_names());
    remove(&without)?;
    copy(before, &without, Owner::Same)?;
    drop_name(site, &without, &site.name)?;
    let lines = sorted(&draft)?;
    if sorted(before)? == lines || sorted(&without)? == lines {
        remove(&draft)?;
        copy(before, &draft, Owner::Same)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_agent_have_identifiers() {
        let text = "root {\n\tsimple\n\tdisk\n}\nsimple {\n\tnow\t253:2:*\n\tdyn\t253:*:*\n\tcolor\t253:0:1\n}\n\n\
                    disk {\n\tavg\t253:4:1\n\tnext\n}\n";
        let paths: Vec<_> = leaves(text).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["simple.now", "simple.dyn", "simple.color", "disk.avg"]);
    }

    #[test]
    fn the_part_of_an_agent_is_found() {
        let text =
            "root {\n\ta\n\tmmv\t70:*:*\n}\na {\n\tx\t1:0:1\n}\nmmv {\n\tcontrol\n}\nmmv.control {\n\td\t70:0:1\n}\n";
        let expected = "root {\n\tmmv\t70:*:*\n}\nmmv {\n\tcontrol\n}\nmmv.control {\n\td\t70:0:1\n}\n";
        assert_eq!(names_in(text, "mmv"), expected);
        assert_eq!(names_in(text, "m"), "");
    }
}
