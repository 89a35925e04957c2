//! The registry: what an application exports.

mod batch;
mod directory;
mod flush;
mod histogram;
mod indom;
mod inner;
mod metric;
mod moving;
mod others;
mod publish;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use batch::Batch;
pub use histogram::HistogramBuilder;
pub use indom::{Family, InDom, InDomBuilder};
pub use metric::MetricBuilder;

pub(crate) use inner::Inner;

use crate::format::Flags;
use crate::handle::{Counter, Gauge, Handle, Text, Timer};
use crate::model::{Label, Subject};
use crate::names::check_file;
use crate::{Error, format};

/// The metrics of an application, exported through one file (`mmv_stats_registry(3)`).
///
/// Clones are the same registry. When the last one goes, the file goes with it, unless the registry
/// is [persistent](Builder::persistent); handles stay valid and update nothing that anybody sees.
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

/// Ends the export when the last registry goes.
struct Owner(Arc<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Registry {
    /// A registry whose metrics are called `mmv.<name>.…`; [`Error::Name`] or [`Error::TooLong`] when no file or
    /// no metric can have such a name.
    pub fn new(name: &str) -> Result<Registry, Error> {
        Self::builder(name).build()
    }

    /// A registry with options.
    pub fn builder(name: &str) -> Builder {
        Builder {
            name: name.to_owned(),
            directory: None,
            cluster: None,
            flags: Flags::PROCESS,
            flush_every: None,
            lazy: false,
        }
    }

    /// A counter of integers.
    pub fn counter<'n>(&'n self, name: &'n str) -> MetricBuilder<'n, Counter> {
        self.metric(name)
    }

    /// A floating point value that goes up and down.
    pub fn gauge<'n>(&'n self, name: &'n str) -> MetricBuilder<'n, Gauge> {
        self.metric(name)
    }

    /// A time that accumulates.
    pub fn timer<'n>(&'n self, name: &'n str) -> MetricBuilder<'n, Timer> {
        self.metric(name)
    }

    /// A text.
    pub fn text<'n>(&'n self, name: &'n str) -> MetricBuilder<'n, Text> {
        self.metric(name)
    }

    /// A metric with any handle: `registry.metric::<Gauge<i32>>("depth")`.
    pub fn metric<'n, H: Handle>(&'n self, name: &'n str) -> MetricBuilder<'n, H> {
        MetricBuilder::new(self.inner(), name)
    }

    /// A distribution.
    pub fn histogram(&self, name: &str) -> HistogramBuilder {
        HistogramBuilder::new(self, name)
    }

    /// An instance domain: the things that metrics have a value for each of.
    pub fn indom<'n>(&'n self, name: &'n str) -> InDomBuilder<'n> {
        InDomBuilder::new(self.inner(), name)
    }

    /// Another handle of a registered metric without instances, if it has such handles
    /// (`mmv_lookup_value_desc(3)`).
    pub fn find<H: Handle>(&self, name: &str) -> Option<H> {
        self.inner().find(name)
    }

    /// A registered metric with instances, if it has such handles.
    pub fn find_family<H: Handle>(&self, name: &str) -> Option<Family<H>> {
        let inner = self.inner();
        let (metric, indom) = inner.lock()?.model.find_metric(name).and_then(|(index, metric)| {
            let same = metric.ty == H::TYPE && metric.kind == H::KIND;
            Some((index, metric.indom().filter(|_| same)?))
        })?;
        Some(Family::new(Arc::clone(inner), metric, indom))
    }

    /// Labels every metric of the registry (`mmv_stats_add_registry_label(3)`) with what JSON has a text for.
    ///
    /// [`Error::Label`] for a name that no label can have, [`Error::TooLong`] for more than 243 bytes of JSON,
    /// [`Error::TooManyLabels`] after 255 in the registry.
    pub fn label(&self, name: &str, value: impl serde::Serialize) -> Result<(), Error> {
        let label = Label::new(Subject::Registry, false, name, value)?;
        self.inner().change(|_| 0, |state| state.model.add_label(label), |_, ()| ())
    }

    /// Begins to export. Metrics and instances can be registered before and after.
    ///
    /// Where there is no PCP, that is written to the log and the application runs on with handles
    /// that cost nothing; [`try_start`](Registry::try_start) gives the error instead.
    pub fn start(&self) {
        if let Err(e) = self.try_start() {
            tracing::warn!(target: "mmv", "metrics are not exported to PCP: {e}");
        }
    }

    /// Begins to export (`mmv_stats_start(3)`), under a name that no other registry of the process exports.
    ///
    /// A forked child updates its parent's file; what it registers is not seen, and the file stays when it
    /// ends, unless it starts the export itself. Then it has a file of its own, which begins with the values that its
    /// parent's has at that moment: `NAME.pPID` if the parent, or another of its children, exports under the registry's name,
    /// and the registry's name otherwise, as after a daemon has left its parent.
    ///
    /// [`Error::Io`] where the file cannot be written, [`Error::InUse`] while another registry has it, and
    /// [`Error::Forked`] for a child [without prefix](Builder::no_prefix), whose metrics would have its parent's names.
    pub fn try_start(&self) -> Result<(), Error> {
        self.inner().start()
    }

    /// The file, once it is exported.
    pub fn path(&self) -> Option<PathBuf> {
        self.inner().path()
    }

    /// Puts off writing the file until the guard is dropped: for many registrations at once.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.inner())
    }

    /// Brings sharded counters and quantiles to the file.
    pub fn flush(&self) {
        self.inner().flush(true);
    }

    /// Ends the export (`mmv_stats_stop(3)`).
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

/// Options of a [`Registry`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) name: String,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) cluster: Option<u16>,
    pub(crate) flags: Flags,
    pub(crate) flush_every: Option<Duration>,
    pub(crate) lazy: bool,
}

