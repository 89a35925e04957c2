//! The TCP server: accepts clients within the limits, and serves them without ever blocking on one.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::sockopt::{KeepAlive, RcvBuf, TcpKeepCount, TcpKeepIdle, TcpKeepInterval, TcpUserTimeout};
use nix::sys::socket::{Backlog, listen, setsockopt};
use pmda::Sighup;
use pmda::limits::{Quota, Refusals};
use trace::Failure;
use trace::protocol::{self, Data};
use tracing::{debug, info, warn};

use crate::access::Access;
use crate::client::{Client, Left, Turn};
use crate::limits::{self, Account, Limits};

/// Size of a client's receive buffer in the kernel, in bytes. It includes the overhead of small segments.
const BUFFER: usize = 1 << 20;
/// Largest number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Number of ready clients that are polled at a time. The kernel then puts them behind those that wait.
const CLIENTS: usize = 8;
/// Longest time until pmcd is served, apart from the turns of the last clients.
const TIME: Duration = Duration::from_millis(3);
/// Pause of an asynchronous client of which everything was read, so that many small PDUs are read together.
const GATHER: Duration = Duration::from_millis(2);
/// Number of connections accepted before clients are served.
const NEW: usize = 64;
/// Pause after accepting has failed, for instance because no descriptor is free.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two log lines about failures to accept.
const TELL: Duration = Duration::from_secs(600);
/// TCP keep-alive: seconds before the first probe, seconds between probes, and their number.
const KEEP_ALIVE: [u32; 3] = [60, 15, 4];
/// Largest number of clients that are listed in the log.
const SHOWN: usize = 100;
/// Epoll data of the listening socket. A client's epoll data is its index.
const LISTENER: u64 = u64::MAX;
/// Epoll data of SIGHUP.
const HANGUP: u64 = u64::MAX - 1;

/// The listening socket and the clients.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    /// Polls the listening socket, SIGHUP, and all clients.
    poll: Epoll,
    hangups: Option<&'static Sighup>,
    /// Asynchronous clients that pause, and the end of the pause of all of them.
    resting: Vec<usize>,
    rested: Option<Instant>,
    access: Access,
    /// Open connections by host.
    pub(crate) connected: Quota<Account>,
    limits: Limits,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    paused: Option<Instant>,
    /// Time of the last log line about failures to accept.
    told: Option<Instant>,
    buffer: Box<[u8]>,
    acks: Vec<u8>,
    pid: u32,
    start: Instant,
    /// Seconds since the start, the end of the current second, and the earliest time limit of a client.
    now: u32,
    next_second: Instant,
    look: u32,
    /// Connections that were closed after a time limit.
    pub(crate) silent: Refusals<Account>,
}

impl Server {
    /// Listens on a port. `hangups` reports SIGHUP, which lists the clients in the log.
    pub(crate) fn open(
        port: u16,
        access: Access,
        limits: Limits,
        hangups: Option<&'static Sighup>,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        listener.set_nonblocking(true)?;
        listen(&listener, Backlog::new(BACKLOG).unwrap_or(Backlog::MAXCONN))?;
        set_options(&listener)?;
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        poll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        if let Some(hangups) = hangups {
            poll.add(hangups, EpollEvent::new(EpollFlags::EPOLLIN, HANGUP))?;
        }
        let start = Instant::now();
        Ok(Server {
            listener,
            poll,
            hangups,
            resting: Vec::new(),
            rested: None,
            access,
            connected: limits::quota("connections", limits.connections_each, limits.connections),
            clients: Vec::new(),
            free: Vec::new(),
            paused: None,
            told: None,
            buffer: Turn::buffer(),
            acks: Vec::new(),
            pid: std::process::id(),
            start,
            now: 0,
            next_second: start,
            look: u32::MAX,
            silent: Refusals::new("connections that were silent too long"),
            limits,
        })
    }

    /// Readable when a client wants to connect, or has sent something.
    pub(crate) fn poll(&self) -> &OwnedFd {
        &self.poll.0
    }

    /// Returns the time at which `serve_due` is due next.
    pub(crate) fn due(&self) -> Option<Instant> {
        let look = self.start.checked_add(Duration::from_secs(u64::from(self.look) + 1));
        let look = look.filter(|_| self.look != u32::MAX);
        [self.paused, self.rested, look].into_iter().flatten().min()
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.clients.len() - self.free.len()
    }

