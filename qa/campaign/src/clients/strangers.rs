//! Hostile clients. Their addresses differ from that of the honest client.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt};

use crate::Outcome;
use crate::rng::Rng;
use crate::users::{As, USERS};

/// Largest number of connections that stay open after sending nothing or half a PDU.
const IDLE: usize = 600;
/// Largest number of PDUs that a client sends.
const PDUS: usize = 512;
/// Number of the strangers' addresses in the loopback network.
const HOSTS: usize = 16;

/// The hostile clients.
#[derive(Debug)]
pub(crate) struct Strangers {
    port: u16,
    idle: Vec<TcpStream>,
    bytes: Vec<u8>,
    /// Number of new tags so far. It makes each of them unique.
    names: u64,
}

impl Strangers {
    pub(crate) fn new(port: u16) -> Strangers {
        Strangers { port, idle: Vec::new(), bytes: Vec::new(), names: 0 }
    }

    /// Connects from a random address of the strangers, as a random user.
    pub(super) fn connect(&self, rng: &mut Rng) -> Outcome<TcpStream> {
        let _as = As::user(rng.below(USERS));
        let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        let from = Ipv4Addr::new(127, 0, 1, 2 + rng.below(HOSTS) as u8);
        // The kernel then chooses the local port in connect(2), where it has more free ports than in bind(2).
        let _ = setsockopt(&fd, sockopt::IpBindAddressNoPort, &true);
        bind(fd.as_raw_fd(), &SockaddrIn::from(std::net::SocketAddrV4::new(from, 0)))?;
        connect(fd.as_raw_fd(), &SockaddrIn::from(std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)))?;
        let stream = TcpStream::from(fd);
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Connects a client that sends many PDUs, and sometimes a crowd of idle ones. Returns the number of PDUs.
    pub(crate) fn come(&mut self, rng: &mut Rng) -> Outcome<u64> {
        // The agent may refuse the connection.
        let Ok(mut stream) = self.connect(rng) else { return Ok(0) };
        self.bytes.clear();
        let (count, breaks) = (1 + rng.below(PDUS), rng.one_in(4));
        for n in 0..count {
            self.append(rng, breaks && n + 1 == count);
        }
        let sent = send(&mut stream, &self.bytes) * count / self.bytes.len().max(1);
        match rng.below(8) {
            0 if self.idle.len() < IDLE => self.idle.push(stream),
            1 => {
                // Closes one direction only.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read(&mut [0; 4096]);
            }
            2 => {
                // Resets the connection while answers are unread.
                let _ = setsockopt(&stream, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 });
            }
            _ => {}
        }
        if rng.one_in(8) {
            self.crowd(rng);
        }
        Ok(sent as u64)
    }

    /// Opens connections that send nothing, or a part of a PDU.
    fn crowd(&mut self, rng: &mut Rng) {
        for _ in 0..rng.below(40) {
            if self.idle.len() >= IDLE {
                let n = rng.below(self.idle.len());
                self.idle.swap_remove(n);
            }
            let Ok(mut stream) = self.connect(rng) else { return };
            self.bytes.clear();
            self.append(rng, false);
            let cut = rng.below(self.bytes.len());
            send(&mut stream, self.bytes.get(..cut).unwrap_or_default());
            self.idle.push(stream);
        }
    }

    /// Appends a PDU. One that is `broken` has a damaged header, after which the agent may close the connection.
    fn append(&mut self, rng: &mut Rng, broken: bool) {
        let start = self.bytes.len();
        let tag = self.tag(rng);
        let value = match rng.below(6) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => -f64::MAX,
            3 => f64::from_bits(rng.next()),
            _ => rng.below(1000) as f64 / 100.0,
        };
        let kind = 1 + rng.below(4) as u32;
        append_data(&mut self.bytes, kind, &tag, value, u32::from(rng.one_in(8)));
        if broken {
            let at = start + 4 * rng.below(4);
            let word = rng.odd_number() as u32;
            if let Some(place) = self.bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&word.to_be_bytes());
            }
        }
    }

    /// Returns a tag: usually one of a few, otherwise a new tag, random bytes, or a tag with control characters.
    fn tag(&mut self, rng: &mut Rng) -> Vec<u8> {
        match rng.below(16) {
            0 => {
                self.names += 1;
                format!("name-{:0>60}", self.names).into_bytes()
            }
            1 => (0..1 + rng.below(120)).map(|_| 1 + rng.below(255) as u8).collect(),
            2 => format!("\u{1b}[2J\n[Sun] pmdatrace(1) Error: forged{}", rng.below(50)).into_bytes(),
            _ => format!("tag{}", rng.below(50)).into_bytes(),
        }
    }

    /// Closes all connections.
    pub(crate) fn go(&mut self) {
        self.idle.clear();
    }
}

/// Appends a DATA PDU. With `ack` 1, the agent acknowledges it.
pub(super) fn append_data(bytes: &mut Vec<u8>, kind: u32, tag: &[u8], value: f64, ack: u32) {
    let end = tag.len() + 1;
    let padded = end.next_multiple_of(4);
    let word = 1 << 24 | (end as u32) << 16 | kind << 8 | ack << 7;
    for number in [24 + padded as u32, 0x7051, std::process::id(), word] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(&value.to_be_bytes());
    bytes.extend_from_slice(tag);
    bytes.push(0);
    bytes.resize(bytes.len() + padded - end, b'~');
}

/// Sends until the agent has closed the connection or reads no more. Returns the number of bytes sent.
fn send(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    let mut sent = 0;
    let mut waited = 0;
    while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
        match stream.write(rest) {
            Ok(n) => sent += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock && waited < 20 => {
                waited += 1;
                // Unread acknowledgements would block the agent's output, and then its input.
                let _ = stream.read(&mut [0; 65_536]);
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
            Err(_) => break,
        }
    }
    sent
}
