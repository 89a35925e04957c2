//! Descriptors that a daemon inherits, and the pmcd among its ancestors.

use std::fs;
use std::io;
use std::os::fd::{AsFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{close, getpid};

/// Closes the descriptors that the program has inherited, apart from standard input, output and error. pmcd leaves its
/// agents those on which it listens: while an agent keeps them, no other pmcd can have the ports.
///
/// Descriptors that the program has opened itself stay: Rust opens all of them with `O_CLOEXEC`, which no inherited one
/// has. Without /proc none is closed.
pub(crate) fn close_inherited() {
    let inherited = |number: &RawFd| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        flags.is_some_and(|flags| flags & nix::fcntl::OFlag::O_CLOEXEC.bits() as u32 == 0)
    };
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse().ok()).filter(|number| *number > 2);
    for number in numbers.filter(inherited).collect::<Vec<RawFd>>() {
        // One that is closed already does no harm.
        let _ = close(number);
    }
}

/// Names of the programs that start agents for PCP: pmcd(1), and pmdaroot(1) if pmcd is not root.
const STARTERS: [&str; 2] = ["pmcd", "pmdaroot"];

/// Largest number of ancestors that are looked at. There may be a shell or another program between pmcd and an agent.
const ANCESTORS: usize = 8;

/// Milliseconds between two looks at whether the starter still runs.
const PAUSE: u16 = 200;

/// The pmcd that has started this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Starter {
    pid: u32,
    /// Time of its start, which another process of the same number does not have.
    since: u64,
}

/// A process, as /proc/PID/stat has it.
struct Stat {
    name: String,
    parent: u32,
    since: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name may have parentheses and spaces.
    let (head, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let is_over = ["Z", "X"].contains(&fields.next()?);
    let (parent, since) = (fields.next()?.parse().ok()?, fields.nth(17)?.parse().ok()?);
    (!is_over).then(|| Stat { name: head.split_once('(').unwrap_or_default().1.to_owned(), parent, since })
}

impl Starter {
    /// Returns the pmcd among the ancestors of this process. There is none for an agent that a user or a service manager
    /// has started, and after the end of pmcd.
    pub(crate) fn find() -> Option<Starter> {
        let mut pid = stat(getpid().as_raw().unsigned_abs())?.parent;
        for _ in 0..ANCESTORS {
            let stat = stat(pid)?;
            if STARTERS.contains(&&*stat.name) {
                return Some(Starter { pid, since: stat.since });
            }
            pid = stat.parent;
        }
        None
    }

    fn has_ended(self) -> bool {
        stat(self.pid).is_none_or(|stat| stat.since != self.since)
    }
}

/// Waits until a listening socket has a connection.
///
/// # Errors
/// An error if pmcd, which has started the agent, has ended without a connection. Nobody else connects to the agent, but
/// it would keep its own port from the next pmcd. An agent that pmcd has not started waits as long as it takes.
pub(crate) fn wait_for_connection(listener: &impl AsFd, starter: Option<Starter>) -> io::Result<()> {
    loop {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, starter.map_or(PollTimeout::NONE, |_| PAUSE.into())) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        if starter.is_some_and(Starter::has_ended) {
            return Err(io::Error::other("pmcd, which has started this agent, has ended without connecting to it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_number_and_time() {
        let own = stat(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let starter = Starter { pid: child.id(), since: stat(child.id()).unwrap().since };
        assert!(!starter.has_ended());
        assert!(Starter { since: starter.since + 1, ..starter }.has_ended());
        child.kill().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let ended = wait_for_connection(&listener, Some(starter)).unwrap_err();
        assert!(ended.to_string().contains("has ended without"), "{ended}");
        child.wait().unwrap();
        assert!(starter.has_ended());
    }
}
