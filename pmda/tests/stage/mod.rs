//! A test agent with events, different clients, and states in which it cannot answer.

#![allow(dead_code, unreachable_pub, clippy::panic)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pcp_pdu::event::{EventArray, Layout};
use pmda::prelude::*;
use pmda::{ClientAttribute, EventFlags, EventQueue, Features, PollSet, Stamp};

pub const DOMAIN: u16 = 401;
pub const TWO: Serial = Serial::new(1);
/// Size of each event queue, in bytes.
pub const QUEUE: usize = 4096;

/// Cluster 0: events.
pub const RECORDS: Item = Item::new(0, 0);
pub const HIGHRES: Item = Item::new(0, 1);
pub const BY_INST: Item = Item::new(0, 2);
pub const ARRAY: Item = Item::new(0, 3);
pub const HIGHRES_ARRAY: Item = Item::new(0, 4);
/// A store adds an event.
pub const ADD: Item = Item::new(0, 5);
/// A store of a number sets the client's filter to events with this number.
pub const FILTERED: Item = Item::new(0, 6);
/// Number of events, bytes of all events, memory in use, number of clients.
pub const STATISTICS: [Item; 4] = [Item::new(0, 7), Item::new(0, 8), Item::new(0, 9), Item::new(0, 10)];
pub const MISFIT: Item = Item::new(0, 11);
/// Events of a queue. Each fetch adds 100 events, more than the queue holds.
pub const FLOOD: Item = Item::new(0, 12);

/// Cluster 1: parameters of events.
pub const TYPE: Item = Item::new(1, 0);
pub const P_32: Item = Item::new(1, 1);
pub const P_U32: Item = Item::new(1, 2);
pub const P_64: Item = Item::new(1, 3);
pub const P_U64: Item = Item::new(1, 4);
pub const P_FLOAT: Item = Item::new(1, 5);
pub const P_DOUBLE: Item = Item::new(1, 6);
pub const P_STRING: Item = Item::new(1, 7);
pub const P_AGGREGATE: Item = Item::new(1, 8);

/// Cluster 2: clients.
pub const UID: Item = Item::new(2, 0);
pub const GID: Item = Item::new(2, 1);
pub const PID: Item = Item::new(2, 2);
/// Number of fetches of this metric by this client.
pub const VISITS: Item = Item::new(2, 3);
pub const VISITORS: Item = Item::new(2, 4);
/// Only administrators may store.
pub const RULE: Item = Item::new(2, 7);
/// Only root may store.
pub const SECRET: Item = Item::new(2, 5);
pub const CONTAINER: Item = Item::new(2, 6);

/// Cluster 3: states. The value is the number of stores. After a store, the next fetch of this metric panics.
pub const PANIC: Item = Item::new(3, 0);
/// A store makes the agent not ready for this number of milliseconds.
pub const NOT_READY: Item = Item::new(3, 1);
/// Number of calls of [`Agent::done`].
pub const DONE: Item = Item::new(3, 2);
/// A store fails with the error of this code.
pub const ERROR: Item = Item::new(3, 3);
/// A fetch prints to standard output.
pub const PRINT: Item = Item::new(3, 4);
/// Puts two values of one instance.
pub const TWICE: Item = Item::new(3, 5);
/// Puts two values of a singular metric.
pub const TWICE_SINGULAR: Item = Item::new(3, 6);

/// Cluster 4: Rust types that convert to another type of metric.
pub const SMALL: [(&str, Type); 6] = [
    ("u8", Type::U32),
    ("i8", Type::I32),
    ("u16", Type::U64),
    ("i16", Type::I64),
    ("bool", Type::U32),
    ("usize", Type::U64),
];
pub const NO_SUPPORT: Item = Item::new(4, 10);
pub const AGGREGATE: Item = Item::new(4, 11);
pub const AGGREGATE_STATIC: Item = Item::new(4, 12);

