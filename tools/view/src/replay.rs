//! Replay of a recording.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use pcp_archive::{Archive, ArchiveError, Cursor, Direction, InstanceNames, Metadata};
use pcp_base::escape::{self, Escaped};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::TextKind;
use pcp_pdu::result::ValueSet;
use pmapi::{Desc, Domain, InDom, Inst, LabelLevel, PmId};

use crate::fleet::{Agent, Status};
use crate::model::{Board, Metric, Reading, Readings, Value, clean, clean_lines};
use crate::stage::{Stage, Steer};
use crate::time::{between, minus, plus};

/// Number of records that are searched for the values as of a time.
const SEARCHED: usize = 500;
/// Number of bytes of records after which the search ends too.
const SEARCHED_BYTES: usize = 64 << 20;
/// Fastest and slowest speed, as powers of 2.
const FASTEST: i32 = 12;
const SLOWEST: i32 = -4;

/// Recording that is shown.
pub(crate) struct Replay<'a> {
    archive: &'a Archive,
    cursor: Cursor<'a>,
    names: InstanceNames<'a>,
    agents: Vec<Agent>,
    /// Metrics of each agent, in the order of its board.
    metrics: Vec<Vec<(PmId, pmapi::Result<Desc>)>>,
    /// Latest values.
    values: HashMap<PmId, Readings>,
    start: Stamp,
    end: Stamp,
    /// Time of the shown values. `None` before the first sample.
    position: Option<Stamp>,
    direction: Direction,
    interval: Duration,
    /// Speed as a power of 2.
    speed: i32,
    /// Time of an agent's board that corresponds to the start of the archive.
    base: Instant,
    /// Whether anything has changed since [`Stage::take_changed`].
    has_changed: bool,
}

/// Returns the interval at a speed, which is a power of 2.
fn scaled(interval: Duration, speed: i32) -> Duration {
    match u32::try_from(speed) {
        Ok(speed) => interval.saturating_mul(1 << speed.min(FASTEST as u32)),
        Err(_) => interval / (1 << speed.unsigned_abs().min(SLOWEST.unsigned_abs())),
    }
}