impl Builder {
    /// The directory of the file, instead of `$PCP_TMP_DIR/mmv`.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.directory = Some(directory.into());
        self
    }

    /// The cluster, 1 to 4095, of the metrics' identifiers. Without this it follows from the name,
    /// away from clusters that others use.
    #[must_use]
    pub fn cluster(mut self, cluster: u16) -> Builder {
        self.cluster = Some(cluster);
        self
    }

    /// Metrics are called `mmv.…` without the registry's name (`MMV_FLAG_NOPREFIX`).
    #[must_use]
    pub fn no_prefix(mut self) -> Builder {
        self.flags = self.flags.with(Flags::NO_PREFIX);
        self
    }

    /// Keeps the file, and the last values visible, after the process (without `MMV_FLAG_PROCESS`).
    /// Also for processes whose identifier means something else to PCP, as in a container.
    #[must_use]
    pub fn persistent(mut self) -> Builder {
        self.flags = Flags::from_bits(self.flags.bits() & !Flags::PROCESS.bits());
        self
    }

    /// Metrics that were not set yet, or were [cleared](Gauge::clear), have no value rather than 0
    /// (`MMV_FLAG_SENTINEL`). What stands for that is NaN, which the agent of PCP 6.0 shows all the same, the
    /// empty text, and for 64-bit integers all ones, which is -1 or the largest number: those are no values then.
    #[must_use]
    pub fn sentinels(mut self) -> Builder {
        self.flags = self.flags.with(Flags::SENTINEL);
        self
    }

    /// How often sharded counters and quantiles are brought to the file, and on file systems that copy on write all
    /// values: every second without this, by [`Registry::flush`] only when it is zero.
    #[must_use]
    pub fn flush_every(mut self, period: Duration) -> Builder {
        self.flush_every = Some(period);
        self
    }

    /// What is registered while the export runs appears with the next flush rather than at once:
    /// for registrations that come one by one on paths where time matters.
    #[must_use]
    pub fn lazy(mut self) -> Builder {
        self.lazy = true;
        self
    }

    /// The registry; errors as from [`Registry::new`], and [`Error::Range`] for the cluster.
    pub fn build(self) -> Result<Registry, Error> {
        check_file(&self.name, !self.flags.contains(Flags::NO_PREFIX))?;
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
