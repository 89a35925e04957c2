//! Data that is shown about an agent: its metrics, their latest values, and previous values.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_base::escape::is_plain;
use pcp_pdu::event::{EventFlags, Layout, Record, records};
use pcp_pdu::result::RawValue;
use pmapi::{Atom, Desc, Inst, PmId, Semantics, Type};

/// Metric of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) pmid: PmId,
    pub(crate) oneline: String,
    /// Full help, after it has been requested.
    pub(crate) help: Option<String>,
    /// Descriptor, or the agent's error.
    pub(crate) desc: pmapi::Result<Desc>,
}

impl Metric {
    /// A metric without help.
    pub(crate) fn new(name: String, pmid: PmId, desc: pmapi::Result<Desc>) -> Metric {
        Metric { name, pmid, oneline: String::new(), help: None, desc }
    }
}

/// Value in a sample.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) inst: Option<Inst>,
    /// Name of the instance.
    pub(crate) instance: Arc<str>,
    pub(crate) value: Value,
}

/// Values of one metric in a sample, or the error in their place.
pub(crate) type Readings = pmapi::Result<Vec<Reading>>;

/// Value, as text and as a Rust type.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Value {
    /// Text in the format of PCP's tools.
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

/// Kind of a value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    /// Integer of any type.
    Integer(i128),
    /// Floating point number.
    Float(f64),
    /// String.
    Text(String),
    /// Event records: the parameters of the last one.
    Event(Vec<(Option<PmId>, Value)>),
    /// Value of any other type.
    Opaque,
}

impl From<Atom<'_>> for Kind {
    fn from(atom: Atom<'_>) -> Kind {
        match atom {
            Atom::I32(v) => Kind::Integer(v.into()),
            Atom::U32(v) => Kind::Integer(v.into()),
            Atom::I64(v) => Kind::Integer(v.into()),
            Atom::U64(v) => Kind::Integer(v.into()),
            // The shortest decimal number that is this float. The equal double would have many digits.
            Atom::Float(v) => Kind::Float(v.to_string().parse().unwrap_or(f64::from(v))),
            Atom::Double(v) => Kind::Float(v),
            Atom::String(v) => Kind::Text(String::from_utf8_lossy(v).into_owned()),
            Atom::Event(payload) => Kind::Event(last_event(payload, Layout::Micro)),
            Atom::HighResEvent(payload) => Kind::Event(last_event(payload, Layout::Nano)),
            Atom::Aggregate(_) => Kind::Opaque,
        }
    }
}

/// Returns the parameters of the last event in a payload. A record that counts missed events is none.
fn last_event(payload: &[u8], layout: Layout) -> Vec<(Option<PmId>, Value)> {
    let records = records(payload, layout).into_iter().flatten();
    let last = records.filter(|record| !record.flags.contains(EventFlags::MISSED)).last();
    last.iter().flat_map(Record::params).map(|(pmid, atom)| (pmid, Value::from(atom))).collect()
}

/// Parameter of an event.
impl From<Atom<'_>> for Value {
    fn from(atom: Atom<'_>) -> Value {
        let text = match atom {
            Atom::String(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
            // An event in an event is not looked into.
            Atom::Event(_) | Atom::HighResEvent(_) => return Value { text: atom.to_string(), kind: Kind::Opaque },
            atom => atom.to_string(),
        };
        Value { text: clean(text), kind: atom.into() }
    }
}

impl Value {
    pub(crate) fn new(raw: RawValue<'_>, ty: Type) -> Value {
        let kind = raw.atom(ty).map_or(Kind::Opaque, Kind::from);
        Value { text: clean(raw.print(Some(ty), 1).to_string()), kind }
    }

    /// Returns the value as a number; `None` for other values.
    pub(crate) fn number(&self) -> Option<f64> {
        match self.kind {
            Kind::Integer(v) => Some(v as f64),
            Kind::Float(v) => Some(v),
            _ => None,
        }
    }

    /// Returns the difference from `other`, or `None` unless both are numbers.
    fn minus(&self, other: &Value) -> Option<f64> {
        match (&self.kind, &other.kind) {
            (Kind::Integer(a), Kind::Integer(b)) => Some((a - b) as f64),
            _ => Some(self.number()? - other.number()?),
        }
    }
}