/// Returns the path of an example that Cargo has built.
pub fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let path = exe.ancestors().nth(2).unwrap_or(&exe).join("examples").join(name);
    assert!(path.exists(), "{}: cargo build --examples makes it", path.display());
    path
}

#[derive(Debug)]
pub struct Stage {
    queue: EventQueue,
    keeping: EventQueue,
    restricted: EventQueue,
    array: EventArray,
    cycle: [u32; 2],
    added: u32,
    visits: Clients<u32>,
    containers: Clients<String>,
    secret: u32,
    panics: u32,
    panicking: bool,
    until: Option<Instant>,
    request: String,
    done: Vec<String>,
}

impl Agent for Stage {
    const NAME: &'static str = "stage";
    const DOMAIN: u16 = DOMAIN;
    const WANTS: Features = Features::AUTHORIZE.union(Features::CONTAINER);

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        assert!(std::env::var_os("STAGE_FAILS").is_none(), "as the test wants it");
        setup.indom(TWO).instances([(0, "zero"), (1, "one")]);
        setup.metric("stage.event.records", RECORDS, Type::Event);
        setup.metric("stage.event.highres_records", HIGHRES, Type::HighResEvent);
        setup.metric("stage.event.by_inst", BY_INST, Type::Event).indom(TWO);
        setup.metric("stage.event.array", ARRAY, Type::Event);
        setup.metric("stage.event.highres_array", HIGHRES_ARRAY, Type::HighResEvent);
        setup.metric("stage.event.add", ADD, Type::U32).storable();
        setup.metric("stage.event.filtered", FILTERED, Type::Event).storable();
        for (item, name) in STATISTICS.into_iter().zip(["count", "bytes", "memory", "clients"]) {
            setup.metric(format!("stage.event.{name}"), item, Type::U64);
        }
        setup.metric("stage.event.misfit", MISFIT, Type::U32);
        setup.metric("stage.event.flood", FLOOD, Type::Event);
        for (item, name, ty) in [
            (TYPE, "type", Type::U32),
            (P_32, "param_32", Type::I32),
            (P_U32, "param_u32", Type::U32),
            (P_64, "param_64", Type::I64),
            (P_U64, "param_u64", Type::U64),
            (P_FLOAT, "param_float", Type::Float),
            (P_DOUBLE, "param_double", Type::Double),
            (P_STRING, "param_string", Type::String),
            (P_AGGREGATE, "param_aggregate", Type::Aggregate),
        ] {
            setup.metric(format!("stage.event.{name}"), item, ty).parameter();
        }
        setup.metric("stage.client.uid", UID, Type::U32);
        setup.metric("stage.client.gid", GID, Type::U32);
        setup.metric("stage.client.pid", PID, Type::U32);
        setup.metric("stage.client.visits", VISITS, Type::U32);
        setup.metric("stage.client.visitors", VISITORS, Type::U64);
        setup.metric("stage.client.secret", SECRET, Type::U32).storable();
        setup.metric("stage.client.rule", RULE, Type::U32).restricted();
        setup.metric("stage.client.container", CONTAINER, Type::String);
        setup.metric("stage.panic", PANIC, Type::U32).storable();
        setup.metric("stage.not_ready", NOT_READY, Type::U32).storable();
        setup.metric("stage.done", DONE, Type::String);
        setup.metric("stage.error", ERROR, Type::I32).storable();
        setup.metric("stage.print", PRINT, Type::U32);
        setup.metric("stage.twice", TWICE, Type::U32).indom(TWO);
        setup.metric("stage.twice_singular", TWICE_SINGULAR, Type::U64);
        for (i, (name, ty)) in (0..).zip(SMALL) {
            setup.metric(format!("stage.small.{name}"), Item::new(4, i), ty);
        }
        setup.metric("stage.type.no_support", NO_SUPPORT, Type::NoSupport);
        setup.metric("stage.type.aggregate", AGGREGATE, Type::Aggregate);
        setup.metric("stage.type.aggregate_static", AGGREGATE_STATIC, Type::AggregateStatic);
        Ok(Stage {
            queue: setup.event_queue(QUEUE),
            keeping: setup.event_queue(QUEUE).keeping(),
            restricted: setup.event_queue(QUEUE).restricted().keeping(),
            array: EventArray::new(Layout::Micro),
            cycle: [0; 2],
            added: 0,
            visits: setup.clients(),
            containers: setup.clients(),
            secret: 0,
            panics: 0,
            panicking: false,
            until: None,
            request: String::new(),
            done: Vec::new(),
        })
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        let client = out.client();
        match item {
            RECORDS | MISFIT => out.put_events(&self.queue),
            HIGHRES => out.put_events(&self.keeping),
            FILTERED => out.put_events(&self.restricted),
            FLOOD => {
                out.put_events(&self.queue)?;
                let push = |n: u32| self.queue.push(Stamp { seconds: n.into(), nanoseconds: 0 }, EventFlags::POINT, []);
                (1..=100).try_for_each(push)
            }
            BY_INST => {
                out.put_inst_events(Inst::new(0), &self.queue)?;
                out.put_inst_events(Inst::new(1), &self.keeping)
            }
            ARRAY | HIGHRES_ARRAY => {
                let highres = item == HIGHRES_ARRAY;
                self.array.start(if highres { Layout::Nano } else { Layout::Micro });
                scene(&mut self.array, self.cycle[usize::from(highres)], |item| out.pmid(item))?;
                self.cycle[usize::from(highres)] += 1;
                out.put(self.array.atom())
            }
            ADD => out.put(self.added),
            _ if STATISTICS.contains(&item) => {
                let of =
                    [self.queue.count(), self.queue.bytes(), self.queue.memory() as u64, self.queue.clients() as u64];
                let which = STATISTICS.iter().position(|statistic| *statistic == item);
                out.put(which.map_or(0, |which| of[which]))
            }
            UID => out.put(client.uid().ok_or(Error::VALUE)?),
            GID => out.put(client.gid().ok_or(Error::VALUE)?),
            PID => out.put(client.pid().ok_or(Error::VALUE)?),
            VISITS => {
                let mut visits = self.visits.of(client);
                *visits += 1;
                out.put(*visits)
            }
            VISITORS => out.put(self.visits.len() as u64),
            SECRET => out.put(self.secret),
            CONTAINER => out.put(&*self.containers.find(client).ok_or(Error::VALUE)?),
            PANIC if std::mem::take(&mut self.panicking) => panic!("as the test wants it"),
            PANIC => out.put(self.panics),
            NOT_READY => out.put(0u32),
            DONE => out.put(self.done.join(" ")),
            ERROR => out.put(0i32),
            PRINT => {
                println!("the agent prints");
                out.put(1u32)
            }
            TWICE_SINGULAR => out.put(1u64).and_then(|()| out.put(2u64)),
            TWICE => [0, 1, 0].into_iter().try_for_each(|id| out.put_inst(Inst::new(id), id)),
            NO_SUPPORT => out.put(1u32),
            AGGREGATE | AGGREGATE_STATIC => out.put(Atom::Aggregate(b"\x01\x02\x03")),
            _ => match (item.cluster(), item.item()) {
                (4, 0) => out.put(u8::MAX),
                (4, 1) => out.put(i8::MIN),
                (4, 2) => out.put(u16::MAX),
                (4, 3) => out.put(i16::MIN),
                (4, 4) => out.put(true),
                (4, 5) => out.put(usize::MAX),
                _ => Err(Error::PMID),
            },
        }
    }

    fn store(&mut self, item: Item, _: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        match (item, value) {
            (ADD, Atom::U32(n)) => {
                self.added += 1;
                for queue in [&self.queue, &self.keeping, &self.restricted] {
                    let params = [(P_U64, n.into()), (P_STRING, Atom::from("stored"))];
                    queue.push(
                        Stamp { seconds: 1000 + i64::from(n), nanoseconds: 2_000_003 },
                        EventFlags::POINT,
                        params,
                    )?;
                }
            }
            (FILTERED, Atom::String(text)) => {
                let text = std::str::from_utf8(text).map_err(|_| Error::CONV)?;
                let wanted = Atom::U64(text.parse().map_err(|_| Error::CONV)?);
                self.restricted.set_filter(client, move |event| event.param(P_U64) == Some(wanted));
            }
            (SECRET, _) if client.uid() != Some(0) => return Err(Error::PERMISSION),
            (RULE, _) => {}
            (SECRET, Atom::U32(n)) => self.secret = n,
            (PANIC, _) => (self.panics, self.panicking) = (self.panics + 1, true),
            (NOT_READY, Atom::U32(n)) => self.until = Some(Instant::now() + Duration::from_millis(n.into())),
            (ERROR, Atom::I32(code)) => return Err(Error::from_code(code).unwrap_or(Error::BADSTORE)),
            _ => return Err(Error::CONV),
        }
        Ok(())
    }

    fn attribute(&mut self, client: Client, attribute: ClientAttribute<'_>) -> Result {
        if let ClientAttribute::Container(name) = attribute {
            self.containers.set(client, name.unwrap_or("none").to_owned());
        }
        Ok(())
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        self.request.clear();
        if !matches!(request, Request::Fetch(_)) {
            self.request = format!("{request:?}");
        }
        Ok(())
    }

    fn done(&mut self, client: Client) {
        // The strings are reused, so that tests can count the allocations of the engine.
        let mut text = if self.done.len() < 3 { String::new() } else { self.done.remove(0) };
        text.clear();
        // Writing to a string does not fail.
        _ = write!(text, "{}/{client}", self.request);
        self.done.push(text);
    }

    fn is_ready(&self) -> bool {
        self.until.is_none_or(|until| until <= Instant::now())
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        if let Some(until) = self.until.filter(|_| !self.is_ready()) {
            set.at(until);
        }
    }
}

