//! Process groups that are killed when this process ends, however it ends.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tracing::warn;

use crate::isolate;

/// Kills the remaining groups at the end of its input, which is the end of this process. The input has lines
/// `+ ENTRY:GROUP`, possibly twice for an entry, and `- ENTRY`.
const SCRIPT: &str = r#"
all=
while read -r what one
do
    case $what in
        +) all="$all $one" ;;
        *) rest=; for each in $all; do [ "${each%:*}" = "$one" ] || rest="$rest $each"; done; all=$rest ;;
    esac
done
for each in $all; do kill -s KILL -- "-${each#*:}"; done
"#;

/// A process that ends after this one, and kills its groups. A signal that cannot be caught leaves this process no time
/// to do that.
struct Guard {
    /// Numbers of entries, and their groups.
    groups: Vec<(u32, u32)>,
    next: u32,
    child: Option<Child>,
}

static GUARD: Mutex<Guard> = Mutex::new(Guard { groups: Vec::new(), next: 0, child: None });

fn lock() -> MutexGuard<'static, Guard> {
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A group that is killed when this process ends, unless this is dropped before.
#[derive(Debug)]
pub(crate) struct Entry(u32);

impl Entry {
    /// Prepares the start of a process that leads a group. The new process enters its group before it executes the
    /// program: this process may be killed between the start and [`Entry::started`].
    pub(crate) fn of(command: &mut Command) -> Entry {
        let mut guard = lock();
        guard.next = guard.next.wrapping_add(1);
        let entry = guard.next;
        if let Some(input) = guard.input() {
            isolate::tell(command, input, entry);
        }
        Entry(entry)
    }

    /// Enters the group of the process.
    pub(crate) fn started(&self, child: &Child) {
        let mut guard = lock();
        guard.groups.push((self.0, child.id()));
        // An earlier process of the same command may have failed to execute the program.
        guard.tell(&format!("- {0}\n+ {0}:{1}\n", self.0, child.id()));
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut guard = lock();
        guard.groups.retain(|(entry, _)| *entry != self.0);
        if guard.child.is_some() {
            guard.tell(&format!("- {}\n", self.0));
        }
    }
}

impl Guard {
    /// Returns the input of the process, which is started if necessary.
    fn input(&mut self) -> Option<OwnedFd> {
        if self.child.is_none() {
            self.restart();
        }
        let input = self.child.as_ref()?.stdin.as_ref()?;
        input.as_fd().try_clone_to_owned().ok()
    }

    fn tell(&mut self, line: &str) {
        let told = self.child.as_mut().and_then(|child| child.stdin.as_mut()?.write_all(line.as_bytes()).ok());
        // The process has not been started, has been killed, or does not read its input.
        if told.is_none() && !self.groups.is_empty() {
            self.restart();
        }
    }

    /// Starts the process with the groups of now.
    fn restart(&mut self) {
        if let Some(dead) = self.child.take() {
            end(dead);
        }
        let lines: String = self.groups.iter().map(|(entry, group)| format!("+ {entry}:{group}\n")).collect();
        match start(&lines) {
            Ok(child) => self.child = Some(child),
            Err(e) => warn!("cannot start /bin/sh: {e}: agents may outlive this process if it is killed"),
        }
    }
}

/// Starts the process, and writes the first lines to its input. Writes do not block: it may have been stopped.
fn start(lines: &str) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    isolate::descriptors(&mut command);
    let mut child = command.process_group(0).spawn()?;
    match child.stdin.as_mut().map_or(Err(io::ErrorKind::BrokenPipe.into()), |input| prepare(input, lines)) {
        Ok(()) => Ok(child),
        Err(e) => {
            end(child);
            Err(e)
        }
    }
}

fn prepare(input: &mut ChildStdin, lines: &str) -> io::Result<()> {
    fcntl(&*input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    input.write_all(lines.as_bytes())
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}
