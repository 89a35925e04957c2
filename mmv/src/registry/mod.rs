//! The registry: an application's exported metrics.

mod batch;
mod file;
mod flush;
mod histogram;
mod indom;
mod inner;
mod metric;
mod others;
mod publish;

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use pmapi::LabelFlags;

pub use batch::Batch;
pub use histogram::HistogramBuilder;
pub use indom::{Family, InstanceDomain, InstanceDomainBuilder};
pub use metric::MetricBuilder;

pub(crate) use inner::Inner;
#[cfg(feature = "metrics")]
pub(crate) use inner::LONGEST_WAIT;

use flush::Attempt;
use others::name_of_process;

use crate::directory::{GROUP_MODE, MODE};
use crate::format::Flags;
use crate::handle::{Counter, Gauge, Handle, Text, Timer};
use crate::layout::{LEAST_ROOM, MOST_ROOM, ROOM};
use crate::model::{Counts, Label, Subject};
use crate::names::check_file;
use crate::{Error, format, notice};

/// The metrics of an application, exported through one file (`mmv_stats_registry(3)`).
///
/// Clones share one registry. Dropping the last one [stops](Registry::stop) the export, which removes the file unless
/// the registry is [persistent](RegistryBuilder::persistent). Handles then stay valid, but their updates are invisible.
///
/// # Disks that hang
///
/// On a network, or with a broken disk, writing the file may take forever. Handles are then updated as always, if the
/// file is mapped. A thread that registers a metric or an instance, or starts the export, waits for the disk as long as
/// the kernel does. Look-ups ([`find`](Registry::find), [`find_family`](Registry::find_family), [`Family::instance`],
/// [`Family::get`]) wait for a thread that does so. Applications should therefore keep handles, and register before
/// they serve requests; a [lazy](RegistryBuilder::lazy) registry only waits for the flush thread.
/// [`flush`](Registry::flush) and [`stop`](Registry::stop) wait for another thread for a second.
///
/// ```
/// # fn main() -> Result<(), mmv::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// let registry = mmv::Registry::builder("shop").directory(dir.path()).build()?;
/// let sales = registry.counter("sales").help("Things sold").register()?;
/// registry.start();
/// sales.inc();
/// assert!(dir.path().join("shop").exists());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Registry {
    owner: Arc<Owner>,
}

/// Ends the export when the last clone is dropped.
struct Owner(Arc<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.0.stop() {
            // The flush thread ends the export, and needs the registry for that.
            Box::leak(Box::new(Arc::clone(&self.0)));
        }
    }
}

impl Registry {
    /// Creates a registry whose metrics have names of the form `mmv.<name>.…`.
    ///
    /// # Errors
    /// [`Error::Name`] or [`Error::TooLong`] if `name` cannot be the name of a file and a component of metric names.
    pub fn new(name: &str) -> Result<Registry, Error> {
        Self::builder(name).build()
    }

    /// Creates a builder of a registry with options.
    pub fn builder(name: &str) -> RegistryBuilder {
        RegistryBuilder {
            name: name.to_owned(),
            directory: None,
            cluster: None,
            flags: Flags::PROCESS,
            flush_every: None,
            lazy: false,
            most_instances: MOST_INSTANCES,
            room: ROOM,
            per_process: false,
            mode: MODE,
        }
    }

    /// Begins the registration of a counter of integers.
    pub fn counter<'n>(&'n self, name: &'n str) -> MetricBuilder<'n, Counter> {
        self.metric(name)
    }

    /// Begins the registration of a floating-point gauge.
    pub fn gauge<'n>(&'n self, name: &'n str) -> MetricBuilder<'n, Gauge> {
        self.metric(name)
    }

    /// Begins the registration of a timer.
    pub fn timer<'n>(&'n self, name: &'n str) -> MetricBuilder<'n, Timer> {
        self.metric(name)
    }

    /// Begins the registration of a text value.
    pub fn text<'n>(&'n self, name: &'n str) -> MetricBuilder<'n, Text> {
        self.metric(name)
    }

