//! All files of a directory as one name space: what PCP's agent pmdammv(1) exports.
//!
//! A [`Collection`] is refreshed before every request, and then asked. It follows the rules of the C
//! agent for names, clusters and instance domains, so that a metric has the same identifiers under
//! both; where C goes wrong with files that are not valid, or that contradict each other, the part
//! concerned is left out and logged.

mod fetch;
mod group;
mod labels;
mod limits;
mod listing;
mod names;
mod parts;
mod scan;
mod source;
mod tables;
#[cfg(test)]
mod tests;
mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use pmapi::{Error, Inst, Item, Semantics, Serial, Units};

pub use labels::Labelled;
pub use limits::{LeftOut, Limit, Limits};
pub use parts::Part;

pub use crate::reader::Help;

use crate::format::ValueType;
use crate::reader::Directory;
use group::{Group, Groups};
use limits::Accounts;
use listing::{Listing, Look};
use scan::Skipped;
use source::Source;
use tables::{Entry, IndomEntry, InstanceEntry};

/// The files of a directory.
#[derive(Debug)]
pub struct Collection {
    prefix: String,
    directory: PathBuf,
    groups: Groups,
    seen: Look,
    /// The directory, when it has more names than a request looks at.
    listing: Option<Listing>,
    opened: Option<Arc<Directory>>,
    accounts: Accounts,
    /// How many files of each user there is no room for.
    crowd: HashMap<u32, u64>,
    /// How many files stay open.
    open: usize,
    /// What was stored in the control metric.
    reload: i32,
    /// Files that are skipped, in the order of their names.
    skipped: Vec<Skipped>,
    /// Where the next request begins to look at them.
    polled: usize,
    /// Whether something was left to the next request.
    is_delayed: bool,
    /// Whether the directory could not be read.
    is_unreadable: bool,
    /// Whether the directory has been read.
    has_scanned: bool,
    /// The number of the request that is being answered.
    request: u64,
    buffer: Vec<u8>,
}

/// What a metric is, without the agent's domain (`pmDesc`). An elapsed time is a counter of
/// microseconds, whatever the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricDesc {
    /// Its identifier.
    pub item: Item,
    /// Its type in the file; [`ValueType::exported`] is the one for clients.
    pub ty: ValueType,
    /// Its instance domain, if it has one.
    pub indom: Option<Serial>,
    /// Its semantics.
    pub semantics: Semantics,
    /// Dimension and scale.
    pub units: Units,
}

impl Collection {
    /// The files of a directory; the names of their metrics begin with `prefix` (`mmv`; also
    /// `pmproxy`). Nothing is read before the first [`refresh`](Collection::refresh).
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

    /// How many files stay open unless [`keep_open`](Collection::keep_open) says otherwise.
    pub const OPEN_FILES: usize = 256;

    /// How many files stay open from now on; the others are opened whenever they are looked at.
    pub fn keep_open(&mut self, files: usize) {
        self.open = files;
    }