/// Replaces characters that affect a terminal by blanks.
pub(crate) fn clean(text: impl Into<String> + AsRef<str>) -> String {
    if text.as_ref().chars().all(is_plain) {
        return text.into();
    }
    text.as_ref().chars().map(|c| if is_plain(c) { c } else { ' ' }).collect()
}

/// Replaces characters that affect a terminal by blanks, in each line of a text.
pub(crate) fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// Change of a value since the previous sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Up,
    Down,
    Other,
}

/// Latest value of an instance, and previous values.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) inst: Option<Inst>,
    pub(crate) instance: Arc<str>,
    pub(crate) value: Value,
    pub(crate) change: Option<Change>,
    /// Change per second of a counter that has not decreased.
    pub(crate) rate: Option<f64>,
    /// Change of a number.
    pub(crate) delta: Option<f64>,
    /// Rates of a counter, or values of another number. The latest is last.
    pub(crate) course: VecDeque<Option<f64>>,
    /// Values of a counter. The latest is last.
    counts: VecDeque<Option<f64>>,
}

impl Series {
    /// Largest number of values that are kept: the columns of a large terminal.
    const COURSE: usize = 300;

    fn new(reading: Reading, counter: bool) -> Series {
        let Reading { inst, instance, value } = reading;
        let (course, counts) = Default::default();
        let mut series = Series { inst, instance, value, change: None, rate: None, delta: None, course, counts };
        series.keep(counter);
        series
    }

    /// Adds a later value of the same instance.
    fn update(&mut self, reading: Reading, counter: bool, elapsed: Option<Duration>) {
        self.delta = reading.value.minus(&self.value);
        self.change = (self.value != reading.value).then_some(match self.delta {
            Some(d) if d > 0.0 => Change::Up,
            Some(d) if d < 0.0 => Change::Down,
            _ => Change::Other,
        });
        let seconds = elapsed.map(|elapsed| elapsed.as_secs_f64()).filter(|s| *s > 0.0);
        self.rate = self.delta.filter(|d| counter && *d >= 0.0).zip(seconds).map(|(d, s)| d / s);
        self.instance = reading.instance;
        self.value = reading.value;
        self.keep(counter);
    }

    /// Adds the latest value to the previous ones.
    fn keep(&mut self, counter: bool) {
        keep(&mut self.course, if counter { self.rate } else { self.value.number() });
        if counter {
            keep(&mut self.counts, self.value.number());
        }
    }

    /// Returns the values of a counter or of another number. The latest is last.
    pub(crate) fn values(&self) -> &VecDeque<Option<f64>> {
        if self.counts.is_empty() { &self.course } else { &self.counts }
    }
}

/// Adds the latest number to a course.
fn keep(course: &mut VecDeque<Option<f64>>, number: Option<f64>) {
    if course.len() == Series::COURSE {
        course.pop_front();
    }
    course.push_back(number);
}

/// Metric with its values.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) metric: Metric,
    /// Values, or the error in their place.
    pub(crate) values: pmapi::Result<Vec<Series>>,
    /// What the agent's log says about a failure of the metric.
    pub(crate) reason: Option<String>,
}

impl Shown {
    /// Returns the text of an error in place of values. That of `PM_ERR_GENERIC` alone only refers to another message.
    pub(crate) fn text_of(&self, code: pmapi::Error) -> String {
        match &self.reason {
            Some(reason) if code == pmapi::Error::GENERIC => reason.clone(),
            _ => code.to_string(),
        }
    }

