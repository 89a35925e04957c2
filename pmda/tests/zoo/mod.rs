//! A test agent with one metric of every kind, which records the attributes and ends of its clients.

#![allow(dead_code, unreachable_pub)]

use pcp_pdu::handshake::Features;
use pmda::prelude::*;
use pmda::{Changes, ClientAttribute};

pub const DOMAIN: u16 = 400;
pub const FIXED: Serial = Serial::new(0);
pub const CACHED: Serial = Serial::new(7);
pub const TYPES: [Type; 8] =
    [Type::I32, Type::U32, Type::I64, Type::U64, Type::Float, Type::Double, Type::String, Type::Aggregate];

pub const STORED: Item = Item::new(2, 0);
pub const LEVEL: Item = Item::new(2, 1);
pub const FAILING: Item = Item::new(3, 0);
pub const PARTLY: Item = Item::new(3, 1);
pub const MISFIT: Item = Item::new(3, 2);
pub const ONE_FOR_ALL: Item = Item::new(3, 3);
pub const INST_OF_NONE: Item = Item::new(3, 4);
/// Value of [`STORED`] that makes every refresh fail.
pub const OUT_OF_ORDER: &str = "out of order";
/// Number of metrics in `zoo.dyn.herd`.
pub const HERD: Item = Item::new(2, 2);
/// A store adds labels to [`GUEST`] while the agent runs.
pub const GUEST_LABELS: Item = Item::new(2, 3);
/// First cluster of the metrics in `zoo.dyn.herd`.
pub const HERD_CLUSTER: u16 = 100;
pub const GUEST: Item = Item::new(5, 0);
pub const GUESTS: Item = Item::new(5, 1);
/// Instance domain of [`GUESTS`], which is added and not declared.
pub const VISITORS: Serial = Serial::new(70);
/// Instance domain that only [`Agent::instances`] knows.
pub const STRANGERS: Serial = Serial::new(71);
pub const MANY: Item = Item::new(4095, 1023);

#[derive(Debug)]
pub struct Zoo {
    pub cache: Cache<u64>,
    pub stored: String,
    pub levels: [i64; 2],
    pub told: Vec<String>,
    pub dynamic: Dynamic,
    pub herd: u32,
    pub strangers: Cache<()>,
    pub changes: Changes,
}