    /// Sets what files may cost from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.accounts.limits = limits;
    }

    /// What files may cost.
    pub fn limits(&self) -> Limits {
        self.accounts.limits
    }

    /// Sets which user is charged for the files of a user: for those of a subordinate uid the one whom it was given to.
    pub fn charge(&mut self, payer: impl FnMut(u32) -> u32 + Send + Sync + 'static) {
        self.accounts.charge(payer);
    }

    /// The files that limits have left out since the last call, for each user and limit.
    pub fn take_left_out(&mut self) -> Vec<LeftOut> {
        self.accounts.take_left_out()
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sees what has changed, and says whether names, instances or labels may have.
    ///
    /// Files are read again when that was asked for, one of them was being written, a generation
    /// has changed, a process is gone or the directory has changed.
    pub fn refresh(&mut self) -> bool {
        self.request += 1;
        let (request, buffer) = (self.request, &mut self.buffer);
        let valid = self.groups.all_mut().iter_mut().all(|group| group.begin(request, buffer));
        self.scan_unless(valid)
    }

    /// As [`refresh`](Collection::refresh), for a fetch of these metrics: of the files that are known, only those are
    /// looked at that have to do with them.
    pub fn refresh_for(&mut self, items: &mut dyn Iterator<Item = Item>) -> bool {
        self.request += 1;
        let mut valid = true;
        for item in items {
            if let Some(group) = self.groups.of_cluster_mut(item.cluster()) {
                valid &= group.begin(self.request, &mut self.buffer);
            }
        }
        self.scan_unless(valid)
    }

    /// Reads files again unless all that were looked at are valid, and nothing else speaks for it.
    fn scan_unless(&mut self, valid: bool) -> bool {
        self.accounts.begin();
        let forced = self.reload != 0;
        let broken = self.groups.all_mut().iter_mut().flat_map(|group| &mut group.sources);
        let broken = broken.map(Source::take_broken).filter(|broken| *broken).count() > 0;
        let look = Look::at(&self.directory, &self.seen);
        let differs = look.as_ref().is_ok_and(|look| self.seen.may_differ(look));
        let goes_on = self.listing.is_some() || self.is_delayed || self.is_unreadable;
        if valid && !forced && !broken && !goes_on && !differs && look.is_ok() && !self.poll() {
            return false;
        }
        self.scan(look, forced)
    }

    /// What the control metric `reload` shows: also 1 while a file is being written.
    pub fn reload(&self) -> i32 {
        if self.reload == 0 { self.skipped.iter().any(Skipped::is_in_flux).into() } else { self.reload }
    }

    /// What a store to the control metric `reload` does: anything but 0 has all files read again.
    pub fn set_reload(&mut self, value: i32) {
        self.reload = value;
    }

    /// How many files are exported.
    pub fn file_count(&self) -> usize {
        self.groups.file_count()
    }

    /// How many metrics are exported.
    pub fn metric_count(&self) -> usize {
        self.groups.all().iter().map(|group| group.tables(&self.prefix).metrics().len()).sum()
    }

    /// The metrics, in the order of the files.
    pub fn metrics(&self) -> impl Iterator<Item = (&str, MetricDesc)> {
        self.groups.files().flat_map(|(group, place)| {
            let tables = group.tables(&self.prefix);
            let desc = |entry: &Entry| entry.desc(&group.sources);
            tables.metrics_of(place).iter().filter_map(move |entry| Some((tables.name(entry), desc(entry)?)))
        })
    }

    /// The metric of a name (`pmLookupName(3)`), or `PM_ERR_NAME`.
    pub fn item(&self, name: &str) -> Result<Item, Error> {
        self.group_of(name).and_then(|group| group.tables(&self.prefix).item(name)).ok_or(Error::NAME)
    }

    /// The name of a metric (`pmNameID(3)`), or `PM_ERR_PMID`.
    pub fn name(&self, item: Item) -> Result<&str, Error> {
        let (group, entry) = self.entry(item)?;
        Ok(group.tables(&self.prefix).name(entry))
    }

    /// What a metric is (`pmLookupDesc(3)`), or `PM_ERR_PMID`.
    pub fn desc(&self, item: Item) -> Result<MetricDesc, Error> {
        let (group, entry) = self.entry(item)?;
        entry.desc(&group.sources).ok_or(Error::PMID)
    }

    /// The instance domains, by their numbers.
    pub fn indoms(&self) -> impl Iterator<Item = Serial> {
        let mut all: Vec<Serial> =
            self.groups.all().iter().flat_map(|group| group.tables(&self.prefix).indoms.keys().copied()).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// The instances of a domain (`pmGetInDom(3)`), in the order of the files, or `PM_ERR_INDOM`.
    pub fn instances(&self, indom: Serial) -> Result<impl ExactSizeIterator<Item = (Inst, &[u8])>, Error> {
        let (group, indom) = self.indom(indom)?;
        let name = |i: &InstanceEntry| group.sources.get(i.source).map_or(&[][..], |s| s.file.instance_name(&i.name));
        Ok(indom.instances.iter().map(move |i| (i.id, name(i))))
    }

    /// A metric's help (`pmLookupText(3)`), `PM_ERR_TEXT` without one. As under PCP's agent there is no such
    /// metric when it has no type.
    pub fn help(&self, item: Item, which: Help) -> Result<&[u8], Error> {
        let (group, entry) = self.entry(item)?;
        let file = &group.sources.get(entry.source as usize).ok_or(Error::TEXT)?.file;
        let metric = file.metrics().get(entry.metric as usize).ok_or(Error::TEXT)?;
        if metric.ty == ValueType::NoSupport {
            return Err(Error::PMID);
        }
        file.help(metric, which).ok_or(Error::TEXT)
    }

    /// An instance domain's help (`pmLookupInDomText(3)`): that of the first file that has one, or
    /// `PM_ERR_TEXT`.
    pub fn indom_help(&self, indom: Serial, which: Help) -> Result<&[u8], Error> {
        let (group, indom) = self.indom(indom)?;
        let of = |&(source, index): &(usize, usize)| {
            let file = &group.sources.get(source)?.file;
            file.indom_help(file.indoms().get(index)?, which)
        };
        indom.parts.iter().find_map(of).ok_or(Error::TEXT)
    }

    fn entry(&self, item: Item) -> Result<(&Group, &Entry), Error> {
        let group = self.groups.of_cluster(item.cluster()).ok_or(Error::PMID)?;
        Ok((group, group.tables(&self.prefix).metric(item).ok_or(Error::PMID)?))
    }

    fn indom(&self, indom: Serial) -> Result<(&Group, &IndomEntry), Error> {
        let group = self.groups.of_indom(indom).ok_or(Error::INDOM)?;
        Ok((group, group.tables(&self.prefix).indoms.get(&indom).ok_or(Error::INDOM)?))
    }

    /// The group of a name below the prefix.
    fn group_of(&self, name: &str) -> Option<&Group> {
        let own = name.strip_prefix(&*self.prefix)?.strip_prefix('.')?;
        self.groups.of_head(names::head(own))
    }
}
