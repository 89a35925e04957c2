//! Install: puts an agent into PCP.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pcp_base::file;

use super::about::About;
use super::check;
use super::choices::{self, Choices, fit};
use super::journal::{self, place};
use super::names::{self, Which};
use super::outcome::{Outcome, Stop};
use super::pmcd::{self, Start};
use super::pmcd_conf::{AgentLine, Transport};
use super::questions::{Asker, question};
use super::remove::{domain_in, take_out};
use super::signals::{self, Stage};
use super::site::{Site, put, remove};
use super::task::Task;
use super::text::{part, said, tell};

/// Returns the name under which the agent is installed.
pub(crate) fn name(choices: &Choices, own_name: &str) -> Outcome<String> {
    match (&choices.name, &choices.from) {
        (Some(name), _) => Ok(name.clone()),
        (None, None) if Asker::is_terminal() && !choices.keep && !choices.names_only => {
            let about = "The names of its metrics begin with it, and its directory and log have it.";
            Asker::new(Task::Install, choices.echo).ask("Name of the agent in PCP?", own_name, about, choices::name)
        }
        _ => Ok(own_name.to_owned()),
    }
}

/// The line of the last Install, which is in pmcd's configuration, or if an upgrade has removed it there, in `.before`.
struct Last {
    transport: Transport,
    domain: Option<u16>,
}

/// An Install before anything is changed.
struct Plan<'s> {
    site: &'s Site,
    choices: Choices,
    asker: Asker,
    about: About,
    /// The agent's directory that is installed.
    here: PathBuf,
    /// The agent is installed already.
    again: bool,
    last: Option<Last>,
    own_domain: u16,
    domain: u16,
    /// Lines of agents that this one replaces.
    others: Vec<String>,
}

/// What Install writes.
struct Decision {
    transport: Transport,
    /// The agent's own options.
    own: Vec<String>,
    /// Line of pmcd's configuration.
    line: String,
}

/// Installs the agent, whose site is locked.
pub(crate) fn install(site: &Site, choices: Choices) -> Outcome<()> {
    let asker = Asker::new(Task::Install, choices.echo);
    site.check_executable()?;
    journal::recover(site)?;
    let (here, choices) = match &choices.from {
        Some(dir) => (dir.canonicalize().map_err(|e| Stop::new(format!("{}: {e}", dir.display())))?, choices),
        None => match written_here(site, &asker, choices)? {
            Some(written) => written,
            None => return Ok(()),
        },
    };
    let about = About::read(&here).map_err(Stop::new)?;
    let mut plan = Plan {
        again: site.is_installed(),
        own_domain: 0,
        domain: 0,
        last: None,
        others: Vec::new(),
        asker,
        site,
        choices,
        about,
        here,
    };
    if plan.choices.transport == Some(Transport::Dso) && !plan.has_object() {
        return Err(Stop::new(format!("there is no shared object pmda_{}.so to load.", site.name)));
    }
    plan.last = plan.last_install()?;
    plan.choose_domain()?;
    if plan.choices.names_only {
        let elsewhere = names::names_of(site, Which::Elsewhere);
        signals::set(Stage::Ignored);
        names::add(site, &plan.here.join("pmns"), &plan.about.symbol, plan.domain, &elsewhere)?;
        pmcd::send_sighup(site);
        return Ok(());
    }
    plan.check_others()?;
    let decision = plan.decide()?;
    plan.tell_changes(&decision);
    let again = plan.again;
    signals::set(Stage::Undoes);
    let changed = plan.change(&decision);
    // From now on a signal does not stop what undoes the change.
    signals::set(Stage::Ignored);
    if let Err(stop) = changed.and_then(|()| signals::check()) {
        plan.undo(stop, again);
        return Err(Stop::silent());
    }
    signals::set(Stage::Ends(format!("{} is installed but not checked", site.name)));
    plan.start(&decision)
}

