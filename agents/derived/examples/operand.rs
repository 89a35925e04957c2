//! Agent for the tests. It has a counter of the samples taken, instances that can be changed, and a metric that changes
//! its type.

use pmda::prelude::*;

const COUNT: Item = Item::new(0, 0);
const RESET: Item = Item::new(0, 1);
const INSTANCES: Item = Item::new(0, 2);
const VALUE: Item = Item::new(0, 3);
const KIND: Item = Item::new(0, 4);
const SQUARE: Item = Item::new(0, 5);
/// Cluster of `operand.changing`, which gets another PMID whenever its type changes.
const CHANGING: u16 = 1;

const INDOM: Serial = Serial::new(0);

#[derive(Debug)]
struct Operand {
    count: u64,
    /// Value of `operand.instances`: `NUMBER=NAME` pairs, separated by blanks.
    instances: String,
    list: List,
    kind: String,
    dynamic: Dynamic,
    changed: Item,
}

#[derive(Debug, Default)]
struct List(Vec<(Inst, String)>);

impl Instances for List {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        self.0.iter().for_each(|(inst, name)| f(*inst, name));
    }
}

impl Agent for Operand {
    const NAME: &'static str = "operand";
    const DOMAIN: u16 = 405;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.metric("operand.count", COUNT, Type::U64).counter().units(Units::COUNT);
        setup.metric("operand.square", SQUARE, Type::U64).counter().units(Units::COUNT);
        setup.metric("operand.reset", RESET, Type::U64).storable();
        setup.metric("operand.instances", INSTANCES, Type::String).storable();
        setup.metric("operand.value", VALUE, Type::U32).indom(INDOM);
        setup.metric("operand.kind", KIND, Type::String).storable();
        setup.indom(INDOM).labels(json!({"kind": "letters"}));
        let dynamic = setup.dynamic(["operand.changing"]);
        let mut operand = Operand {
            count: 0,
            instances: String::new(),
            list: List::default(),
            kind: String::new(),
            dynamic,
            changed: Item::new(CHANGING, 0),
        };
        operand.set_instances("0=a 1=b")?;
        operand.set_kind("u32")?;
        Ok(operand)
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        self.count += u64::from(matches!(request, Request::Fetch(_)));
        Ok(())
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            COUNT => out.put(self.count),
            // The difference between two samples is never the same.
            SQUARE => out.put(self.count * self.count),
            RESET => out.put(0u64),
            INSTANCES => out.put(&self.instances),
            KIND => out.put(&self.kind),
            VALUE => self.list.0.iter().try_for_each(|(inst, name)| {
                // The value is the first byte of the instance's name.
                out.put_inst(*inst, u32::from(name.bytes().next().unwrap_or_default()))
            }),
            _ if self.kind == "double" => out.put(2.5f64),
            _ => out.put(7u32),
        }
    }

    fn instances(&self, _: Serial) -> Option<&dyn Instances> {
        Some(&self.list)
    }

    fn instance_labels(&self, _: Serial, inst: Inst) -> Result<LabelSet> {
        LabelSet::from_serialize(json!({"letter": self.list.name(inst)})).map_err(|_| Error::GENERIC)
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.dynamic as &dyn Catalog]
    }

    fn store(&mut self, item: Item, _: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Error::CONV);
        match (item, value) {
            (RESET, Atom::U64(count)) => self.count = count,
            (INSTANCES, Atom::String(list)) => self.set_instances(text(list)?).map_err(|_| Error::BADSTORE)?,
            (KIND, Atom::String(kind)) => self.set_kind(text(kind)?).map_err(|_| Error::BADSTORE)?,
            _ => return Err(Error::PERMISSION),
        }
        Ok(())
    }
}

impl Operand {
    fn set_instances(&mut self, list: &str) -> Result<(), BoxError> {
        let pairs = list.split_whitespace().map(|pair| pair.split_once('=').ok_or("no number"));
        let instance =
            |(number, name): (&str, &str)| Ok::<_, pmda::BoxError>((Inst::new(number.parse()?), name.to_owned()));
        self.list = List(pairs.map(|pair| instance(pair?)).collect::<Result<_, BoxError>>()?);
        list.clone_into(&mut self.instances);
        Ok(())
    }

    /// Replaces `operand.changing` by a metric with another PMID and type. `none` only removes it.
    fn set_kind(&mut self, kind: &str) -> Result<(), BoxError> {
        self.dynamic.clear();
        self.changed = Item::new(CHANGING, self.changed.item() + 1);
        let ty = if kind == "double" { Type::Double } else { Type::U32 };
        let units = if kind == "double" { Units::SECONDS } else { Units::BYTES };
        if kind != "none" {
            self.dynamic.insert(MetricDef::new("operand.changing", self.changed, ty).units(units))?;
        }
        kind.clone_into(&mut self.kind);
        Ok(())
    }
}

fn main() -> std::process::ExitCode {
    pmda::main::<Operand>()
}
