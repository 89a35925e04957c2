//! Process groups that are killed when this process ends, however it ends.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

use crate::isolate;

/// Kills the remaining groups at the end of its input, which is the end of this process.
const SCRIPT: &str = r#"
all=
while read -r what group
do
    case $what in
        +) all="$all $group" ;;
        *) rest=; for one in $all; do [ "$one" = "$group" ] || rest="$rest $one"; done; all=$rest ;;
    esac
done
for one in $all; do kill -s KILL -- "-$one"; done
"#;

/// A process that ends after this one, and kills its groups. A signal that cannot be caught leaves this process no time
/// to do that.
struct Guard {
    groups: Vec<u32>,
    child: Option<Child>,
}

static GUARD: Mutex<Guard> = Mutex::new(Guard { groups: Vec::new(), child: None });

fn lock() -> MutexGuard<'static, Guard> {
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a group to be killed when this process ends.
pub(crate) fn add(group: u32) {
    let mut guard = lock();
    guard.groups.push(group);
    guard.tell(&format!("+ {group}\n"));
}

/// Removes a group that has ended.
pub(crate) fn remove(group: u32) {
    let mut guard = lock();
    guard.groups.retain(|one| *one != group);
    if guard.child.is_some() {
        guard.tell(&format!("- {group}\n"));
    }
}

impl Guard {
    fn tell(&mut self, line: &str) {
        let told = self.child.as_mut().and_then(|child| child.stdin.as_mut()?.write_all(line.as_bytes()).ok());
        if told.is_some() {
            return;
        }
        // The process has not been started yet, or has been killed.
        if let Some(mut dead) = self.child.take() {
            let _ = dead.kill();
            let _ = dead.wait();
        }
        if self.groups.is_empty() {
            return;
        }
        let lines: String = self.groups.iter().map(|group| format!("+ {group}\n")).collect();
        let started = start().and_then(|mut child| {
            child.stdin.as_mut().map_or(Ok(()), |to| to.write_all(lines.as_bytes()))?;
            Ok(child)
        });
        match started {
            Ok(child) => self.child = Some(child),
            Err(e) => warn!("cannot start /bin/sh: {e}: agents may outlive this process if it is killed"),
        }
    }
}

fn start() -> std::io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    isolate::descriptors(&mut command);
    command.process_group(0).spawn()
}
