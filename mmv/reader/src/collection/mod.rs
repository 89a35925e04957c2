//! All files of a directory as one name space, as PCP's agent pmdammv(1) exports them.
//!
//! A [`Collection`] is refreshed before every request, which then reads from it. It follows the C agent's rules for
//! names, clusters and instance domains, so a metric has the same identifiers under both. Where the C agent mishandles
//! files that are invalid or contradict each other, the affected part is left out and logged.

mod clusters;
mod fetch;
mod group;
mod labels;
mod limits;
mod listing;
mod names;
mod numbers;
mod parts;
mod reading;
mod scan;
mod source;
mod tables;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use pmapi::{Error, Inst, Item, LabelSet, Semantics, Serial, Units};

pub use labels::LabelSubject;
pub use limits::{LeftOut, Limit, Limits};
pub use parts::Part;

use crate::format::ValueType;
use crate::reader::{Directory, Help};
use group::{Group, Groups};
use limits::Accounts;
use listing::{Listing, Look};
use scan::Skipped;
use tables::{Entry, IndomEntry};

/// The files of a directory, as one name space.
#[derive(Debug)]
pub struct Collection {
    prefix: String,
    directory: PathBuf,
    groups: Groups,
    seen: Look,
    /// A directory with more names than one request reads, while it is being read.
    listing: Option<Listing>,
    opened: Option<Arc<Directory>>,
    accounts: Accounts,
    /// Number of files without room, by user.
    crowd: HashMap<u32, u64>,
    /// Number of files that stay open.
    open: usize,
    /// The value of the control metric `reload`.
    reload: i32,
    /// Skipped files, in the order of their users and names.
    skipped: Vec<Skipped>,
    /// Number of requests that have checked skipped files.
    polled: usize,
    /// Whether work was left to the next request.
    is_delayed: bool,
    /// Whether the last attempt to read the directory failed.
    is_unreadable: bool,
    /// Whether the directory has been read.
    has_scanned: bool,
    /// Number of the present request.
    request: u64,
    buffer: Vec<u8>,
}

/// Description of a metric, without the agent's domain (`pmDesc`). Elapsed times are counters of microseconds, whatever
/// semantics and units the file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MetricDesc {
    /// The metric's identifier.
    pub item: Item,
    /// Type of the values in the file; [`ValueType::exported`] returns the type for clients.
    pub ty: ValueType,
    /// The instance domain, if there is one.
    pub indom: Option<Serial>,
    /// Semantics of the values.
    pub semantics: Semantics,
    /// Dimension and scale of the values.
    pub units: Units,
}

impl Collection {
    /// Creates a collection of the files in a directory. The names of their metrics begin with `prefix`, for instance
    /// `mmv` or `pmproxy`. Nothing is read before the first [`refresh`](Collection::refresh).
    pub fn new(prefix: &str, directory: impl Into<PathBuf>) -> Collection {
        Collection {
            prefix: prefix.to_owned(),
            directory: directory.into(),
            groups: Groups::default(),
            seen: Look::default(),
            listing: None,
            opened: None,
            accounts: Accounts::default(),
            crowd: HashMap::new(),
            open: Self::OPEN_FILES,
            reload: 0,
            skipped: Vec::new(),
            polled: 0,
            is_delayed: false,
            is_unreadable: false,
            has_scanned: false,
            request: 0,
            buffer: Vec::new(),
        }
    }

    /// Number of files that stay open by default.
    pub const OPEN_FILES: usize = 256;

    /// Sets how many files stay open; the others are opened for each access.
    pub fn keep_open(&mut self, files: usize) {
        self.open = files;
    }

    /// Sets the limits on what files may cost.
    pub fn set_limits(&mut self, limits: Limits) {
        self.accounts.limits = limits;
    }

    /// Returns the limits on what files may cost.
    pub fn limits(&self) -> Limits {
        self.accounts.limits
    }

    /// Sets the function that returns the user to charge for a user's files. For a subordinate uid, that is the user to
    /// whom it is delegated.
    pub fn charge(&mut self, payer: impl FnMut(u32) -> u32 + Send + Sync + 'static) {
        self.accounts.charge(payer);
    }

