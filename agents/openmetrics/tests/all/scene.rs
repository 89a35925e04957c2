//! An agent with its own configuration directory and tables.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pcp_collector::{Collector, Launch, Process};
use pmapi::{Atom, Error};
use tempfile::TempDir;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Scene {
    dir: TempDir,
    args: Vec<String>,
    /// Name of the agent's user.
    user: String,
}

pub(crate) type Agent = Collector<Process>;

impl Scene {
    pub(crate) fn new(args: &[&str]) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        for path in ["config.d", "var/config/pmda"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        Scene { dir, args: args.iter().map(|arg| (*arg).to_owned()).collect(), user: user() }
    }

    /// Creates a scene whose agent is not root, which no mode of a file stops.
    pub(crate) fn unprivileged(args: &[&str]) -> Scene {
        let mut scene = Scene::new(args);
        if nix::unistd::geteuid().is_root() {
            let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
            fs::set_permissions(scene.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(scene.path("var/config/pmda"), Some(nobody.uid.as_raw()), None).unwrap();
            scene.user = nobody.name;
        }
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn table(&self, name: &str) -> PathBuf {
        self.path("var/config/pmda").join(name)
    }

    /// Writes a file of the configuration directory by renaming, so that it is complete at once.
    pub(crate) fn config(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path("config.d").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = self.path("new");
        testkit::executable(&new, text, mode);
        fs::rename(new, &path).unwrap();
        path
    }

    pub(crate) fn url(&self, name: &str, text: &str) -> PathBuf {
        self.config(&format!("{name}.url"), &format!("{text}\n"), 0o644)
    }

    /// Adds a source that is a file with this document, and returns the file.
    pub(crate) fn document(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(&format!("{name}.txt"));
        fs::write(&path, text).unwrap();
        self.url(name, &format!("file://{}", path.display()));
        path
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) fn start(&self) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmdaopenmetrics"));
        command.args(["--notready", "-U", &self.user, "-l"]).arg(self.path("log")).arg("-c").arg(self.path("config.d"));
        command.args(&self.args).env("PCP_VAR_DIR", self.path("var"));
        let mut agent = Launch::pipe(command).not_ready().timeout(Some(LIMIT)).start().unwrap();
        assert!(agent.wait_ready(Some(LIMIT)).unwrap());
        agent
    }
}

fn user() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap();
    user.unwrap().name
}

/// Returns the values of a metric with the names of their instances, or its error.
pub(crate) fn values(agent: &mut Agent, name: &str) -> Result<Vec<(String, f64)>, Error> {
    let pmid = agent.pmid(&format!("openmetrics.{name}")).map_err(|e| e.code())?;
    let desc = agent.desc(pmid).map_err(|e| e.code())?;
    let values = agent.values(pmid).map_err(|e| e.code())?;
    let found: Vec<_> = values.iter().map(|(inst, atom)| (inst, number(atom))).collect();
    let name = |inst: Option<pmapi::Inst>| match (inst, desc.indom) {
        (Some(inst), Some(indom)) => agent.instance_name(indom, inst).unwrap(),
        _ => String::new(),
    };
    let mut name = name;
    Ok(found.into_iter().map(|(inst, value)| (name(inst), value)).collect())
}

pub(crate) fn value(agent: &mut Agent, name: &str) -> Result<f64, Error> {
    values(agent, name).map(|values| values[0].1)
}

fn number(atom: Atom<'_>) -> f64 {
    atom.to_string().parse().unwrap_or(f64::NAN)
}

/// Returns the text of a control metric for the instance of a source.
pub(crate) fn control(agent: &mut Agent, name: &str, source: &str) -> String {
    let pmid = agent.pmid(&format!("openmetrics.control.{name}")).unwrap();
    let indom = agent.desc(pmid).unwrap().indom.unwrap();
    let inst = agent.instance_of(indom, source).unwrap();
    let values = agent.values(pmid).unwrap();
    match values.get(inst) {
        Some(Atom::String(text)) => String::from_utf8_lossy(text).into_owned(),
        other => other.map(|atom| atom.to_string()).unwrap_or_default(),
    }
}

/// Waits until a condition is true.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}
