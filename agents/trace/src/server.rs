//! The clients: any number of them, none of which is waited for.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt::RcvBuf};
use trace::Failure;
use trace::protocol::{self, Data, DecodeError, Pdu};
use tracing::{debug, info, warn};

use crate::access::Access;

/// As much is read of a client at once.
const READ: usize = 16 << 10;
/// As often, while there is so much, before others have their turn.
const READS: usize = 8;
/// As many bytes the system may keep of a client, with what it needs for small pieces.
const BUFFER: usize = 1 << 20;
/// As many clients have a turn before pmcd has one.
const TURNS: usize = 64;
/// How long asynchronous clients are left alone after they have had their turn: what each sends in small
/// pieces is read at once then.
const GATHER: Duration = Duration::from_millis(2);
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
    /// The listening socket, and clients that wait for answers.
    prompt: Epoll,
    /// Clients that do not.
    later: Epoll,
    /// Until when those have no turn.
    resting: Option<Instant>,
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

/// What is waited for of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// Something that it waits to be answered.
    ForPrompt,
    /// Something else.
    ForLater,
    /// That it takes answers.
    ToSend,
}

/// How much of what was there has been done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    Nothing,
    Part,
    All,
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
        // Clients have it from here. The system's own is small for many small pieces.
        setsockopt(&listener, RcvBuf, &BUFFER)?;
        let prompt = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        prompt.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        Ok(Server {
            listener,
            prompt,
            later: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            resting: None,
            access,
            clients: Vec::new(),
            free: Vec::new(),
            paused: None,
            buffer: vec![0; protocol::MAX_LEN + READ].into(),
            acks: Vec::new(),
            pid: std::process::id(),
        })
    }

    /// Readable when clients wait for an answer, or for a connection.
    pub(crate) fn prompt(&self) -> &OwnedFd {
        &self.prompt.0
    }

    /// Readable when other clients have sent something, if it is to be looked at now.
    pub(crate) fn later(&self) -> Option<&OwnedFd> {
        self.resting.is_none().then_some(&self.later.0)
    }

    /// When there is something to do although nothing has come.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.paused.into_iter().chain(self.resting).min()
    }

    /// Does what is to be done for new clients and those that wait for an answer, a part of it when it is much.
    pub(crate) fn serve_prompt(&mut self, add: &mut impl FnMut(&Data<'_>)) {
        self.serve(|server| &server.prompt, add);
    }

    /// Takes what other clients have sent, a part of it when it is much.
    pub(crate) fn serve_later(&mut self, add: &mut impl FnMut(&Data<'_>)) {
        let served = self.serve(|server| &server.later, add);
        self.resting = (served == Served::All).then(|| Instant::now() + GATHER);
    }

    /// A time has come.
    pub(crate) fn serve_due(&mut self, now: Instant, add: &mut impl FnMut(&Data<'_>)) {
        if self.paused.is_some_and(|until| until <= now) {
            self.resume();
        }
        if self.resting.is_some_and(|until| until <= now) {
            self.serve_later(add);
        }
    }

    fn serve(&mut self, which: impl Fn(&Server) -> &Epoll, add: &mut impl FnMut(&Data<'_>)) -> Served {
        let mut events = [EpollEvent::empty(); TURNS];
        let ready = which(self).wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let mut more = ready == events.len();
        for event in events.iter().take(ready) {
            match event.data() {
                LISTENER => self.accept(),
                place => more |= self.turn(place as usize, add),
            }
        }
        match ready {
            0 => Served::Nothing,
            _ if more => Served::Part,
            _ => Served::All,
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
                    let _ = self.prompt.delete(&self.listener);
                    return;
                }
            }
        }
    }

    fn resume(&mut self) {
        self.paused = None;
        let listening = self.prompt.add(&self.listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER));
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
        if let Err(e) = greeted.and_then(|()| Ok(self.prompt.add(&stream, event)?)) {
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

    /// Goes on with a client; true when it has sent more. It may have gone already, and another one be in its
    /// place.
    fn turn(&mut self, place: usize, add: &mut impl FnMut(&Data<'_>)) -> bool {
        let Some(Some(client)) = self.clients.get_mut(place) else { return false };
        let before = client.waits();
        self.acks.clear();
        let mut more = false;
        let done = if before == Waits::ToSend {
            client.send_rest()
        } else {
            let received = client.receive(&mut self.buffer, &mut self.acks, self.pid, add);
            received.and_then(|all| {
                more = !all;
                client.send(&self.acks)
            })
        };
        let after = client.waits();
        let moved = done.and_then(|()| if before == after { Ok(()) } else { self.wait_for(place, before, after) });
        if let Err(left) = moved {
            self.leave(place, &left);
        }
        more
    }

    fn wait_for(&self, place: usize, before: Waits, after: Waits) -> Result<(), Left> {
        let Some(Some(client)) = self.clients.get(place) else { return Ok(()) };
        let epoll = |waits| if waits == Waits::ForLater { &self.later } else { &self.prompt };
        let flags = if after == Waits::ToSend { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        let mut event = EpollEvent::new(flags, place as u64);
        let moved = if std::ptr::eq(epoll(before), epoll(after)) {
            self.prompt.modify(&client.stream, &mut event)
        } else {
            epoll(before).delete(&client.stream).and_then(|()| epoll(after).add(&client.stream, event))
        };
        Ok(moved.map_err(io::Error::from)?)
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
    fn waits(&self) -> Waits {
        match self {
            Client { unsent, .. } if !unsent.is_empty() => Waits::ToSend,
            Client { asynchronous: true, .. } => Waits::ForLater,
            _ => Waits::ForPrompt,
        }
    }

    /// Reads and takes the PDUs that are whole, several times while there is so much; true when all is read.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        acks: &mut Vec<u8>,
        pid: u32,
        add: &mut impl FnMut(&Data<'_>),
    ) -> Result<bool, Left> {
        for _ in 0..READS {
            let (before, free) = buffer.split_at_mut_checked(self.rest.len()).ok_or(Left::End)?;
            before.copy_from_slice(&self.rest);
            let n = match self.stream.read(free) {
                Ok(0) => return Err(Left::End),
                Ok(n) => n,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return Ok(true);
                }
                Err(e) => return Err(e.into()),
            };
            let full = n == free.len();
            let have = self.rest.len() + n;
            self.take(buffer.get(..have).unwrap_or_default(), acks, pid, add)?;
            // Somebody who waits for answers gets them first.
            if !full || !acks.is_empty() {
                return Ok(!full);
            }
        }
        Ok(false)
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        acks: &mut Vec<u8>,
        pid: u32,
        add: &mut impl FnMut(&Data<'_>),
    ) -> Result<(), Left> {
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