    /// Handles timers: the end of a pause, and time limits of clients.
    pub(crate) fn serve_due(&mut self, now: Instant, add: &mut impl FnMut(Account, &Data<'_>)) {
        if self.paused.is_some_and(|until| until <= now) {
            self.resume();
        }
        if self.rested.is_some_and(|until| until <= now) {
            self.rested = None;
            for place in std::mem::take(&mut self.resting) {
                self.wait_for(place, EpollFlags::EPOLLIN).unwrap_or_else(|left| self.leave(place, &left));
            }
        }
        self.set_now(now);
        if self.now > self.look {
            self.close_silent(add);
        }
    }

    fn set_now(&mut self, now: Instant) {
        if now < self.next_second {
            return;
        }
        self.now = u32::try_from(now.saturating_duration_since(self.start).as_secs()).unwrap_or(u32::MAX);
        self.next_second = self.start + Duration::from_secs(u64::from(self.now) + 1);
    }

    /// Accepts and serves clients. Bounded by [`TIME`]: pmcd must not wait for the others, which are served the next time.
    pub(crate) fn serve(&mut self, start: Instant, add: &mut impl FnMut(Account, &Data<'_>)) {
        let mut events = [EpollEvent::empty(); CLIENTS];
        self.set_now(start);
        loop {
            let ready = self.poll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
            let mut more = ready == events.len();
            for event in events.iter().take(ready) {
                match event.data() {
                    LISTENER => self.accept(),
                    HANGUP => self.show(),
                    place => more |= self.turn(place as usize, add),
                }
            }
            if !more || start.elapsed() > TIME {
                return;
            }
        }
    }

    /// Serves clients, also those that pause: all that they have sent is counted before a request is answered.
    pub(crate) fn serve_all(&mut self, start: Instant, add: &mut impl FnMut(Account, &Data<'_>)) {
        self.serve(start, add);
        for place in self.resting.clone() {
            while self.turn(place, add) && start.elapsed() <= TIME {}
        }
    }

    fn client(&self, place: usize) -> Option<&Client> {
        self.clients.get(place)?.as_ref()
    }

    fn accept(&mut self) {
        for _ in 0..NEW {
            match self.listener.accept() {
                Ok((stream, SocketAddr::V4(address))) => {
                    self.greet(stream, address).unwrap_or_else(|e| debug!("client {address}: {e}"));
                }
                Ok(_) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    self.pause(&e);
                    let _ = self.poll.delete(&self.listener);
                    return;
                }
            }
        }
    }

    /// Stops accepting connections for [`PAUSE`]. The log has at most one line about this in each [`TELL`].
    fn pause(&mut self, why: &io::Error) {
        let now = Instant::now();
        if self.told.is_none_or(|told| now - told > TELL) {
            warn!("cannot accept connections: {why}; the agent retries after a second");
            self.told = Some(now);
        }
        self.paused = Some(now + PAUSE);
    }

    /// Accepts connections again. After an error, it tries this again later.
    fn resume(&mut self) {
        let listening = self.poll.add(&self.listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER));
        match listening {
            Ok(()) | Err(Errno::EEXIST) => self.paused = None,
            Err(e) => self.pause(&e.into()),
        }
    }

    fn greet(&mut self, mut stream: TcpStream, address: SocketAddrV4) -> io::Result<()> {
        let host = *address.ip();
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let SocketAddr::V4(own) = stream.local_addr()? else { return Ok(()) };
        let account = Account::of_client(host, *own.ip());
        let admitted = self.admit(host, account);
        let code = admitted.as_ref().map_or_else(code, |()| protocol::VERSION);
        // The send buffer of a new connection has room for this.
        let greeted = stream.write_all(&protocol::encode_ack(code, self.pid));
        if let Err(e) = admitted {
            debug!("client {host}: connect refused: {e}");
            return Ok(());
        }
        let place = self.free.pop().unwrap_or(self.clients.len());
        if place == self.clients.len() {
            self.clients.push(None);
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, place as u64);
        if let Err(e) = greeted.and_then(|()| Ok(self.poll.add(&stream, event)?)) {
            self.access.disconnect(host);
            self.connected.remove(&account, 1);
            self.free.push(place);
            return Err(e);
        }
        debug!("client {host}: new connection");
        let due = self.now.saturating_add(u32::try_from(self.limits.pdu_time.as_secs()).unwrap_or(u32::MAX));
        self.look = self.look.min(due);
        if let Some(free) = self.clients.get_mut(place) {
            *free = Some(Client::new(stream, host, account, due));
        }
        Ok(())
    }

    /// Counts a connection for its host, if the client may connect.
    fn admit(&mut self, host: Ipv4Addr, account: Account) -> Result<(), Failure> {
        self.access.connect(host)?;
        self.connected.try_add(&account, 1).map_err(|_| {
            self.access.disconnect(host);
            Failure::ConnLimit
        })
    }

    /// Serves the client at `place`, if it still exists. Returns true when it has sent more.
    fn turn(&mut self, place: usize, add: &mut impl FnMut(Account, &Data<'_>)) -> bool {
        let Some(Some(client)) = self.clients.get_mut(place) else { return false };
        let Server { buffer, acks, pid, now, limits, .. } = self;
        let mut turn = Turn { buffer, acks, pid: *pid, now: *now, limits };
        let done = client.turn(&mut turn, add);
        self.look = self.look.min(client.due);
        let waits = match done {
            Ok(_) if client.has_unsent() => EpollFlags::EPOLLOUT,
            Ok(false) if client.asynchronous => EpollFlags::empty(),
            _ => EpollFlags::EPOLLIN,
        };
        done.and_then(|more| self.wait_for(place, waits).map(|()| more)).unwrap_or_else(|left| {
            self.leave(place, &left);
            false
        })
    }

    /// Sets what the agent waits for at a client: that it sends something, that it reads its acknowledgements, or the end of
    /// its pause.
    fn wait_for(&mut self, place: usize, waits: EpollFlags) -> Result<(), Left> {
        let Some(Some(client)) = self.clients.get_mut(place) else { return Ok(()) };
        if client.waits == waits {
            return Ok(());
        }
        client.waits = waits;
        if waits.is_empty() {
            self.resting.push(place);
            self.rested.get_or_insert_with(|| Instant::now() + GATHER);
        }
        let mut event = EpollEvent::new(waits, place as u64);
        Ok(self.poll.modify(&client.stream, &mut event).map_err(io::Error::from)?)
    }

    /// Closes connections of clients whose time limit has passed.
    fn close_silent(&mut self, add: &mut impl FnMut(Account, &Data<'_>)) {
        self.look = u32::MAX;
        for place in 0..self.clients.len() {
            if self.is_due(place) {
                // Data that arrived before the limit counts, even if it has not been read yet.
                self.turn(place, add);
            }
            let is_due = self.is_due(place);
            let Some(client) = self.client(place) else { continue };
            if is_due {
                let account = client.account;
                self.silent.add(&account, 1);
                self.leave(place, &Left::Silent);
            } else {
                self.look = self.look.min(client.due.max(self.now));
            }
        }
    }

    fn is_due(&self, place: usize) -> bool {
        self.client(place).is_some_and(|client| client.due < self.now)
    }

    fn leave(&mut self, place: usize, left: &Left) {
        let Some(client) = self.clients.get_mut(place).and_then(Option::take) else { return };
        match left {
            Left::End => debug!("client {}: close connection", client.host),
            Left::Failed(e) => debug!("client {}: {e}", client.host),
            Left::Nonsense(e) => debug!("client {}: bogus PDU read: {e}", client.host),
            Left::Ack => debug!("client {}: an ACK PDU, expected data", client.host),
            Left::Silent => debug!("client {}: silent too long", client.host),
        }
        self.access.disconnect(client.host);
        self.connected.remove(&client.account, 1);
        self.free.push(place);
        // The descriptor must be free before `resume`.
        drop(client);
        if self.paused.is_some() {
            self.resume();
        }
    }

    /// Lists the clients in the log.
    fn show(&self) {
        self.hangups.map(Sighup::take);
        info!("{} connected clients", self.connections());
        for client in self.clients.iter().flatten().take(SHOWN) {
            info!("{} {}", if client.asynchronous { "async" } else { "sync " }, client.host);
        }
        if self.connections() > SHOWN {
            info!("and {} more", self.connections() - SHOWN);
        }
    }
}

/// Sets options that accepted connections inherit from the listening socket.
fn set_options(listener: &TcpListener) -> io::Result<()> {
    // The default buffer is small for many small segments.
    setsockopt(listener, RcvBuf, &BUFFER)?;
    let [idle, interval, count] = KEEP_ALIVE;
    setsockopt(listener, KeepAlive, &true)?;
    setsockopt(listener, TcpKeepIdle, &idle)?;
    setsockopt(listener, TcpKeepInterval, &interval)?;
    setsockopt(listener, TcpKeepCount, &count)?;
    // Keep-alive sends no probes while data is unacknowledged: this limits that time.
    setsockopt(listener, TcpUserTimeout, &(1000 * (idle + interval * count)))?;
    Ok(())
}

fn code(refused: &Failure) -> i32 {
    match refused {
        Failure::ConnLimit => -12011,
        _ => -12010,
    }
}
