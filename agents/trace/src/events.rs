//! Event records: each transaction and point, with its fields and what it is a part of.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use pmda::prelude::*;
use trace::light::{ReadError, Reader, Record, now};
use trace::protocol::{Data, Kind};
use tracing::warn;

use crate::filter::{Filter, Key};

const CLUSTER: u16 = 1;
/// The cluster of fields.
const FIELDS: u16 = 2;

const RECORDS: Item = Item::new(CLUSTER, 0);
const COUNT: Item = Item::new(CLUSTER, 1);
const MISSED: Item = Item::new(CLUSTER, 2);
const MEMORY: Item = Item::new(CLUSTER, 3);
const CLIENTS: Item = Item::new(CLUSTER, 4);
const HIGHRES_RECORDS: Item = Item::new(CLUSTER, 5);
pub(crate) const TAG: Item = Item::new(CLUSTER, 10);
pub(crate) const KIND: Item = Item::new(CLUSTER, 11);
pub(crate) const DURATION: Item = Item::new(CLUSTER, 12);
const VALUE: Item = Item::new(CLUSTER, 13);
const ID: Item = Item::new(CLUSTER, 14);
const PARENT: Item = Item::new(CLUSTER, 15);
pub(crate) const PROCESS: Item = Item::new(CLUSTER, 16);
const FIELD: Item = Item::new(CLUSTER, 17);

/// Bytes of records that wait for clients; when they are used up the oldest give way.
const MEMORY_LIMIT: usize = 4 << 20;
/// As many cells of a process are read at once: all that its threads have, but of very many.
const WANTED: u64 = 1 << 18;
/// As many while nobody reads records, for those who are yet to come.
const UNWANTED: u64 = 1 << 15;
/// As many records of TCP are put aside at once.
const MOST_PENDING: usize = 1 << 12;
/// Bits of a record's own identifier that go into the one of the host.
const ID_BITS: u32 = 42;

/// The event metrics and their queue.
#[derive(Debug)]
pub(crate) struct Events {
    queue: EventQueue,
    names: Dynamic,
    prefix: String,
    /// The items of fields; none when there is no more room for them.
    fields: HashMap<Box<str>, Option<Item>>,
    /// Records of all processes, to be sorted.
    pending: Vec<Pending>,
    missed: u64,
}

#[derive(Debug)]
struct Pending {
    time: u64,
    flags: EventFlags,
    /// How many of its thread came before it, and were overwritten.
    missed: u32,
    kind: Kind,
    tag: String,
    duration: Option<u64>,
    value: Option<f64>,
    id: u64,
    parent: u64,
    process: u32,
    fields: Vec<(String, String)>,
}

impl Events {
    pub(crate) fn new(setup: &mut Setup) -> Events {
        let prefix = setup.name().to_owned();
        for (name, item, ty, clock) in [
            ("records", RECORDS, Type::Event, "microseconds"),
            ("highres_records", HIGHRES_RECORDS, Type::HighResEvent, "nanoseconds"),
        ] {
            setup.metric(format!("{prefix}.event.{name}"), item, ty).storable().help(
                format!("What applications mark, as it comes, with times in {clock}"),
                "Each client sees each record once: pminfo -x, pmval, pmevent. A transaction of the light transport has a\n\
                 record when it begins and one when it ends; others have one that says both. A client leaves itself a\n\
                 part of them with a filter (pmval -x): conditions with semicolons between, such as tag=look up;\n\
                 kind=transact; longer=0.01 (seconds); process=77; user=7, the last for a field. With ~ in the place of\n\
                 = a regular expression follows. An empty one takes the filter away.",
            );
        }
        let mut own = |name, item, ty, units, oneline, text| {
            setup.metric(format!("{prefix}.event.{name}"), item, ty).units(units).help(oneline, text);
        };
        own("memory", MEMORY, Type::U64, Units::BYTES, "Memory of the records that wait for clients", "At most 4 MiB.");
        own("clients", CLIENTS, Type::U32, Units::COUNT, "Clients that read records", "From their first fetch on.");
        let mut counter = |name, item, oneline, text| {
            setup
                .metric(format!("{prefix}.event.{name}"), item, Type::U64)
                .counter()
                .units(Units::COUNT)
                .help(oneline, text);
        };
        counter(
            "count",
            COUNT,
            "Records so far",
            "With those that nobody was there to read. Applications that trace over TCP have records only while a\n\
             client reads them.",
        );
        counter(
            "missed",
            MISSED,
            "Records that the agent has not read",
            "They were overwritten before, or there were too many while no client reads. The counts and times of tags\n\
             have them all the same. Clients are told with the records that follow.",
        );
        let mut param = |name, item, ty, units, oneline| {
            let metric = setup.metric(format!("{prefix}.event.param.{name}"), item, ty).parameter();
            metric.units(units).help(oneline, "A parameter of event records: it has a value there only.");
        };
        param("tag", TAG, Type::String, Units::NONE, "Tag");
        param("kind", KIND, Type::String, Units::NONE, "transact, point, observe or counter");
        param("duration", DURATION, Type::U64, Units::NANOSECONDS, "Duration of a transaction that has ended");
        param("value", VALUE, Type::Double, Units::NONE, "Value of an observation or a counter");
        param("id", ID, Type::U64, Units::NONE, "Identifier of a transaction");
        param("parent", PARENT, Type::U64, Units::NONE, "Identifier of the transaction that it is a part of");
        param("process", PROCESS, Type::U32, Units::NONE, "Process that has marked it");
        param("field", FIELD, Type::String, Units::NONE, "Key and value of a field for which there is no metric");
        let names = setup.dynamic([format!("{prefix}.event.field")]);
        Events {
            queue: setup.event_queue(MEMORY_LIMIT).keeping(),
            names,
            prefix,
            fields: HashMap::new(),
            pending: Vec::new(),
            missed: 0,
        }
    }

