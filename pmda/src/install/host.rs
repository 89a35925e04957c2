//! How pmcd runs an agent that is a shared object: itself, or behind the program `pmda-host`.
//!
//! Only the agent's line of pmcd's configuration changes. The directory `.host` in the agent's directory has the line before
//! the change, the line after it, and the program. If the program ends at any system call, the line is either one, and
//! Install or Remove can be repeated.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use pcp_base::file;

use super::outcome::{Outcome, Stop};
use super::pmcd;
use super::pmcd_conf::AgentLine;
use super::signals::{self, Stage};
use super::site::{Site, flush_below, put, remove as remove_files};
use super::text::tell;

fn dir(site: &Site) -> PathBuf {
    site.place.join(".host")
}

/// Makes pmcd start a copy of this program, which loads the shared object.
pub(crate) fn install(site: &Site) -> Outcome<()> {
    let (name, conf_path, place) = (&site.name, site.conf.display(), dir(site));
    let conf = site.pmcd_conf()?;
    let (objects, others): (Vec<_>, Vec<_>) =
        conf.agents().filter(|agent| agent.name() == name).partition(AgentLine::is_dso);
    let line = match &*objects {
        [line] => line,
        [] if place.join("before").exists() => {
            return Err(Stop::new(format!(
                "{name} already runs behind pmda-host; ./Remove host {name} changes it back."
            )));
        }
        [] if !others.is_empty() => {
            return Err(Stop::new(format!(
                "{name} is not a shared object in {conf_path}, so that there is nothing to change."
            )));
        }
        [] => return Err(Stop::new(format!("{conf_path} has no agent {name}."))),
        _ => return Err(Stop::new(format!("{conf_path} has more than one line for {name}."))),
    };
    let [_, domain, _, entry, object] = line.words() else { return Err(no_object(site, line)) };
    let object = site.config.pmdas_dir().join(object);
    if !object.is_file() {
        return Err(no_object(site, line));
    }
    site.check_executable()?;
    let program = place.join("pmda-host");
    let command = format!("{} --so {} --entry {entry} -d {domain}", program.display(), object.display());
    let after = format!("{name}\t{domain}\tpipe\tbinary\t\t{command}");
    let written = write(&place, &line.text, &after);
    written.map_err(|e| Stop::new(format!("{} cannot be written: {e}.", place.display())))?;
    change(site, &line.text, &after)?;
    match pmcd::status(site, name) {
        None | Some(0) => {}
        Some(_) => {
            return Err(Stop::new(format!(
                "pmcd cannot start the host of {name}; see {}, and ./Remove host {name}.",
                log(site).display()
            )));
        }
    }
    tell(format!("{name} now runs behind pmda-host, with its log in {}.", log(site).display()));
    Ok(())
}

fn no_object(site: &Site, line: &AgentLine) -> Stop {
    Stop::new(format!("the line of {} in {} names no shared object: {}", site.name, site.conf.display(), line.text))
}

fn log(site: &Site) -> PathBuf {
    site.config.log_dir().join(format!("pmcd/{}.log", site.name))
}

/// Writes the directory with a copy of this program, and the lines.
fn write(place: &Path, before: &str, after: &str) -> std::io::Result<()> {
    let new = place.with_file_name(".host.new");
    remove_files(&new)?;
    fs::create_dir(&new)?;
    let program = new.join("pmda-host");
    fs::copy(std::env::current_exe()?, &program)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    fs::write(new.join("before"), format!("{before}\n"))?;
    fs::write(new.join("after"), format!("{after}\n"))?;
    flush_below(&new)?;
    remove_files(place)?;
    fs::rename(&new, place)
}

/// Replaces a line of pmcd's configuration, and makes pmcd read it.
fn change(site: &Site, from: &str, to: &str) -> Outcome<()> {
    let conf = site.pmcd_conf()?.with_line(from, to);
    put(&site.conf, &conf.to_bytes())
        .map_err(|e| Stop::new(format!("{} cannot be written: {e}.", site.conf.display())))?;
    signals::set(Stage::Ends(format!(
        "the line of {} in {} is changed, but pmcd may not have read it: pmsignal -s HUP pmcd",
        site.name,
        site.conf.display()
    )));
    if !pmcd::reload(site).map_err(Stop::new)? {
        site.say("pmcd does not run; its next start has the change.");
    }
    Ok(())
}

/// Makes pmcd load the shared object itself again.
pub(crate) fn remove(site: &Site) -> Outcome<()> {
    let (name, place) = (&site.name, dir(site));
    let read = |file: &str| file::read_text(place.join(file)).map(|text| text.trim_end_matches('\n').to_owned());
    let Ok(before) = read("before") else {
        return Err(Stop::new(format!("{name} does not run behind pmda-host.")));
    };
    let after = read("after")?;
    let conf = site.pmcd_conf()?;
    if conf.agents().any(|agent| agent.text == after) {
        change(site, &after, &before)?;
    } else if !conf.agents().any(|agent| agent.name() == name && agent.is_dso()) {
        return Err(Stop::new(format!(
            "the line of {name} in {} has been changed since ./Install host; restore it by hand: {before}",
            site.conf.display()
        )));
    }
    remove_files(&place)?;
    remove_files(&place.with_file_name(".host.new"))?;
    tell(format!("pmcd loads {name} itself again."));
    Ok(())
}
