//! Registries: metrics that a program describes one by one, before it starts the export.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use libc::{EDEADLK, EFAULT, EINVAL, ENOMEM};

use crate::facts::{Help, Metric};
use crate::file;
use crate::handle::{Handle, Started};
use crate::label::Label;
use crate::own::{Items, OwnHelp, OwnInstance, OwnMetric};
use crate::plan::{Indom, Instances, Metrics, Names, Plan};
use crate::sys::{Lock, check_memory};

/// All registries, by the addresses that programs hold.
static REGISTRIES: Lock<Registries> = Lock::new(Registries { last: None, others: BTreeMap::new() });

/// Registries by their addresses.
struct Registries {
    /// The registry that was used last, because a program describes one registry after the other.
    last: Option<(usize, Entry)>,
    others: BTreeMap<usize, Entry>,
}

impl Registries {
    /// Returns the registry at an address.
    #[inline(always)]
    fn find(&mut self, address: usize) -> Option<&mut Entry> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != address) {
            self.make_last(address)?;
        }
        self.last.as_mut().map(|(_, entry)| entry)
    }

    #[cold]
    #[inline(never)]
    fn make_last(&mut self, address: usize) -> Option<()> {
        let found = self.others.remove(&address)?;
        self.insert(address, found);
        Some(())
    }

    fn insert(&mut self, address: usize, entry: Entry) {
        if let Some((last, entry)) = self.last.replace((address, entry)) {
            self.others.insert(last, entry);
        }
    }

    fn remove(&mut self, address: usize) -> Option<Entry> {
        self.find(address)?;
        self.last.take().map(|(_, entry)| entry)
    }
}

struct Entry {
    /// Word whose address stands for the registry.
    _token: Box<u64>,
    /// The registry, unless threads write its file. Not an [`Arc`], whose count would cost each change as much as the
    /// rest of it.
    free: Option<Registry>,
    /// The registry while threads write its file.
    lent: Option<Arc<Registry>>,
}

impl Entry {
    /// Returns the registry, to change it. While threads write its file, the change is made to a copy.
    #[inline(always)]
    fn change(&mut self) -> Option<&mut Registry> {
        if self.free.is_none() {
            self.reclaim();
        }
        self.free.as_mut()
    }

    #[cold]
    #[inline(never)]
    fn reclaim(&mut self) {
        self.free = self.lent.take().map(Arc::unwrap_or_clone);
    }

    /// Lends the registry to a thread that writes its file.
    fn lend(&mut self) -> Option<Arc<Registry>> {
        if let Some(registry) = self.free.take() {
            self.lent = Some(Arc::new(registry));
        }
        self.lent.clone()
    }

    /// Takes back what was [lent](Entry::lend).
    fn take_back(&mut self, lent: Arc<Registry>) {
        drop(lent);
        // Other threads may still write the file.
        match self.lent.take().map(Arc::try_unwrap) {
            Some(Ok(registry)) => self.free = Some(registry),
            Some(Err(lent)) => self.lent = Some(lent),
            None => {}
        }
    }
}

/// A registry (`mmv_registry_t`). It has copies of all texts.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    name: Box<[u8]>,
    cluster: i32,
    flags: u32,
    metrics: Items<OwnMetric>,
    indoms: Vec<OwnIndom>,
    /// Indexes of instance domains by serial number. A program may have used a number twice.
    by_serial: BTreeMap<u32, Vec<usize>>,
    labels: Vec<Label>,
    labelled: bool,
    /// The last start.
    started: Option<Started>,
}

#[derive(Clone, Debug)]
struct OwnIndom {
    serial: u32,
    instances: Items<OwnInstance>,
    help: OwnHelp,
}

impl OwnIndom {
    fn lend(&self) -> Indom<'_> {
        Indom { serial: self.serial, instances: Instances::Kept(&self.instances), help: self.help.lend() }
    }
}

/// Creates a registry and returns the address that identifies it, or the code of an error.
pub(crate) fn create(name: &[u8], cluster: i32, flags: u32) -> Result<*mut c_void, i32> {
    check_memory(name.len())?;
    let token = Box::new(0);
    let address = ptr::from_ref(&*token).cast_mut().cast::<c_void>();
    let registry = Registry::new(name.into(), cluster, flags);
    let mut all = REGISTRIES.lock().ok_or(EDEADLK)?;
    all.insert(address.addr(), Entry { _token: token, free: Some(registry), lent: None });
    Ok(address)
}

/// Calls `change` with the registry at an address. Returns an error code if the registry does not exist, or in a signal
/// handler that has interrupted another change.
#[inline]
pub(crate) fn change<R>(address: usize, change: impl FnOnce(&mut Registry) -> R) -> Result<R, i32> {
    let mut all = REGISTRIES.lock().ok_or(EDEADLK)?;
    all.find(address).and_then(Entry::change).map(change).ok_or(EFAULT)
}