    fn update(&mut self, readings: Readings, elapsed: Option<Duration>) {
        let counter = self.metric.desc.is_ok_and(|desc| desc.semantics == Semantics::Counter);
        match (&mut self.values, readings) {
            // Most samples have the instances of the one before.
            (Ok(before), Ok(readings)) if before.iter().map(|s| s.inst).eq(readings.iter().map(|r| r.inst)) => {
                for (series, reading) in before.iter_mut().zip(readings) {
                    series.update(reading, counter, elapsed);
                }
            }
            (before, readings) => {
                let before = std::mem::replace(before, Ok(Vec::new())).unwrap_or_default();
                let mut before: HashMap<_, _> = before.into_iter().map(|series| (series.inst, series)).collect();
                let later = |reading: Reading| match before.remove(&reading.inst) {
                    Some(mut series) => {
                        series.update(reading, counter, elapsed);
                        series
                    }
                    None => Series::new(reading, counter),
                };
                self.values = readings.map(|readings| readings.into_iter().map(later).collect());
            }
        }
    }
}

/// All metrics of an agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    pub(crate) metrics: Vec<Shown>,
    /// Places of the metrics.
    places: HashMap<PmId, usize>,
    last: Option<Instant>,
}

impl Board {
    /// Replaces the metrics. A metric in both lists keeps its values.
    pub(crate) fn set_metrics(&mut self, metrics: Vec<Metric>) {
        let before = std::mem::take(&mut self.metrics);
        let mut before: HashMap<_, _> = before.into_iter().map(|shown| (shown.metric.name, shown.values)).collect();
        let shown = metrics.into_iter().map(|metric| {
            let values = before.remove(&metric.name).unwrap_or(Ok(Vec::new()));
            Shown { metric, values, reason: None }
        });
        self.metrics = shown.collect();
        self.places = self.metrics.iter().enumerate().map(|(at, shown)| (shown.metric.pmid, at)).collect();
    }

    /// Returns the name of a metric, such as a parameter of events, or its number if it has none.
    pub(crate) fn name_of(&self, pmid: Option<PmId>) -> String {
        let place = pmid.and_then(|pmid| self.places.get(&pmid));
        match (place.and_then(|at| self.metrics.get(*at)), pmid) {
            (Some(shown), _) => shown.metric.name.clone(),
            (None, Some(pmid)) => pmid.to_string(),
            (None, None) => "PM_ID_NULL".to_owned(),
        }
    }

    /// Sets the one-line help of metrics with their numbers.
    pub(crate) fn set_onelines(&mut self, texts: Vec<(usize, String)>) {
        for (at, text) in texts {
            if let Some(shown) = self.metrics.get_mut(at) {
                shown.metric.oneline = text;
            }
        }
    }

    /// Sets the full help of a metric by its number.
    pub(crate) fn set_help(&mut self, at: usize, text: String) {
        if let Some(shown) = self.metrics.get_mut(at) {
            shown.metric.help = Some(text);
        }
    }

    /// Sets what the agent's log says about failures of metrics, by their numbers.
    pub(crate) fn set_reasons(&mut self, reasons: Vec<(usize, String)>) {
        for (at, reason) in reasons {
            if let Some(shown) = self.metrics.get_mut(at) {
                shown.reason = Some(reason);
            }
        }
    }