impl<'a> Replay<'a> {
    /// Opens a recording at its start.
    ///
    /// # Errors
    /// Errors of [`Archive::end`].
    pub(crate) fn new(archive: &'a Archive, interval: Duration, speed: i32) -> Result<Replay<'a>, ArchiveError> {
        let meta = archive.metadata();
        let (mut agents, mut metrics) = (Vec::new(), Vec::new());
        for (domain, found) in by_domain(meta) {
            let mut board = Board::default();
            board.set_metrics(found.iter().map(|(name, pmid)| metric(meta, name, *pmid)).collect());
            let name = agent_name(meta, domain, found.first().map_or("", |(name, _)| name));
            agents.push(Agent::idle(&name, Some(domain), Status::Running, board, None));
            metrics.push(found.into_iter().map(|(_, pmid)| (pmid, meta.desc(pmid))).collect());
        }
        Ok(Replay {
            archive,
            cursor: archive.cursor(),
            names: meta.instance_names(),
            agents,
            metrics,
            values: HashMap::new(),
            start: archive.label().start,
            end: archive.end()?,
            position: None,
            direction: Direction::Forward,
            interval,
            speed: speed.clamp(SLOWEST, FASTEST),
            base: Instant::now(),
            has_changed: true,
        })
    }

    /// Moves the position by an interval, within the archive.
    fn advance(&mut self) {
        let step = scaled(self.interval, self.speed);
        let next = match (self.position, self.direction) {
            // Agents are recorded one after the other, so the first step must reach the last of them.
            (None, _) => plus(self.start, step).min(self.end),
            (Some(position), Direction::Forward) => plus(position, step).min(self.end),
            (Some(position), Direction::Backward) => minus(position, step).max(self.start),
        };
        self.position = Some(next);
    }

    /// Collects the latest value of each metric as of a time. Reads the records since the last position, or when going
    /// back, as many records as needed.
    fn collect(&mut self, from: Option<Stamp>, to: Stamp) -> Result<(), ArchiveError> {
        if from.is_some_and(|from| from > to) {
            self.values.clear();
        }
        let mut seen: HashMap<PmId, Readings> = HashMap::new();
        if !self.search(from, to, &mut seen)? {
            self.values.clear();
        }
        self.values.extend(seen);
        Ok(())
    }

    /// Searches the records before a time. Returns whether earlier values are still valid: all records since the last
    /// position have been searched, and there is no mark.
    fn search(
        &mut self,
        from: Option<Stamp>,
        to: Stamp,
        seen: &mut HashMap<PmId, Readings>,
    ) -> Result<bool, ArchiveError> {
        if self.archive.is_gap(to)? {
            return Ok(false);
        }
        self.cursor.seek(to);
        let meta = self.archive.metadata();
        let wanted: usize = self.metrics.iter().map(Vec::len).sum();
        let mut left = SEARCHED_BYTES;
        for _ in 0..SEARCHED {
            let Some(record) = self.cursor.backward()? else { return Ok(true) };
            if self.values.len() + seen.len() > 0 && from.is_some_and(|from| from <= to && record.time <= from) {
                return Ok(true);
            }
            if record.is_mark() {
                return Ok(false);
            }
            for set in record.values.iter() {
                let Some(pmid) = set.pmid.filter(|pmid| !seen.contains_key(pmid)) else { continue };
                seen.insert(pmid, readings(meta, &mut self.names, &set, record.time));
            }
            if seen.len() >= wanted {
                return Ok(true);
            }
            left = left.saturating_sub(record.len);
            if left == 0 {
                break;
            }
        }
        Ok(false)
    }

    fn show(&mut self, time: Stamp) {
        let at = self.base + between(self.start, time);
        for (agent, metrics) in self.agents.iter_mut().zip(&self.metrics) {
            let sample = metrics.iter().map(|(pmid, _)| self.values.get(pmid).cloned().unwrap_or(Ok(Vec::new())));
            agent.board.update(at, sample.collect());
        }
    }
}

/// Returns the metrics of each domain with their names, in the order of names.
fn by_domain(meta: &Metadata) -> BTreeMap<Domain, Vec<(String, PmId)>> {
    let mut found: BTreeMap<Domain, Vec<(String, PmId)>> = BTreeMap::new();
    for (name, pmid) in meta.names().below(b"").unwrap_or_default() {
        found.entry(pmid.domain()).or_default().push((String::from_utf8_lossy(&name).into_owned(), pmid));
    }
    found.values_mut().for_each(|metrics| metrics.sort());
    found
}

/// Returns the name of a domain's agent: its label, or the first component of its metrics' names.
fn agent_name(meta: &Metadata, domain: Domain, metric: &str) -> String {
    let latest = Stamp { seconds: i64::MAX, nanoseconds: 0 };
    let record = meta.labels(LabelLevel::Domain, domain.get().into(), latest).ok().flatten();
    let set = record.and_then(|record| record.sets().next()?.label_set().ok());
    let agent = set.and_then(|set| Some(set.value("agent")?.trim_matches('"').to_owned()));
    clean(agent.unwrap_or_else(|| metric.split('.').next().unwrap_or_default().to_owned()))
}

fn metric(meta: &Metadata, name: &str, pmid: PmId) -> Metric {
    let oneline = clean(text(meta, pmid, TextKind::OneLine));
    Metric { oneline, ..Metric::new(clean(name), pmid, meta.desc(pmid)) }
}

/// Returns the help of a metric, or an empty text.
fn text(meta: &Metadata, pmid: PmId, kind: TextKind) -> String {
    meta.text(pmid, kind).map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
}

fn readings(meta: &Metadata, names: &mut InstanceNames<'_>, set: &ValueSet<'_>, time: Stamp) -> Readings {
    let desc = meta.desc(set.pmid.ok_or(pmapi::Error::PMID)?)?;
    if let Some(error) = set.error {
        return Err(error);
    }
    let mut name = |indom: InDom, inst: Inst| {
        let name = names.name(indom, inst.word(), time).map(|name| String::from_utf8_lossy(name).into_owned());
        clean(name.unwrap_or_default())
    };
    let read = set.values().map(|(inst, raw)| Reading {
        inst: desc.indom.and(inst),
        instance: desc.indom.zip(inst).map(|(indom, inst)| name(indom, inst).into()).unwrap_or_default(),
        value: Value::new(raw, desc.ty),
    });
    Ok(read.collect())
}

impl Stage for Replay<'_> {
    fn tick(&mut self) {
        self.has_changed = true;
        let from = self.position;
        self.advance();
        let Some(to) = self.position else { return };
        // Values that cannot be read are not shown. Values before them are, even after going back.
        let status = match self.collect(from, to) {
            Ok(()) => Status::Running,
            Err(e) => Status::Failed(e.to_string()),
        };
        self.agents.iter_mut().for_each(|agent| agent.status = status.clone());
        self.show(to);
    }

    fn gather(&mut self, _: Duration) -> bool {
        true
    }

    fn ask_help(&mut self, agent: usize, metric: usize) {
        let Some((pmid, _)) = self.metrics.get(agent).and_then(|metrics| metrics.get(metric)) else { return };
        let text = clean_lines(&text(self.archive.metadata(), *pmid, TextKind::Help));
        if let Some(agent) = self.agents.get_mut(agent) {
            agent.board.set_help(metric, text);
            self.has_changed = true;
        }
    }

    fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    fn agents(&self) -> &[Agent] {
        &self.agents
    }

    fn time(&self) -> Stamp {
        self.position.unwrap_or(self.start)
    }

    fn state(&self) -> Option<String> {
        let direction = match (self.direction, self.position) {
            (Direction::Forward, Some(position)) if position >= self.end => return Some("at the end".to_owned()),
            (Direction::Backward, Some(position)) if position <= self.start => return Some("at the start".to_owned()),
            (Direction::Forward, _) => "forward",
            (Direction::Backward, _) => "back",
        };
        let speed = if self.speed < 0 { format!("1/{}", 1 << -self.speed) } else { (1 << self.speed).to_string() };
        Some(format!("{direction} {speed}x"))
    }

    fn print_warnings(&self) {
        for skipped in self.archive.take_skipped() {
            escape::eprint(format_args!("Warning: {}\n", Escaped(skipped)));
        }
    }

    fn has_ended(&self) -> bool {
        let has_failed = self.agents.iter().any(|agent| agent.failure().is_some());
        has_failed || self.position.is_some_and(|position| position >= self.end)
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn steer(&mut self, steer: Steer) {
        self.has_changed = true;
        match steer {
            Steer::Forward => self.direction = Direction::Forward,
            Steer::Back => self.direction = Direction::Backward,
            Steer::Faster => self.speed = (self.speed + 1).min(FASTEST),
            Steer::Slower => self.speed = (self.speed - 1).max(SLOWEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_archive::Create;
    use pcp_pdu::metadata::{Subject, TextKind};
    use pcp_pdu::result_writer::ResultWriter;
    use pmapi::{Atom, Semantics, Type, Units};

    /// Writes the seconds from 1 to 100, with a mark at 50, and another metric every ten seconds.
    fn write(base: &std::path::Path) {
        write_from(base, 1);
    }

    /// Writes the seconds from one on up to the next hundred, as [`write`] does.
    fn write_from(base: &std::path::Path, first: u32) {
        let mut writer = Create::new("host").create(base).unwrap();
        let pmids = [1, 2].map(|item| PmId::from_word(253 << 22 | item).unwrap());
        for (pmid, name) in pmids.iter().zip(["a.second", "a.ten"]) {
            let (indom, semantics) = (None, Semantics::Counter);
            let desc = Desc { pmid: *pmid, ty: Type::U32, indom, semantics, units: Units::NONE };
            writer.metric(&desc.into(), &[name.as_bytes()]).unwrap();
        }
        writer.text(Subject::Metric(pmids[0]), TextKind::Help, b"Seconds.\n\x1bAll of them.\n").unwrap();
        let mut values = ResultWriter::new();
        for second in first..=first.next_multiple_of(100) {
            let time = Stamp { seconds: second.into(), nanoseconds: 0 };
            if second == 50 {
                writer.mark(time).unwrap();
                continue;
            }
            values.begin();
            for (pmid, _) in pmids.iter().zip([true, second % 10 == 0]).filter(|(_, is_here)| *is_here) {
                values.begin_set(Some(*pmid));
                values.push(None, Type::U32, Atom::U32(second)).unwrap();
                values.end_set(Ok(()));
            }
            writer.values(time, &mut values).unwrap();
        }
        writer.finish().unwrap();
    }

    #[test]
    fn no_values_between_two_archives() {
        let dir = tempfile::tempdir().unwrap();
        write_from(&dir.path().join("a"), 81);
        write_from(&dir.path().join("b"), 121);
        let archive = Archive::open(dir.path()).unwrap();
        let mut replay = Replay::new(&archive, Duration::from_secs(10), 0).unwrap();
        assert_eq!(step(&mut replay), all(91, &[91, 90]));
        assert_eq!(step(&mut replay), (101, vec![]));
        assert_eq!(step(&mut replay), (111, vec![]));
        assert_eq!(step(&mut replay), all(121, &[121]));
        replay.steer(Steer::Back);
        assert_eq!(step(&mut replay), (111, vec![]));
    }

    #[test]
    fn a_failure_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("a"));
        let archive = Archive::open(dir.path().join("a")).unwrap();
        let mut replay = Replay::new(&archive, Duration::from_secs(10), 0).unwrap();
        let volume = dir.path().join("a.0");
        let bytes = std::fs::read(&volume).unwrap();
        std::fs::write(&volume, vec![0xff; bytes.len()]).unwrap();
        step(&mut replay);
        let reason = replay.agents()[0].failure().unwrap();
        assert!(reason.ends_with("/a: no volume can be opened"), "{reason}");
        assert!(replay.has_ended() && replay.time().seconds == 11, "{:?}", replay.time());
    }

    #[test]
    fn help_is_in_the_archive() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("a");
        write(&base);
        let archive = Archive::open(&base).unwrap();
        let mut replay = Replay::new(&archive, Duration::from_secs(10), 0).unwrap();
        assert!(replay.take_changed() && !replay.take_changed());
        for (agent, metric) in [(0, 0), (0, 9), (9, 0)] {
            replay.ask_help(agent, metric);
        }
        assert!(replay.take_changed());
        assert_eq!(replay.agents()[0].board.metrics[0].metric.help.as_deref(), Some("Seconds.\n All of them."));
    }

    /// Makes a step, and returns the time and the values.
    fn step(replay: &mut Replay<'_>) -> (i64, Vec<String>) {
        replay.tick();
        let board = &replay.agents()[0].board;
        let values = board.metrics.iter().flat_map(|shown| shown.values.iter().flatten());
        (replay.time().seconds, values.map(|series| series.value.text.clone()).collect())
    }

    fn all(second: i64, values: &[i64]) -> (i64, Vec<String>) {
        (second, values.iter().map(i64::to_string).collect())
    }

    #[test]
    fn forward_and_back_at_any_speed() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("a"));
        let archive = Archive::open(dir.path().join("a")).unwrap();
        let mut replay = Replay::new(&archive, Duration::from_secs(10), 0).unwrap();
        assert_eq!(replay.agents()[0].name, "a");
        assert_eq!(step(&mut replay), all(11, &[11, 10]));
        assert_eq!(step(&mut replay), all(21, &[21, 20]));
        replay.steer(Steer::Slower);
        assert_eq!(step(&mut replay), all(26, &[26, 20]));
        assert_eq!(replay.state().as_deref(), Some("forward 1/2x"));
        let rate = replay.agents()[0].board.metrics[0].values.as_ref().unwrap()[0].rate;
        assert_eq!(rate, Some(1.0));
        replay.steer(Steer::Back);
        assert_eq!(step(&mut replay), all(21, &[21, 20]));
        replay.steer(Steer::Faster);
        replay.steer(Steer::Faster);
        assert_eq!(replay.state().as_deref(), Some("back 2x"));
        assert_eq!(step(&mut replay), all(1, &[1]));
        assert_eq!(step(&mut replay), all(1, &[1]));
        assert_eq!(replay.state().as_deref(), Some("at the start"));
        replay.steer(Steer::Forward);
        replay.steer(Steer::Faster);
        assert_eq!(step(&mut replay), all(41, &[41, 40]));
        for _ in 0..3 {
            replay.steer(Steer::Slower);
        }
        // After the mark, only values recorded since then are shown.
        step(&mut replay);
        assert_eq!(step(&mut replay), all(51, &[51]));
        assert!(!replay.has_ended());
        while !replay.has_ended() {
            step(&mut replay);
        }
        assert_eq!(step(&mut replay), all(100, &[100, 100]));
        assert_eq!(replay.state().as_deref(), Some("at the end"));
    }

    /// A step over more records than are searched must not keep values from before a mark.
    #[test]
    fn a_long_step_keeps_no_values() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Create::new("host").create(dir.path().join("a")).unwrap();
        let pmids = [1, 2].map(|item| PmId::from_word(253 << 22 | item).unwrap());
        for (pmid, name) in pmids.iter().zip(["a.once", "a.second"]) {
            let desc =
                Desc { pmid: *pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE };
            writer.metric(&desc.into(), &[name.as_bytes()]).unwrap();
        }
        let mut values = ResultWriter::new();
        for second in 0..2000_u32 {
            let time = Stamp { seconds: second.into(), nanoseconds: 0 };
            if second == 900 {
                writer.mark(time).unwrap();
                continue;
            }
            values.begin();
            for (pmid, _) in pmids.iter().zip([second == 0, true]).filter(|(_, is_here)| *is_here) {
                values.begin_set(Some(*pmid));
                values.push(None, Type::U32, Atom::U32(second)).unwrap();
                values.end_set(Ok(()));
            }
            writer.values(time, &mut values).unwrap();
        }
        writer.finish().unwrap();
        let archive = Archive::open(dir.path().join("a")).unwrap();
        let mut replay = Replay::new(&archive, Duration::from_secs(10), 0).unwrap();
        assert_eq!(step(&mut replay), all(10, &[0, 10]));
        replay.speed = 8;
        assert_eq!(step(&mut replay), all(1999, &[1999]));
    }

    #[test]
    fn steps() {
        assert_eq!(scaled(Duration::from_secs(1), 3), Duration::from_secs(8));
        assert_eq!(scaled(Duration::from_secs(1), -2), Duration::from_millis(250));
    }
}