/// Writes and maps the file of a registry (`mmv_stats_start`).
pub(crate) fn start(address: usize) -> Result<*mut c_void, i32> {
    // The lock is not held while the file is written, because a fork waits for it.
    let mut all = REGISTRIES.lock().ok_or(EDEADLK)?;
    let registry = all.find(address).and_then(Entry::lend).ok_or(EFAULT)?;
    drop(all);
    let started = registry.plan().and_then(|plan| Handle::start(&plan, file::path(&registry.name)?));
    let mut all = REGISTRIES.lock().ok_or(EDEADLK)?;
    // Another thread may have freed the registry meanwhile.
    if let Some(entry) = all.find(address) {
        entry.take_back(registry);
        if let Some(registry) = entry.change() {
            // After a start that fails, the former export still runs.
            registry.started = started.as_ref().ok().map(|(_, started)| *started).or(registry.started);
        }
    }
    drop(all);
    started.map(|(handle, _)| handle)
}

/// Clears a registry, and ends its export (`mmv_stats_reset`).
pub(crate) fn reset(address: usize) {
    let started = change(address, |registry| {
        let name = std::mem::take(&mut registry.name);
        let empty = Registry { labelled: registry.labelled, ..Registry::new(name, registry.cluster, registry.flags) };
        std::mem::replace(registry, empty).started
    });
    if let Ok(Some(started)) = started {
        Handle::stop_started(started);
    }
}

/// Resets and removes a registry (`mmv_stats_free`).
pub(crate) fn free(address: usize) {
    reset(address);
    let removed = REGISTRIES.lock().and_then(|mut all| all.remove(address));
    drop(removed);
}

impl Registry {
    fn new(name: Box<[u8]>, cluster: i32, flags: u32) -> Registry {
        Registry {
            name,
            cluster,
            flags,
            metrics: Items::new(),
            indoms: Vec::new(),
            by_serial: BTreeMap::new(),
            labels: Vec::new(),
            labelled: false,
            started: None,
        }
    }

    #[inline]
    pub(crate) fn add_metric(&mut self, metric: &Metric<'_>) -> Result<(), i32> {
        self.metrics.push_metric(metric)
    }

    pub(crate) fn add_indom(&mut self, serial: u32, help: Help<'_>) -> Result<(), i32> {
        self.indoms.try_reserve(1).map_err(|_| ENOMEM)?;
        check_memory(0)?;
        self.by_serial.entry(serial).or_default().push(self.indoms.len());
        self.indoms.push(OwnIndom { serial, instances: Items::new(), help: OwnHelp::new(help) });
        Ok(())
    }

    /// Adds an instance to each instance domain with a serial number.
    pub(crate) fn add_instance(&mut self, serial: u32, id: i32, name: &[u8]) -> Result<(), i32> {
        for index in self.by_serial.get(&serial).ok_or(EINVAL)? {
            if let Some(indom) = self.indoms.get_mut(*index) {
                indom.instances.push_instance(id, name)?;
            }
        }
        Ok(())
    }

    pub(crate) fn add_label(&mut self, label: Label) -> Result<(), i32> {
        self.labels.try_reserve(1).map_err(|_| ENOMEM)?;
        self.labels.push(label);
        self.labelled = true;
        Ok(())
    }

    /// Returns the cluster, which identifies the registry in its labels.
    pub(crate) fn cluster(&self) -> i32 {
        self.cluster
    }

    fn plan(&self) -> Result<Plan<'_>, i32> {
        let mut indoms = Vec::new();
        indoms.try_reserve_exact(self.indoms.len()).map_err(|_| ENOMEM)?;
        indoms.extend(self.indoms.iter().map(OwnIndom::lend));
        Ok(Plan {
            cluster: self.cluster,
            flags: self.flags,
            metrics: Metrics::Kept(&self.metrics),
            indoms,
            labels: &self.labels,
            labelled: self.labelled,
            names: Names::Pointers,
        })
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
        let mut all = REGISTRIES.lock().unwrap();
        let entry = all.find(address).unwrap();
        let add = |entry: &mut Entry| entry.change().unwrap().add_indom(1, [None; 2]).unwrap();
        add(entry);
        let first = entry.lend().unwrap();
        let second = entry.lend().unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        entry.take_back(first);
        // The other start goes on, with what it began with.
        add(entry);
        let third = entry.lend().unwrap();
        assert_eq!([second.indoms.len(), third.indoms.len()], [1, 2]);
        entry.take_back(second);
        entry.take_back(third);
        assert!(entry.lent.is_none());
        assert_eq!(entry.change().unwrap().indoms.len(), 2);
        drop(all);
        free(address);
        assert_eq!(change(address, |_| ()), Err(EFAULT));
    }
}
