//! pmcd and the agent's processes: Install and Remove notify, start and ask pmcd by PCP's commands.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Task;
use super::report::{Outcome, Stop, say, show};
use super::site::{Site, with_suffix};

const TENTH: Duration = Duration::from_millis(100);

/// Reads a file which user pcp may have replaced by a link or FIFO: neither is followed or waited for.
fn read_theirs(path: &Path, limit: u64) -> Vec<u8> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut content = Vec::new();
    if let Ok(file) = File::options().read(true).custom_flags(flags.bits()).open(path) {
        let _ = file.take(limit).read_to_end(&mut content);
    }
    content
}

/// Returns the processes of all versions of the agent. In a container the same path is another file, whose processes have
/// another PID namespace, or at least other mounts. The service manager may have given pmcd mounts of its own.
pub(crate) fn processes(site: &Site) -> Vec<i32> {
    let namespace = |process: &str, kind: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    let pids = namespace("self", "pid");
    let pmcd = String::from_utf8_lossy(&read_theirs(&site.config.run_dir().join("pmcd.pid"), 16)).trim().to_owned();
    let is_number = !pmcd.is_empty() && pmcd.bytes().all(|b| b.is_ascii_digit());
    let mounts = [namespace("self", "mnt"), if is_number { namespace(&pmcd, "mnt") } else { None }];
    let is_of_agent = |exe: &Path| {
        let (dir, program) = (exe.parent().unwrap_or(Path::new("")), exe.file_name().unwrap_or_default());
        let is_here = dir == site.place || dir == site.kept || dir.starts_with(&site.tmp);
        is_here && program.to_string_lossy().starts_with("pmda")
    };
    // Install and Remove are the same program as the agent.
    let is_installing = |process: &str| {
        let line = read_theirs(&PathBuf::from(format!("/proc/{process}/cmdline")), 4096);
        let first = line.split(|byte| *byte == 0).nth(1).unwrap_or_default();
        [Task::Install, Task::Remove].iter().any(|task| first == task.option().as_bytes())
    };
    let found = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let process = entry.file_name().into_string().ok()?;
        let number = process.parse::<i32>().ok()?;
        let exe = fs::read_link(entry.path().join("exe")).ok()?;
        let mounted = namespace(&process, "mnt");
        let is_here = namespace(&process, "pid") == pids && mounted.is_some() && mounts.contains(&mounted);
        (is_of_agent(&exe) && is_here && !is_installing(&process)).then_some(number)
    });
    found.collect()
}

/// Ends the agent. pmcd would otherwise go on with the running version; it restarts an agent that has ended.
fn stop_agent(site: &Site) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for _ in 0..10 {
            let running = processes(site);
            if running.is_empty() {
                return;
            }
            for process in running {
                let _ = kill(Pid::from_raw(process), signal);
            }
            sleep(TENTH);
        }
    }
}

/// Starts pmcd, or restarts one that runs, in the environment that it has after the host's start, as service(8) does: what
/// this program and its callers have set would be lost at the next start.
fn start_pmcd(site: &Site) -> bool {
    let unit = site.config.var("PCP_SYSTEMDUNIT_DIR").map(|dir| Path::new(dir).join("pmcd.service"));
    let mut command = if Path::new("/run/systemd/system").is_dir() && unit.is_some_and(|unit| unit.is_file()) {
        let mut command = site.command("systemctl");
        command.args(["restart", "pmcd.service"]);
        command
    } else {
        let dir = site.config.var("PCP_RC_DIR").map_or_else(|| PathBuf::from("/etc/init.d"), PathBuf::from);
        let mut command = site.command(dir.join("pmcd"));
        command.env_clear().current_dir("/").arg("start");
        let kept = ["PATH", "TERM", "LANG", "LC_ALL", "PCP_DIR", "PCP_CONF"];
        command.envs(kept.iter().filter_map(|name| Some((name, std::env::var_os(name).filter(|v| !v.is_empty())?))));
        command
    };
    command.status().is_ok_and(|status| status.success())
}

/// Returns how often pmcd has read its configuration again; `None` if no pmcd runs.
pub(crate) fn sighups(site: &Site) -> Option<u64> {
    let output = site.command("pmprobe").args(["-v", "pmcd.sighups"]).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<_> = text.split_whitespace().collect();
    if words.get(1) == Some(&"1") { words.get(2)?.parse().ok() } else { None }
}