    /// Begins the registration of a metric with any handle: `registry.metric::<Gauge<i32>>("depth")`.
    pub fn metric<'n, H: Handle>(&'n self, name: &'n str) -> MetricBuilder<'n, H> {
        MetricBuilder::new(self.inner(), name)
    }

    /// Begins the registration of a distribution.
    pub fn histogram(&self, name: &str) -> HistogramBuilder {
        HistogramBuilder::new(self, name)
    }

    /// Begins the registration of an instance domain.
    pub fn indom<'n>(&'n self, name: &'n str) -> InstanceDomainBuilder<'n> {
        InstanceDomainBuilder::new(self.inner(), name)
    }

    /// Returns another handle of a registered metric (`mmv_lookup_value_desc(3)`). Returns `None` if there is no such
    /// metric, it has instances, or its handles are of another type or have a single owner.
    ///
    /// Waits while another thread writes the file: see [disks that hang](Registry#disks-that-hang).
    pub fn find<H: Handle>(&self, name: &str) -> Option<H> {
        self.inner().find(name)
    }

    /// Returns a registered metric with instances, or `None` if there is none with this name and type of handles. Waits
    /// as [`find`](Registry::find) does.
    pub fn find_family<H: Handle>(&self, name: &str) -> Option<Family<H>> {
        let inner = self.inner();
        let (metric, indom) = inner.lock()?.model.find_metric(name).and_then(|(index, metric)| {
            let same = metric.ty == H::TYPE && metric.kind == H::KIND;
            Some((index, metric.indom().filter(|_| same)?))
        })?;
        Some(Family::new(Arc::clone(inner), metric, indom))
    }

    /// Labels every metric of the registry with a value that JSON can express (`mmv_stats_add_registry_label(3)`).
    ///
    /// # Errors
    /// * [`Error::Label`] for an invalid name or value
    /// * [`Error::TooLong`] for more than 243 bytes of JSON
    /// * [`Error::Label`] also if the subject's labels, 254 and 65,534 bytes of JSON at most, have no room for it
    /// * [`Error::TooManyLabels`] if the registry has 255 labels
    /// * [`Error::Forked`] in a forked child
    pub fn label(&self, name: &str, value: impl serde::Serialize) -> Result<(), Error> {
        let label = Label::new(Subject::Registry, LabelFlags::empty(), name, value)?;
        self.inner().change(
            |_| Counts { labels: 1, ..Counts::default() },
            |state| {
                let labels = vec![label];
                state.model.check_labels(&labels, Some(Subject::Registry))?;
                state.model.add_labels(labels, Subject::Registry);
                Ok(())
            },
            |_, ()| (),
        )
    }

    /// Starts the export. Metrics and instances can be registered before and after.
    ///
    /// On a machine without PCP, or without permission to write to its directory, this logs one warning. The
    /// application continues, and its updates are invisible. In a program without a subscriber of `tracing`, only the
    /// first warning of the process about an export is written, to standard error. [`try_start`](Registry::try_start)
    /// returns the error instead.
    pub fn start(&self) {
        let Err(e) = self.try_start() else { return };
        let hint = self.hint(&e);
        notice::warn(format_args!("{}: metrics are not exported to PCP: {e}{hint}", self.inner().options.name));
    }

    /// Returns what the user of the program can do about an error of the export.
    fn hint(&self, error: &Error) -> String {
        let Error::Io { path, source } = error else { return String::new() };
        match (source.kind(), path.parent()) {
            // Where this process may write, the reason is another one.
            (io::ErrorKind::PermissionDenied, Some(directory)) if !may_write(directory) => {
                let who = match directory.metadata().map(|directory| directory.mode() & 0o32) {
                    Ok(0o30) => "members of the directory's group, and root,",
                    Ok(mode) if mode & 0o22 == 0 => "only its owner and root",
                    // The reason is another one: a directory above, or a file that is there.
                    _ => return String::new(),
                };
                format!("; {who} may export")
            }
            (io::ErrorKind::NotFound, Some(directory)) => {
                let another = match self.inner().options.directory {
                    Some(_) => "",
                    None => "; or PCP_TMP_DIR=T, for this program and the agent, selects the directory T/mmv",
                };
                format!("; mkdir -p {} creates the directory{another}", directory.display())
            }
            _ => String::new(),
        }
    }

