//! The connection between an agent and pmcd: a pipe, or a socket of type inet, ipv6 or unix.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{AtFlags, renameat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::{fchownat, geteuid};
use pcp_base::file::{self, Dir};
use pmapi::Config;
use tracing::{debug, warn};

use crate::log_file::as_user;
use crate::peer::{self, Starter};
use crate::user::{self, UserIds};

/// Address of the socket on which an agent waits for pmcd. An agent without an address talks over standard input and
/// output, which pmcd has made pipes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Address {
    /// An IPv4 port of this host (option `-i`, `socket inet` in `pmcd.conf`).
    Inet(u16),
    /// An IPv6 port of this host (option `-6`, `socket ipv6`).
    Ipv6(u16),
    /// A socket in the file system (option `-u`, `socket unix`).
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(port) => write!(f, "inet port {port}"),
            Address::Ipv6(port) => write!(f, "ipv6 port {port}"),
            Address::Unix(path) => write!(f, "unix socket {}", path.display()),
        }
    }
}

/// The agent's end, ready for pmcd to connect.
#[derive(Debug)]
pub(crate) enum Bound {
    Pipe,
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection to pmcd, with separate input and output.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) input: File,
    pub(crate) output: File,
}

impl Address {
    /// Binds and listens on the socket. `user` is the user that the process will change to.
    pub(crate) fn bind(&self, config: &Config, user: Option<UserIds>) -> io::Result<Bound> {
        Ok(match self {
            Address::Inet(port) => Bound::Tcp(TcpListener::bind((Ipv4Addr::LOCALHOST, *port))?),
            Address::Ipv6(port) => Bound::Tcp(TcpListener::bind((Ipv6Addr::LOCALHOST, *port))?),
            Address::Unix(path) => Bound::Unix(unix(path, config, user)?),
        })
    }

    /// Returns the option of an agent that waits for pmcd at this address, and its value. It is the long name: an agent may
    /// use the letter for an option of its own.
    pub fn option(&self) -> [OsString; 2] {
        match self {
            Address::Inet(port) => ["--inet".into(), port.to_string().into()],
            Address::Ipv6(port) => ["--ipv6".into(), port.to_string().into()],
            Address::Unix(path) => ["--unix".into(), path.into()],
        }
    }

    /// Connects to the agent, as pmcd does.
    ///
    /// # Errors
    /// The error of connect(2): `ECONNREFUSED` or `ENOENT` while no agent listens, `EAGAIN` or `ETIMEDOUT` if it does not
    /// accept connections.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            Address::Inet(port) => connect_tcp(Ipv4Addr::LOCALHOST.into(), *port),
            Address::Ipv6(port) => connect_tcp(Ipv6Addr::LOCALHOST.into(), *port),
            Address::Unix(path) => connect_unix(path),
        }
    }
}

/// Connects to a Unix socket. Without `SOCK_NONBLOCK`, connect(2) would wait as long as an agent that does not accept
/// connections, such as a stopped one, has a full queue of them.
fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = UnixStream::from(socket(AddressFamily::Unix, SockType::Stream, flags, None)?);
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}

fn connect_tcp(host: IpAddr, port: u16) -> io::Result<OwnedFd> {
    // If the agent's queue of connections is full, the system drops the request, and tries again for two minutes.
    let socket = TcpStream::connect_timeout(&(host, port).into(), Duration::from_secs(5))?;
    // While no process listens, a socket may by chance connect to itself.
    if socket.local_addr()? == socket.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    socket.set_nodelay(true)?;
    Ok(socket.into())
}

impl Bound {
    /// Waits for pmcd, and stops listening: an agent has one connection. Only root, PCP's user and the agent's own user
    /// may connect; other connections are closed. Fails when `starter`, the pmcd that has started the agent, ends before.
    pub(crate) fn accept(self, config: &Config, starter: Option<Starter>) -> io::Result<Connection> {
        let pcp = config.user();
        let admits = |uid| user::is_admin(uid, &pcp);
        let socket = match self {
            Bound::Pipe => return pipe(),
            Bound::Tcp(listener) => {
                let (socket, from) = peer::accept_tcp(&listener, starter, admits)?;
                // Without this, a request and its answer could wait for each other's acknowledgement.
                socket.set_nodelay(true)?;
                debug!(target: "libpmda", "connected from {from}");
                OwnedFd::from(socket)
            }
            Bound::Unix(listener) => OwnedFd::from(peer::accept_unix(&listener, starter, admits)?),
        };
        Ok(Connection { input: File::from(socket.try_clone()?), output: File::from(socket) })
    }
}

/// Returns whether standard input and output can be a connection to pmcd, which makes pipes or sockets of both. A terminal
/// cannot, nor can an input without data, such as `/dev/null`, an empty file, or a pipe that its writer has closed.
pub(crate) fn is_connected() -> bool {
    !io::stdout().is_terminal() && !has_ended(io::stdin().as_fd())
}

/// Returns whether an input is a terminal or another device, or is at its end.
fn has_ended(input: BorrowedFd<'_>) -> bool {
    let Ok(stat) = fstat(input) else { return false };
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFCHR => true,
        SFlag::S_IFREG => stat.st_size == 0,
        SFlag::S_IFIFO => {
            let mut polled = [PollFd::new(input, PollFlags::POLLIN)];
            // Data of a writer that has ended are still readable.
            poll(&mut polled, PollTimeout::ZERO).is_ok() && polled[0].revents() == Some(PollFlags::POLLHUP)
        }
        _ => false,
    }
}

