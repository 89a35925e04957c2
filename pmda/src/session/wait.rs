//! Waits for pmcd and for the sources of an agent.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::agent::Agent;
use crate::engine::Engine;
use crate::poll::{PollSet, Wake};

/// Longest time between two checks of an agent that is not ready.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for pmcd and the sources of an agent. It reuses its memory.
#[derive(Debug, Default)]
pub(super) struct Poll {
    fds: Vec<PollFd<'static>>,
    wakes: Vec<Option<Wake>>,
    due: Vec<Wake>,
    /// Whether the agent has ever had sources.
    serves: bool,
}

/// The event of pmcd that is waited for.
#[derive(Debug)]
pub(super) enum Pmcd<'a, R, W> {
    /// pmcd sends a request.
    Sends(&'a R),
    /// pmcd reads the rest of an answer.
    Reads(&'a W),
}

impl Poll {
    /// Returns whether the agent may have work to do while pmcd is idle.
    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    /// Waits for an event, and wakes the agent for its own sources. Returns whether pmcd's event has happened. For an
    /// agent that has never had sources this returns true at once, because reading then waits.
    pub(super) fn wait<A: Agent>(
        &mut self,
        pmcd: &Pmcd<'_, impl AsFd, impl AsFd>,
        engine: &mut Engine<A>,
    ) -> io::Result<bool> {
        let mut set = PollSet { fds: recycle(std::mem::take(&mut self.fds)), ..PollSet::default() };
        set.wakes = std::mem::take(&mut self.wakes);
        set.wakes.clear();
        engine.agent().sources(&mut set);
        // pmcd sends nothing while the agent is not ready, so this is the only check.
        let look = engine.is_waited_for().then(|| Instant::now() + PATIENCE);
        let until = [set.until, look].into_iter().flatten().min();
        self.serves |= !set.fds.is_empty() || until.is_some();
        if !self.serves {
            return Ok(true);
        }
        match pmcd {
            Pmcd::Sends(input) => set.add(*input, PollFlags::POLLIN, None),
            Pmcd::Reads(output) => set.add(*output, PollFlags::POLLOUT, None),
        }
        let asked = wait(&mut set.fds, until)?;
        let ready = set.fds.iter().zip(&set.wakes).filter(|(fd, _)| fd.any().unwrap_or(true));
        self.due.extend(ready.filter_map(|(_, wake)| *wake));
        if set.until.is_some_and(|until| until <= Instant::now()) {
            self.due.push(Wake::Time);
        }
        self.wakes = set.wakes;
        self.fds = recycle(set.fds);
        self.due.drain(..).for_each(|wake| engine.wake(wake));
        Ok(asked)
    }
}

/// Polls, and returns whether the last descriptor is ready.
fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    match poll(fds, left.map_or(PollTimeout::NONE, timeout)) {
        Ok(_) => Ok(fds.last().is_some_and(|fd| fd.any().unwrap_or(true))),
        Err(Errno::EINTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Returns a time, rounded up to milliseconds: rounding down would poll without waiting at the end.
fn timeout(left: Duration) -> PollTimeout {
    let up = Duration::from_nanos(999_999);
    PollTimeout::try_from(left.saturating_add(up).as_millis()).unwrap_or(PollTimeout::MAX)
}

/// Returns an empty vector with the memory of another one.
fn recycle<'b>(mut fds: Vec<PollFd<'_>>) -> Vec<PollFd<'b>> {
    fds.clear();
    // A vector is collected in place when old and new elements have the same size. This one has no elements.
    fds.into_iter().map_while(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::background::Background;
    use crate::engine::Startup;
    use crate::error::Start;
    use crate::setup::Setup;
    use crate::values::Values;
    use pmapi::{Config, Domain, Item, Result};

    /// An agent that waits for the other end of a socket, if it has one, and for times.
    #[derive(Default)]
    struct Listening {
        socket: Option<UnixStream>,
        times: Vec<Instant>,
        source: Option<Background<()>>,
        woken: Vec<Wake>,
    }

    impl Agent for Listening {
        const NAME: &'static str = "listening";
        const DOMAIN: u16 = 400;

        fn new(_: &mut Setup) -> Start<Self> {
            Ok(Listening::default())
        }

        fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
            Ok(())
        }

        fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
            if let Some(socket) = &self.socket {
                set.readable(7, socket);
                set.writable(8, socket);
            }
            for time in &self.times {
                set.at(*time);
            }
            if let Some(source) = &self.source {
                set.first(source);
            }
        }

        fn wake(&mut self, wake: Wake) {
            self.woken.push(wake);
        }
    }

    fn sends(pmcd: &UnixStream) -> Pmcd<'_, UnixStream, UnixStream> {
        Pmcd::Sends(pmcd)
    }

    fn engine() -> Engine<Listening> {
        Engine::builder().domain(Domain::new(400).unwrap()).config(Config::new(b"", [])).build().unwrap()
    }

    #[test]
    fn an_agent_without_sources_waits_by_reading_alone() {
        let (pmcd, _silent) = UnixStream::pair().unwrap();
        let mut engine = engine();
        // pmcd has sent nothing, so a poll would never return.
        assert!(Poll::default().wait(&sends(&pmcd), &mut engine).unwrap());
        // After the first snapshot there is nothing to wait for either.
        let source = Background::spawn(Duration::from_secs(3600), || Ok(())).unwrap();
        let first = engine.agent_mut().source.insert(source);
        while !first.is_ready() {
            std::thread::yield_now();
        }
        assert!(Poll::default().wait(&sends(&pmcd), &mut engine).unwrap());
    }

    #[test]
    fn an_agent_is_woken_for_what_is_ready() {
        let (pmcd, silent) = UnixStream::pair().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut poll, mut engine) = (Poll::default(), engine());
        engine.agent_mut().socket = Some(ours);
        engine.agent_mut().times = vec![Instant::now() + Duration::from_secs(3600)];
        let mut wait = |engine: &mut Engine<Listening>| {
            let asked = poll.wait(&sends(&pmcd), engine).unwrap();
            (asked, std::mem::take(&mut engine.agent_mut().woken))
        };
        assert_eq!(wait(&mut engine), (false, vec![Wake::Writable(8)]));
        // A closed peer is an event as well.
        drop((silent, theirs));
        assert_eq!(wait(&mut engine), (true, vec![Wake::Readable(7), Wake::Writable(8)]));
    }

    #[test]
    fn the_first_of_several_times_counts() {
        let (pmcd, _silent) = UnixStream::pair().unwrap();
        let (mut poll, mut engine) = (Poll::default(), engine());
        let later = Duration::from_secs(3600);
        for times in [[Duration::ZERO, later], [later, Duration::ZERO]] {
            engine.agent_mut().times = times.map(|time| Instant::now() + time).into();
            assert!(!poll.wait(&sends(&pmcd), &mut engine).unwrap());
            assert_eq!(std::mem::take(&mut engine.agent_mut().woken), [Wake::Time]);
        }
    }

    #[test]
    fn an_agent_that_is_not_ready_is_looked_at_now_and_then() {
        let mut engine = engine();
        engine.can_tell(Startup::NotReady);
        let (pmcd, _silent) = UnixStream::pair().unwrap();
        // This returns although pmcd sends nothing.
        assert!(!Poll::default().wait(&sends(&pmcd), &mut engine).unwrap());
        assert!(engine.becomes_ready() && !engine.is_waited_for());
    }

    #[test]
    fn a_time_is_rounded_up_to_milliseconds() {
        for (nanoseconds, milliseconds) in [(0, 0u8), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(timeout(Duration::from_nanos(nanoseconds)), milliseconds.into(), "{nanoseconds} ns");
        }
        assert_eq!(timeout(Duration::MAX), PollTimeout::MAX);
    }

    #[test]
    fn descriptors_keep_their_memory() {
        let fd = UnixStream::pair().unwrap().0;
        let mut fds = Vec::with_capacity(17);
        fds.push(PollFd::new(fd.as_fd(), PollFlags::POLLIN));
        let before = (fds.as_ptr().addr(), fds.capacity());
        let after: Vec<PollFd<'static>> = recycle(fds);
        assert_eq!((after.as_ptr().addr(), after.capacity(), after.len()), (before.0, before.1, 0));
    }
}