    /// Starts the export (`mmv_stats_start(3)`).
    ///
    /// # Errors
    /// * [`Error::Io`] if the file cannot be written
    /// * [`Error::InUse`] while another registry of the process exports under the same name
    /// * [`Error::Forked`] in a forked child: create a registry after the fork
    pub fn try_start(&self) -> Result<(), Error> {
        self.inner().start()
    }

    /// Returns the path of the file from the start to the end of the export. Returns `None` in a forked child.
    pub fn path(&self) -> Option<PathBuf> {
        self.inner().path()
    }

    /// Delays writing the file until the returned guard is dropped, to register many metrics at once.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.inner())
    }

    /// Writes sharded counters, quantiles and lazy registrations to the file, and writes a removed file again.
    ///
    /// Does nothing if another thread has been writing the file for more than a second, for example because the disk
    /// hangs. Without such a thread, the disk may hang in this function, for which there is no time limit.
    pub fn flush(&self) {
        self.inner().flush(Attempt::Now);
        self.inner().retry_thread();
    }

    /// Ends the export (`mmv_stats_stop(3)`), and removes the file unless it is
    /// [persistent](RegistryBuilder::persistent).
    ///
    /// If another thread has been writing the file for more than a second, for example because the disk hangs, that
    /// thread or the flush thread ends the export once the disk answers. If the program ends before, the agent ignores
    /// the file, and the next start replaces it. Without such a thread, the disk may hang in this function, for which
    /// there is no time limit.
    pub fn stop(&self) {
        self.inner().stop();
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.owner.0
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("name", &self.inner().options.name).finish_non_exhaustive()
    }
}

/// Returns the absolute path of a directory: the program may change its working directory, as daemons do.
/// Returns whether this process may create files in a directory.
fn may_write(directory: &Path) -> bool {
    let rights = AccessFlags::W_OK | AccessFlags::X_OK;
    faccessat(AT_FDCWD, directory, rights, AtFlags::AT_EACCESS).is_ok()
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Number of instances of a domain up to which [`Family::instance`] adds new ones.
const MOST_INSTANCES: usize = 10_000;

/// Builder of a [`Registry`] with options.
#[derive(Clone, Debug)]
pub struct RegistryBuilder {
    pub(crate) name: String,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) cluster: Option<u16>,
    pub(crate) flags: Flags,
    pub(crate) flush_every: Option<Duration>,
    pub(crate) lazy: bool,
    pub(crate) most_instances: usize,
    pub(crate) room: u32,
    pub(crate) per_process: bool,
    /// Mode of the file.
    pub(crate) mode: u32,
}

