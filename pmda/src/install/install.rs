//! Install: puts an agent into PCP. [`install`] has the steps in order: what is wrong is said before anything changes, then
//! [`Plan::change`] changes, and [`Plan::start`] makes pmcd start the agent.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;

use pcp_base::file;

use super::about::About;
use super::options::{self, Install, fit};
use super::pmcd::{self, Start};
use super::pmcd_conf::{AgentLine, PmcdConf, Transport};
use super::questions::{ask, ask_word, is_terminal, question};
use super::remove::take_out;
use super::report::{self, Outcome, Stop, part, said, say, tell};
use super::site::{Site, file_names, remove};
use super::{check, directory, domains, names};
use crate::transport::{Address, inet_port};

/// What Install does.
struct Plan<'s> {
    site: &'s Site,
    options: &'s Install,
    about: About,
    /// The agent's directory that is installed.
    here: PathBuf,
    /// The agent is installed already, with this line, if there is one.
    again: bool,
    last: Option<AgentLine>,
    domain: u16,
    /// Lines of agents that this one replaces.
    others: Vec<String>,
    transport: Transport,
    /// The agent's own options.
    own: Vec<String>,
    /// New line of pmcd's configuration.
    line: String,
}

/// Installs the agent, whose site is locked.
pub(crate) fn install(site: &Site, options: &Install) -> Outcome<()> {
    site.check_executable()?;
    directory::recover(site)?;
    report::signals_end("nothing is changed", Some(site.tmp.clone()));
    let conf = site.pmcd_conf()?;
    let (again, line) = (site.is_installed(), site.own_line(&conf));
    if let Some(line) = line.as_ref().filter(|line| options.package.is_some() && line.transport().is_none()) {
        let (name, conf) = (line.name(), site.conf.display());
        return Err(Stop::new(format!(
            "{name} stays as it is: its line in {conf} is not one of Install: {}",
            line.text
        )));
    }
    let last = line.clone().or_else(|| site.written_line());
    let kept = kept(site, line.as_ref());
    let here = match &options.here.from {
        Some(dir) => dir.canonicalize().map_err(Stop::at(dir.display()))?,
        None => match written_here(site, options, last.as_ref(), &kept)? {
            Some(dir) => dir,
            None => return Ok(()),
        },
    };
    let about = About::read(&here).map_err(Stop::new)?;
    let domain = domain(options, &about, last.as_ref());
    if options.here.names_only {
        report::signals_wait();
        names::add(site, &here.join("pmns"), &about.symbol, domain)?;
        pmcd::send_sighup(site);
        return Ok(());
    }
    let others = others(site, &conf, again, domain, options.replace)?;
    let (transport, own, line) = (Transport::Pipe, kept, String::new());
    let mut plan = Plan { site, options, about, here, again, last, domain, others, transport, own, line };
    plan.transport = plan.choose_transport()?;
    if let Transport::Socket(address) = &plan.transport {
        options::address(address).map_err(Stop)?;
    }
    plan.own = plan.choose_own_options()?;
    plan.line = plan.new_line()?;
    let fresh = plan.write()?;
    plan.tell_changes();
    report::signals_wait();
    if let Err(stop) = plan.change(&fresh).and_then(|()| report::check()) {
        plan.undo(&stop);
        return Err(Stop::silent());
    }
    report::signals_end(format!("{} is installed but not checked", site.name), Some(site.tmp.clone()));
    plan.start()
}

/// Returns the agent's own options of the last Install. They are in `arguments.conf`, unless a person has edited the agent's
/// line of pmcd's configuration since.
fn kept(site: &Site, line: Option<&AgentLine>) -> Vec<String> {
    let edited =
        line.filter(|line| !line.is_dso() && site.written_line().is_none_or(|written| written.text != line.text));
    match edited.zip(About::read(&site.place).ok()) {
        Some((line, about)) => in_line(line, &about, site),
        None => words_of(&site.place.join("arguments.conf")),
    }
}

