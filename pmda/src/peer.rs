//! The other end of an agent's connection: the user who has connected, the pmcd that has started the agent, and the
//! descriptors that the agent inherits from it.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{close, getpid};
use tracing::warn;

/// Number of connections that are checked together: as many as may wait to be accepted. So the kernel's table is read
/// only once for a flood of connections, and pmcd does not have to wait.
const TOGETHER: usize = 128;

/// Waits for a connection, and skips those that their peers have aborted meanwhile.
fn accept<T>(accept: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        match accept() {
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
            accepted => return accepted,
        }
    }
}

/// Accepts the first connection of an admitted user, and closes all others. Fails when `starter` ends before.
pub(crate) fn accept_unix(
    listener: &UnixListener,
    starter: Option<Starter>,
    admits: impl Fn(u32) -> bool,
) -> io::Result<UnixStream> {
    loop {
        wait_for_connection(listener, starter)?;
        let (socket, _) = accept(|| listener.accept())?;
        match getsockopt(&socket, PeerCredentials) {
            Ok(peer) if admits(peer.uid()) => return Ok(socket),
            Ok(peer) => refused(Some(peer.uid())),
            Err(_) => refused(None),
        }
    }
}

/// Accepts the first connection of an admitted user of this host, and closes all others. Fails when `starter` ends before.
pub(crate) fn accept_tcp(
    listener: &TcpListener,
    starter: Option<Starter>,
    admits: impl Fn(u32) -> bool,
) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        wait_for_connection(listener, starter)?;
        listener.set_nonblocking(false)?;
        let mut waiting = vec![accept(|| listener.accept())?];
        listener.set_nonblocking(true)?;
        while waiting.len() < TOGETHER {
            match listener.accept() {
                Ok(one) => waiting.push(one),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The next blocking call will return the error.
                Err(_) => break,
            }
        }
        let to = listener.local_addr()?;
        let path = if to.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
        let table = match std::fs::read_to_string(path) {
            Ok(table) => table,
            Err(e) => {
                warn!("{path}: {e}: accepting the first connection as that of pmcd");
                return waiting.into_iter().next().ok_or(ErrorKind::NotConnected.into());
            }
        };
        for (socket, from) in waiting {
            match owner(&table, from, to) {
                Some(uid) if admits(uid) => {
                    socket.set_nonblocking(false)?;
                    return Ok((socket, from));
                }
                uid => refused(uid),
            }
        }
    }
}

fn refused(uid: Option<u32>) {
    match uid {
        Some(uid) => {
            warn!(source = %format_args!("uid {uid}"), "refused the connection of user {uid}, which is not pmcd");
        }
        None => warn!(source = "unknown users", "refused the connection of an unknown user, which is not pmcd"),
    }
}

/// Returns the user of the socket at the other end of a connection, according to the kernel's table. Returns `None` for
/// a closed socket.
fn owner(table: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    const ESTABLISHED: &str = "01";
    let (from, to) = (address(from), address(to));
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_it = fields.next() == Some(&from) && fields.next() == Some(&to) && fields.next() == Some(ESTABLISHED);
        let (uid, inode) = (fields.nth(3)?, fields.nth(1)?);
        if is_it && inode != "0" { uid.parse().ok() } else { None }
    })
}

/// Formats an address as in the table: in 32-bit words of the host's byte order.
fn address(address: SocketAddr) -> String {
    let mut text: String = match address.ip() {
        IpAddr::V4(ip) => format!("{:08X}", u32::from_ne_bytes(ip.octets())),
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            let words = octets.chunks_exact(4).filter_map(<[u8]>::first_chunk);
            words.map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
        }
    };
    text.push_str(&format!(":{:04X}", address.port()));
    text
}

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
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::process::Command;

    fn own() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    #[test]
    fn the_user_at_the_other_end_of_a_tcp_connection() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            // Hosts without IPv6 skip the second address.
            let Ok(listener) = TcpListener::bind((ip, 0)) else { continue };
            let to = listener.local_addr().unwrap();
            let stranger = TcpStream::connect(to).unwrap();
            // The first connection is refused.
            let looks = std::cell::Cell::new(0);
            let pmcd = std::thread::spawn(move || {
                // Returns when the connection is refused.
                let _ = io::Read::read(&mut &stranger, &mut [0]);
                TcpStream::connect(to).unwrap()
            });
            let admits = |uid| {
                assert_eq!(uid, own());
                looks.set(looks.get() + 1);
                looks.get() == 2
            };
            let (socket, from) = accept_tcp(&listener, None, admits).unwrap();
            let pmcd = pmcd.join().unwrap();
            assert_eq!(pmcd.local_addr().unwrap(), from);
            // The accepted socket is blocking again.
            socket.set_read_timeout(Some(std::time::Duration::from_millis(10))).unwrap();
            assert_eq!(io::Read::read(&mut &socket, &mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn connections_that_are_closed_are_nobodys() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let gone = TcpStream::connect(to).unwrap().local_addr().unwrap();
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        assert_eq!(owner(&table, gone, to), None);
        let line = |state: &str, inode: &str| {
            let (from, to) = (address(gone), address(to));
            format!(
                "  sl  local_address\n   7: {from} {to} {state} 00000000:00000000 00:00000000 00000000  1000 0 {inode} 1 0"
            )
        };
        assert_eq!(owner(&line("01", "4711"), gone, to), Some(1000));
        for (state, inode) in [("06", "0"), ("05", "0"), ("01", "0"), ("06", "4711")] {
            assert_eq!(owner(&line(state, inode), gone, to), None, "{state} {inode}");
        }
    }

    #[test]
    fn the_user_at_the_other_end_of_a_unix_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let both = [UnixStream::connect(&path).unwrap(), UnixStream::connect(&path).unwrap()];
        let looks = std::cell::Cell::new(0);
        let admits = |uid| {
            looks.set(looks.get() + 1);
            uid == own() && looks.get() == 2
        };
        let _accepted = accept_unix(&listener, None, admits).unwrap();
        assert_eq!(io::Read::read(&mut &both[0], &mut [0]).unwrap(), 0);
    }

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