    /// Adds a sample, in the order of the metrics.
    pub(crate) fn update(&mut self, at: Instant, sample: Vec<Readings>) {
        let elapsed = self.last.replace(at).map(|last| at.saturating_duration_since(last));
        for (shown, readings) in self.metrics.iter_mut().zip(sample) {
            shown.update(readings, elapsed);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pcp_pdu::event::{EventArray, Stamp};
    use pmapi::{Domain, Item, PmId, Units};

    /// Returns a board with three events of a metric, the last of which says how many were missed. One parameter has no
    /// name.
    pub(crate) fn with_events() -> Board {
        let pmid = |item| PmId::new(Domain::new(1).unwrap(), Item::new(0, item));
        let mut events = EventArray::new(Layout::Micro);
        for name in ["ann", "b\u{1b}b"] {
            events.record(Stamp::default(), EventFlags::POINT).unwrap();
            events.param(pmid(1), name.into()).unwrap();
            events.param(pmid(9), Atom::U32(3)).unwrap();
        }
        events.missed(Stamp::default(), 7).unwrap();
        let Atom::Event(payload) = events.atom() else { panic!("{events:?}") };
        let desc = |item, ty| {
            Ok(Desc { pmid: pmid(item), ty, indom: None, semantics: Semantics::Instant, units: Units::NONE })
        };
        let mut board = Board::default();
        board.set_metrics(vec![
            Metric::new("door.records".into(), pmid(0), desc(0, Type::Event)),
            Metric::new("door.name".into(), pmid(1), desc(1, Type::String)),
        ]);
        let value = Value::new(RawValue::Block(Type::Event.code() as u8, payload), Type::Event);
        let reading = Reading { inst: None, instance: Arc::default(), value };
        board.update(Instant::now(), vec![Ok(vec![reading]), Ok(Vec::new())]);
        board
    }

    fn board(semantics: Semantics) -> Board {
        let pmid = PmId::new(Domain::new(1).unwrap(), Item::new(0, 0));
        let desc = Desc { pmid, ty: Type::I32, indom: None, semantics, units: Units::NONE };
        let mut board = Board::default();
        board.set_metrics(vec![Metric::new("a.b".into(), pmid, Ok(desc))]);
        board
    }

    fn put(board: &mut Board, at: Instant, value: i32) -> Series {
        let value = Value::new(RawValue::InSitu(value as u32), Type::I32);
        board.update(at, vec![Ok(vec![Reading { inst: None, instance: Arc::default(), value }])]);
        board.metrics[0].values.as_ref().unwrap()[0].clone()
    }

    #[test]
    fn counters_have_rates() {
        let mut board = board(Semantics::Counter);
        let start = Instant::now();
        assert_eq!(put(&mut board, start, 10).rate, None);
        let series = put(&mut board, start + Duration::from_secs(2), 16);
        assert_eq!((series.rate, series.delta, series.change), (Some(3.0), Some(6.0), Some(Change::Up)));
        let series = put(&mut board, start + Duration::from_secs(3), 2);
        assert_eq!((series.rate, series.change), (None, Some(Change::Down)));
        assert_eq!(series.course, [None, Some(3.0), None]);
        assert_eq!(*series.values(), [Some(10.0), Some(16.0), Some(2.0)]);
    }

    #[test]
    fn other_numbers_have_changes() {
        let mut board = board(Semantics::Instant);
        let start = Instant::now();
        put(&mut board, start, 10);
        let series = put(&mut board, start + Duration::from_secs(1), 10);
        assert_eq!((series.rate, series.delta, series.change), (None, Some(0.0), None));
        assert_eq!(put(&mut board, start + Duration::from_secs(2), 7).delta, Some(-3.0));
    }

    #[test]
    fn instances_that_change_places_keep_their_values() {
        let mut board = board(Semantics::Instant);
        let start = Instant::now();
        let mut put_all = |values: &[(u32, i32)]| {
            let reading = |&(inst, value): &(u32, i32)| {
                let value = Value::new(RawValue::InSitu(value as u32), Type::I32);
                Reading { inst: Some(Inst::new(inst)), instance: Arc::default(), value }
            };
            board.update(start, vec![Ok(values.iter().map(reading).collect())]);
            let series = board.metrics[0].values.as_ref().unwrap().iter();
            series.map(|one| one.course.iter().flatten().map(|v| *v as i32).collect()).collect::<Vec<Vec<i32>>>()
        };
        assert_eq!(put_all(&[(1, 10), (2, 20)]), [[10], [20]]);
        assert_eq!(put_all(&[(1, 11), (2, 21)]), [[10, 11], [20, 21]]);
        assert_eq!(put_all(&[(2, 22), (1, 12)]), [[20, 21, 22], [10, 11, 12]]);
        assert_eq!(put_all(&[(3, 30), (1, 13)]), [vec![30], vec![10, 11, 12, 13]]);
        assert_eq!(put_all(&[(3, 31)]), [[30, 31]]);
    }

    #[test]
    fn a_failed_metric_starts_over() {
        let mut board = board(Semantics::Instant);
        let start = Instant::now();
        put(&mut board, start, 1);
        board.update(start, vec![Err(pmapi::Error::AGAIN)]);
        assert_eq!(board.metrics[0].values.as_ref().err(), Some(&pmapi::Error::AGAIN));
        assert_eq!(put(&mut board, start, 3).course, [Some(3.0)]);
    }
}