impl RegistryBuilder {
    /// Sets the directory of the file; the default is `$PCP_TMP_DIR/mmv`. A relative path starts at the working directory
    /// of the time when the registry is [built](RegistryBuilder::build).
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> RegistryBuilder {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the cluster of the metrics' identifiers, 1 to 4095. The default is derived from the name, and avoids the
    /// clusters of other files.
    #[must_use]
    pub fn cluster(mut self, cluster: u16) -> RegistryBuilder {
        self.cluster = Some(cluster);
        self
    }

    /// Names metrics `mmv.…`, without the registry's name (`MMV_FLAG_NOPREFIX`).
    #[must_use]
    pub fn no_prefix(mut self) -> RegistryBuilder {
        self.flags |= Flags::NO_PREFIX;
        self
    }

    /// Keeps the file, with its last values, after the process has ended (without `MMV_FLAG_PROCESS`). Processes in
    /// containers need this, since their identifiers mean something else to PCP.
    #[must_use]
    pub fn persistent(mut self) -> RegistryBuilder {
        self.flags -= Flags::PROCESS;
        self
    }

    /// Gives metrics that were not set, or were [cleared](Gauge::clear), no value instead of 0 (`MMV_FLAG_SENTINEL`).
    ///
    /// The file marks them with NaN, the empty text, or all bits set for integers (-1 or the largest number). An
    /// application then cannot export these as values. The agent of PCP 6.0 shows NaN nevertheless.
    #[must_use]
    pub fn sentinels(mut self) -> RegistryBuilder {
        self.flags |= Flags::SENTINEL;
        self
    }

    /// Sets the period of the flush thread, which writes sharded counters and quantiles to the file, and all values on
    /// file systems that copy on write, are on a network, or are implemented by a program (FUSE). It also writes the file
    /// again if it was removed, or if another process of the same name had replaced it and has ended. The default is a
    /// second if the registry has values to flush, and no thread otherwise. With zero, there is no thread, and
    /// [`Registry::flush`] writes the values.
    #[must_use]
    pub fn flush_every(mut self, period: Duration) -> RegistryBuilder {
        self.flush_every = Some(period);
        self
    }

    /// Delays registrations during the export until the next flush. This keeps registrations on performance-critical
    /// paths short.
    #[must_use]
    pub fn lazy(mut self) -> RegistryBuilder {
        self.lazy = true;
        self
    }

    /// Sets the number of instances of a domain up to which [`Family::instance`] adds new ones. The default is 10,000.
    /// The limit protects applications that take instance names from requests of clients, which may be hostile. Other
    /// functions that add instances have no limit.
    #[must_use]
    pub fn most_instances(mut self, instances: usize) -> RegistryBuilder {
        self.most_instances = instances;
        self
    }

    /// Sets the number of instances, in all domains together, and of text values for which the file has room, 16 to 131,072.
    /// The default is 16,384. There is room for 64 times as many values. A registration that does not fit is an error
    /// ([`Error::Full`]).
    ///
    /// Room that is not used takes addresses of the process, but no memory and no blocks of the disk.
    #[must_use]
    pub fn room(mut self, instances: u32) -> RegistryBuilder {
        self.room = instances;
        self
    }

    /// Gives the file the name `NAME.pPID` and metrics names of the form `mmv.NAME.pPID.…`, for a program that runs in several
    /// processes at the same time. A server with workers builds such a registry in each worker, after the fork.
    #[must_use]
    pub fn per_process(mut self) -> RegistryBuilder {
        self.per_process = true;
        self
    }

    /// Lets only the file's owner and group read the file (mode 0640). By default, all users can.
    #[must_use]
    pub fn group_only(mut self) -> RegistryBuilder {
        self.mode = GROUP_MODE;
        self
    }

    /// Creates the registry.
    ///
    /// # Errors
    /// [`Error::Range`] for a cluster outside of 1 to 4095, or a room outside of its range, and the errors of
    /// [`Registry::new`].
    pub fn build(mut self) -> Result<Registry, Error> {
        if self.per_process {
            self.name = name_of_process(&self.name);
        }
        check_file(&self.name, self.flags)?;
        if !(LEAST_ROOM..=MOST_ROOM).contains(&self.room) {
            return Err(Error::Range { what: "room", number: self.room, min: LEAST_ROOM, max: MOST_ROOM });
        }
        self.directory = self.directory.map(absolute);
        if let Some(number) = self.cluster.filter(|c| *c == 0 || *c > pmapi::Item::MAX_CLUSTER) {
            let max = pmapi::Item::MAX_CLUSTER.into();
            return Err(Error::Range { what: "cluster", number: number.into(), min: 1, max });
        }
        Ok(Registry { owner: Arc::new(Owner(Inner::new(self))) })
    }

    pub(crate) fn has(&self, flag: format::Flags) -> bool {
        self.flags.contains(flag)
    }
}
