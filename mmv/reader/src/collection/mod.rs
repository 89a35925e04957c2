//! All files of a directory as one name space, as PCP's agent pmdammv(1) exports them.
//!
//! A [`Collection`] is refreshed before every request, which then reads from it. It follows the C agent's rules for
//! names, clusters and instance domains, so a metric has the same identifiers under both. Where the C agent mishandles
//! files that are invalid or contradict each other, the affected part is left out and logged.

mod build;
#[cfg(test)]
mod charging;
mod clusters;
mod draft;
mod fetch;
mod group;
mod labels;
mod limits;
mod listing;
mod names;
mod numbers;
mod opening;
mod partition;
mod parts;
mod reading;
mod scan;
mod source;
mod tables;
#[cfg(test)]
mod tests;
mod texts;
mod turn;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use pmapi::{Error, Inst, Item, LabelSet, Semantics, Serial, Units};

pub use labels::LabelSubject;
pub use limits::{LeftOut, Limit, Limits};
pub use parts::Part;

use crate::format::ValueType;
use crate::reader::{Directory, Help};
use draft::{Draft, LARGE};
use group::{Group, Groups};
use limits::{Accounts, thread_time};
use listing::{Listing, Look};
use opening::Opening;
use scan::Skipped;
use tables::{Entry, IndomEntry};
use texts::Texts;
use turn::Turn;

/// The files of a directory, as one name space.
#[derive(Debug)]
pub struct Collection {
    prefix: String,
    directory: PathBuf,
    groups: Groups,
    seen: Look,
    /// Listing of a directory that is still being read, because it has more names than one request reads.
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
    /// Number of the present request.
    request: u64,
    /// The present request has this part of the usual time for changes: 1 for all of it, 4 for a quarter.
    share: u64,
    /// Number of the group with which the next check of all files begins.
    checked: usize,
    /// Files that the present request has checked and opened.
    opening: Opening,
    /// Time of the present request for changed files.
    turn: Turn,
    /// Changes whose tables are being built.
    draft: Option<Draft>,
    /// Number of records from which on tables are built in parts.
    large: u64,
    /// Number of metrics beyond which requests about names have less time for changes.
    many: usize,
    buffer: Vec<u8>,
    texts: Texts,
}

/// Number of metrics beyond which a list of all names takes some milliseconds.
const MANY: usize = 32_768;

/// Number of files beyond which requests about names have less time for changes. The changes themselves then take
/// several requests.
const MANY_FILES: usize = 2048;

/// Divisor of the time for changes of a request whose answer may take long.
const LESS: u64 = 4;

/// Number of files that are checked between two checks of the time.
const CHECKED: usize = 32;

