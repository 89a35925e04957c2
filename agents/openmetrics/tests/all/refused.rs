//! Files of the configuration that cannot be read, or that other users may have written: the status of the source and the
//! log have the path and the reason, and no secret.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use crate::scene::{Scene, control, until, value};
use nix::sys::stat::Mode;

/// What is wrong with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Missing,
    Unreadable,
    Foreign,
    OfGroup,
    OfAll,
    Fifo,
    Directory,
    Loop,
    Dangling,
}

use Fault::{Dangling, Directory, Fifo, Foreign, Loop, Missing, OfAll, OfGroup, Unreadable};

/// A user and group without files.
const STRANGER: u32 = 54321;
/// Only root can give files away.
const OWNERS: [Fault; 2] = [Foreign, OfGroup];

impl Fault {
    /// Makes a file, which has this content, unusable.
    fn apply(self, path: &Path, content: &str, mode: u32) {
        testkit::executable(path, content, mode);
        let set_mode = |mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        match self {
            // A script stays one: its owner may execute it.
            Unreadable => set_mode(mode & 0o100),
            Foreign => chown(path, Some(STRANGER), Some(0)).unwrap(),
            OfGroup => {
                chown(path, Some(0), Some(STRANGER)).unwrap();
                set_mode(mode | 0o020);
            }
            OfAll => set_mode(mode | 0o002),
            Missing | Fifo | Directory | Loop | Dangling => {
                fs::remove_file(path).unwrap();
                match self {
                    Fifo => nix::unistd::mkfifo(path, Mode::from_bits_truncate(mode)).unwrap(),
                    Directory => fs::create_dir(path).unwrap(),
                    Loop => symlink(path.file_name().unwrap(), path).unwrap(),
                    Dangling => symlink("nowhere", path).unwrap(),
                    _ => {}
                }
            }
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Missing | Dangling => "No such file or directory",
            Unreadable => "Permission denied",
            Foreign => "refused: it belongs to user 54321",
            OfGroup => "refused: group 54321 may write to it",
            OfAll => "refused: other users may write to it",
            Fifo | Directory => "not a regular file",
            Loop => "Too many levels of symbolic links",
        }
    }
}

/// A source with a file that has a fault. `file` is the path of that file if it is not the source's own one.
struct Source {
    name: String,
    file: Option<String>,
    reason: &'static str,
}

/// Adds a source for each fault. The closure writes the source's files.
fn add(all: &mut Vec<Source>, kind: &str, faults: &[Fault], mut write: impl FnMut(&str, Fault) -> Option<String>) {
    let is_root = nix::unistd::geteuid().is_root();
    for fault in faults.iter().copied().filter(|fault| is_root || !OWNERS.contains(fault)) {
        let name = format!("{kind}_{fault:?}").to_lowercase();
        let file = write(&name, fault);
        all.push(Source { name, file, reason: fault.reason() });
    }
}

const SECRET: &str = "s3cs3cret";
const EVERY: [Fault; 9] = [Missing, Unreadable, Foreign, OfGroup, OfAll, Fifo, Directory, Loop, Dangling];

/// Writes sources whose files have all faults.
fn sources(scene: &Scene) -> Vec<Source> {
    let mut all = Vec::new();
    let url = format!("http://me:{SECRET}@127.0.0.1:1/?token={SECRET}\nHEADER: X-Key: {SECRET}\n");
    add(&mut all, "url", &[Unreadable, Foreign, OfGroup, OfAll], |name, fault| {
        fault.apply(&scene.path("config.d").join(format!("{name}.url")), &url, 0o644);
        None
    });
    let script = format!("#!/bin/sh\n# {SECRET}\necho a 1\n");
    // A script's owner may start it, and then it is the interpreter that cannot read it.
    let of_scripts: &[Fault] =
        if nix::unistd::geteuid().is_root() { &[Unreadable, Foreign, OfGroup, OfAll] } else { &[OfAll] };
    add(&mut all, "script", of_scripts, |name, fault| {
        fault.apply(&scene.path("config.d").join(name), &script, 0o755);
        None
    });
    let filter = format!("FILTER: EXCLUDE METRIC {SECRET}\n");
    let faults: Vec<Fault> = EVERY.into_iter().filter(|fault| *fault != Missing).collect();
    add(&mut all, "filter", &faults, |name, fault| {
        scene.config(name, &script, 0o755);
        let path = scene.path("config.d").join(format!("{name}.conf"));
        fault.apply(&path, &filter, 0o644);
        Some(path.to_str().unwrap().to_owned())
    });
    // A document may be of any user.
    add(&mut all, "document", &[Missing, Unreadable, Fifo, Directory, Loop, Dangling], |name, fault| {
        let path = scene.path(name);
        fault.apply(&path, &format!("{SECRET} 1\n"), 0o644);
        scene.url(name, &format!("file://{}", path.display()));
        Some(path.to_str().unwrap().to_owned())
    });
    for kind in ["bearer", "basic", "authorities", "certificate"] {
        add(&mut all, kind, &EVERY, |name, fault| {
            let path = scene.path(name);
            fault.apply(&path, &format!("me:{SECRET}\n"), 0o644);
            // Certificates are read before the connection.
            let scheme = if kind.starts_with('b') { "http" } else { "https" };
            let line = format!("{}: {}", kind.to_uppercase(), path.display());
            scene.url(name, &format!("{scheme}{}{line}", url.strip_prefix("http").unwrap()));
            Some(path.to_str().unwrap().to_owned())
        });
    }
    all
}