/// Makes this program write the agent's directory, with the options of the last Install if there are no others. Names may
/// depend on the domain, and on these options. Returns the directory; `None` if an option makes the agent print a text.
fn written_here(site: &Site, asker: &Asker, mut choices: Choices) -> Outcome<Option<(PathBuf, Choices)>> {
    let dir = site.tmp("written");
    if !written_with_any(site, &choices, &dir)? {
        return Ok(None);
    }
    if Asker::is_terminal() && !choices.keep && choices.domain.is_none() {
        let installed = if site.is_installed() { &site.place } else { &dir };
        let default = domain_in(&installed.join("domain.h")).map_or_else(String::new, |domain| domain.to_string());
        let about = "A number from 1 to 510 that no other agent of this host has. Archives refer to metrics by it.";
        choices.domain = Some(asker.ask("Domain of its metrics?", &default, about, choices::domain)?);
        if !written_with_any(site, &choices, &dir)? {
            return Ok(None);
        }
    }
    if let Some(package) = &choices.package {
        // Agents read these at their place in PCP's directory of agents: copies here would have no effect.
        for name in journal::file_names(&dir)? {
            if name == "config.d" || name.ends_with(".conf") {
                remove(&dir.join(name))?;
            }
        }
        put(&dir.join(".package"), format!("{package}\n").as_bytes())?;
    }
    choices.keep |= !Asker::is_terminal();
    Ok(Some((dir.canonicalize()?, choices)))
}

/// Writes the directory with the first options that the agent accepts. Returns whether it has written it.
fn written_with_any(site: &Site, choices: &Choices, dir: &Path) -> Outcome<bool> {
    let own = choices.own.clone().unwrap_or_default();
    let number = |domain: Option<u16>| domain.map_or_else(Vec::new, |n| vec!["--domain".to_owned(), n.to_string()]);
    let with_domain = [number(choices.domain), own.clone()].concat();
    let mut all = vec![own, with_domain, Vec::new()];
    if choices.own.is_none() {
        let installed = domain_in(&site.place.join("domain.h"));
        let kept = words_of(&site.place.join("arguments.conf")).unwrap_or_default();
        all.push([number(choices.domain.or(installed)), kept].concat());
        let line = site.pmcd_conf()?.agent(&site.name);
        all.extend(line.map(|line| line.arguments(&format!("pmda{}", site.name)).to_vec()));
    }
    all.dedup();
    let mut first = None;
    for words in all {
        remove(dir)?;
        let output = program(site)?.args(["--name", &site.name]).args(&words).arg("--write-pmda").arg(dir).output()?;
        if output.status.success() && dir.join("Install").exists() {
            return Ok(true);
        }
        if output.status.success() {
            part(&String::from_utf8_lossy(&output.stdout));
            return Ok(false);
        }
        first.get_or_insert(output);
    }
    if let Some(output) = first {
        said(&[output.stdout, output.stderr].concat());
    }
    Err(Stop::new(format!("pmda{} could not write its directory.", site.name)))
}

/// Returns a command that runs this program.
fn program(site: &Site) -> Outcome<Command> {
    Ok(site.command(std::env::current_exe()?))
}

/// Returns the words of a file of arguments, which may have comments.
pub(crate) fn words_of(file: &Path) -> Option<Vec<String>> {
    let text = file::read_text(file).ok()?;
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    Some(lines.flat_map(str::split_whitespace).map(str::to_owned).collect())
}