/// Returns the words of a file of arguments, which may have comments.
pub(crate) fn words_of(file: &Path) -> Vec<String> {
    let text = file::read_text(file).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// Returns the options in a line of pmcd's configuration that Install does not write itself.
fn in_line(line: &AgentLine, about: &About, site: &Site) -> Vec<String> {
    let spelling = &about.spelling;
    let own = [&spelling.domain, &spelling.inet, &spelling.ipv6, &spelling.unix, "--name"];
    let mut words = line.arguments(&format!("pmda{}", site.name)).iter().peekable();
    // Debug options of the variable PCP_DEBUG.
    words.next_if(|word| word.strip_prefix(&*spelling.debug).is_some_and(|rest| !rest.is_empty()));
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let is_user = word == "--username" && about.user.is_some() && words.peek().copied() == about.user.as_ref();
        if is_user || own.contains(&&**word) {
            words.next();
        } else if word != "--notready" {
            found.push(word.clone());
        }
    }
    found
}

/// Makes this program write the agent's directory, with the first options that the agent accepts. Returns the directory;
/// `None` if an option makes the agent print a text.
fn written_here(site: &Site, options: &Install, last: Option<&AgentLine>, kept: &[String]) -> Outcome<Option<PathBuf>> {
    let dir = site.tmp.join("written");
    let own = options.own.as_deref().unwrap_or(kept);
    let domain = options.domain.or(last.and_then(AgentLine::domain)).map(|n| ["--domain".to_owned(), n.to_string()]);
    // The names may depend on the domain. Options that the agent does not accept at all are refused later.
    let all = [own.to_vec(), [domain.as_ref().map_or(&[][..], |words| words), own].concat(), Vec::new()];
    let mut refused = Vec::new();
    for words in all {
        let output = run(site, &words, &dir)?;
        if output.status.success() && dir.join("Install").exists() {
            return Ok(Some(dir.canonicalize()?));
        } else if output.status.success() {
            part(&String::from_utf8_lossy(&output.stdout));
            return Ok(None);
        } else if refused.is_empty() {
            refused = [output.stdout, output.stderr].concat();
        }
    }
    said(&refused);
    Err(Stop::new(format!("pmda{} could not write its directory.", site.name)))
}

/// Makes this program write the agent's directory.
fn run(site: &Site, words: &[String], dir: &Path) -> io::Result<Output> {
    remove(dir)?;
    let mut command = site.command(std::env::current_exe()?);
    command.args(["--name", &site.name]).args(words).arg("--write-pmda").arg(dir).output()
}

/// Returns the domain: that of an option, of the last Install, or the agent's own.
fn domain(options: &Install, about: &About, last: Option<&AgentLine>) -> u16 {
    match (options.domain, last.and_then(AgentLine::domain)) {
        (Some(chosen), _) => chosen,
        (None, Some(last)) if last != about.domain => {
            tell(format!(
                "Keeping domain {last} of the last Install. --domain N changes it; the agent's own domain is {}.",
                about.domain
            ));
            last
        }
        _ => about.domain,
    }
}

/// Returns the lines of agents of pmcd that have the name or the domain.
///
/// # Errors
/// There are some, and they are not to be replaced.
fn others(site: &Site, conf: &PmcdConf, again: bool, domain: u16, replace: bool) -> Outcome<Vec<String>> {
    let is_other = |agent: &AgentLine| match agent.name() == site.name {
        true => !again,
        false => agent.domain() == Some(domain),
    };
    let others: Vec<_> = conf.agents().filter(is_other).collect();
    if others.is_empty() || replace {
        return Ok(others.into_iter().map(|agent| agent.text).collect());
    }
    for agent in &others {
        let line = agent.words()[2..].join(" ");
        if agent.name() == site.name {
            let number = &agent.words()[1];
            say(format!("pmcd has another agent of the name {}, with domain {number}: {line}", site.name));
        } else {
            say(format!("domain {domain} belongs to the agent {} of pmcd: {line}", agent.name()));
        }
    }
    let has_name = others.iter().any(|agent| agent.name() == site.name);
    let other_domain = if has_name { "" } else { "--domain N selects another domain, and " };
    let names: Vec<_> = others.iter().map(AgentLine::name).collect();
    Err(Stop::new(format!(
        "nothing is changed. {other_domain}--replace replaces {}, which Remove restores.",
        names.join(" and ")
    )))
}

