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

impl Peers {
    pub(crate) fn new() -> Peers {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag);
        let socket = socket.inspect_err(|e| debug!("sock_diag: {e}: local clients share one account")).ok();
        Peers { socket, number: 0, accounts: Accounts::new() }
    }

    /// The account of the client at the other end of a connection.
    ///
    /// Local clients whose user is unknown share one account, for all addresses of this host.
    pub(crate) fn account(&mut self, client: SocketAddrV4, server: SocketAddrV4) -> Account {
        if !client.ip().is_loopback() && client.ip() != server.ip() {
            return Account::Host(*client.ip());
        }
        match self.user(client, server) {
            Some(uid) => Account::User(self.accounts.charged(uid)),
            None => Account::Host(Ipv4Addr::LOCALHOST),
        }
    }

    /// The user of a local socket. `None` if it is closed already.
    fn user(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> Option<u32> {
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
                return user_of(reply);
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

/// The user in a reply. `None` for a socket without an inode: its process has closed it, and the kernel reports root.
fn user_of(reply: &[u8]) -> Option<u32> {
    let kind = reply.get(4..6)?.first_chunk().map(|kind| u16::from_ne_bytes(*kind))?;
    let is_open = word(reply, INODE)? != 0 && *reply.get(STATE)? != LISTENS;
    (kind == SOCK_DIAG_BY_FAMILY && reply.len() >= REPLY_LEN && is_open).then(|| word(reply, UID))?
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

    #[test]
    fn others_are_hosts() {
        let [client, server] = ["192.0.2.7:1000", "192.0.2.1:4323"].map(|address| address.parse().unwrap());
        assert_eq!(Peers::new().account(client, server), Account::Host([192, 0, 2, 7].into()));
    }
}
