//! Remove: restores the state before Install.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use pcp_base::file;

use super::choices::Choices;
use super::journal::{self, file_names, replaced};
use super::names::{self, Which};
use super::outcome::{Outcome, Stop};
use super::pmcd::{self, Start};
use super::pmcd_conf::PmcdConf;
use super::signals;
use super::site::{FOLDERS, Owner, Site, copy, exists, flush, flush_below, put, remove as remove_files, same_below};
use super::text::{part, tell};

/// Removes the agent, whose site is locked.
pub(crate) fn remove(site: &Site, choices: &Choices) -> Outcome<()> {
    // Signals do not interrupt what has begun.
    signals::set(signals::Stage::Ignored);
    let is_completed = journal::recover(site)?;
    if choices.names_only {
        names::take_out(site)?;
        pmcd::send_sighup(site);
        return Ok(());
    }
    if is_completed && !site.is_installed() {
        return Ok(());
    }
    if !site.place.is_dir() {
        return Err(Stop::new(format!("{} is not installed (there is no {}).", site.name, site.place.display())));
    }
    let domain = domain_in(&site.place.join("domain.h"));
    let is_replacing = !replaced(site).is_empty();
    let elsewhere = names::names_of(site, Which::Elsewhere);
    tell(format!("Taking {} out of the name space and pmcd's configuration ...", site.name));
    take_out(site, domain)?;
    if !choices.no_check && !is_replacing {
        part(&format!("Check {} metrics have gone away ... ", site.name));
        for name in std::iter::once(&site.name).chain(&elsewhere) {
            let mut pminfo = site.user_command("pminfo");
            pminfo.env("PCP_DERIVED_CONFIG", "").arg("-n").arg(&site.namespace).args(["-v", "-b", "1000", name]);
            if pminfo.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
                tell("they have not.");
                return Err(Stop::silent());
            }
        }
        tell("OK");
    }
    stays(site, domain);
    Ok(())
}

/// Returns the domain in a file `domain.h`.
pub(crate) fn domain_in(file: &std::path::Path) -> Option<u16> {
    let text = file::read_text(file).ok()?;
    let line = text.lines().find(|line| line.starts_with("#define"))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// Restores the state before Install, but for config.d.
pub(crate) fn take_out(site: &Site, domain: Option<u16>) -> Outcome<()> {
    if !site.is_installed() {
        return Err(Stop::new(format!("{} is not installed.", site.name)));
    }
    // Names come first: an agent of pmcd without names does no harm.
    names::take_out(site)?;
    let could_not = |what: String| move |e: io::Error| Stop::new(format!("could not {what}: {e}."));
    let conf = site.pmcd_conf()?;
    let before = file::read(&site.before("pmcd.conf"), file::TEXT_LIMIT).ok();
    let before = before.filter(|before| *before != conf.to_bytes() && !journal::has_replaced(site, &conf));
    if let Some((before, line)) = before.zip(conf.agent(&site.name)) {
        let with = PmcdConf::parse(&before).with_agent(&site.name, domain, &line.text).to_bytes();
        // Otherwise the configuration has been changed since Install.
        let text =
            if with == conf.to_bytes() { before } else { conf.without_agent(&site.name, &replaced(site)).to_bytes() };
        put(&site.conf, &text).map_err(could_not(format!("take the agent out of {}", site.conf.display())))?;
        let domain = domain.map_or_else(String::new, |domain| domain.to_string());
        pmcd::notice(site, &format!("PMDA cull: from {}: {} {domain}", site.conf.display(), site.name));
    }
    journal::remove_configuration(site);
    super::domains::free(site).map_err(could_not(format!("remove {}", site.domains.display())))?;
    let old = site.aside("old");
    if site.before("placed").exists() {
        keep_sources(site).map_err(could_not(format!("save {}", site.place.join("config.d").display())))?;
        take_away(site, &old).map_err(could_not(format!("remove {}", site.place.display())))?;
    } else {
        let before = site.place.join(".before");
        fs::rename(&before, &old).map_err(could_not(format!("remove {}", before.display())))?;
    }
    flush(&site.pmdas)?;
    pmcd::tell(site, Start::Never);
    journal::forget(site, &old)?;
    Ok(())
}

/// Puts the directory of before into its place, and the agent's one aside.
fn take_away(site: &Site, old: &std::path::Path) -> io::Result<()> {
    let kept = site.kept();
    if kept.is_dir() && file::exchange(&kept, &site.place).is_ok() {
        return fs::rename(&kept, old);
    }
    fs::rename(&site.place, old)?;
    if kept.is_dir() { fs::rename(&kept, &site.place) } else { Ok(()) }
}

/// Saves the directory config.d, which has the administrator's files, with the directory of before. An untouched config.d of
/// an agent that was not there before goes with the agent.
fn keep_sources(site: &Site) -> io::Result<()> {
    let (sources, kept) = (site.place.join("config.d"), site.kept());
    if !sources.is_dir() {
        return Ok(());
    }
    let is_untouched = file_names(&sources)?.iter().all(|name| name == "README");
    let to = kept.join("config.d");
    if !kept.is_dir() && is_untouched || same_below(&sources, &to) {
        return Ok(());
    }
    fs::create_dir_all(&kept)?;
    remove_files(&to)?;
    copy(&sources, &to, Owner::Same)?;
    flush_below(&to)
}

/// Names what the agent leaves: its log, its numbers of metrics and instances, and files that a person has written or
/// changed.
fn stays(site: &Site, domain: Option<u16>) {
    let below = |dir: PathBuf, keep: &dyn Fn(&str) -> bool| {
        let mut found: Vec<_> = file_names(&dir).unwrap_or_default().into_iter().filter(|name| keep(name)).collect();
        found.sort();
        found.into_iter().map(|name| dir.join(name)).collect::<Vec<_>>()
    };
    let caches = domain.map(|domain| format!("{domain}."));
    let mut left: Vec<PathBuf> =
        FOLDERS.iter().flat_map(|folder| below(site.target(folder), &|name| !name.starts_with('.'))).collect();
    let of_agent = |name: &str| caches.as_ref().is_some_and(|prefix| name.starts_with(&**prefix));
    left.extend(below(site.config.var_dir().join("config/pmda"), &of_agent));
    left.extend([site.place.join("config.d"), site.config.log_dir().join(format!("pmcd/{}.log", site.name))]);
    left.retain(|path| exists(path));
    left.sort();
    if left.is_empty() {
        return;
    }
    tell("Not removed, as you may still need them:");
    left.iter().for_each(|path| tell(path.display().to_string()));
}
