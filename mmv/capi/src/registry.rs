//! Registries: metrics that a program describes one by one, before it starts the export.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use libc::{EDEADLK, EFAULT, EINVAL};

use crate::contents::{Contents, Help, Indom, Instance, Metric, Names, own, own_help, push};
use crate::file;
use crate::handle::{Handle, Started};
use crate::label::Label;
use crate::sys::{KeepThread, check_memory};

/// Attempts to get the lock of a registry, with pauses: about a second. In a forked child, the thread that has the lock
/// may not exist; in a signal handler, it may be the thread that was interrupted.
const TRIES: u32 = 10_000;
const PAUSE: Duration = Duration::from_micros(100);

/// Memory of a registry, which stays allocated: a program may use a registry after it has freed it.
#[derive(Debug)]
pub(crate) struct Place(Mutex<Option<Arc<Registry>>>);

/// The places of registries that were freed.
static FREED: Mutex<Vec<&'static Place>> = Mutex::new(Vec::new());

/// A registry (`mmv_registry_t`).
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    name: Box<[u8]>,
    contents: Contents,
    /// The last start.
    started: Option<Started>,
}

/// Creates a registry, or returns the code of an error.
pub(crate) fn create(name: &[u8], cluster: i32, flags: u32) -> Result<&'static Place, i32> {
    check_memory(name.len())?;
    let contents = Contents::new(cluster, flags, Names::Pointers);
    let registry = Some(Arc::new(Registry { name: name.into(), contents, started: None }));
    let freed = FREED.try_lock().ok().and_then(|mut freed| freed.pop());
    let Some(place) = freed else { return Ok(Box::leak(Box::new(Place(Mutex::new(registry))))) };
    *place.lock()? = registry;
    Ok(place)
}

impl Place {
    /// Waits for the lock, for a limited time.
    fn lock(&self) -> Result<MutexGuard<'_, Option<Arc<Registry>>>, i32> {
        for attempt in 0..TRIES {
            match self.0.try_lock() {
                Ok(registry) => return Ok(registry),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(PoisonError::into_inner(poisoned)),
                Err(TryLockError::WouldBlock) if attempt < 100 => thread::yield_now(),
                Err(TryLockError::WouldBlock) => {
                    let _whole = KeepThread::new();
                    thread::sleep(PAUSE);
                }
            }
        }
        Err(EDEADLK)
    }

    /// Changes the registry, or returns the code of an error if it was freed.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Registry) -> R) -> Result<R, i32> {
        // A thread that writes the file has the registry, too: then the change is made to a copy.
        self.lock()?.as_mut().map(|registry| change(Arc::make_mut(registry))).ok_or(EFAULT)
    }

    fn registry(&self) -> Result<Arc<Registry>, i32> {
        self.lock()?.as_ref().map(Arc::clone).ok_or(EFAULT)
    }

    /// Writes and maps the file (`mmv_stats_start`).
    pub(crate) fn start(&self) -> Result<Started, i32> {
        let registry = self.registry()?;
        let started = Handle::start(&registry.contents, file::path(&registry.name)?)?;
        drop(registry);
        // Another thread may have freed the registry meanwhile.
        _ = self.change(|registry| registry.started = Some(started));
        Ok(started)
    }

    /// Clears the registry, and ends its export (`mmv_stats_reset`).
    pub(crate) fn reset(&self) {
        let started = self.change(|registry| {
            let Contents { cluster, flags, names, labelled, .. } = registry.contents;
            registry.contents = Contents { labelled, ..Contents::new(cluster, flags, names) };
            registry.started.take()
        });
        if let Ok(Some(started)) = started {
            started.stop();
        }
    }

    /// Resets and removes the registry (`mmv_stats_free`).
    pub(crate) fn free(&'static self) {
        self.reset();
        let removed = self.lock().ok().and_then(|mut registry| registry.take());
        if let (Some(_), Ok(mut freed)) = (removed, FREED.try_lock()) {
            freed.push(self);
        }
    }
}

impl Registry {
    pub(crate) fn add_metric(&mut self, metric: impl FnOnce() -> Metric) -> Result<(), i32> {
        push(&mut self.contents.metrics, metric)
    }

    pub(crate) fn add_indom(&mut self, serial: u32, help: Help<'_>) -> Result<(), i32> {
        push(&mut self.contents.indoms, || Indom { serial, instances: Vec::new(), help: own_help(help) })
    }

    /// Adds an instance to each instance domain with a serial number.
    pub(crate) fn add_instance(&mut self, serial: u32, id: i32, name: &[u8]) -> Result<(), i32> {
        let mut result = Err(EINVAL);
        for indom in self.contents.indoms.iter_mut().filter(|indom| indom.serial == serial) {
            result = push(&mut indom.instances, || Instance { id, name: own(name) });
            result?;
        }
        result
    }

    pub(crate) fn add_label(&mut self, label: Label) -> Result<(), i32> {
        push(&mut self.contents.labels, || label)?;
        self.contents.labelled = true;
        Ok(())
    }

    /// Returns the cluster, which identifies the registry in its labels.
    pub(crate) fn cluster(&self) -> i32 {
        self.contents.cluster
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn changes_during_starts_are_kept() {
        let place = create(b"changes", 0, 0).unwrap();
        let add = || place.change(|registry| registry.add_indom(1, [None; 2])).unwrap().unwrap();
        let lent = || place.registry().unwrap();
        add();
        // Starts go on with what they began with.
        let (first, second) = (lent(), lent());
        assert!(Arc::ptr_eq(&first, &second));
        add();
        let third = lent();
        assert_eq!([second, third].map(|registry| registry.contents.indoms.len()), [1, 2]);
        place.free();
        assert_eq!(place.change(|_| ()), Err(EFAULT));
        // The next registry has the place.
        let next = create(b"next", 0, 0).unwrap();
        assert_eq!(next.change(|registry| registry.contents.indoms.len()), Ok(0));
    }
}
