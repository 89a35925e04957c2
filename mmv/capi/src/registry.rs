//! Registries: metrics that a program describes one by one, before it starts the export.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use libc::{EDEADLK, EFAULT, EINVAL};

use crate::contents::{Contents, Help, Indom, Instance, Metric, Names, own, own_help, push};
use crate::file;
use crate::handle::{Handle, Started};
use crate::label::Label;
use crate::sys::{Lock, check_memory};

/// All registries, by the addresses that programs hold.
static REGISTRIES: Lock<BTreeMap<usize, Entry>> = Lock::new(BTreeMap::new());

struct Entry {
    /// Word whose address stands for the registry.
    _token: Box<u64>,
    /// The registry. A thread that writes its file has it, too: a change is then made to a copy.
    registry: Arc<Registry>,
}

/// A registry (`mmv_registry_t`).
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    name: Box<[u8]>,
    contents: Contents,
    /// The last start.
    started: Option<Started>,
}

/// Creates a registry and returns the address that identifies it, or the code of an error.
pub(crate) fn create(name: &[u8], cluster: i32, flags: u32) -> Result<*mut c_void, i32> {
    check_memory(name.len())?;
    let token = Box::new(0);
    let address = ptr::from_ref(&*token).cast_mut().cast::<c_void>();
    let contents = Contents::new(cluster, flags, Names::Pointers);
    let registry = Arc::new(Registry { name: name.into(), contents, started: None });
    let mut all = REGISTRIES.lock().ok_or(EDEADLK)?;
    all.insert(address.addr(), Entry { _token: token, registry });
    Ok(address)
}

/// Calls `change` with the registry at an address. Returns an error code if the registry does not exist, or in a signal
/// handler that has interrupted another change.
#[inline]
pub(crate) fn change<R>(address: usize, change: impl FnOnce(&mut Registry) -> R) -> Result<R, i32> {
    let mut all = REGISTRIES.lock().ok_or(EDEADLK)?;
    all.get_mut(&address).map(|entry| change(Arc::make_mut(&mut entry.registry))).ok_or(EFAULT)
}

/// Writes and maps the file of a registry (`mmv_stats_start`).
pub(crate) fn start(address: usize) -> Result<*mut c_void, i32> {
    // The lock is not held while the file is written, because a fork waits for it.
    let all = REGISTRIES.lock().ok_or(EDEADLK)?;
    let registry = all.get(&address).map(|entry| Arc::clone(&entry.registry)).ok_or(EFAULT)?;
    drop(all);
    let started = Handle::start(&registry.contents, file::path(&registry.name)?);
    drop(registry);
    if let Ok((_, started)) = &started {
        // Another thread may have freed the registry meanwhile.
        _ = change(address, |registry| registry.started = Some(*started));
    }
    started.map(|(handle, _)| handle)
}

/// Clears a registry, and ends its export (`mmv_stats_reset`).
pub(crate) fn reset(address: usize) {
    let started = change(address, |registry| {
        let Contents { cluster, flags, names, labelled, .. } = registry.contents;
        registry.contents = Contents { labelled, ..Contents::new(cluster, flags, names) };
        registry.started.take()
    });
    if let Ok(Some(started)) = started {
        Handle::stop_started(started);
    }
}

/// Resets and removes a registry (`mmv_stats_free`).
pub(crate) fn free(address: usize) {
    reset(address);
    let removed = REGISTRIES.lock().and_then(|mut all| all.remove(&address));
    drop(removed);
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

/// Takes the lock that changes of registries need, for a fork. Returns whether it was free in time.
pub(crate) fn hold(tries: u32) -> bool {
    REGISTRIES.acquire(tries)
}

/// Ends [`hold`].
pub(crate) fn release() {
    REGISTRIES.release();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn changes_during_starts_are_kept() {
        let address = create(b"changes", 0, 0).unwrap().addr();
        let add = || change(address, |registry| registry.add_indom(1, [None; 2])).unwrap().unwrap();
        let lent = || Arc::clone(&REGISTRIES.lock().unwrap().get(&address).unwrap().registry);
        add();
        // Starts go on with what they began with.
        let (first, second) = (lent(), lent());
        assert!(Arc::ptr_eq(&first, &second));
        add();
        let third = lent();
        assert_eq!([second, third].map(|registry| registry.contents.indoms.len()), [1, 2]);
        free(address);
        assert_eq!(change(address, |_| ()), Err(EFAULT));
    }
}
