//! `dbpmda check` of an agent, over a pipe and as a shared object.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Directory of the check, in the process that does it.
const DIR: &str = "PCP_RULES_DIR";

/// An agent's program, and its shared object with the entry point.
pub(crate) struct Subject<'a> {
    pub(crate) binary: &'a str,
    pub(crate) object: Option<(&'a str, &'a str)>,
}

impl Subject<'_> {
    /// Checks the agent in a directory, which `prepare` fills and whose arguments it returns. The test must be called
    /// `no_rule_is_broken`: agents find PCP's directories by the environment, so it runs again in a process of its own.
    pub(crate) fn breaks_no_rule<T>(&self, prepare: impl FnOnce(&Path) -> (T, Vec<&'static str>)) {
        if let Some(dir) = env::var_os(DIR) {
            let args = fs::read_to_string(Path::new(&dir).join("args")).unwrap();
            return self.check(Path::new(&dir), &args.lines().map(str::to_owned).collect::<Vec<_>>());
        }
        let dir = tempfile::tempdir().unwrap();
        for below in ["var/config/pmda", "var/pmns", "pmdas", "etc", "run", "tmp/mmv"] {
            fs::create_dir_all(dir.path().join(below)).unwrap();
        }
        let (_kept, args) = prepare(dir.path());
        fs::write(dir.path().join("args"), args.join("\n")).unwrap();
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["no_rule_is_broken", "--nocapture"]).current_dir(dir.path()).env(DIR, dir.path());
        for (name, below) in [("VAR", "var"), ("PMDAS", "pmdas"), ("SYSCONF", "etc"), ("RUN", "run"), ("TMP", "tmp")] {
            again.env(format!("PCP_{name}_DIR"), dir.path().join(below));
        }
        again.env("PCP_CONF", "/nonexistent/pcp.conf").env("PCP_TRACE_DIR", dir.path().join("run"));
        again.env("PCP_TRACE_PORT", testkit::free_port("127.0.0.1").to_string());
        let output = again.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        println!("{text}");
        assert!(output.status.success());
        let clean = text.lines().filter(|line| line.ends_with(", no rule broken")).count();
        assert_eq!(clean, 1 + usize::from(self.object.is_some()), "{text}");
    }

    fn check(&self, dir: &Path, args: &[String]) {
        let written = dir.join("written");
        let writes = Command::new(self.binary).args(args).arg("--write-pmda").arg(&written).status().unwrap();
        assert!(writes.success());
        let root = written.join("root");
        let log = dir.join("log");
        // The agent replaces this file, which the check reads if there is none.
        fs::write(&log, "").unwrap();
        let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let mut words: Vec<OsString> = vec!["--log".into(), log.clone().into(), self.binary.into()];
        words.extend(["--log".into(), log.into(), "--username".into(), user.trim().into()]);
        words.extend(args.iter().map(OsString::from));
        check(&root, words);
        if let Some((object, entry)) = self.object {
            check(&root, vec!["--dso".into(), testkit::built(object).into(), entry.into()]);
        }
    }
}

fn check(root: &Path, words: Vec<OsString>) {
    let common: [PathBuf; 5] = ["check", "--namespace", "ROOT", "--limit=60", "--timeout=60"].map(PathBuf::from);
    let common = common.into_iter().map(|word| if word == Path::new("ROOT") { root.into() } else { word.into() });
    assert_eq!(dbpmda::check::cli::run(common.chain(words)), ExitCode::SUCCESS);
}
