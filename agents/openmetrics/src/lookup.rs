//! Look-ups of the name service, which cannot be stopped: if the name service does not answer, a look-up goes on after its
//! request has ended.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most look-ups at a time, of all sources together.
const LOOKUPS: usize = 64;

/// Look-ups of the agent.
static RUNNING: LazyLock<Running> = LazyLock::new(Running::default);

/// Returns the addresses of a host, or `None` if the look-up takes longer than `time`.
pub(crate) fn addresses(host: &str, time: Duration) -> io::Result<Option<Vec<IpAddr>>> {
    let name = host.to_owned();
    look_up(&RUNNING, host, time, move || Ok((name.as_str(), 0).to_socket_addrs()?.map(|addr| addr.ip()).collect()))
}

/// The look-ups that go on, by name. All requests for a name wait for the same look-up, so a name whose servers do not
/// answer needs one thread.
#[derive(Debug, Default)]
struct Running(Mutex<HashMap<String, Arc<Pending>>>);

/// A look-up that goes on.
#[derive(Debug, Default)]
struct Pending {
    found: Mutex<Option<Found>>,
    ended: Condvar,
}

/// Addresses of a name, or the reason why there are none.
type Found = Result<Vec<IpAddr>, (ErrorKind, String)>;

/// Ends a look-up, even if it panics.
struct Ending<'r> {
    running: &'r Running,
    name: String,
    pending: Arc<Pending>,
    found: Found,
}

impl Ending<'_> {
    fn with(mut self, found: Found) {
        self.found = found;
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.running.lock().remove(&self.name);
        let found = std::mem::replace(&mut self.found, Ok(Vec::new()));
        *self.pending.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        self.pending.ended.notify_all();
    }
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Pending>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the look-up of a name that goes on, or a new one in a thread of its own.
    fn pending(
        &'static self,
        name: &str,
        lookup: impl FnOnce() -> io::Result<Vec<IpAddr>> + Send + 'static,
    ) -> io::Result<Arc<Pending>> {
        let mut running = self.lock();
        if let Some(pending) = running.get(name) {
            return Ok(Arc::clone(pending));
        }
        if running.len() >= LOOKUPS {
            let reason = format!("the name service does not answer: {LOOKUPS} look-ups are waiting for it");
            return Err(io::Error::new(ErrorKind::ResourceBusy, reason));
        }
        let pending = Arc::new(Pending::default());
        running.insert(name.to_owned(), Arc::clone(&pending));
        drop(running);
        let found = Err((ErrorKind::Other, "the look-up of the host failed".to_owned()));
        let ending = Ending { running: self, name: name.to_owned(), pending: Arc::clone(&pending), found };
        pmapi::thread::spawn("look-up", move || ending.with(lookup().map_err(|e| (e.kind(), e.to_string()))))?;
        Ok(pending)
    }
}

/// Looks up a name in a thread of its own. Returns `None` if that takes longer than `time`.
fn look_up(
    running: &'static Running,
    name: &str,
    time: Duration,
    lookup: impl FnOnce() -> io::Result<Vec<IpAddr>> + Send + 'static,
) -> io::Result<Option<Vec<IpAddr>>> {
    let pending = running.pending(name, lookup)?;
    let found = pending.found.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = pending.ended.wait_timeout_while(found, time, |found| found.is_none());
    match &*ended.unwrap_or_else(PoisonError::into_inner).0 {
        None => Ok(None),
        Some(Ok(addrs)) => Ok(Some(addrs.clone())),
        Some(Err((kind, reason))) => Err(io::Error::new(*kind, reason.clone())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc::channel;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Look-ups that hang use a limited number of threads. When they end, others may begin.
    #[test]
    fn look_ups_that_hang() {
        static OWN: LazyLock<Running> = LazyLock::new(Running::default);
        let addr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut held = Vec::new();
        for number in 0..LOOKUPS {
            let (hold, holds) = channel::<()>();
            held.push(hold);
            let hangs = move || {
                let _ = holds.recv();
                Ok(Vec::new())
            };
            assert_eq!(look_up(&OWN, &number.to_string(), Duration::ZERO, hangs).unwrap(), None);
        }
        let busy = look_up(&OWN, "other", LIMIT, || Ok(Vec::new())).unwrap_err();
        assert!(busy.to_string().contains("64 look-ups are waiting"), "{busy}");
        drop(held);
        let begin = std::time::Instant::now();
        let found = loop {
            match look_up(&OWN, "other", LIMIT, move || Ok(vec![addr])) {
                Err(_) if begin.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(1)),
                found => break found,
            }
        };
        assert_eq!(found.unwrap(), Some(vec![addr]));
        let failed = look_up(&OWN, "third", LIMIT, || Err(io::Error::other("unknown host")));
        assert_eq!(failed.unwrap_err().to_string(), "unknown host");
    }

    /// A name whose look-up hangs takes one thread, however often it is asked for.
    #[test]
    fn a_name_is_looked_up_once_at_a_time() {
        static OWN: LazyLock<Running> = LazyLock::new(Running::default);
        let addr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (hold, holds) = channel::<()>();
        let hangs = move || {
            let _ = holds.recv();
            Ok(vec![addr])
        };
        assert_eq!(look_up(&OWN, "slow", Duration::ZERO, hangs).unwrap(), None);
        for _ in 0..2 * LOOKUPS {
            assert_eq!(look_up(&OWN, "slow", Duration::ZERO, || Ok(Vec::new())).unwrap(), None);
        }
        assert_eq!(look_up(&OWN, "other", LIMIT, || Ok(Vec::new())).unwrap(), Some(Vec::new()));
        let waits = std::thread::spawn(|| look_up(&OWN, "slow", LIMIT, || Ok(Vec::new())).unwrap());
        drop(hold);
        // A new look-up if the first one has ended already.
        assert!(waits.join().unwrap().is_some());
    }
}
