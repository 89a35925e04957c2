//! The file descriptors and times that an agent waits for besides pmcd.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};

use crate::background::Background;

/// The set of file descriptors and times that an agent waits for, from [`Agent::sources`](crate::Agent::sources). The
/// host calls
/// [`Agent::wake`](crate::Agent::wake) for each that is ready, between two requests and in the same thread.
///
/// A descriptor that the agent reads or writes in [`Agent::wake`](crate::Agent::wake) should be non-blocking, because
/// pmcd has to wait in the meantime.
#[derive(Debug, Default)]
pub struct PollSet<'a> {
    pub(crate) fds: Vec<PollFd<'a>>,
    /// The wake for each descriptor, if any.
    pub(crate) wakes: Vec<Option<Wake>>,
    pub(crate) until: Option<Instant>,
}

/// The reason why an agent is woken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Wake {
    /// The descriptor with this number is readable, or its peer has closed it.
    Readable(usize),
    /// The descriptor with this number is writable, or its peer has closed it.
    Writable(usize),
    /// The earliest time has come.
    Time,
}

impl<'a> PollSet<'a> {
    /// Wakes the agent when the descriptor is readable. The agent chooses `number` to identify the descriptor.
    pub fn readable(&mut self, number: usize, fd: &'a impl AsFd) {
        self.add(fd, PollFlags::POLLIN, Some(Wake::Readable(number)));
    }

    /// Wakes the agent when the descriptor is writable.
    pub fn writable(&mut self, number: usize, fd: &'a impl AsFd) {
        self.add(fd, PollFlags::POLLOUT, Some(Wake::Writable(number)));
    }

    /// Wakes the agent at a time. The earliest of several times counts.
    pub fn at(&mut self, time: Instant) {
        self.until = Some(self.until.map_or(time, |until| until.min(time)));
    }

    /// Waits for the first snapshot of a source, so that pmcd is notified at once when
    /// [`Agent::is_ready`](crate::Agent::is_ready) becomes true. This does not call
    /// [`Agent::wake`](crate::Agent::wake).
    pub fn first_snapshot<T: Send + Sync + 'static>(&mut self, source: &'a Background<T>) {
        if !source.is_ready() {
            self.add(source, PollFlags::POLLIN, None);
        }
    }

    pub(crate) fn add(&mut self, fd: &'a impl AsFd, events: PollFlags, wake: Option<Wake>) {
        self.fds.push(PollFd::new(fd.as_fd(), events));
        self.wakes.push(wake);
    }
}
