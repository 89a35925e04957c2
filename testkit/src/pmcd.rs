//! A private pmcd.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, getuid};
use tempfile::TempDir;

use crate::agent::free_port;
use crate::output::{Output, run};
use crate::{Agent, NameSpace, Pcp};

/// Domain of pmcd's metrics about itself (`pmcd.agent.status` and so on).
const PMCD_DOMAIN: u16 = 2;
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// Configuration of a private pmcd, from [`Pcp::pmcd`].
#[derive(Debug)]
pub struct Builder {
    pcp: Pcp,
    agents: Vec<Agent>,
    access: String,
    environment: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
}

impl Pcp {
    /// Creates the configuration of a private pmcd.
    pub fn pmcd(&self) -> Builder {
        Builder {
            pcp: self.clone(),
            agents: Vec::new(),
            access: String::new(),
            environment: Vec::new(),
            options: Vec::new(),
        }
    }
}

impl Builder {
    /// Adds an agent.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Sets the lines of the `[access]` section, such as `disallow ".*" : store;`. Without lines everything is allowed.
    pub fn access(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.access);
        self
    }

    /// Sets a variable in the environment of pmcd and of its agents.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the directory in which agents look for their files (`PCP_PMDAS_DIR`).
    pub fn pmdas_dir(self, dir: &Path) -> Self {
        self.env("PCP_PMDAS_DIR", dir)
    }

    /// Adds options of pmcd, such as `-t 1`.
    pub fn options<S: AsRef<OsStr>>(mut self, options: impl IntoIterator<Item = S>) -> Self {
        self.options.extend(options.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Starts pmcd and waits until it answers.
    ///
    /// # Panics
    /// With the log, when pmcd does not start.
    #[track_caller]
    pub fn start(self) -> Pmcd {
        let dir = tempfile::Builder::new().prefix("pmcd").tempdir().expect("a temporary directory");
        for sub in ["run", "tmp", "log/pmcd", "var/pmns", "var/config/pmda"] {
            fs::create_dir_all(dir.path().join(sub)).expect("a directory");
        }
        let mut pmcd = Pmcd { pcp: self.pcp.clone(), dir, child: None, port: 0, setup: self };
        pmcd.write_configuration();
        pmcd.launch();
        pmcd
    }
}

/// A running pmcd with its own configuration, name space, port, socket, caches and logs. It ends when the value is
/// dropped.
#[derive(Debug)]
pub struct Pmcd {
    pcp: Pcp,
    setup: Builder,
    child: Option<Child>,
    port: u16,
    dir: TempDir,
}

impl Pmcd {
    /// Returns the directory with all files of this pmcd.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the directory in which agents save instance caches (`$PCP_VAR_DIR/config/pmda`).
    pub fn cache_dir(&self) -> PathBuf {
        self.dir().join("var/config/pmda")
    }

    /// Returns the host for a client's `-h`: this pmcd's Unix socket.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a PCP client against this pmcd: `tool -h host arguments…`.
    ///
    /// # Panics
    /// When coreutils' `timeout` cannot be started.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, tool: &str, arguments: impl IntoIterator<Item = S>) -> Output {
        let mut command = self.pcp.command(tool);
        command.arg("-h").arg(self.host()).args(arguments);
        run(command, "")
    }

    /// Returns the log of pmcd, `log("pmcd")`, or of an agent, `log("simple")`. It is empty when there is no such file.
    pub fn log(&self, name: &str) -> String {
        let bytes = fs::read(self.log_dir().join(format!("{name}.log"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the directory of the logs, which is also the agents' working directory.
    pub fn log_dir(&self) -> PathBuf {
        self.dir().join("log/pmcd")
    }

    /// Returns the status of an agent (`pmcd.agent.status`); 0 is connected.
    ///
    /// # Panics
    /// When pmcd does not know the agent.
    #[track_caller]
    pub fn agent_status(&self, name: &str) -> i32 {
        let text = self.run("pminfo", ["-f", "pmcd.agent.status"]).ok();
        let line = text.lines().find(|line| line.contains(&format!("or \"{name}\"]")));
        line.and_then(|line| line.split_whitespace().last()?.parse().ok())
            .unwrap_or_else(|| panic!("pmcd knows no agent {name}:\n{text}"))
    }

    /// Returns the process ID of an agent that pmcd has started.
    pub fn agent_pid(&self, name: &str) -> Option<i32> {
        let domain = self.setup.agents.iter().find(|agent| agent.name == name)?.domain.to_string();
        self.children().into_iter().find(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&str> = line.split('\0').collect();
            words.windows(2).any(|pair| pair == ["-d", &domain])
        })
    }

    /// Kills an agent (SIGKILL) and waits until it has ended.
    ///
    /// # Panics
    /// With the log of pmcd, when the agent has no process or does not end.
    #[track_caller]
    pub fn kill_agent(&self, name: &str) {
        let pid = self.agent_pid(name).unwrap_or_else(|| panic!("no process of {name}:\n{}", self.log("pmcd")));
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a signal to the agent");
        // The process stays a zombie until pmcd waits for it.
        wait_for("the agent's end", || !running(pid));
    }

    /// Replaces the agents in the configuration. pmcd reads it at [`Pmcd::sighup`] or [`Pmcd::restart`].
    ///
    /// # Panics
    /// When the configuration cannot be written.
    pub fn set_agents(&mut self, agents: Vec<Agent>) {
        self.setup.agents = agents;
        self.write_configuration();
    }

    /// Sends SIGHUP and waits until pmcd has reacted.
    ///
    /// # Panics
    /// When pmcd does not react within 30 s.
    #[track_caller]
    pub fn sighup(&self) {
        let count = || self.run("pmprobe", ["-v", "pmcd.sighups"]).ok();
        let before = count();
        kill(self.pid(), Signal::SIGHUP).expect("a signal to pmcd");
        // pmcd counts the signal when it reacts, and answers the next request only after that.
        wait_for("pmcd's SIGHUP", || count() != before);
    }

    /// Ends pmcd and starts it again, with the same port and socket.
    ///
    /// # Panics
    /// With the log, when pmcd does not start.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.launch();
    }

    /// Returns the process ID of pmcd.
    ///
    /// # Panics
    /// After [`Pmcd::stop`].
    #[track_caller]
    pub fn pid(&self) -> Pid {
        let child = self.child.as_ref().expect("a running pmcd");
        Pid::from_raw(i32::try_from(child.id()).expect("a process id"))
    }

    fn socket(&self) -> PathBuf {
        self.dir().join("pmcd.socket")
    }

    fn write_configuration(&self) {
        let pmdas = self.pcp.path("PCP_PMDAS_DIR");
        let mut lines = format!("pmcd {PMCD_DOMAIN} dso pmcd_init {}/pmcd/pmda_pmcd.so\n", pmdas.display());
        let mut names = NameSpace::default();
        let pmcd_names = self.pcp.path("PCP_VAR_DIR").join("pmns/root_pmcd");
        names.add(&fs::read_to_string(&pmcd_names).expect("the name space of pmcd's own metrics"), PMCD_DOMAIN);
        for agent in &self.setup.agents {
            lines.push_str(&agent.line(self.dir()));
            lines.push('\n');
            names.add(&agent.pmns, agent.domain);
        }
        if !self.setup.access.is_empty() {
            lines.push_str("\n[access]\n");
            lines.push_str(&self.setup.access);
            lines.push('\n');
        }
        fs::write(self.dir().join("pmcd.conf"), lines).expect("pmcd's configuration");
        fs::write(self.dir().join("root"), names.to_string()).expect("the name space");
    }

    /// Starts pmcd. If another process has taken the port since it was chosen, another port is tried.
    #[track_caller]
    fn launch(&mut self) {
        for _ in 0..10 {
            if self.port == 0 {
                self.port = free_port("127.0.0.1");
            }
            self.child = Some(self.command().spawn().expect("pmcd"));
            if self.answers() {
                return;
            }
            self.stop();
            let log = self.log("pmcd");
            assert!(log.contains("ddress already in use"), "pmcd did not start:\n{log}{}", self.output());
            self.port = 0;
        }
        panic!("pmcd found no port:\n{}", self.log("pmcd"));
    }

    fn command(&self) -> Command {
        let dir = self.dir();
        let output = File::create(dir.join("output")).expect("a file for pmcd's output");
        let mut command = self.pcp.command("pmcd");
        command
            .args(["-f", "-A", "-i", "127.0.0.1", "-p", &self.port.to_string()])
            // Seconds for an agent's start and answers: a busy machine may stall for longer than pmcd's own 3 and 5.
            .args(["-q", "20", "-t", "20"])
            .args([OsStr::new("-c"), dir.join("pmcd.conf").as_os_str()])
            .args([OsStr::new("-n"), dir.join("root").as_os_str()])
            .args([OsStr::new("-s"), self.socket().as_os_str()])
            .args([OsStr::new("-l"), self.log_dir().join("pmcd.log").as_os_str()])
            .args([OsStr::new("-x"), dir.join("fatal").as_os_str()])
            .args(["-U", &user()])
            .args(&self.setup.options)
            .env("PCP_RUN_DIR", dir.join("run"))
            .env("PCP_LOG_DIR", dir.join("log"))
            .env("PCP_TMP_DIR", dir.join("tmp"))
            .env("PCP_VAR_DIR", dir.join("var"))
            .envs(self.setup.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.log_dir())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second descriptor"))
            .stderr(output);
        command
    }

    /// Waits until pmcd answers a client; false when pmcd has ended.
    fn answers(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
                return false;
            }
            if self.socket().exists() && self.run("pminfo", ["-f", "pmcd.version"]).status.success() {
                return true;
            }
            sleep(PAUSE);
        }
        false
    }

    /// Returns the output of pmcd outside of its log.
    fn output(&self) -> String {
        let text = |name| fs::read_to_string(self.dir().join(name)).unwrap_or_default();
        text("output") + &text("fatal")
    }

    /// Returns the processes that pmcd has started.
    fn children(&self) -> Vec<i32> {
        let Some(child) = &self.child else { return Vec::new() };
        let id = child.id();
        let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Ends pmcd, which ends its agents. Agents that still run after that are killed. [`Pmcd::restart`] starts pmcd
    /// again.
    pub fn stop(&mut self) {
        let agents = self.children();
        let Some(mut child) = self.child.take() else { return };
        let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
            sleep(PAUSE);
        }
        let _ = child.kill();
        let _ = child.wait();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) && agents.iter().any(|&pid| running(pid)) {
            sleep(PAUSE);
        }
        for pid in agents.into_iter().filter(|&pid| running(pid)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = fs::remove_file(self.socket());
    }
}

impl Drop for Pmcd {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns whether a process exists and is not a zombie.
fn running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Waits for a condition outside of this process.
///
/// # Panics
/// With `what`, after 30 seconds.
#[track_caller]
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(PAUSE);
    }
}

/// Returns the user that runs this test. Without `-U`, pmcd would change to the user `pcp`, which may not read the
/// test's files.
fn user() -> String {
    let uid = getuid();
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}