/// Adds the events that PCP's sample agent returns in turn for the first instance of `sample.event.records`.
fn scene(array: &mut EventArray, fetch: u32, pmid: impl Fn(Item) -> pmapi::PmId) -> Result {
    let mut time = Stamp { seconds: Stamp::now().seconds - 10, nanoseconds: 0 };
    let mut record = |array: &mut EventArray, flags: EventFlags, params: &[(Item, Atom<'_>)]| -> Result {
        array.record(time, flags)?;
        time.seconds += 1;
        params.iter().try_for_each(|(item, value)| array.param(pmid(*item), *value))
    };
    let point = EventFlags::POINT;
    match fetch % 4 {
        1 => record(array, point, &[]),
        2 => {
            record(array, point, &[(TYPE, Atom::U32(1))])?;
            record(array, point, &[(TYPE, Atom::U32(2)), (P_64, Atom::I64(-3))])
        }
        3 => {
            let start = EventFlags::START | EventFlags::ID | EventFlags::PARENT;
            record(array, start, &[(TYPE, Atom::U32(4)), (P_U64, Atom::U64(5)), (P_STRING, Atom::String(b"6"))])?;
            record(array, point, &[(TYPE, Atom::U32(7)), (P_DOUBLE, Atom::Double(8.)), (P_DOUBLE, Atom::Double(-9.))])?;
            let strings = [(P_STRING, Atom::String(b"twelve")), (P_STRING, Atom::String(b"thirteen"))];
            let (first, last) =
                ([(TYPE, Atom::U32(10)), (P_U64, Atom::U64(11))], [(P_32, Atom::I32(-14)), (P_U32, Atom::U32(15))]);
            record(array, EventFlags::END, &[&first[..], &strings, &last].concat())?;
            array.missed(Stamp::now(), 7)?;
            let bytes = Atom::Aggregate(&[0o1, 0o3, 0o7, 0o17, 0o37, 0o77, 0o177, 0o377]);
            record(array, point, &[(TYPE, Atom::U32(16)), (P_FLOAT, Atom::Float(-17.)), (P_AGGREGATE, bytes)])
        }
        _ => Ok(()),
    }
}