/// Makes pmcd read its configuration and the name space again.
pub(crate) fn send_sighup(site: &Site) {
    let mut command = site.command("pmsignal");
    let _ = command.args(["-a", "-s", "HUP", "pmcd"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Sends SIGHUP to pmcd, and waits until pmcd has counted it. Returns whether it has.
fn notify(site: &Site, had: u64, every: Duration) -> bool {
    send_sighup(site);
    for _ in 0..20 {
        if sighups(site) != Some(had) {
            return true;
        }
        sleep(every);
    }
    false
}

/// When an installation starts or restarts pmcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// pmcd starts the agent when it is started itself.
    Never,
    /// pmcd is started if it does not run.
    IfStopped,
    /// pmcd is started, or restarted if it runs.
    Again,
}

/// Makes pmcd read its configuration and the name space again, or starts pmcd. Returns whether pmcd runs, if it should.
pub(crate) fn tell(site: &Site, start: Start) -> bool {
    let had = sighups(site);
    stop_agent(site);
    // Logs that change from now on are those of the new start.
    let _ = fs::write(site.tmp.join("told"), "");
    let mut patience = "60";
    match had {
        Some(had) if start != Start::Again => {
            notify(site, had, TENTH);
            // Time for pmcd to act on it.
            sleep(TENTH * 10);
        }
        _ if start == Start::Never => return true,
        _ if start_pmcd(site) => {}
        _ => patience = "5",
    }
    let waited = site.command("pmcd_wait").args(["-t", patience]).status();
    if waited.is_ok_and(|status| status.success()) {
        return true;
    }
    say(format!("pmcd does not start; see {}.", site.config.log_dir().join("pmcd/pmcd.log").display()));
    false
}

/// Adds a line to PCP's notices, as PCP's user, to whom their directory belongs.
pub(crate) fn notice(site: &Site, text: &str) {
    let mut command = site.command("runuser");
    command.args(["-u", &site.config.user(), "--"]).arg(site.config.binadm_dir().join("pmpost")).arg(show(text));
    let _ = command.stderr(Stdio::null()).status();
}

/// Returns the status that pmcd has for an agent; 0 is connected.
pub(crate) fn status(site: &Site, name: &str) -> Option<i64> {
    let output = site.command("pminfo").args(["-f", "pmcd.agent.status"]).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mark = format!(" or \"{name}\"] value ");
    text.lines().find_map(|line| line.split_once(&*mark)?.1.trim().parse().ok())
}

/// Returns the reasons of the agent's failure in its log of this start, or else in that of the start before, because pmcd
/// starts an agent again.
pub(crate) fn failures(site: &Site, log: &Path, only: &str) -> Vec<String> {
    let told = site.tmp.join("told");
    for file in [log.to_owned(), previous(log)] {
        if !is_newer(&file, &told) {
            continue;
        }
        let text = read_theirs(&file, 64_000_000);
        let text = String::from_utf8_lossy(&text);
        let found: Vec<_> = text.lines().filter_map(reason).filter(|line| line.contains(only)).collect();
        if !found.is_empty() {
            let last = found.len().saturating_sub(3);
            return found[last..].iter().map(|line| line.chars().take(500).collect()).collect();
        }
    }
    Vec::new()
}

/// Returns the text of a line of a log, `[time] program(pid) Error: text`, from its severity on.
fn reason(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let (program, text) = rest.split_once(") ")?;
    let is_failure = text.starts_with("Critical: ") || text.starts_with("Error: ");
    (is_failure && !program.contains(' ')).then_some(text)
}

/// Returns the log of the start before.
pub(crate) fn previous(log: &Path) -> PathBuf {
    with_suffix(log, ".prev")
}

/// Returns whether a file has been changed after another one.
pub(crate) fn is_newer(file: &Path, than: &Path) -> bool {
    let modified = |path: &Path| path.symlink_metadata().and_then(|found| found.modified());
    modified(file).is_ok_and(|time| time > modified(than).unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Makes a running pmcd read a configuration in which only the line of the agent has changed. Returns whether pmcd runs.
///
/// # Errors
/// pmcd does not react.
pub(crate) fn reload(site: &Site) -> Outcome<bool> {
    let Some(had) = sighups(site) else { return Ok(false) };
    if notify(site, had, TENTH * 5) {
        return Ok(true);
    }
    let log = site.config.log_dir().join("pmcd/pmcd.log");
    Err(Stop::new(format!("pmcd does not react to SIGHUP; see {}.", log.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_errors_of_the_log() {
        assert_eq!(reason("[Tue Nov 24] pmdax(12) Error: no file"), Some("Error: no file"));
        assert_eq!(reason("[Tue Nov 24] pmdax(12) Critical: no"), Some("Critical: no"));
        assert_eq!(reason("[Tue Nov 24] pmdax(12) Info: no"), None);
        assert_eq!(reason("Error: no file"), None);
    }
}