/// Description of a metric, without the agent's domain (`pmDesc`). Elapsed times are counters of microseconds,
/// regardless of the file's semantics and units.
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
            request: 0,
            share: 1,
            checked: 0,
            opening: Opening::default(),
            turn: Turn::default(),
            draft: None,
            large: LARGE,
            many: MANY,
            buffer: Vec::new(),
            texts: Texts::default(),
        }
    }

    /// Number of files that stay open by default.
    pub const OPEN_FILES: usize = 256;

    /// Sets the number of files that stay open. Other files are opened for each access.
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
    /// generation number has changed, a process has ended, or the directory has changed. A request that has used up its
    /// time ([`Limits::work`]) leaves the rest to the next ones.
    pub fn refresh(&mut self) -> bool {
        self.refresh_all(&mut std::iter::empty())
    }

    /// Detects changes as [`refresh`](Collection::refresh) does, for a request about names. With very many metrics or
    /// files, such a request may take long, and has a quarter of the time for changes.
    pub fn refresh_for_names(&mut self) -> bool {
        let metrics: usize = self.groups.sources().map(|source| source.file.metrics().len()).sum();
        let is_large = metrics > self.many || self.groups.file_count() > MANY_FILES;
        self.refresh_with(if is_large { LESS } else { 1 }, &mut std::iter::empty())
    }

    /// Detects changes as [`refresh`](Collection::refresh) does. Files that contribute to these metrics are checked
    /// regardless of time.
    pub fn refresh_all(&mut self, items: &mut dyn Iterator<Item = Item>) -> bool {
        self.refresh_with(1, items)
    }

    fn refresh_with(&mut self, share: u64, items: &mut dyn Iterator<Item = Item>) -> bool {
        self.begin(share);
        let of_items = self.check_for(items);
        // The request after the last name of the directory has enough to do.
        let of_others = self.listing.as_ref().is_some_and(Listing::is_read) || self.check_others();
        self.scan_unless(of_items && of_others)
    }

    /// Detects changes for a fetch of some metrics, and returns whether names, instances or labels may have changed. Of
    /// the known files, only those that contribute to these metrics are checked.
    pub fn refresh_for(&mut self, items: &mut dyn Iterator<Item = Item>) -> bool {
        self.begin(1);
        let are_valid = self.check_for(items);
        self.scan_unless(are_valid)
    }

    fn begin(&mut self, share: u64) {
        self.request += 1;
        self.share = share;
        self.groups.begin();
        self.opening.begin();
    }

    /// Checks the files that contribute to some metrics. Returns whether all of them are unchanged.
    fn check_for(&mut self, items: &mut dyn Iterator<Item = Item>) -> bool {
        let mut are_valid = true;
        for item in items {
            let number = self.groups.of_item(&self.prefix, item);
            if let Some(group) = number.and_then(|number| self.groups.get_mut(number)) {
                are_valid &= group.begin(self.request, &mut self.opening, &mut self.buffer);
            }
        }
        are_valid
    }

    /// Checks files for as long as there is time, beginning where the last request ended. Returns whether all of them
    /// are unchanged.
    fn check_others(&mut self) -> bool {
        let (start, limit) = (thread_time(), self.work() / 2);
        let groups = self.groups.all_mut();
        let first = if self.checked < groups.len() { self.checked } else { 0 };
        let (before, after) = groups.split_at_mut(first);
        let (mut are_valid, mut files, mut first_cut) = (true, 0, None);
        for (number, group) in (first..).zip(after).chain((0..).zip(before)) {
            if files >= CHECKED {
                files = 0;
                if thread_time().saturating_sub(start) > limit {
                    first_cut = first_cut.or(Some(number));
                    break;
                }
            }
            files += group.sources.len();
            // After a file that changes all the time, there may be another file that has changed once.
            are_valid &= group.begin(self.request, &mut self.opening, &mut self.buffer);
            first_cut = first_cut.or(Some(number).filter(|_| group.is_cut()));
        }
        self.checked = first_cut.unwrap_or(first);
        are_valid
    }

    /// Returns the time of the present request for changes, in nanoseconds.
    fn work(&self) -> u64 {
        self.accounts.limits.work / self.share
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
        let goes_on = self.listing.is_some() || self.is_delayed || self.is_unreadable || self.draft.is_some();
        // This also happens in a directory that changes all the time: a temporary error of a file must not last.
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

    /// Returns the number of exported metrics. If users claim very many of each other's, counts some of them twice.
    pub fn metric_count(&self) -> usize {
        let groups = (0..).zip(self.groups.all());
        let all = groups
            .flat_map(|(number, group)| group.tables(&self.prefix).metrics().iter().map(move |m| (number, group, m)));
        all.filter(|(number, group, entry)| {
            self.groups.exports(&self.prefix, *number, group.tables(&self.prefix).name(entry), entry.item)
        })
        .count()
    }

    /// Returns the names and descriptions of the metrics, in the order of the files.
    pub fn metrics(&self) -> impl Iterator<Item = (&str, MetricDesc)> {
        self.groups.files().flat_map(move |(group, number, place)| {
            let tables = group.tables(&self.prefix);
            let entries = tables.metrics_of(place).iter();
            let exported = entries
                .filter(move |entry| group.is_alone() || self.groups.of_item(&self.prefix, entry.item) == Some(number));
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