    pub(crate) fn names(&self) -> &Dynamic {
        &self.names
    }

    pub(crate) fn is_own(item: Item) -> bool {
        matches!(item.cluster(), CLUSTER | FIELDS)
    }

    pub(crate) fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            RECORDS | HIGHRES_RECORDS => out.put_events(&self.queue),
            COUNT => out.put(self.queue.count() - self.missed),
            MISSED => out.put(self.missed),
            MEMORY => out.put(self.queue.memory() as u64),
            CLIENTS => out.put(self.queue.clients() as u32),
            _ => Err(Error::PMID),
        }
    }

    /// Sets a client's filter.
    pub(crate) fn store(&mut self, item: Item, value: Atom<'_>, client: Client) -> Result {
        let Atom::String(text) = value else { return Err(Error::CONV) };
        let text = std::str::from_utf8(text).map_err(|_| Error::CONV)?;
        if !matches!(item, RECORDS | HIGHRES_RECORDS) {
            return Err(Error::PERMISSION);
        }
        if text.trim().is_empty() {
            self.queue.clear_filter(client);
            return Ok(());
        }
        let filter = Filter::parse(text, |field| self.field(field)).map_err(|e| {
            warn!("filter {text}: {e}");
            Error::BADSTORE
        })?;
        self.queue.set_filter(client, move |event| filter.passes(event));
        Ok(())
    }

    /// Whether somebody reads records.
    pub(crate) fn are_wanted(&self) -> bool {
        self.queue.clients() > 0
    }

    /// What has come over TCP.
    #[inline]
    pub(crate) fn add(&mut self, data: &Data<'_>) {
        if self.are_wanted() {
            self.pending.push(Pending::over_tcp(data));
            if self.pending.len() >= MOST_PENDING {
                self.publish();
            }
        }
    }

    /// Takes the records of a process that are new.
    pub(crate) fn read(&mut self, reader: &mut Reader) -> Result<(), ReadError> {
        let limit = if self.are_wanted() { WANTED } else { UNWANTED } / reader.lanes().max(1) as u64;
        let process = reader.process().pid;
        let pending = &mut self.pending;
        reader.records(limit, |kind, tag, record| pending.push(Pending::new(kind, tag, record, process)))?;
        Ok(())
    }

    /// Puts what was taken where clients find it, in the order of time.
    pub(crate) fn publish(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|record| record.time);
        let (wall, clock) = (SystemTime::now(), now());
        for record in pending.drain(..) {
            let time = Duration::from_nanos(clock.abs_diff(record.time));
            let time = if record.time <= clock { wall.checked_sub(time) } else { wall.checked_add(time) };
            self.push(time.unwrap_or(wall).into(), &record);
        }
        self.pending = pending;
    }

    fn push(&mut self, time: Stamp, record: &Pending) {
        let fields: Vec<(Item, Cow<'_, str>)> = record
            .fields
            .iter()
            .map(|(key, value)| match self.field(key) {
                Some(item) => (item, value.into()),
                None => (FIELD, format!("{key}={value}").into()),
            })
            .collect();
        let id = |id: u64| u64::from(record.process) << ID_BITS | id & ((1 << ID_BITS) - 1);
        let present = |number: u64| (number != 0).then_some(number);
        let (own, parent) = (present(record.id).map(id), present(record.parent).map(id));
        let flag = |present: bool, flag| if present { flag } else { EventFlags(0) };
        let flags = record.flags.union(flag(own.is_some(), EventFlags::ID));
        let flags = flags.union(flag(parent.is_some(), EventFlags::PARENT));
        // Those that the flags are about come first.
        let params = own.map(|id| (ID, id.into())).into_iter().chain(parent.map(|parent| (PARENT, parent.into())));
        let params = params.chain([(TAG, record.tag.as_str().into()), (KIND, kind_name(record.kind).into())]);
        let params = params.chain(record.duration.map(|duration| (DURATION, duration.into())));
        let params = params.chain(record.value.map(|value| (VALUE, value.into())));
        let params = params.chain((record.process != 0).then(|| (PROCESS, record.process.into())));
        let params = params.chain(fields.iter().map(|(item, value)| (*item, value.as_ref().into())));
        self.queue.lost(time, record.missed);
        self.missed += u64::from(record.missed);
        if let Err(e) = self.queue.push(time, flags, params) {
            warn!("event record: {e}");
        }
    }

    /// The metric of a field, which is made if it is new.
    fn field(&mut self, key: &str) -> Option<Item> {
        if let Some(item) = self.fields.get(key) {
            return *item;
        }
        // The names of others are forgotten rather than kept without end.
        if self.fields.len() >= 4 * usize::from(Item::MAX_ITEM) {
            return None;
        }
        let number = u16::try_from(self.names.len()).ok();
        let item = number.and_then(|number| Item::try_new(FIELDS, number)).filter(|item| {
            let mut metric = Metric::new(format!("{}.event.field.{}", self.prefix, name_of(key)), *item, Type::String);
            metric.parameter().help(
                format!("Field {}", key.escape_debug()),
                "A parameter of event records: it has a value there only.",
            );
            self.names.insert(&metric).is_ok()
        });
        self.fields.insert(key.into(), item);
        item
    }
}

