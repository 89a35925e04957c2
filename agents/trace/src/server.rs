//! The clients: any number of them, none of which is waited for.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use trace::Failure;
use trace::protocol::{self, Data, DecodeError, Pdu};
use tracing::{debug, info, warn};

use crate::access::Access;

/// As much is read of a client before others have their turn.
const READ: usize = 16 << 10;
/// As many clients have a turn before pmcd has one.
const TURNS: usize = 64;
/// As many new ones.
const NEW: usize = 64;
/// How long no connections are accepted after that has failed, for instance for want of descriptors.
const PAUSE: Duration = Duration::from_secs(1);
/// What epoll has for the listening socket; clients have their place in the list.
const LISTENER: u64 = u64::MAX;

/// The listening socket and the clients.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    epoll: Epoll,
    access: Access,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    paused: Option<Instant>,
    buffer: Box<[u8]>,
    acks: Vec<u8>,
    pid: u32,
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    host: Ipv4Addr,
    /// The beginning of a PDU.
    rest: Vec<u8>,
    /// Acknowledgements that the client has not taken. Nothing is read of it meanwhile.
    unsent: Vec<u8>,
    asynchronous: bool,
}

/// Why a client is left.
enum Left {
    End,
    Failed(io::Error),
    Nonsense(DecodeError),
    /// It sends what agents send.
    Ack,
}

impl From<io::Error> for Left {
    fn from(error: io::Error) -> Left {
        Left::Failed(error)
    }
}

impl Server {
    pub(crate) fn open(port: u16, access: Access) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        Ok(Server {
            listener,
            epoll,
            access,
            clients: Vec::new(),
            free: Vec::new(),
            paused: None,
            buffer: vec![0; protocol::MAX_LEN + READ].into(),
            acks: Vec::new(),
            pid: std::process::id(),
        })
    }

    /// Readable when there is something to do.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.epoll.0
    }

    /// When there is something to do although nothing has come.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.paused
    }

    /// Does what is to be done for new clients and those that have sent something, a part of it when it
    /// is much.
    pub(crate) fn serve(&mut self, add: &mut impl FnMut(&Data<'_>)) {
        if self.paused.is_some_and(|until| until <= Instant::now()) {
            self.resume();
        }
        let mut events = [EpollEvent::empty(); TURNS];
        let ready = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in events.iter().take(ready) {
            match event.data() {
                LISTENER => self.accept(),
                place => self.turn(place as usize, add),
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..NEW {
            match self.listener.accept() {
                Ok((stream, SocketAddr::V4(address))) => {
                    let host = *address.ip();
                    self.greet(stream, host).unwrap_or_else(|e| debug!("client {address}: {e}"));
                }
                Ok(_) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    warn!("no connections are accepted for a while: {e}");
                    self.paused = Some(Instant::now() + PAUSE);
                    let _ = self.epoll.delete(&self.listener);
                    return;
                }
            }
        }
    }

    fn resume(&mut self) {
        self.paused = None;
        let listening = self.epoll.add(&self.listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER));
        listening.unwrap_or_else(|e| warn!("listening: {e}"));
    }

    fn greet(&mut self, mut stream: TcpStream, host: Ipv4Addr) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let admitted = self.access.connect(host);
        let code = admitted.as_ref().map_or_else(code, |()| protocol::VERSION);
        // A new connection takes as much.
        let greeted = stream.write_all(&protocol::encode_ack(code, self.pid));
        if let Err(e) = admitted {
            debug!("client {host}: connect refused: {e}");
            return Ok(());
        }
        let place = self.free.pop().unwrap_or(self.clients.len());
        let event = EpollEvent::new(EpollFlags::EPOLLIN, place as u64);
        if let Err(e) = greeted.and_then(|()| Ok(self.epoll.add(&stream, event)?)) {
            self.access.disconnect(host);
            self.free.push(place);
            return Err(e);
        }
        debug!("client {host}: new connection");
        let client = Client { stream, host, rest: Vec::new(), unsent: Vec::new(), asynchronous: false };
        match self.clients.get_mut(place) {
            Some(free) => *free = Some(client),
            None => self.clients.push(Some(client)),
        }
        Ok(())
    }

    /// Goes on with a client. It may have gone already, and another one be in its place.
    fn turn(&mut self, place: usize, add: &mut impl FnMut(&Data<'_>)) {
        let Some(Some(client)) = self.clients.get_mut(place) else { return };
        self.acks.clear();
        let had_unsent = !client.unsent.is_empty();
        let mut go_on = || {
            if had_unsent {
                client.send_rest()?;
            } else {
                client.receive(&mut self.buffer, &mut self.acks, self.pid, add)?;
                client.send(&self.acks)?;
            }
            let unsent = !client.unsent.is_empty();
            if unsent != had_unsent {
                let flags = if unsent { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
                self.epoll
                    .modify(&client.stream, &mut EpollEvent::new(flags, place as u64))
                    .map_err(io::Error::from)?;
            }
            Ok(())
        };
        if let Err(left) = go_on() {
            self.leave(place, &left);
        }
    }

    fn leave(&mut self, place: usize, left: &Left) {
        let Some(client) = self.clients.get_mut(place).and_then(Option::take) else { return };
        match left {
            Left::End => debug!("client {}: close connection", client.host),
            Left::Failed(e) => debug!("client {}: {e}", client.host),
            Left::Nonsense(e) => debug!("client {}: bogus PDU read: {e}", client.host),
            Left::Ack => debug!("client {}: an ACK PDU, expected data", client.host),
        }
        self.access.disconnect(client.host);
        self.free.push(place);
        // Its descriptor is free now.
        drop(client);
        if self.paused.is_some() {
            self.resume();
        }
    }

    /// Lists the clients in the log.
    pub(crate) fn show(&self) {
        let clients = self.clients.iter().flatten();
        info!("{} connected clients", clients.clone().count());
        for client in clients {
            info!("{} {}", if client.asynchronous { "async" } else { "sync " }, client.host);
        }
    }
}

fn code(refused: &Failure) -> i32 {
    match refused {
        Failure::ConnLimit => -12011,
        _ => -12010,
    }
}

impl Client {
    /// Reads once, and takes the PDUs that are whole.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        acks: &mut Vec<u8>,
        pid: u32,
        add: &mut impl FnMut(&Data<'_>),
    ) -> Result<(), Left> {
        let (before, free) = buffer.split_at_mut_checked(self.rest.len()).ok_or(Left::End)?;
        before.copy_from_slice(&self.rest);
        let n = match self.stream.read(free) {
            Ok(0) => return Err(Left::End),
            Ok(n) => n,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let mut bytes = buffer.get(..self.rest.len() + n).unwrap_or_default();
        while let Some((pdu, len)) = protocol::next(bytes).map_err(Left::Nonsense)? {
            let Pdu::Data(data) = pdu else { return Err(Left::Ack) };
            add(&data);
            self.asynchronous = !data.reply;
            if data.reply {
                acks.extend_from_slice(&protocol::encode_ack(data.kind as i32, pid));
            }
            bytes = bytes.get(len..).unwrap_or_default();
        }
        self.rest.clear();
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    fn send(&mut self, acks: &[u8]) -> Result<(), Left> {
        let sent = write(&mut self.stream, acks)?;
        self.unsent.extend_from_slice(acks.get(sent..).unwrap_or_default());
        Ok(())
    }

    fn send_rest(&mut self) -> Result<(), Left> {
        let sent = write(&mut self.stream, &self.unsent)?;
        self.unsent.drain(..sent);
        Ok(())
    }
}

/// Writes as much as is taken now.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    match stream.write(bytes) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        done => done,
    }
}