impl Plan<'_> {
    fn has_object(&self) -> bool {
        self.here.join(format!("pmda_{}.so", self.site.name)).is_file()
    }

    /// Returns the line that the last Install has written; an Install that was interrupted may have left that of the agent
    /// which it replaces.
    fn last_install(&self) -> Outcome<Option<Last>> {
        if !self.again {
            return Ok(None);
        }
        let conf = self.site.pmcd_conf()?;
        let line = conf.agent(&self.site.name).filter(|_| !journal::has_replaced(self.site, &conf));
        if let Some(line) = line.as_ref().filter(|line| self.choices.package.is_some() && line.transport().is_none()) {
            let conf = self.site.conf.display();
            return Err(Stop::new(format!(
                "{} stays as it is: its line in {conf} is not one of Install: {}",
                line.name(),
                line.text
            )));
        }
        let line = line.or_else(|| AgentLine::parse(file::read_text(self.site.before("line")).ok()?.trim()));
        Ok(line.and_then(|line| Some(Last { transport: line.transport()?, domain: line.domain() })))
    }

    /// Sets the domain: that of the option -d, that of an earlier -d, or the agent's own, which is in `domain.h`. After
    /// Install, `.before/domain` has the agent's own.
    fn choose_domain(&mut self) -> Outcome<()> {
        let file = self.here.join("domain.h");
        let missing = || Stop::new(format!("{} has no domain from 1 to 510.", file.display()));
        let in_file = domain_in(&file).filter(|domain| (1..=510).contains(domain)).ok_or_else(missing)?;
        let before = file::read_text(self.site.before("domain")).ok().and_then(|text| text.trim().parse::<u16>().ok());
        let is_in_place = self.site.place.canonicalize().is_ok_and(|place| place == self.here);
        self.own_domain = before.filter(|_| is_in_place).unwrap_or(in_file);
        let last = self.last.as_ref().and_then(|last| last.domain);
        self.domain = match (self.choices.domain, before, last) {
            (Some(chosen), ..) => chosen,
            (None, Some(before), Some(last)) if last != before || self.choices.package.is_some() => {
                choices::domain(&last.to_string())?
            }
            _ => self.own_domain,
        };
        if self.choices.domain.is_none() && self.domain != self.own_domain {
            tell(format!(
                "Keeping domain {} of the last Install. --domain N changes it; the agent's own domain is {}.",
                self.domain, self.own_domain
            ));
        }
        Ok(())
    }

    /// Finds the agents of pmcd that have the name or the domain.
    ///
    /// # Errors
    /// There are some, and they are not to be replaced.
    fn check_others(&mut self) -> Outcome<()> {
        let (site, domain) = (self.site, self.domain);
        let conf = site.pmcd_conf()?;
        let is_other = |agent: &AgentLine| match agent.name() == site.name {
            true => !self.again,
            false => agent.domain() == Some(domain),
        };
        let others: Vec<_> = conf.agents().filter(is_other).collect();
        self.others = others.iter().map(|agent| agent.text.clone()).collect();
        if others.is_empty() || self.choices.replace {
            return Ok(());
        }
        for agent in &others {
            let line = agent.words()[2..].join(" ");
            let number = &agent.words()[1];
            if agent.name() == site.name {
                site.say(format!("pmcd has another agent of the name {}, with domain {number}: {line}", site.name));
            } else {
                site.say(format!("domain {domain} belongs to the agent {} of pmcd: {line}", agent.name()));
            }
        }
        let has_name = !self.again && conf.agent(&site.name).is_some();
        let other_domain = if has_name { "" } else { "--domain N selects another domain, and " };
        let names: Vec<_> = others.iter().map(AgentLine::name).collect();
        Err(Stop::new(format!(
            "nothing is changed. {other_domain}--replace replaces {}, which Remove restores.",
            names.join(" and ")
        )))
    }

    /// Decides how pmcd talks to the agent, and with which options it starts the agent.
    fn decide(&self) -> Outcome<Decision> {
        let transport = self.transport()?;
        let own = self.own_options(&transport)?;
        if transport == Transport::Dso && !own.is_empty() {
            tell(format!(
                "A shared object has no options: {} keeps those of the agent for another Install: {}",
                self.site.place.join("arguments.conf").display(),
                own.join(" ")
            ));
        }
        let refused = if own.is_empty() { None } else { self.accepts(&own).err() };
        if let Some(refused) = refused {
            said(&refused);
            return Err(Stop::new(format!(
                "pmda{} does not accept these arguments: {}",
                self.site.name,
                own.join(" ")
            )));
        }
        let line = self.line(&transport, &own)?;
        Ok(Decision { transport, own, line })
    }

    /// Returns how pmcd talks to the agent. The default of each question is the answer of the last Install.
    fn transport(&self) -> Outcome<Transport> {
        if let Some(transport) = &self.choices.transport {
            return Ok(transport.clone());
        }
        let name = &self.site.name;
        let mut last = self.last.as_ref().map(|last| &last.transport);
        if last == Some(&Transport::Dso) && !self.has_object() {
            self.site.say(format!(
                "there is no shared object pmda_{name}.so now: pmcd starts the agent instead of loading it."
            ));
            last = None;
        }
        if self.choices.keep {
            let transport = last.cloned().unwrap_or(Transport::Pipe);
            if transport != Transport::Pipe {
                tell(format!(
                    "As after the last Install, pmcd talks to {name} {}. -p changes that, or --pipe of cargo pmda install.",
                    transport.describe()
                ));
            }
            return Ok(transport);
        }
        if self.has_object() {
            let about = "daemon: pmcd starts the agent as a process of its own. dso: pmcd loads its shared object, which \
                         answers faster, but a crash of it ends pmcd.";
            let words = if last == Some(&Transport::Dso) { ["dso", "daemon"] } else { ["daemon", "dso"] };
            let prompt = format!("Shall pmcd start {name} (daemon) or load it (dso)?");
            if self.asker.ask_word(&prompt, &words, about)? == "dso" {
                return Ok(Transport::Dso);
            }
        }
        if self.about.not_ready { Ok(Transport::Pipe) } else { self.ask_for_socket(last) }
    }

    fn ask_for_socket(&self, last: Option<&Transport>) -> Outcome<Transport> {
        let name = &self.site.name;
        let socket = last.and_then(Transport::socket);
        let about = "pipe: the usual choice. socket: the agent waits for pmcd at a port or a path.";
        let words = if socket.is_some() { ["socket", "pipe"] } else { ["pipe", "socket"] };
        let prompt = format!("Shall pmcd talk to {name} over a pipe or a socket?");
        if self.asker.ask_word(&prompt, &words, about)? == "pipe" {
            return Ok(Transport::Pipe);
        }
        let about = "Internet: a port of IPv4. IPv6: a port of IPv6. Unix: a path of this host.";
        let words = match socket {
            Some(("unix", _)) => ["Unix", "Internet", "IPv6"],
            Some(("ipv6", _)) => ["IPv6", "Internet", "Unix"],
            _ => ["Internet", "IPv6", "Unix"],
        };
        let kind = self.asker.ask_word("An Internet, an IPv6 or a Unix socket?", &words, about)?;
        let known = |word: &str| socket.filter(|(kind, _)| *kind == word).map(|(_, address)| address.to_owned());
        if kind == "Unix" {
            let about = format!(
                "An absolute path for the socket, such as {}.",
                self.site.config.run_dir().join(format!("{name}.socket")).display()
            );
            let path = |path: &str| match path {
                "" => Err(Stop::new("a socket needs a path.")),
                path => choices::path(path).map(|()| path.to_owned()),
            };
            return Ok(Transport::Unix(self.asker.ask(
                "Its path?",
                &known("unix").unwrap_or_default(),
                &about,
                path,
            )?));
        }
        let about = "A number from 1 to 65535, or the name of a service of getent(1).";
        let earlier = known(if kind == "IPv6" { "ipv6" } else { "inet" });
        let default = earlier.unwrap_or_else(|| (4000 + self.domain).to_string());
        let port = |port: &str| choices::port("", port).map(|()| port.to_owned());
        let port = self.asker.ask("Port or service?", &default, about, port)?;
        Ok(if kind == "IPv6" { Transport::Ipv6(port) } else { Transport::Inet(port) })
    }

    /// Returns the agent's own options.
    fn own_options(&self, transport: &Transport) -> Outcome<Vec<String>> {
        if let Some(own) = &self.choices.own {
            return Ok(own.clone());
        }
        let mut own = self.kept()?;
        if !own.is_empty() && *transport != Transport::Dso {
            tell(format!(
                "Keeping the agent's options: {}. Others after -- replace them, and -- alone clears them.",
                own.join(" ")
            ));
        }
        own.iter().try_for_each(|word| fit(word))?;
        if Asker::is_terminal() && *transport != Transport::Dso {
            for one in &self.about.questions {
                own = question(&self.asker, one, own, |words| self.accepts(words))?;
            }
        }
        Ok(own)
    }

    /// Returns the options of an earlier Install. They are in `arguments.conf`, unless only pmcd's configuration has been
    /// edited since. An Install that was interrupted may have left the line of the agent that it replaces.
    fn kept(&self) -> Outcome<Vec<String>> {
        let in_file = words_of(&self.site.place.join("arguments.conf"));
        let is_edited = in_file.is_some() && in_file != words_of(&self.site.before("arguments"));
        let conf = self.site.pmcd_conf()?;
        let line = conf.agent(&self.site.name).filter(|line| !line.is_dso());
        match line.filter(|_| !is_edited && self.again && !journal::has_replaced(self.site, &conf)) {
            Some(line) => Ok(self.in_line(&line)),
            None => Ok(in_file.unwrap_or_default()),
        }
    }

    /// Returns the options in the agent's line of pmcd's configuration, except for those that Install writes itself.
    fn in_line(&self, line: &AgentLine) -> Vec<String> {
        let spelling = &self.about.spelling;
        let own = [&*spelling.domain, &*spelling.inet, &*spelling.ipv6, &*spelling.unix, "--name"];
        let mut words = line.arguments(&format!("pmda{}", self.site.name)).iter().peekable();
        // Debug options in the same word as the option come from PCP_DEBUG.
        words.next_if(|word| word.strip_prefix(&*spelling.debug).is_some_and(|rest| !rest.is_empty()));
        let mut found = Vec::new();
        while let Some(word) = words.next() {
            let is_user =
                word == "--username" && self.about.user.is_some() && words.peek().copied() == self.about.user.as_ref();
            if is_user || own.contains(&&**word) {
                words.next();
            } else if word != "--notready" {
                found.push(word.clone());
            }
        }
        found
    }

    /// Makes the agent write its files, as it would with the options. It refuses options that repeat those of Install:
    /// domain, name, and a socket beside the pipe.
    fn write(&self, own: &[String], dir: &Path) -> io::Result<Output> {
        let mut command = self.site.command(std::env::current_exe()?);
        command.current_dir(&self.here).args([
            "--name",
            &self.site.name,
            "--domain",
            &self.domain.to_string(),
            "--pipe",
        ]);
        command.args(own).arg("--write-pmda").arg(dir).output()
    }

    /// Asks the agent whether it accepts the options. Returns what it says if it does not.
    fn accepts(&self, own: &[String]) -> Result<(), Vec<u8>> {
        let dir = self.site.tmp("tried");
        let tried = remove(&dir).and_then(|()| self.write(own, &dir)).map_err(|e| e.to_string().into_bytes())?;
        if tried.status.success() && dir.is_dir() { Ok(()) } else { Err([tried.stdout, tried.stderr].concat()) }
    }

    /// Returns the line of pmcd's configuration.
    fn line(&self, transport: &Transport, own: &[String]) -> Outcome<String> {
        let (about, name, place) = (&self.about, &self.site.name, self.site.place.display());
        let mut command = format!("{place}/pmda{name}");
        if let Some(debug) = std::env::var("PCP_DEBUG").ok().filter(|debug| !debug.is_empty()) {
            fit(&debug)?;
            command.push_str(&format!(" {}{debug}", about.spelling.debug));
        }
        let mut args = format!("{} {}", about.spelling.domain, self.domain);
        if about.is_renamed {
            args.push_str(&format!(" --name {name}"));
        }
        if let Some(user) = &about.user {
            args.push_str(&format!(" --username {user}"));
        }
        own.iter().for_each(|word| args.push_str(&format!(" {word}")));
        let how = match transport {
            Transport::Dso => format!("dso\t{}\t{place}/pmda_{name}.so", about.entry),
            Transport::Inet(port) => format!("socket\tinet {port}\t{command} {} {port} {args}", about.spelling.inet),
            Transport::Ipv6(port) => format!("socket\tipv6 {port}\t{command} {} {port} {args}", about.spelling.ipv6),
            Transport::Unix(path) => format!("socket\tunix {path}\t{command} {} {path} {args}", about.spelling.unix),
            Transport::Pipe if about.not_ready => format!("pipe\tbinary notready\t{command} {args} --notready"),
            Transport::Pipe => format!("pipe\tbinary\t{command} {args}"),
        };
        Ok(format!("{name}\t{}\t{how}", self.domain))
    }

    /// Says what differs from the last Install, and what local contexts lose.
    fn tell_changes(&self, decision: &Decision) {
        let name = &self.site.name;
        if let Some(last) = &self.last {
            let (now, before) = (decision.transport.describe(), last.transport.describe());
            if now != before {
                tell(format!("pmcd now talks to {name} {now}, and no longer {before}."));
            }
            if let Some(before) = last.domain.filter(|before| *before != self.domain) {
                tell(format!("The domain of {name} changes from {before} to {}.", self.domain));
            }
        }
        let object = self.site.place.join(format!("pmda_{name}.so")).display().to_string();
        let local = self.site.config.sysconf_dir().join("local.conf");
        let loads = |agent: &AgentLine| agent.name() == name && agent.is_dso() && agent.words().get(4) == Some(&object);
        let conf = super::pmcd_conf::PmcdConf::read(&local);
        if !self.has_object() && conf.is_ok_and(|conf| conf.agents().any(|agent| loads(&agent))) {
            tell(format!(
                "Local contexts with {} are without {name} until Remove: pmda{name} has no shared object in place of {object}.",
                local.display()
            ));
        }
    }

    /// Changes directories, names and configuration.
    fn change(&self, decision: &Decision) -> Outcome<()> {
        let site = self.site;
        let could_not = |what: &Path| {
            let what = what.display().to_string();
            move |e: io::Error| Stop::new(format!("could not write {what}: {e}."))
        };
        let made = place(site, &self.here, &self.others);
        made.map_err(|e| Stop::new(format!("could not make {}: {e}.", site.place.display())))?;
        signals::check()?;
        journal::configure(site)
            .map_err(|e| Stop::new(format!("could not write the configuration of {}: {e}.", site.name)))?;
        self.keep_arguments(&decision.own).map_err(could_not(&site.place.join("arguments.conf")))?;
        self.update_names(&decision.own).map_err(could_not(&site.place.join("pmns")))?;
        signals::check()?;
        tell("Updating the name space ...");
        let elsewhere = if self.again { names::names_of(site, Which::Elsewhere) } else { Vec::new() };
        names::add(site, &site.place.join("pmns"), &self.about.symbol, self.domain, &elsewhere)?;
        super::domains::reserve(site, self.domain).map_err(could_not(&site.domains))?;
        signals::check()?;
        tell("Updating pmcd's configuration, and telling pmcd ...");
        let conf = site.pmcd_conf()?;
        let is_it = |agent: &AgentLine| agent.name() == site.name || agent.domain() == Some(self.domain);
        let lines: Vec<_> = conf.agents().filter(is_it).map(|agent| agent.text).collect();
        if lines != [decision.line.clone()] {
            let conf = conf.with_agent(&site.name, Some(self.domain), &decision.line);
            put(&site.conf, &conf.to_bytes()).map_err(could_not(&site.conf))?;
            pmcd::notice(site, &format!("PMDA add: to {}: {}", site.conf.display(), decision.line));
        } else if decision.transport == Transport::Dso {
            site.say("pmcd keeps the shared object that it has loaded until it is restarted.");
        }
        // The domain comes last: as long as it is that of before, the next Install treats a domain that differs from it as a
        // choice, which is right in either state.
        put(&site.before("line"), format!("{}\n", decision.line).as_bytes())
            .and_then(|()| put(&site.before("domain"), format!("{}\n", self.own_domain).as_bytes()))
            .map_err(could_not(&site.place.join(".before")))
    }

    /// Keeps the options for the next Install, also when the agent's package has been upgraded. Comments stay.
    fn keep_arguments(&self, own: &[String]) -> io::Result<()> {
        let file = self.site.place.join("arguments.conf");
        if own.is_empty() && !file.exists() {
            return Ok(());
        }
        let text = file::read_text(&file).unwrap_or_default();
        let mut heading: Vec<_> =
            text.lines().filter(|line| line.trim_start().starts_with('#')).map(str::to_owned).collect();
        if heading.is_empty() {
            heading.push(format!(
                "# Arguments of pmda{}. Install reads them, unless it has arguments after --, and writes them to pmcd's \
                 configuration.",
                self.site.name
            ));
        }
        let words = own.join(" ");
        put(&file, format!("{}\n{words}\n", heading.join("\n")).as_bytes())?;
        put(&self.site.before("arguments"), format!("{words}\n").as_bytes())
    }

    /// Writes the names again, because they may depend on a configuration that has changed. The other files have the domain.
    fn update_names(&self, own: &[String]) -> io::Result<()> {
        let place = &self.site.place;
        let mut files = vec!["pmns", "root"];
        for name in ["domain.h", "domain.stdpmid"] {
            let Ok(text) = file::read_text(place.join(name)) else { continue };
            let line = text.trim_end();
            let number = line.rsplit(char::is_whitespace).next().unwrap_or_default();
            if number != self.domain.to_string() && number.bytes().all(|b| b.is_ascii_digit()) {
                files = vec!["pmns", "root", "help", "README"];
                put(&place.join(name), format!("{}{}\n", &line[..line.len() - number.len()], self.domain).as_bytes())?;
            }
        }
        let dir = self.site.tmp("pmda");
        remove(&dir)?;
        if !self.write(own, &dir)?.status.success() {
            return Ok(());
        }
        for name in files {
            put(&place.join(name), &fs::read(dir.join(name))?)?;
        }
        Ok(())
    }

    /// Takes an agent out that was not there before.
    fn undo(&self, stop: Stop, again: bool) {
        let site = self.site;
        match (signals::is_interrupted(), again) {
            (false, _) => stop.print(Task::Install),
            (true, true) => site.say(format!("interrupted; another Install completes the change of {}.", site.name)),
            (true, false) => site.say(format!("interrupted; {} is taken out again.", site.name)),
        }
        if !again && site.is_installed() {
            let domain = domain_in(&site.place.join("domain.h"));
            take_out(site, domain).unwrap_or_else(|stop| stop.print(Task::Install));
        }
    }

    /// Makes pmcd start the agent, and checks that its metrics appear.
    fn start(&self, decision: &Decision) -> Outcome<()> {
        let site = self.site;
        let start = match (self.choices.no_start, self.about.restart) {
            (true, _) => Start::Never,
            (false, true) => Start::Again,
            (false, false) => Start::IfStopped,
        };
        if !pmcd::tell(site, start) {
            return Err(Stop::new(format!(
                "{} is entered in {}, and starts when pmcd does. Remove takes it out again.",
                site.name,
                site.conf.display()
            )));
        }
        if self.choices.no_check || start == Start::Never && pmcd::sighups(site).is_none() {
            return Ok(());
        }
        check::check(site, decision.transport == Transport::Dso, self.choices.verbose)
    }
}