/// A component of a metric's name.
fn name_of(key: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name: String = key.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("f{name}") }
}

/// As in the names of metrics.
pub(crate) const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Transact => "transact",
        Kind::Point => "point",
        Kind::Observe => "observe",
        Kind::Counter => "counter",
    }
}

impl Pending {
    fn new(kind: Kind, tag: &[u8], record: &Record<'_>, process: u32) -> Pending {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let flags = match (record.begin, record.end) {
            (true, false) => EventFlags::START,
            (false, true) => EventFlags::END,
            (true, true) => EventFlags::START.union(EventFlags::END),
            (false, false) => EventFlags::POINT,
        };
        Pending {
            time: record.time,
            flags,
            missed: record.missed.try_into().unwrap_or(u32::MAX),
            kind,
            tag: text(tag),
            duration: record.duration(),
            value: record.value(kind).filter(|_| kind != Kind::Transact),
            id: record.id,
            parent: record.parent,
            process,
            fields: record.fields().map(|(key, value)| (text(key), text(value))).collect(),
        }
    }

    fn over_tcp(data: &Data<'_>) -> Pending {
        let transact = data.kind == Kind::Transact;
        let duration = Duration::try_from_secs_f64(data.value).ok().filter(|_| transact);
        Pending {
            time: now(),
            flags: if transact { EventFlags::START.union(EventFlags::END) } else { EventFlags::POINT },
            missed: 0,
            kind: data.kind,
            tag: String::from_utf8_lossy(data.tag).into_owned(),
            duration: duration.map(|duration| duration.as_nanos() as u64),
            value: matches!(data.kind, Kind::Observe | Kind::Counter).then_some(data.value),
            id: 0,
            parent: 0,
            process: 0,
            fields: Vec::new(),
        }
    }
}

impl From<Key> for Item {
    fn from(key: Key) -> Item {
        match key {
            Key::Tag => TAG,
            Key::Kind => KIND,
            Key::Process => PROCESS,
            Key::Longer => DURATION,
            Key::Field(item) => item,
        }
    }
}
