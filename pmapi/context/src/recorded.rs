//! Contexts of archives.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pcp_archive::{Archive, ArchiveError, Cursor, Direction, Interpolation, Interpolator};
use pcp_client::Sample;
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pmapi::{Error, InDom, Inst, PmId};

use crate::assemble::Assembly;
use crate::error::ContextError;

/// Which values fetches return (pmSetMode(3)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Current values of a pmcd (`PM_MODE_LIVE`).
    #[default]
    Live,
    /// Values of the next record that has one of the metrics (`PM_MODE_FORW`). This is the mode of a new context of an
    /// archive.
    Forward,
    /// Values of the previous record that has one of the metrics (`PM_MODE_BACK`).
    Backward,
    /// Values at the origin, which each fetch moves by a step (`PM_MODE_INTERP`).
    Interpolated {
        /// Nanoseconds between fetches. A step that is negative or 0 means backward.
        step: i64,
    },
}

/// Archive with a position.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) archive: Arc<Archive>,
    pub(crate) profile: Profile,
    pub(crate) mode: Mode,
    pub(crate) rules: Interpolation,
    cursor: Cursor<'static>,
    grid: Option<Grid>,
    /// Time of the last sample, or of the origin.
    pub(crate) time: Stamp,
    /// Time of the next interpolated sample.
    origin: Stamp,
    /// Requested metrics that the last record did not have.
    pub(crate) absent: HashSet<PmId>,
    names: HashMap<InDom, KnownInstances>,
}

/// Interpolator of the metrics of the last fetch.
#[derive(Debug)]
struct Grid {
    pmids: Vec<PmId>,
    values: Interpolator<'static>,
}

/// Instances of a domain from a time on.
#[derive(Debug)]
struct KnownInstances {
    from: Stamp,
    until: Option<Stamp>,
    list: Vec<(Inst, Vec<u8>)>,
}

impl Recorded {
    pub(crate) fn new(archive: Archive) -> Recorded {
        Recorded::of(Arc::new(archive))
    }

    pub(crate) fn of(archive: Arc<Archive>) -> Recorded {
        let start = archive.label().start;
        Recorded {
            cursor: Arc::clone(&archive).shared_cursor(),
            archive,
            profile: Profile::default(),
            mode: Mode::Forward,
            rules: Interpolation::new(),
            grid: None,
            time: start,
            origin: start,
            absent: HashSet::new(),
            names: HashMap::new(),
        }
    }

    /// Returns another context of the archive at the same position.
    pub(crate) fn duplicate(&self) -> Recorded {
        let mut new = Recorded::of(Arc::clone(&self.archive));
        (new.profile, new.rules) = (self.profile.clone(), self.rules);
        new.set_mode(self.mode, Some(self.position()));
        new
    }

    fn position(&self) -> Stamp {
        match self.mode {
            Mode::Interpolated { .. } => self.origin,
            _ => self.time,
        }
    }

    pub(crate) fn set_mode(&mut self, mode: Mode, origin: Option<Stamp>) {
        let origin = origin.unwrap_or_else(|| self.position());
        (self.mode, self.origin, self.time) = (mode, origin, origin);
        self.cursor.seek(origin);
        self.grid = None;
    }

    /// Makes the next fetch use a changed profile or changed rules.
    pub(crate) fn has_changed(&mut self) {
        self.grid = None;
    }

    pub(crate) fn fetch(&mut self, pmids: &[PmId]) -> Result<Sample, ContextError> {
        self.absent.clear();
        let sample = match self.mode {
            Mode::Interpolated { step } => self.interpolate(pmids, step)?,
            Mode::Backward => self.record(pmids, Direction::Backward)?,
            Mode::Forward | Mode::Live => self.record(pmids, Direction::Forward)?,
        };
        let sample = sample.ok_or(Error::EOL)?;
        self.time = sample.time();
        Ok(sample)
    }

    fn record(&mut self, pmids: &[PmId], direction: Direction) -> Result<Option<Sample>, ArchiveError> {
        let Some(fetched) = self.cursor.fetch(direction, pmids, &self.profile)? else { return Ok(None) };
        let mut assembly = Assembly::default();
        for set in fetched.sets() {
            assembly.add(set.pmid(), set.error().map_or_else(|| Ok(set.values()), Err));
            if !set.is_recorded() {
                self.absent.insert(set.pmid());
            }
        }
        Ok(Some(assembly.sample(fetched.time)))
    }

    fn interpolate(&mut self, pmids: &[PmId], step: i64) -> Result<Option<Sample>, ArchiveError> {
        let grid = match &mut self.grid {
            Some(grid) if grid.pmids == pmids => grid,
            grid => {
                let cursor = Arc::clone(&self.archive).shared_cursor();
                let mut values = Interpolator::new(cursor, pmids, &self.profile, self.rules);
                values.seek(self.origin, step);
                grid.insert(Grid { pmids: pmids.to_vec(), values })
            }
        };
        let sample = grid.values.fetch()?.map(|found| {
            let mut assembly = Assembly::default();
            for set in found.sets() {
                assembly.add(set.pmid(), set.error().map_or_else(|| Ok(set.values()), Err));
            }
            assembly.sample(found.time)
        });
        self.origin = grid.values.origin();
        Ok(sample)
    }

    /// Returns the next complete record (pmFetchArchive(3)).
    pub(crate) fn whole(&mut self) -> Result<Sample, ContextError> {
        let record = match self.mode {
            Mode::Interpolated { .. } => return Err(Error::MODE.into()),
            Mode::Backward => self.cursor.backward()?,
            Mode::Forward | Mode::Live => self.cursor.forward()?,
        };
        let record = record.ok_or(Error::EOL)?;
        self.time = record.time;
        Ok(Sample::at(record.time, record.values))
    }

    /// Returns the instances of a domain as of the time of the last sample, in their order.
    pub(crate) fn instances(&mut self, indom: InDom) -> Result<&[(Inst, Vec<u8>)], Error> {
        let time = self.time;
        if !self
            .names
            .get(&indom)
            .is_some_and(|names| names.from <= time && names.until.is_none_or(|until| time < until))
        {
            let meta = self.archive.metadata();
            let list = meta.instance_names().instances(indom, time)?;
            let list = list.iter().map(|instance| (Inst::new(instance.inst), instance.name.to_vec())).collect();
            let (mut from, mut until) = (time, None);
            for record in meta.indom_records(indom)? {
                if record.time > time {
                    until = Some(record.time);
                    break;
                }
                from = record.time;
            }
            self.names.insert(indom, KnownInstances { from, until, list });
        }
        self.names.get(&indom).map(|names| &*names.list).ok_or(Error::INDOM_LOG)
    }
}