impl Plan<'_> {
    fn has_object(&self) -> bool {
        self.here.join(format!("pmda_{}.so", self.site.name)).is_file()
    }

    /// Returns how pmcd is to talk to the agent. The default of each question is the answer of the last Install.
    fn choose_transport(&self) -> Outcome<Transport> {
        let (name, echo) = (&self.site.name, self.options.here.echo);
        let chosen = self.options.transport();
        if chosen == Some(Transport::Dso) && !self.has_object() {
            return Err(Stop::new(format!("there is no shared object pmda_{name}.so to load.")));
        }
        if let Some(chosen) = chosen {
            return Ok(chosen);
        }
        let mut last = self.last.as_ref().and_then(AgentLine::transport);
        if last == Some(Transport::Dso) && !self.has_object() {
            say(format!("there is no shared object pmda_{name}.so now: pmcd starts the agent instead of loading it."));
            last = None;
        }
        // Without a terminal, only the script in the agent's directory reads answers.
        if self.options.keep || self.options.here.from.is_none() && !is_terminal() {
            let transport = last.unwrap_or(Transport::Pipe);
            if transport != Transport::Pipe {
                let how = transport.describe();
                let change = "-p changes that, or --pipe of cargo pmda install.";
                tell(format!("As after the last Install, pmcd talks to {name} {how}. {change}"));
            }
            return Ok(transport);
        }
        if self.has_object() {
            let about = "daemon: pmcd starts the agent as a process of its own. dso: pmcd loads its shared object, which \
                         answers faster, but a crash of it ends pmcd.";
            let words = if last == Some(Transport::Dso) { ["dso", "daemon"] } else { ["daemon", "dso"] };
            let prompt = format!("Shall pmcd start {name} (daemon) or load it (dso)?");
            if ask_word(echo, &prompt, &words, about)? == "dso" {
                return Ok(Transport::Dso);
            }
        }
        if self.about.not_ready { Ok(Transport::Pipe) } else { self.ask_for_socket(last.as_ref()) }
    }

    fn ask_for_socket(&self, last: Option<&Transport>) -> Outcome<Transport> {
        let (name, echo) = (&self.site.name, self.options.here.echo);
        let socket = if let Some(Transport::Socket(address)) = last { Some(address) } else { None };
        let about = "pipe: the usual choice. socket: the agent waits for pmcd at a port or a path.";
        let words = if socket.is_some() { ["socket", "pipe"] } else { ["pipe", "socket"] };
        let prompt = format!("Shall pmcd talk to {name} over a pipe or a socket?");
        if ask_word(echo, &prompt, &words, about)? == "pipe" {
            return Ok(Transport::Pipe);
        }
        let about = "Internet: a port of IPv4. IPv6: a port of IPv6. Unix: a path of this host.";
        let words = match socket {
            Some(Address::Unix(_)) => ["Unix", "Internet", "IPv6"],
            Some(Address::Ipv6(_)) => ["IPv6", "Internet", "Unix"],
            _ => ["Internet", "IPv6", "Unix"],
        };
        let kind = ask_word(echo, "An Internet, an IPv6 or a Unix socket?", &words, about)?;
        let checked = |address: Address| options::address(&address).map(|()| Transport::Socket(address));
        if kind == "Unix" {
            let default = if let Some(Address::Unix(path)) = socket { &path.to_string_lossy() } else { "" };
            let example = self.site.config.run_dir().join(format!("{name}.socket"));
            let about = format!("An absolute path for the socket, such as {}.", example.display());
            return ask(echo, "Its path?", default, &about, |path| match path {
                "" => Err("a socket needs a path.".to_owned()),
                path => checked(Address::Unix(path.into())),
            });
        }
        let about = "A number from 1 to 65535, or the name of a service of getent(1).";
        let default = match socket {
            Some(Address::Inet(port)) if kind == "Internet" => *port,
            Some(Address::Ipv6(port)) if kind == "IPv6" => *port,
            _ => 4000 + self.domain,
        };
        ask(echo, "Port or service?", &default.to_string(), about, |port| {
            let port = inet_port(port).map_err(|e| format!("{e}."))?;
            checked(if kind == "IPv6" { Address::Ipv6(port) } else { Address::Inet(port) })
        })
    }

    /// Returns the agent's own options.
    fn choose_own_options(&self) -> Outcome<Vec<String>> {
        let (mut own, is_dso) = (self.own.clone(), self.transport == Transport::Dso);
        if let Some(given) = &self.options.own {
            own.clone_from(given);
        } else {
            own.iter().try_for_each(|word| fit(word)).map_err(Stop)?;
            if !own.is_empty() && !is_dso {
                tell(format!(
                    "Keeping the agent's options: {}. Others after -- replace them, and -- alone clears them.",
                    own.join(" ")
                ));
            }
            let questions = self.about.questions.iter().filter(|_| is_terminal() && !is_dso);
            for one in questions {
                own = question(self.options.here.echo, one, own, |words| self.accepts(words).map(drop))?;
            }
        }
        if is_dso && !own.is_empty() {
            tell(format!(
                "A shared object has no options: {} keeps those of the agent for another Install: {}",
                self.site.place.join("arguments.conf").display(),
                own.join(" ")
            ));
        }
        Ok(own)
    }

    /// Makes the agent write its files as it would with the options. It refuses options that repeat those of Install: domain,
    /// name, and a socket beside the pipe. Returns the directory, or what the agent says if it does not accept the options.
    fn accepts(&self, own: &[String]) -> Result<PathBuf, Vec<u8>> {
        let dir = self.site.tmp.join("tried");
        let words = ["--domain".to_owned(), self.domain.to_string(), "--pipe".to_owned()];
        let tried = run(self.site, &[&words, own].concat(), &dir).map_err(|e| e.to_string().into_bytes())?;
        if tried.status.success() && dir.is_dir() { Ok(dir) } else { Err([tried.stdout, tried.stderr].concat()) }
    }

    /// Returns a directory that the agent has written with its options and domain.
    fn write(&self) -> Outcome<PathBuf> {
        self.accepts(&self.own).map_err(|reason| {
            said(&reason);
            let own = self.own.join(" ");
            Stop::new(format!("pmda{} does not accept these arguments: {own}", self.site.name))
        })
    }

    /// Returns the line of pmcd's configuration.
    fn new_line(&self) -> Outcome<String> {
        let (about, name, place) = (&self.about, &self.site.name, self.site.place.display());
        let mut command = format!("{place}/pmda{name}");
        fit(&command).map_err(Stop)?;
        if let Some(debug) = std::env::var("PCP_DEBUG").ok().filter(|debug| !debug.is_empty()) {
            fit(&debug).map_err(Stop)?;
            command.push_str(&format!(" {}{debug}", about.spelling.debug));
        }
        let mut args = format!("{} {}", about.spelling.domain, self.domain);
        if about.is_renamed {
            args.push_str(&format!(" --name {name}"));
        }
        if let Some(user) = &about.user {
            args.push_str(&format!(" --username {user}"));
        }
        self.own.iter().for_each(|word| args.push_str(&format!(" {word}")));
        let how = match &self.transport {
            Transport::Dso => format!("dso\t{}\t{place}/pmda_{name}.so", about.entry),
            Transport::Socket(address) => {
                let (kind, at, option) = match address {
                    Address::Inet(port) => ("inet", port.to_string(), &about.spelling.inet),
                    Address::Ipv6(port) => ("ipv6", port.to_string(), &about.spelling.ipv6),
                    Address::Unix(path) => ("unix", path.display().to_string(), &about.spelling.unix),
                };
                format!("socket\t{kind} {at}\t{command} {option} {at} {args}")
            }
            Transport::Pipe if about.not_ready => format!("pipe\tbinary notready\t{command} {args} --notready"),
            Transport::Pipe => format!("pipe\tbinary\t{command} {args}"),
        };
        Ok(format!("{name}\t{}\t{how}", self.domain))
    }

    /// Says what differs from the last Install, and what local contexts lose.
    fn tell_changes(&self) {
        let object = self.site.place.join(format!("pmda_{}.so", self.site.name)).display().to_string();
        let local = self.site.config.sysconf_dir().join("local.conf");
        let loads = |agent: AgentLine| agent.is_dso() && agent.words().get(4) == Some(&object);
        if !self.has_object() && PmcdConf::read(&local).is_ok_and(|conf| conf.agents().any(loads)) {
            let (name, local) = (&self.site.name, local.display());
            tell(format!("Local contexts with {local} are without {name} until Remove: it has no {object}."));
        }
        let (Some(last), name) = (&self.last, &self.site.name) else { return };
        let (now, before) = (self.transport.describe(), last.transport().map(|last| last.describe()));
        if let Some(before) = before.filter(|before| *before != now) {
            tell(format!("pmcd now talks to {name} {now}, and no longer {before}."));
        }
        if let Some(before) = last.domain().filter(|before| *before != self.domain) {
            tell(format!("The domain of {name} changes from {before} to {}.", self.domain));
        }
    }

    /// Changes directories, names and configuration. `fresh` has the files that depend on domain and options.
    fn change(&self, fresh: &Path) -> Outcome<()> {
        let site = self.site;
        if let Some(package) = self.options.package.as_ref().filter(|_| self.options.here.from.is_none()) {
            // Agents read these at their place in PCP's directory of agents: copies here would have no effect.
            for name in file_names(&self.here)?.iter().filter(|name| *name == "config.d" || name.ends_with(".conf")) {
                remove(&self.here.join(name))?;
            }
            file::replace(&self.here.join(".package"), format!("{package}\n").as_bytes())?;
        }
        directory::place(site, &self.here, fresh, &self.others)
            .map_err(Stop::at(format_args!("could not make {}", site.place.display())))?;
        report::check()?;
        directory::configure(site)
            .map_err(Stop::at(format_args!("could not write the configuration of {}", site.name)))?;
        self.keep_arguments().map_err(Stop::at("could not write arguments.conf"))?;
        report::check()?;
        tell("Updating the name space ...");
        names::add(site, &site.place.join("pmns"), &self.about.symbol, self.domain)?;
        domains::reserve(site, self.domain)
            .map_err(Stop::at(format_args!("could not write {}", site.domains.display())))?;
        report::check()?;
        tell("Updating pmcd's configuration, and telling pmcd ...");
        let conf = site.pmcd_conf()?;
        let is_it = |agent: &AgentLine| agent.name() == site.name || agent.domain() == Some(self.domain);
        let lines: Vec<_> = conf.agents().filter(is_it).map(|agent| agent.text).collect();
        if lines != [self.line.clone()] {
            let conf = conf.with_agent(&site.name, Some(self.domain), &self.line).to_bytes();
            file::replace(&site.conf, &conf)
                .map_err(Stop::at(format_args!("could not write {}", site.conf.display())))?;
            pmcd::notice(site, &format!("PMDA add: to {}: {}", site.conf.display(), self.line));
        } else if self.transport == Transport::Dso {
            say("pmcd keeps the shared object that it has loaded until it is restarted.");
        }
        let line = site.before("line");
        file::replace(&line, format!("{}\n", self.line).as_bytes())
            .map_err(Stop::at(format_args!("could not write {}", line.display())))
    }

    /// Keeps the options for the next Install, also when the agent's package has been upgraded. Comments stay.
    fn keep_arguments(&self) -> io::Result<()> {
        let file = self.site.place.join("arguments.conf");
        if self.own.is_empty() && !file.exists() {
            return Ok(());
        }
        let text = file::read_text(&file).unwrap_or_default();
        let mut heading = text.lines().filter(|line| line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
        if heading.is_empty() {
            heading = format!(
                "# Arguments of pmda{}. Install reads them, unless it has arguments after --, and writes them to pmcd's \
                 configuration.",
                self.site.name
            );
        }
        file::replace(&file, format!("{heading}\n{}\n", self.own.join(" ")).as_bytes())
    }

    /// Says why the change has ended, and takes an agent out that was not there before.
    fn undo(&self, stop: &Stop) {
        let (site, name) = (self.site, &self.site.name);
        match (report::is_interrupted(), self.again) {
            (false, _) => stop.print(),
            (true, true) => say(format!("interrupted; another Install completes the change of {name}.")),
            (true, false) => say(format!("interrupted; {name} is taken out again.")),
        }
        if !self.again && site.is_installed() {
            take_out(site).unwrap_or_else(|stop| stop.print());
        }
    }

    /// Makes pmcd start the agent, and checks that its metrics appear.
    fn start(&self) -> Outcome<()> {
        let (site, options) = (self.site, self.options);
        let start = match (options.no_start, self.about.restart) {
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
        if options.here.no_check || start == Start::Never && pmcd::sighups(site).is_none() {
            return Ok(());
        }
        check::check(site, self.transport == Transport::Dso, options.here.verbose)
    }
}