    /// Returns the numbers of files that limits have left out since the last call, by user and limit.
    pub fn take_left_out(&mut self) -> Vec<LeftOut> {
        self.accounts.take_left_out()
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Detects changes, and returns whether names, instances or labels may have changed.
    ///
    /// Files are read again if [`set_reload`](Collection::set_reload) requested it, a file was being written, a
    /// generation number has changed, a process has ended, or the directory has changed.
    pub fn refresh(&mut self) -> bool {
        self.request += 1;
        let (request, buffer) = (self.request, &mut self.buffer);
        let valid = self.groups.all_mut().iter_mut().all(|group| group.begin(request, buffer));
        self.scan_unless(valid)
    }

    /// Detects changes for a fetch of some metrics, and returns whether names, instances or labels may have changed. Of
    /// the known files, only those that contribute to these metrics are checked.
    pub fn refresh_for(&mut self, items: &mut dyn Iterator<Item = Item>) -> bool {
        self.request += 1;
        let mut valid = true;
        for item in items {
            let number = self.groups.of_item(&self.prefix, item);
            if let Some(group) = number.and_then(|number| self.groups.get_mut(number)) {
                valid &= group.begin(self.request, &mut self.buffer);
            }
        }
        self.scan_unless(valid)
    }

    /// Reads files again, unless all checked files are valid and nothing else requires it.
    fn scan_unless(&mut self, valid: bool) -> bool {
        self.accounts.begin();
        let forced = self.reload != 0;
        let mut broken = false;
        for source in self.groups.all_mut().iter_mut().flat_map(|group| &mut group.sources) {
            broken |= source.take_broken();
        }
        let look = Look::at(&self.directory, &self.seen);
        let differs = look.as_ref().is_ok_and(|look| self.seen.may_differ(look));
        let goes_on = self.listing.is_some() || self.is_delayed || self.is_unreadable;
        // In a directory that changes all the time, too: a passing error of a file must not stay.
        let found = self.poll();
        if valid && !forced && !broken && !goes_on && !differs && look.is_ok() && !found {
            return false;
        }
        self.scan(look, forced)
    }

    /// Returns the value of the control metric `reload`, which is also 1 while a file is being written.
    pub fn reload(&self) -> i32 {
        if self.reload == 0 { self.skipped.iter().any(Skipped::is_in_flux).into() } else { self.reload }
    }

    /// Stores a value in the control metric `reload`. Any value but 0 makes the next request read all files again.
    pub fn set_reload(&mut self, value: i32) {
        self.reload = value;
    }

    /// Returns the number of exported files.
    pub fn file_count(&self) -> usize {
        self.groups.file_count()
    }

    /// Returns the number of exported metrics.
    pub fn metric_count(&self) -> usize {
        let groups = (0..).zip(self.groups.all());
        let all =
            groups.flat_map(|(number, group)| group.tables(&self.prefix).metrics().iter().map(move |m| (number, m)));
        all.filter(|(number, entry)| self.groups.exports(&self.prefix, *number, entry)).count()
    }

    /// Returns the names and descriptions of the metrics, in the order of the files.
    pub fn metrics(&self) -> impl Iterator<Item = (&str, MetricDesc)> {
        self.groups.files().flat_map(move |(group, number, place)| {
            let tables = group.tables(&self.prefix);
            let entries = tables.metrics_of(place).iter();
            let exported = entries.filter(move |entry| self.groups.exports(&self.prefix, number, entry));
            exported.filter_map(move |entry| Some((tables.name(entry), entry.desc(&group.sources)?)))
        })
    }

    /// Returns the identifier of a metric (`pmLookupName(3)`).
    ///
    /// # Errors
    /// `PM_ERR_NAME` if no metric has the name.
    pub fn item(&self, name: &str) -> Result<Item, Error> {
        self.groups.of_name(&self.prefix, name).map(|(_, item)| item).ok_or(Error::NAME)
    }

    /// Returns the name of a metric (`pmNameID(3)`).
    ///
    /// # Errors
    /// `PM_ERR_PMID` if there is no such metric.
    pub fn name(&self, item: Item) -> Result<&str, Error> {
        let (group, entry) = self.entry(item)?;
        Ok(group.tables(&self.prefix).name(entry))
    }

    /// Returns the description of a metric (`pmLookupDesc(3)`).
    ///
    /// # Errors
    /// `PM_ERR_PMID` if there is no such metric.
    pub fn desc(&self, item: Item) -> Result<MetricDesc, Error> {
        let (group, entry) = self.entry(item)?;
        entry.desc(&group.sources).ok_or(Error::PMID)
    }

    /// Returns the identifiers of the instance domains, in ascending order.
    pub fn indoms(&self) -> impl Iterator<Item = Serial> {
        let mut all: Vec<Serial> =
            self.groups.all().iter().flat_map(|group| group.tables(&self.prefix).indoms.keys().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter()
    }

    /// Returns the instances of a domain (`pmGetInDom(3)`), in the order of the files.
    ///
    /// # Errors
    /// `PM_ERR_INDOM` if there is no such domain.
    pub fn instances(&self, indom: Serial) -> Result<impl ExactSizeIterator<Item = (Inst, &[u8])>, Error> {
        let (group, indom) = self.indom(indom)?;
        Ok(indom.instances.iter().map(|i| {
            let source = group.sources.get(i.source);
            (i.id, source.map_or(&[][..], |source| source.file.instance_name(&i.name)))
        }))
    }

    /// Returns a metric's help text (`pmLookupText(3)`).
    ///
    /// # Errors
    /// `PM_ERR_TEXT` if the metric has none. `PM_ERR_PMID` if there is no such metric or, as under PCP's agent, it has
    /// no type.
    pub fn help(&self, item: Item, which: Help) -> Result<&[u8], Error> {
        let (group, entry) = self.entry(item)?;
        let file = &group.sources.get(entry.source as usize).ok_or(Error::TEXT)?.file;
        let metric = file.metrics().get(entry.metric as usize).ok_or(Error::TEXT)?;
        if metric.ty == ValueType::NoSupport {
            return Err(Error::PMID);
        }
        file.help(metric, which).ok_or(Error::TEXT)
    }

    /// Returns an instance domain's help text (`pmLookupInDomText(3)`), from the first file that has one.
    ///
    /// # Errors
    /// `PM_ERR_TEXT` if no file has one, `PM_ERR_INDOM` if there is no such domain.
    pub fn indom_help(&self, indom: Serial, which: Help) -> Result<&[u8], Error> {
        let (group, indom) = self.indom(indom)?;
        let mut texts = indom.parts.iter().filter_map(|(source, index)| {
            let file = &group.sources.get(*source)?.file;
            file.indom_help(file.indoms().get(*index)?, which)
        });
        texts.next().ok_or(Error::TEXT)
    }

    /// Returns the labels of a subject, or `None` if it has none.
    pub fn labels(&self, of: LabelSubject) -> Option<&LabelSet> {
        let number = match of {
            LabelSubject::Cluster(cluster) => self.groups.of_cluster(cluster),
            LabelSubject::Item(item) => self.groups.of_item(&self.prefix, item),
            LabelSubject::InDom(serial) | LabelSubject::Instance(serial, _) => {
                self.groups.of_indom(&self.prefix, serial)
            }
        };
        let group = self.groups.get(number?)?;
        group.tables(&self.prefix).labels.get(of, &self.prefix, &group.sources)
    }

    fn entry(&self, item: Item) -> Result<(&Group, &Entry), Error> {
        let group =
            self.groups.of_item(&self.prefix, item).and_then(|number| self.groups.get(number)).ok_or(Error::PMID)?;
        Ok((group, group.tables(&self.prefix).metric(item).ok_or(Error::PMID)?))
    }

    fn indom(&self, indom: Serial) -> Result<(&Group, &IndomEntry), Error> {
        let number = self.groups.of_indom(&self.prefix, indom);
        let group = number.and_then(|number| self.groups.get(number)).ok_or(Error::INDOM)?;
        Ok((group, group.tables(&self.prefix).indoms.get(&indom).ok_or(Error::INDOM)?))
    }
}
