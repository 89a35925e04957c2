//! How pmcd runs an agent that is a shared object: itself, or behind the program `pmda-host`.
//!
//! Only the agent's line of pmcd's configuration changes. The directory `.host` in the agent's directory has the program and
//! the line before the change. If the program ends at any system call, the line is either one, and Install or Remove can be
//! repeated.

use std::fs;
use std::path::{Path, PathBuf};

use pcp_base::file;

use super::pmcd;
use super::pmcd_conf::AgentLine;
use super::report::{self, Outcome, Stop, say, tell};
use super::site::{Owner, Site, copy, remove as remove_files};

/// Returns the copy of this program that pmcd starts.
fn program(site: &Site) -> PathBuf {
    site.place.join(".host/pmda-host")
}

fn before(site: &Site) -> PathBuf {
    site.place.join(".host/before")
}

/// Makes pmcd start a copy of this program, which loads the shared object.
pub(crate) fn install(site: &Site) -> Outcome<()> {
    let (name, conf_path) = (&site.name, site.conf.display());
    let conf = site.pmcd_conf()?;
    let lines: Vec<_> = conf.agents().filter(|agent| agent.name() == name).collect();
    let line = match &*lines {
        [] => return Err(Stop::new(format!("{conf_path} has no agent {name}."))),
        [line] if line.is_dso() => line,
        [_] if before(site).exists() => {
            return Err(Stop::new(format!(
                "{name} already runs behind pmda-host; ./Remove host {name} changes it back."
            )));
        }
        [_] => {
            return Err(Stop::new(format!(
                "{name} is not a shared object in {conf_path}, so that there is nothing to change."
            )));
        }
        _ => return Err(Stop::new(format!("{conf_path} has more than one line for {name}."))),
    };
    let object =
        line.words().get(4).map(|object| site.config.pmdas_dir().join(object)).filter(|object| object.is_file());
    let ([_, domain, _, entry, _], Some(object)) = (line.words(), object) else {
        return Err(Stop::new(format!("the line of {name} in {conf_path} names no shared object: {}", line.text)));
    };
    site.check_executable()?;
    let program = program(site);
    let written = write(&program, &before(site), &line.text);
    written.map_err(Stop::at(format_args!("{} cannot be written", program.display())))?;
    let command = format!("{} --so {} --entry {entry} -d {domain}", program.display(), object.display());
    change(site, &line.text, &format!("{name}\t{domain}\tpipe\tbinary\t\t{command}"))?;
    let log = site.config.log_dir().join(format!("pmcd/{name}.log"));
    if pmcd::status(site, name).is_some_and(|status| status != 0) {
        let log = log.display();
        return Err(Stop::new(format!("pmcd cannot start the host of {name}; see {log}, and ./Remove host {name}.")));
    }
    tell(format!("{name} now runs behind pmda-host, with its log in {}.", log.display()));
    Ok(())
}

/// Writes the directory `.host` with a copy of this program, and the line.
fn write(program: &Path, before: &Path, line: &str) -> std::io::Result<()> {
    remove_files(program.parent().unwrap_or(program))?;
    fs::create_dir(program.parent().unwrap_or(program))?;
    copy(&std::env::current_exe()?, program, Owner::Root)?;
    fs::File::open(program)?.sync_all()?;
    file::replace(before, format!("{line}\n").as_bytes())
}

/// Replaces a line of pmcd's configuration, and makes pmcd read it.
fn change(site: &Site, from: &str, to: &str) -> Outcome<()> {
    let conf = site.pmcd_conf()?.with_line(from, to);
    let path = site.conf.display();
    file::replace(&site.conf, &conf.to_bytes()).map_err(Stop::at(format_args!("{path} cannot be written")))?;
    report::signals_end(
        format!("the line of {} in {path} is changed, but pmcd may not have read it: pmsignal -s HUP pmcd", site.name),
        None,
    );
    if !pmcd::reload(site)? {
        say("pmcd does not run; its next start has the change.");
    }
    Ok(())
}

/// Makes pmcd load the shared object itself again.
pub(crate) fn remove(site: &Site) -> Outcome<()> {
    let name = &site.name;
    let Ok(before) = file::read_text(before(site)) else {
        return Err(Stop::new(format!("{name} does not run behind pmda-host.")));
    };
    let (before, program) = (before.trim_end_matches('\n'), program(site).display().to_string());
    let conf = site.pmcd_conf()?;
    let is_hosted = |agent: &AgentLine| agent.name() == name && agent.words().contains(&program);
    if let Some(line) = conf.agents().find(is_hosted) {
        change(site, &line.text, before)?;
    } else if !conf.agents().any(|agent| agent.text == before) {
        return Err(Stop::new(format!(
            "the line of {name} in {} has been changed since ./Install host; restore it by hand: {before}",
            site.conf.display()
        )));
    }
    remove_files(&site.place.join(".host"))?;
    tell(format!("pmcd loads {name} itself again."));
    Ok(())
}
