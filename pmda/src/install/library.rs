//! Makes all programs of this host use this project's `libpcp_mmv.so.1`, or C's again.
//!
//! A file puts the library's directory first in the loader's configuration. The distribution's library stays as it is, and
//! programs that are running keep the library that they have loaded.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Output};

use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use pcp_base::file;

use super::report::{self, Outcome, Stop, say, tell};
use super::site::{exists, one_at_a_time, remove as remove_file};
use super::{Task, ended};

const NAME: &str = "libpcp_mmv.so.1";

/// Name of the file that cargo builds, beside the program.
const BUILT: &str = "libpcp_mmv.so";

/// Version of functions that the library must have.
const VERSION: &[u8] = b"PCP_MMV_1.5";

/// Directory for a library that belongs to no package.
const OWN: &str = "/usr/local/lib/pcp-mmv";

const CONF: &str = "/etc/ld.so.conf.d/000-pcp-mmv.conf";

/// Performs `--install --library [DIRECTORY]` and `--remove --library` of agent `mmv`. DIRECTORY has the library of a package,
/// which stays there; by default, the library beside the program gets a directory of its own. `args` is the command line.
/// Returns `None` for another command line.
pub fn library(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let args: Vec<_> = args.into_iter().collect();
    let task = Task::of(&args).filter(|_| args.iter().any(|word| word == "--library"))?;
    report::set_script(task.script());
    umask(Mode::from_bits_truncate(0o022));
    Some(ended(match (task, &args[2..]) {
        _ if !geteuid().is_root() => Err(Stop::new("only root can change the loader's configuration.")),
        (Task::Install, [_]) => install(None),
        (Task::Install, [option, dir]) if option == "--library" => install(Some(dir.as_ref())),
        (Task::Remove, [_]) => remove(),
        _ => Err(Stop::new("--library goes with no other option.")),
    }))
}

fn install(package: Option<&Path>) -> Outcome<()> {
    let source = match package {
        Some(dir) => dir.join(NAME),
        None => std::env::current_exe()?.with_file_name(BUILT),
    };
    let content = file::read(&source, file::TEXT_LIMIT).map_err(Stop::at(source.display()))?;
    if !content.windows(VERSION.len()).any(|bytes| bytes == VERSION) {
        let source = source.display();
        return Err(Stop::new(format!("{source} has no versions of its functions; see mmv/capi/README.md.")));
    }
    let loader = file::read_text("/etc/ld.so.conf").unwrap_or_default();
    if !loader.lines().any(|line| line.starts_with("include ") && line.ends_with("ld.so.conf.d/*.conf")) {
        return Err(Stop::new("/etc/ld.so.conf does not include ld.so.conf.d."));
    }
    let _lock = one_at_a_time()?;
    let (conf, own, had_own) = (Path::new(CONF), Path::new(OWN).join(NAME), exists(Path::new(OWN)));
    let before = [(conf, earlier(conf)?), (&own, earlier(&own)?)];
    let target = package.unwrap_or(Path::new(OWN)).join(NAME);
    report::signals_wait();
    report::handle_signals()?;
    let installed = || -> Outcome<()> {
        if package.is_none() {
            fs::create_dir_all(OWN)?;
            file::replace(&own, &content)?;
        }
        let dir = package.unwrap_or(Path::new(OWN));
        file::replace(conf, format!("{}\n", dir.display()).as_bytes())?;
        let found = chosen()?;
        report::check()?;
        if found.as_deref().map(Path::new) == Some(&target) {
            return Ok(());
        }
        let found = found.unwrap_or_else(|| format!("no {NAME}"));
        Err(Stop::new(format!("programs would load {found} in place of {}", target.display())))
    };
    if let Err(stop) = installed() {
        let mut left = restore(&before);
        if !had_own {
            let _ = fs::remove_dir(OWN);
        }
        left.extend(ldconfig(&[]).err().map(|e| format!("the loader's cache ({e})")));
        let state = match &*left {
            [] => "the state before is restored".to_owned(),
            left => format!("not restored: {}", left.join(" and ")),
        };
        return Err(Stop::new(format!("{}; {state}.", stop.0)));
    }
    tell(format!("Programs that start from now on load {}.", target.display()));
    Ok(())
}

/// Returns the content of a file before a change, if there is the file.
fn earlier(path: &Path) -> Outcome<Option<Vec<u8>>> {
    match file::read(path, file::TEXT_LIMIT) {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Stop::new(format!("{}: {e}; nothing is changed.", path.display()))),
    }
}

/// Restores all files that can be restored. Returns the others, with the reasons.
fn restore(before: &[(&Path, Option<Vec<u8>>)]) -> Vec<String> {
    let restored = before.iter().map(|(path, content)| match content {
        _ if earlier(path).as_ref() == Ok(content) => Ok(()),
        Some(content) => file::replace(path, content).map_err(|e| format!("{} ({e})", path.display())),
        None => remove_file(path).map_err(|e| format!("{} ({e})", path.display())),
    });
    restored.filter_map(Result::err).collect()
}

fn remove() -> Outcome<()> {
    let _lock = one_at_a_time()?;
    let own = Path::new(OWN);
    if !exists(Path::new(CONF)) && !exists(own) {
        return Err(Stop::new("it is not installed."));
    }
    report::signals_wait();
    report::handle_signals()?;
    for path in [Path::new(CONF), &own.join(NAME), &own.join(format!(".{NAME}.new"))] {
        remove_file(path)?;
    }
    if exists(own) && fs::remove_dir(own).is_err() {
        say(format!("{OWN} stays, because it has other files."));
    }
    tell(format!("Programs that start from now on load {}.", chosen()?.unwrap_or_else(|| format!("no {NAME}"))));
    Ok(())
}

fn ldconfig(words: &[&str]) -> io::Result<Output> {
    let output = Command::new("ldconfig").args(words).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").output();
    let output = output.map_err(|e| io::Error::other(format!("ldconfig of glibc: {e}")))?;
    if output.status.success() { Ok(output) } else { Err(io::Error::other("ldconfig fails")) }
}

/// Makes the loader read its configuration, and returns the path of the library that programs load.
fn chosen() -> io::Result<Option<String>> {
    ldconfig(&[])?;
    let text = String::from_utf8_lossy(&ldconfig(&["-p"])?.stdout).into_owned();
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(NAME));
    Ok(line.and_then(|line| Some(line.rsplit_once(" => ")?.1.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_restored_is_named_and_the_others_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["none/lost", "changed", "new", "same"].map(|name| dir.path().join(name));
        let [lost, changed, new, same] = &paths;
        [changed, new, same].into_iter().for_each(|path| fs::write(path, "after").unwrap());
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let before = [(&**lost, text("before")), (changed, text("before")), (new, None), (same, text("after"))];
        let left = restore(&before);
        assert!(left.len() == 1 && left[0].starts_with(&lost.display().to_string()), "{left:?}");
        assert_eq!((fs::read(changed).ok(), exists(new), fs::read(same).ok()), (text("before"), false, text("after")));
    }

    /// Else a failure would remove it.
    #[test]
    fn a_file_that_cannot_be_read_is_not_an_absent_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(earlier(&dir.path().join("none")), Ok(None));
        assert!(earlier(dir.path()).is_err_and(|stop| stop.0.ends_with("nothing is changed.")));
    }
}
