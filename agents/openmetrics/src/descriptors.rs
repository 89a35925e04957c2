//! The limit of open files, and errors that pass. Each source keeps a connection, and the usual limit is 1,024.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Limit of a script, as most daemons have it. Programs that use select(2) fail with a higher one.
const USUAL: u64 = 1024;
/// Limit that is enough for all sources: two for each, and for each thread.
const ENOUGH: u64 = 16 << 10;

/// Raises the agent's limit as far as it may, to what all sources need.
pub(crate) fn raise() {
    change(|soft, hard| soft.max(hard.min(ENOUGH)));
}

/// Lowers the limit of this process, which is to run a script, to the usual one.
pub(crate) fn lower() {
    change(|soft, _| soft.min(USUAL));
}

/// Sets the soft limit. If that fails, the limit stays.
fn change(to: impl Fn(u64, u64) -> u64) {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, to(soft, hard), hard);
    }
}

/// Returns whether an error of the system may pass, so that a file that cannot be read now can be read later.
pub(crate) fn may_pass(e: &io::Error) -> bool {
    use Errno::{EAGAIN, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT};
    let passing = [EAGAIN, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT];
    e.raw_os_error().is_some_and(|code| passing.iter().any(|errno| *errno as i32 == code))
}

/// Number of connections that are kept.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The right to keep a connection between two requests. All of them together need at most half of the limit.
#[derive(Debug)]
pub(crate) struct Place(&'static AtomicUsize);

impl Place {
    /// Takes a place. Returns `None` if there is no more.
    pub(crate) fn take() -> Option<Place> {
        static MOST: OnceLock<usize> = OnceLock::new();
        let most = MOST.get_or_init(|| {
            let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft);
            usize::try_from(limit / 2).unwrap_or(usize::MAX)
        });
        Place::of(&KEPT, *most)
    }

    fn of(kept: &'static AtomicUsize, most: usize) -> Option<Place> {
        let place = Place(kept);
        (kept.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_returned() {
        static OWN: AtomicUsize = AtomicUsize::new(0);
        for _ in 0..3 {
            let places = [(); 3].map(|()| Place::of(&OWN, 2));
            assert_eq!(places.map(|place| place.is_some()), [true, true, false]);
        }
        assert_eq!(OWN.load(Ordering::Relaxed), 0);
    }
}
