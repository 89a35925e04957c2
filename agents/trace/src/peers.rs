//! Accounts of TCP clients: another host, or a user of this host.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::libc::{AF_INET, IPPROTO_TCP};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use pmda::limits::Accounts;
use tracing::debug;

use crate::limits::Account;

/// Queries the kernel for the users of local sockets (`sock_diag(7)`).
#[derive(Debug)]
pub(crate) struct Peers {
    socket: Option<OwnedFd>,
    number: u32,
    accounts: Accounts,
}

/// Layout of messages: `nlmsghdr`, then `inet_diag_req_v2` or `inet_diag_msg`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const HEADER: usize = 16;
const REQUEST_LEN: usize = HEADER + 56;
const REPLY_LEN: usize = HEADER + 72;
/// Offsets in a reply: sequence number, state of the socket, user, and inode.
const SEQUENCE: usize = 8;
const STATE: usize = HEADER + 1;
const UID: usize = HEADER + 64;
const INODE: usize = HEADER + 68;
const LISTENS: u8 = 10;

/// The local socket of a client.
#[derive(Clone, Copy, Debug)]
enum Found {
    User(u32),
    /// The client has closed the socket. The kernel reports root as the user, and no inode.
    Closed,
    /// The client is on another host, or its socket is gone.
    Nothing,
}

impl Peers {
    pub(crate) fn new() -> Peers {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag);
        let socket = socket.inspect_err(|e| debug!("sock_diag: {e}: local clients share one account")).ok();
        Peers { socket, number: 0, accounts: Accounts::new() }
    }

    /// Returns the account of the client at the other end of a connection.
    ///
    /// A client on this host is a user, whichever of the host's addresses it uses. Clients of this host whose user is
    /// unknown share one account.
    pub(crate) fn account(&mut self, client: SocketAddrV4, server: SocketAddrV4) -> Account {
        match self.find(client, server) {
            Found::User(uid) => Account::User(self.accounts.charged(uid)),
            Found::Nothing if !client.ip().is_loopback() && client.ip() != server.ip() => Account::Host(*client.ip()),
            Found::Closed | Found::Nothing => Account::Host(Ipv4Addr::LOCALHOST),
        }
    }

    /// Finds the local socket with these addresses.
    fn find(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> Found {
        self.ask(local, remote).unwrap_or(Found::Nothing)
    }

    fn ask(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> Option<Found> {
        let socket = self.socket.as_ref()?;
        self.number = self.number.wrapping_add(1);
        send(socket.as_raw_fd(), &request(self.number, local, remote), MsgFlags::empty()).ok()?;
        // The kernel has queued the reply when `send` returns. A reply with another number is left from a failed
        // request.
        let mut reply = [0; 256];
        loop {
            let n = recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty()).ok()?;
            let reply = reply.get(..n)?;
            if word(reply, SEQUENCE)? == self.number {
                return found(reply);
            }
        }
    }
}

fn request(number: u32, local: SocketAddrV4, remote: SocketAddrV4) -> Vec<u8> {
    let mut request = Vec::with_capacity(REQUEST_LEN);
    request.extend((REQUEST_LEN as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    request.extend(number.to_ne_bytes());
    request.extend([0; 4]);
    request.extend([AF_INET as u8, IPPROTO_TCP as u8, 0, 0]);
    // Sockets in any state.
    request.extend([0xff; 4]);
    request.extend([local, remote].map(|address| address.port().to_be_bytes()).concat());
    for address in [local, remote] {
        request.extend(address.ip().octets());
        request.extend([0; 12]);
    }
    // Any interface, any cookie.
    request.extend([0; 4]);
    request.extend([0xff; 8]);
    request
}

/// Returns the socket in a reply. Returns `None` if the kernel knows no socket with these addresses: then it reports an
/// error, or a socket that listens on the port.
fn found(reply: &[u8]) -> Option<Found> {
    let kind = reply.get(4..6)?.first_chunk().map(|kind| u16::from_ne_bytes(*kind))?;
    if kind != SOCK_DIAG_BY_FAMILY || reply.len() < REPLY_LEN || *reply.get(STATE)? == LISTENS {
        return None;
    }
    Some(if word(reply, INODE)? == 0 { Found::Closed } else { Found::User(word(reply, UID)?) })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use nix::unistd::geteuid;

    use super::*;

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        let SocketAddr::V4(address) = address else { panic!("{address}") };
        address
    }

    #[test]
    fn clients_of_this_host_are_users() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut peers = Peers::new();
        for host in ["127.0.0.1", "127.1.2.3"] {
            let client = TcpStream::connect((host, port)).unwrap();
            let (server, address) = listener.accept().unwrap();
            let (address, own) = (v4(address), v4(server.local_addr().unwrap()));
            let mut accounts = Accounts::new();
            assert_eq!(peers.account(address, own), Account::User(accounts.charged(geteuid().as_raw())), "{host}");
            // The kernel reports root as the user of a closed socket.
            drop(client);
            assert_eq!(peers.account(address, own), Account::Host(Ipv4Addr::LOCALHOST));
        }
    }

    /// Returns an address of this host other than loopback, if it has one. Nothing is sent.
    fn address() -> Option<Ipv4Addr> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        let SocketAddr::V4(own) = socket.local_addr().ok()? else { return None };
        (!own.ip().is_loopback() && !own.ip().is_unspecified()).then(|| *own.ip())
    }

    #[test]
    fn a_client_is_one_user_with_each_address_of_its_host() {
        use nix::sys::socket::{SockaddrIn, bind, connect};

        // Without such an address, the test has no second account.
        let Some(other) = address() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(to) = listener.local_addr().unwrap() else { panic!() };
        let client = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(client.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(other, 0))).unwrap();
        connect(client.as_raw_fd(), &SockaddrIn::from(to)).unwrap();
        let (server, address) = listener.accept().unwrap();
        let (address, own) = (v4(address), v4(server.local_addr().unwrap()));
        assert_eq!((*address.ip(), *own.ip()), (other, Ipv4Addr::LOCALHOST));
        let user = Account::User(Accounts::new().charged(geteuid().as_raw()));
        let mut peers = Peers::new();
        assert_eq!(peers.account(address, own), user);
        drop(client);
        assert_eq!(peers.account(address, own), Account::Host(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn others_are_hosts() {
        let [client, server] = ["192.0.2.7:1000", "192.0.2.1:4323"].map(|address| address.parse().unwrap());
        assert_eq!(Peers::new().account(client, server), Account::Host([192, 0, 2, 7].into()));
    }
}
