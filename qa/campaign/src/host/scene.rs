//! The directories of a job's agents, to which the environment of the job refers.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{User, chown};

use crate::Outcome;
use crate::job::{Job, Order};
use crate::spec::Spec;

/// PCP's directories, below the directory of a job.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    dir: PathBuf,
    pub(crate) trace_port: u16,
}

/// Returns the environment variables with which agents find the directories of a job.
pub(crate) fn environment(order: &Order) -> Vec<(&'static str, PathBuf)> {
    let dirs = [
        ("PCP_TMP_DIR", "tmp"),
        ("PCP_RUN_DIR", "run"),
        ("PCP_LOG_DIR", "log"),
        ("PCP_VAR_DIR", "var"),
        ("PCP_PMDAS_DIR", "pmdas"),
        ("PCP_SYSCONF_DIR", "etc"),
        ("PCP_TRACE_DIR", "shm"),
    ];
    let mut all: Vec<_> = dirs.iter().map(|(name, dir)| (*name, order.dir.join(dir))).collect();
    all.push(("PCP_TRACE_PORT", order.port.to_string().into()));
    all
}

/// Name space of the operands, which agent derived fetches from an agent showcase that it starts.
const NAMES: &str = "root { showcase }
showcase { constant bin counter }
showcase.constant { u32 }
showcase.constant.u32 { million 402:3:14 }
showcase.bin { size 402:5:0 }
showcase.counter { fetches 402:4:0 }
";

impl Scene {
    /// Creates the directories.
    pub(crate) fn new(job: &Job) -> Outcome<Scene> {
        let scene = Scene { dir: job.order.dir.clone(), trace_port: job.order.port };
        for dir in ["shm", "tmp/mmv", "run/trace", "log/pmcd", "var/config/pmda", "pmdas/simple", "etc/pmdaderived"] {
            fs::create_dir_all(scene.dir.join(dir))?;
        }
        // The directory itself still belongs to root: if agent openmetrics runs as root, it trusts no file below
        // another user's directory.
        for dir in ["tmp", "tmp/mmv", "run", "run/trace", "log", "log/pmcd", "var", "var/config", "var/config/pmda"] {
            chown_to_pcp(&scene.dir.join(dir))?;
        }
        // PCP's documentation suggests this mode to let every user export metrics.
        fs::set_permissions(scene.mmv(), Permissions::from_mode(0o1777))?;
        fs::set_permissions(scene.dir.join("shm"), Permissions::from_mode(0o1777))?;
        fs::write(scene.dir.join("pmdas/simple/simple.conf"), "sec,min,hour\n")?;
        Ok(scene)
    }

    /// Writes the files that an agent needs.
    pub(crate) fn with(self, spec: &Spec, bin: &Path) -> Outcome<Scene> {
        match spec.name {
            "derived" => self.with_derived(bin),
            "openmetrics" => self.with_openmetrics(),
            _ => Ok(self),
        }
    }

    /// Writes a configuration for agent derived, with metrics of an agent that it starts.
    pub(crate) fn with_derived(self, bin: &Path) -> Outcome<Scene> {
        let names = self.dir.join("operands");
        fs::write(&names, NAMES)?;
        self.configure(bin, "")?;
        Ok(self)
    }

    /// Writes the honest source of agent openmetrics.
    pub(crate) fn with_openmetrics(self) -> Outcome<Scene> {
        fs::create_dir_all(self.config())?;
        let document = self.dir.join("honest.txt");
        fs::write(&document, "# TYPE count counter\ncount 12345\nrows{n=\"1\"} 1\nrows{n=\"2\"} 2\n")?;
        fs::write(self.config().join("honest.url"), format!("file://{}\n", document.display()))?;
        Ok(self)
    }

    /// Returns the base name of agent replay's archive.
    pub(crate) fn recording(&self) -> PathBuf {
        self.dir.join("recording")
    }

    /// Returns the directory of agent openmetrics' sources.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.join("pmdas/openmetrics/config.d")
    }

    /// Returns the directory of instance caches and of tables of names.
    pub(crate) fn tables(&self) -> PathBuf {
        self.dir.join("var/config/pmda")
    }

    /// Replaces the configuration of agent derived by one with the additional lines `more`.
    pub(crate) fn configure(&self, bin: &Path, more: &str) -> Outcome {
        let text = format!(
            "[group.own.agent]\ndomain = 402\ncommand = ['{}', '-d', '402', '-l', '{}']\npmns = \"{}\"\n\n[group.own.metric]\n\
             twice = \"showcase.constant.u32.million * 2\"\nbins = \"showcase.bin.size + 1\"\n\
             bad = \"rate(\"\nrate = \"rate(showcase.counter.fetches)\"\n{more}",
            bin.join("pmdashowcase").display(),
            self.log("operand").display(),
            self.dir.join("operands").display(),
        );
        let new = self.dir.join("own.toml.new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, self.derived().join("own.toml"))?)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the directory of MMV files.
    pub(crate) fn mmv(&self) -> PathBuf {
        self.dir.join("tmp/mmv")
    }

    /// Returns the directory of trace files, which agent trace has created and announced.
    pub(crate) fn marks(&self) -> Outcome<PathBuf> {
        Ok(fs::read_to_string(self.trace().join("agent"))?.into())
    }

    /// Returns the directory in which agent trace announces the directory of trace files.
    pub(crate) fn trace(&self) -> PathBuf {
        trace::shared_memory::path(&pmapi::Config::load(), self.trace_port)
    }

    pub(crate) fn derived(&self) -> PathBuf {
        self.dir.join("etc/pmdaderived")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.dir.join("log/pmcd")
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }
}

/// Changes the owner of a file to the user that agents change to.
pub(crate) fn chown_to_pcp(path: &Path) -> Outcome {
    if let Some(user) = User::from_name("pcp")? {
        chown(path, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}