/// Adopts standard input and output for PDUs. Anything else that the agent prints then goes to the log, not into the
/// middle of a PDU.
fn pipe() -> io::Result<Connection> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    nix::unistd::dup2_stdout(io::stderr())?;
    Ok(Connection { input: input.into(), output: output.into() })
}

/// Creates a socket that pmcd's user and group can connect to, and replaces an existing one.
///
/// The directory may belong to another user, who can replace files in it at any time. Therefore mode and owner are
/// never set by a name in it. `user` is the user that the process will change to.
fn unix(path: &Path, config: &Config, user: Option<UserIds>) -> io::Result<UnixListener> {
    let name = config.user();
    let owner = user::find(&name);
    if owner.is_none() {
        warn!("there is no user {name} to own socket {}", path.display());
    }
    if !user::is_root() {
        return replace(path, || with_mode(|| UnixListener::bind(path)));
    }
    if owner.is_some() && owner == user {
        return as_user(user, || {
            replace(path, || if user::is_root() { give(path, owner) } else { with_mode(|| UnixListener::bind(path)) })
        });
    }
    replace(path, || give(path, owner))
}

/// Creates a socket after removing an existing one. A file of another type is not removed.
fn replace(path: &Path, make: impl Fn() -> io::Result<UnixListener>) -> io::Result<UnixListener> {
    let (dir, name) = Dir::of(path)?;
    match dir.kind(name) {
        Ok(SFlag::S_IFSOCK) => {
            dir.remove(name)?;
            warn!("socket {} exists, unlinked it", path.display());
        }
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a socket exists")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    make()
}

/// Creates a socket that belongs to another user. It is made in a directory that only root may enter, and moved when it
/// is complete.
fn give(path: &Path, owner: Option<UserIds>) -> io::Result<UnixListener> {
    let (dir, name) = Dir::of(path)?;
    let hidden = OsString::from(format!(".{}.{}", Path::new(name).display(), std::process::id()));
    // A killed process may have left its directory.
    if let Ok(left) = dir.subdir(&hidden, 0o700) {
        let _ = left.remove(SOCKET.as_ref());
    }
    let _ = dir.remove_dir(&hidden);
    let inner = dir.subdir(&hidden, 0o700)?;
    let given = give_by(&inner, owner).and_then(|listener| {
        renameat(&inner, SOCKET, &dir, name)?;
        Ok(listener)
    });
    if given.is_err() {
        let _ = inner.remove(SOCKET.as_ref());
    }
    let _ = dir.remove_dir(&hidden);
    given
}

const SOCKET: &str = "socket";

fn give_by(inner: &Dir, owner: Option<UserIds>) -> io::Result<UnixListener> {
    let stat = fstat(inner)?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        let mode = stat.st_mode & 0o7777;
        let reason = format!(
            "the temporary directory of the socket has mode {mode:o} and owner {}: it must be 700 and this user's",
            stat.st_uid
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    // Only the descriptor reliably identifies this directory. Also, the name of a socket has at most 107 bytes.
    let path = format!("/proc/self/fd/{}/{SOCKET}", inner.as_fd().as_raw_fd());
    let listener = with_mode(|| UnixListener::bind(path))?;
    if let Some(owner) = owner {
        fchownat(inner, SOCKET, Some(owner.uid), Some(owner.gid), AtFlags::AT_SYMLINK_NOFOLLOW)?;
    }
    Ok(listener)
}

/// Runs `make` with a umask for files of mode 0660.
fn with_mode<T>(make: impl FnOnce() -> T) -> T {
    let before = umask(Mode::from_bits_truncate(0o117));
    let made = make();
    umask(before);
    made
}

/// Returns the number of a TCP port, given as a number or by its name in `/etc/services`.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] for a name that is not in the file.
pub fn inet_port(name: &str) -> io::Result<u16> {
    if let Ok(port) = name.parse() {
        return Ok(port);
    }
    // Some hosts do not have the file.
    let services = file::read_text("/etc/services").unwrap_or_default();
    let found = services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (official, number) = (words.next()?, words.next()?);
        let port = number.strip_suffix("/tcp")?.parse().ok()?;
        (official == name || words.any(|alias| alias == name)).then_some(port)
    });
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no port and no service {name:?}")))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use nix::sys::socket::{Backlog, getsockopt, listen, sockopt::TcpNoDelay};

    use super::*;

    #[test]
    fn answers_do_not_wait_for_each_other() {
        let bound = Address::Inet(0).bind(&Config::new(b"", []), None).unwrap();
        let Bound::Tcp(listener) = &bound else { panic!("{bound:?}") };
        let _pmcd = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection = bound.accept(&Config::new(b"", []), None).unwrap();
        let undelayed = |file: &File| getsockopt(file, TcpNoDelay).unwrap();
        assert!(undelayed(&connection.input) && undelayed(&connection.output));
    }

    #[test]
    fn an_agent_that_accepts_no_connection_delays_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let mut connected = Vec::new();
        let refused = loop {
            match Address::Unix(path.clone()).connect() {
                Ok(socket) => connected.push(socket),
                Err(e) => break e.kind(),
            }
        };
        assert_eq!(refused, io::ErrorKind::WouldBlock);
        assert!(!connected.is_empty());
    }

    #[test]
    fn ports() {
        assert_eq!(inet_port("2078").unwrap(), 2078);
        assert!(inet_port("65536").is_err() && inet_port("no-such-service").is_err());
    }
}