impl Agent for Zoo {
    const NAME: &'static str = "zoo";
    const DOMAIN: u16 = DOMAIN;
    const WANTS: Features = Features::AUTHORIZE;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.labels(json!({"kind": "test", "size": {"x": 1}}));
        setup.cluster_labels(2, json!({"writable": true}));
        setup.indom(FIXED).instances([(3, "one instance"), (5, "another")]).help("Two", "Two instances.");
        setup.indom(CACHED).labels(json!({"cached": true}));
        for (i, ty) in (0..).zip(TYPES) {
            setup.metric(format!("zoo.single.t{i}"), Item::new(0, i), ty).help(format!("Type {i}"), "");
            setup.metric(format!("zoo.multi.t{i}"), Item::new(1, i), ty).indom(CACHED);
        }
        setup.metric("zoo.stored", STORED, Type::String).storable().discrete();
        setup.metric("zoo.level", LEVEL, Type::I64).storable().indom(FIXED).labels(json!({"unit": "m"}));
        setup.metric("zoo.failing", FAILING, Type::U64).indom(FIXED).counter().units(Units::BYTES);
        setup.metric("zoo.partly", PARTLY, Type::U32).indom(FIXED);
        setup.metric("zoo.misfit", MISFIT, Type::U32);
        setup.metric("zoo.one_for_all", ONE_FOR_ALL, Type::U32).indom(FIXED);
        setup.metric("zoo.inst_of_none", INST_OF_NONE, Type::U32);
        setup.metric("zoo.many", MANY, Type::Double).indom(CACHED);
        let mut cache = setup.cache(CACHED);
        for i in 0..10 {
            cache.store(&format!("i{i} of ten"), i)?;
        }
        cache.hide(Inst::new(4));
        setup.metric("zoo.herd", HERD, Type::U32).storable();
        setup.metric("zoo.guest_labels", GUEST_LABELS, Type::String).storable();
        let mut dynamic = setup.dynamic(["zoo.dyn", "zoo.more"]);
        dynamic.insert_indom(
            InDomDef::new(VISITORS)
                .instances([(1, "first of all"), (2, "second")])
                .help("Visitors", "Who came.")
                .labels(r#"{"came":true}"#),
        )?;
        dynamic.insert(
            MetricDef::new("zoo.dyn.guest", GUEST, Type::U32)
                .counter()
                .units(Units::BYTES)
                .help("A guest", "For a while.")
                .labels(json!({"guest": {"since": 1}}))
                .notes(json!({"by": "chance"}))
                .storable(),
        )?;
        dynamic.insert(MetricDef::new("zoo.dyn.house.guests", GUESTS, Type::U64).indom(VISITORS))?;
        dynamic.alias("zoo.more.guests", GUESTS)?;
        let mut strangers = setup.cache(STRANGERS);
        strangers.store("nobody", ())?;
        Ok(Zoo {
            cache,
            stored: "nothing".into(),
            levels: [10, 20],
            told: Vec::new(),
            dynamic,
            herd: 0,
            strangers,
            changes: Changes::default(),
        })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        // A store can end the failures.
        if self.stored == OUT_OF_ORDER && request != Request::Store { Err(Error::AGAIN) } else { Ok(()) }
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        match indom {
            CACHED => Some(&self.cache),
            STRANGERS => Some(&self.strangers),
            _ => None,
        }
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.dynamic as &dyn Catalog]
    }

    fn changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match (item.cluster(), item) {
            (0, _) => out.put(value(out.desc().ty, 7)),
            (1, _) => {
                let ty = out.desc().ty;
                self.cache.active().try_for_each(|(inst, _, v)| out.put_inst(inst, value(ty, *v)))
            }
            (_, STORED) => out.put(&self.stored),
            (_, HERD) => out.put(self.herd),
            (_, GUEST_LABELS) => out.put(""),
            (_, GUEST) => out.put(5u32),
            (_, GUESTS) => (1..3u32).try_for_each(|i| out.put_inst(Inst::new(i), u64::from(i) << 40)),
            (HERD_CLUSTER.., item) if item != MANY => out.put(item.index() - Item::new(HERD_CLUSTER, 0).index()),
            (_, LEVEL) => {
                out.put_inst(Inst::new(3), self.levels[0])?;
                out.put_inst(Inst::new(5), self.levels[1])
            }
            (_, FAILING) => {
                out.put_inst(Inst::new(3), 1u64)?;
                Err(Error::AGAIN)
            }
            (_, PARTLY) => {
                out.fail_inst(Inst::new(3), Error::VALUE);
                out.put_inst(Inst::new(5), 55u32)
            }
            (_, ONE_FOR_ALL) => out.put(1u32),
            (_, INST_OF_NONE) => out.put_inst(Inst::new(1), 1u32),
            (_, MISFIT) => out.put("no number"),
            (_, MANY) => {
                let Some(named) = out.selection().named() else {
                    return self.cache.active().try_for_each(|(inst, _, v)| out.put_inst(inst, *v as f64));
                };
                named
                    .filter_map(|inst| Some((inst, *self.cache.get(inst)?)))
                    .try_for_each(|(i, v)| out.put_inst(i, v as f64))
            }
            _ => Err(Error::PMID),
        }
    }

    fn store(&mut self, item: Item, inst: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        self.told.push(format!("store {item} by {client}"));
        match (item, value) {
            (HERD, Atom::U32(n)) => return self.herd(n),
            (GUEST, Atom::U32(_)) => {}
            (GUEST_LABELS, Atom::String(text)) => {
                let labels = LabelSet::from_serialize(String::from_utf8_lossy(text))?;
                self.dynamic.set_labels(GUEST, labels).ok_or(Error::PMID)?;
            }
            (STORED, Atom::String(text)) => self.stored = String::from_utf8_lossy(text).into_owned(),
            (LEVEL, Atom::I64(value)) => match inst.map(Inst::word) {
                Some(3) => self.levels[0] = value,
                Some(5) => self.levels[1] = value,
                _ => return Err(Error::INST),
            },
            _ => return Err(Error::CONV),
        }
        Ok(())
    }

    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        match (indom, inst.word()) {
            (FIXED, 3) => LabelSet::parse(r#"{"n":3}"#).map_err(|_| Error::GENERIC),
            (FIXED, _) => Err(Error::AGAIN),
            _ => Ok(LabelSet::new()),
        }
    }

    fn attribute(&mut self, client: Client, attribute: ClientAttribute<'_>) -> Result {
        self.told.push(format!("{client}: {attribute:?}, uid {:?}", client.uid()));
        Ok(())
    }

    fn close(&mut self, client: Client) {
        self.told.push(format!("close {client}"));
    }
}

impl Zoo {
    /// Adds or removes metrics until there are `n`.
    fn herd(&mut self, n: u32) -> Result {
        let item = |i: u32| Item::try_new(HERD_CLUSTER + (i / 1024) as u16, (i % 1024) as u16).ok_or(Error::TOOBIG);
        for i in self.herd..n {
            let metric = MetricDef::new(format!("zoo.dyn.herd.a{}.n{i}", i % 10), item(i)?, Type::U32);
            self.dynamic.insert(&metric).map_err(|_| Error::GENERIC)?;
        }
        for i in n..self.herd {
            assert_eq!(self.dynamic.remove(&format!("zoo.dyn.herd.a{}.n{i}", i % 10)), 1);
        }
        self.herd = n;
        Ok(())
    }
}

/// Makes a value of a type from a small number.
pub fn value(ty: Type, n: u64) -> Atom<'static> {
    const TEXTS: [&str; 11] = ["", "1", "22", "333", "4444", "55555", "6", "seven", "8", "9", "10"];
    let text = TEXTS.get(n as usize).copied().unwrap_or("many");
    match ty {
        Type::I32 => Atom::I32(-(n as i32)),
        Type::U32 => Atom::U32(u32::MAX - n as u32),
        Type::I64 => Atom::I64(i64::MIN + n as i64),
        Type::U64 => Atom::U64(u64::MAX - n),
        Type::Float => Atom::Float(n as f32 / 3.0),
        Type::Double => Atom::Double(n as f64 / 3.0),
        Type::Aggregate => Atom::Aggregate(text.as_bytes()),
        _ => Atom::String(text.as_bytes()),
    }
}
