//! Remove: restores the state before Install.

use std::path::PathBuf;

use pcp_base::file;

use super::options::Remove;
use super::pmcd::{self, Start};
use super::pmcd_conf::{AgentLine, PmcdConf};
use super::report::{self, Outcome, Stop, part, say, tell};
use super::site::{Site, exists, file_names};
use super::{directory, domains, names};

/// Removes the agent, whose site is locked.
pub(crate) fn remove(site: &Site, options: &Remove) -> Outcome<()> {
    // Signals do not interrupt what has begun.
    report::signals_wait();
    let is_completed = directory::recover(site)?;
    if options.here.names_only {
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
    let (names, replaced) = (names::of_agent(site), site.replaced());
    let domain = site.written_line().and_then(|line| line.domain());
    tell(format!("Taking {} out of the name space and pmcd's configuration ...", site.name));
    take_out(site)?;
    if !replaced.is_empty() {
        let replaced = replaced.iter().filter_map(|line| Some(AgentLine::parse(line)?.name().to_owned()));
        tell(format!("Restored what it had replaced: {}", replaced.collect::<Vec<_>>().join(", ")));
    } else if !options.here.no_check {
        part(&format!("Check {} metrics have gone away ... ", site.name));
        if names::has(site, &names) {
            tell("they have not.");
            return Err(Stop::silent());
        }
        tell("OK");
    }
    tell_what_stays(site, domain);
    Ok(())
}

/// Restores the state before Install, but for config.d.
pub(crate) fn take_out(site: &Site) -> Outcome<()> {
    if !site.is_installed() {
        return Err(Stop::new(format!("{} is not installed.", site.name)));
    }
    // Names come first: an agent of pmcd without names does no harm.
    names::take_out(site)?;
    let conf = site.pmcd_conf()?;
    if let Some(line) = site.own_line(&conf) {
        let text = without_agent(site, &conf, &line);
        file::replace(&site.conf, &text)
            .map_err(Stop::at(format_args!("could not take the agent out of {}", site.conf.display())))?;
        let domain = line.domain().map_or_else(String::new, |domain| domain.to_string());
        pmcd::notice(site, &format!("PMDA cull: from {}: {} {domain}", site.conf.display(), site.name));
    }
    directory::remove_configuration(site);
    domains::free(site).map_err(Stop::at(format_args!("could not remove {}", site.domains.display())))?;
    if site.before("placed").exists() {
        directory::keep_sources(site).map_err(Stop::at("could not save config.d"))?;
    }
    directory::take_away(site).map_err(Stop::at(format_args!("could not remove {}", site.place.display())))?;
    pmcd::tell(site, Start::Never);
    Ok(directory::discard(site)?)
}

/// Returns the configuration without the agent's line: the one before Install, byte for byte, if nothing else has changed.
fn without_agent(site: &Site, conf: &PmcdConf, line: &AgentLine) -> Vec<u8> {
    let file = site.before("pmcd.conf");
    match file::read(&file, file::TEXT_LIMIT) {
        Ok(before) => {
            let with = PmcdConf::parse(&before).with_agent(&site.name, line.domain(), &line.text);
            if with.to_bytes() == conf.to_bytes() {
                return before;
            }
        }
        Err(e) => {
            say(format!("{}: {e}; only the lines of {} in {} change.", file.display(), site.name, site.conf.display()))
        }
    }
    conf.without_agent(&site.name, &site.replaced()).to_bytes()
}

/// Names what the agent leaves: its log, and files that a person has written or changed; and the numbers of metrics and
/// instances of its domain, which are those of any agent that has the domain.
fn tell_what_stays(site: &Site, domain: Option<u16>) {
    let below = |dir: PathBuf| file_names(&dir).unwrap_or_default().into_iter().map(move |name| dir.join(name));
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut left: Vec<_> = directory::folders(site).into_iter().flat_map(|(_, dir)| below(dir)).collect();
    left.extend([site.place.join("config.d"), site.config.log_dir().join(format!("pmcd/{}.log", site.name))]);
    left.retain(|path| exists(path) && !is_hidden(path));
    let prefix = domain.map(|domain| format!("{domain}."));
    let is_of_domain = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        prefix.as_ref().is_some_and(|prefix| name.starts_with(&**prefix))
    };
    let numbers: Vec<_> = below(site.config.var_dir().join("config/pmda")).filter(is_of_domain).collect();
    for (heading, mut paths) in [
        ("Not removed, as you may still need them:".to_owned(), left),
        (
            format!("Nor are the numbers of domain {}, which any agent of that domain uses:", domain.unwrap_or(0)),
            numbers,
        ),
    ] {
        if !paths.is_empty() {
            paths.sort();
            tell(heading);
            paths.iter().for_each(|path| tell(path.display().to_string()));
        }
    }
}