#[test]
fn every_fault_of_every_file() {
    let scene = Scene::unprivileged(&["-t", "10s"]);
    let all = sources(&scene);
    scene.document("good", "a 1\n");
    let mut agent = scene.start();
    until("the good source has a value", || value(&mut agent, "good.a") == Ok(1.0));
    let (mut shown, mut logged) = (String::new(), 0);
    for Source { name, file, reason } in &all {
        let mut status = String::new();
        until("the source has failed", || {
            status = control(&mut agent, "status", name);
            status != "unknown"
        });
        assert!(status.contains(reason) && status.contains(&format!("/config.d/{name}")), "{name}: {status}");
        let error = control(&mut agent, "error", name);
        if let Some(file) = file {
            assert!(error.starts_with(&format!("{file}: ")), "{name}: {error}");
        }
        let line = format!("source {name}: {error}; it has no values until a reading succeeds");
        logged += scene.log().matches(&line).count();
        shown += &status;
        shown += &error;
    }
    // The log has one line for each, but only some of so many at once, and where the other reasons are.
    assert!((10..=all.len()).contains(&logged), "{logged} lines in {}", scene.log());
    let summary =
        format!("{} of {} sources have failed: openmetrics.control.error has the reason", all.len(), all.len() + 1);
    until("the summary", || {
        let _ = value(&mut agent, "good.a");
        scene.log().contains(&summary)
    });
    shown += &scene.log();
    assert!(!shown.contains(SECRET), "{shown}");
}

/// Such files are no sources, and the log says so.
#[test]
fn files_that_are_no_sources() {
    let scene = Scene::unprivileged(&[]);
    for fault in [Fifo, Loop, Dangling, Directory] {
        fault.apply(&scene.path("config.d").join(format!("{fault:?}.url")), "", 0o644);
    }
    symlink("/etc", scene.path("config.d/etc")).unwrap();
    fs::set_permissions(scene.path("config.d/Directory.url"), Permissions::from_mode(0o000)).unwrap();
    scene.document("good", "a 1\n");
    let mut agent = scene.start();
    until("the good source has a value", || value(&mut agent, "good.a") == Ok(1.0));
    let log = scene.log();
    for (name, reason) in [
        ("Fifo.url", "ignored: neither a regular file nor a directory"),
        ("etc", "ignored: neither a regular file nor a directory, or a link to a directory"),
        ("Loop.url", Loop.reason()),
        ("Dangling.url", Dangling.reason()),
        ("Directory.url", "Permission denied"),
    ] {
        let is_line = |line: &str| line.contains(&format!("/config.d/{name}: ")) && line.contains(reason);
        assert!(log.lines().any(is_line), "{name}: {reason} in {log}");
    }
}

/// A source whose file is mended has values, and the log says so.
#[test]
fn files_that_are_mended() {
    let scene = Scene::unprivileged(&["--fresh", "--wait", "1min", "-R", "20msec"]);
    let script = scene.config("tool", "#!/bin/sh\necho a 1\n", 0o755);
    let conf = script.with_extension("conf");
    Loop.apply(&conf, "", 0o644);
    let mut agent = scene.start();
    until("the source has failed", || control(&mut agent, "status", "tool").contains("tool.conf: "));
    fs::remove_file(&conf).unwrap();
    OfAll.apply(&conf, "FILTER: EXCLUDE METRIC b\n", 0o644);
    until("another reason", || {
        let _ = value(&mut agent, "tool.a");
        control(&mut agent, "status", "tool").contains("tool.conf: refused: other users")
    });
    fs::set_permissions(&conf, Permissions::from_mode(0o644)).unwrap();
    until("there is a value", || value(&mut agent, "tool.a") == Ok(1.0));
    let log = scene.log();
    assert_eq!(log.matches("; it has no values until").count(), 2, "{log}");
    assert_eq!(log.matches("source tool has values again").count(), 1, "{log}");
}
