//! Generated calls.
#![allow(unsafe_code, clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

use std::ffi::c_int;
use std::ptr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::common::{Indom, Init, Instance1, Instance2, Metric1, Metric2, Mmv, Pointer, Text, errno, text};

/// How a plan is started.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Init,
    Init2,
    Registry,
}

#[derive(Clone, Debug)]
struct Metric {
    name: Vec<u8>,
    item: u32,
    ty: c_int,
    semantics: c_int,
    units: u32,
    serial: u32,
    help: [Option<Vec<u8>>; 2],
}

#[derive(Clone, Debug)]
struct Domain {
    serial: u32,
    instances: Vec<(i32, Vec<u8>)>,
    help: [Option<Vec<u8>>; 2],
}

#[derive(Clone, Debug)]
struct Label {
    /// Registry, metric, domain, instance.
    level: usize,
    numbers: (c_int, c_int),
    name: Vec<u8>,
    value: Vec<u8>,
    ty: c_int,
    optional: c_int,
}

/// Contents of a file.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    way: Way,
    cluster: c_int,
    flags: c_int,
    metrics: Vec<Metric>,
    domains: Vec<Domain>,
    labels: Vec<Label>,
}

/// Returns one of a few names, so that some are equal. Their lengths are around the limits.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let few = prop::sample::select(vec!["a", "b", "c", "requests.total", "käse", "a b"]);
    let bytes = vec(1..=255_u8, 1..20);
    prop_oneof![
        12 => few.prop_map(|name| name.as_bytes().to_vec()),
        2 => bytes,
        2 => (prop::sample::select(vec![62, 63, 64, 65, 254, 255]), b'm'..b'p').prop_map(|(len, c)| vec![c; len]),
    ]
}

/// Names that are wrong now and then.
fn any_name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![120 => name(), 1 => Just(Vec::new()), 1 => Just(vec![b'x'; 256])]
}

fn help() -> impl Strategy<Value = [Option<Vec<u8>>; 2]> {
    let text = prop_oneof![
        30 => vec(1..=255_u8, 0..40),
        5 => Just(vec![b'h'; 255]),
        1 => Just(vec![b'h'; 300]),
    ];
    [option::of(text.clone()), option::of(text)]
}

fn serial() -> impl Strategy<Value = u32> {
    prop_oneof![6 => Just(0_u32), 2 => Just(u32::MAX), 30 => 1..4_u32, 1 => Just(9)]
}

fn metric() -> impl Strategy<Value = Metric> {
    let ty = prop_oneof![80 => prop::sample::select(vec![-1, 0, 1, 2, 3, 4, 5, 6, 9]), 2 => 7..9, 1 => -3..12];
    let numbers = (0..200_u32, ty, -1..6, any::<u32>());
    (any_name(), numbers, serial(), help()).prop_map(|(name, (item, ty, semantics, units), serial, help)| Metric {
        name,
        item,
        ty,
        semantics,
        units,
        serial,
        help,
    })
}

fn domain() -> impl Strategy<Value = Domain> {
    let serial = prop_oneof![40 => 1..4_u32, 1 => Just(0)];
    (serial, vec((any::<i32>(), any_name()), 0..5), help()).prop_map(|(serial, instances, help)| Domain {
        serial,
        instances,
        help,
    })
}

/// Names of labels. None begins with a digit or an underscore, which C's functions refuse and libpcp 7.2 allows.
pub(crate) fn label_name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-z][a-zA-Z0-9_]{0,8}".prop_map(String::into_bytes),
        1 => vec(1..=255_u8, 0..4),
        1 => Just(vec![b'n'; 240]),
    ]
    .prop_filter("accepted", |name| !name.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'_'))
}

/// Returns whether a text is JSON. C's library accepts texts that are nearly JSON, which agents leave out; this library
/// refuses them.
pub(crate) fn is_json(text: &[u8]) -> bool {
    serde_json::from_str::<serde_json::Value>(&String::from_utf8_lossy(text)).is_ok()
}

/// Values of labels: valid and nearly valid ones. No object has two members of one name or an object within it, because
/// libpcp 6.0.3 misreads both, or a member with an invalid name, because libpcp refuses it before 7.2.
pub(crate) fn label_value() -> impl Strategy<Value = Vec<u8>> {
    let texts = prop::sample::select(vec![
        "true",
        "false",
        "null",
        "0",
        "-0",
        "-01",
        "01",
        "12",
        "-1.5e3",
        "1e",
        "1.",
        ".5",
        "+1",
        " 7",
        "inf",
        "nan",
        "0x10",
        "\"\"",
        "\"x\"",
        "\"a\\\"b\"",
        "\"a\\\"",
        "\"\\x\"",
        "\"a\"b\"",
        "[]",
        "[1,2]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[\"a\"\"b\"]",
        "[true,false,null]",
        "[tru]",
        "[[1],[2,[3]]]",
        "{}",
        "{\"a\":1}",
        "{\"a\":1,\"b\":\"x\"}",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "{\"a\":[1,2]}",
        "{\"a\":1}}",
        "[1]]",
        "{1}",
        "{]",
        "[}",
        "",
        " ",
        "x",
    ]);
    let parts = "[\\[\\]\\{\\},:\"1a\\\\te .-]{0,10}";
    prop_oneof![
        10 => texts.prop_map(|text| text.as_bytes().to_vec()),
        2 => "\"[ -~]{0,20}\"".prop_map(String::into_bytes),
        2 => "-?[0-9]{1,4}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,2})?".prop_map(String::into_bytes),
        2 => parts.prop_map(|text| format!("[{text}]").into_bytes()),
        1 => vec(1..=255_u8, 0..12).prop_map(|bytes| [&b"\""[..], &bytes, b"\""].concat()),
        1 => (200..250_usize).prop_map(|len| [&b"\""[..], &vec![b'v'; len], b"\""].concat()),
    ]
    .prop_filter("cut off by C, or confused", |value| !(value.len() > 225 && value.len() < 245))
}

fn label() -> impl Strategy<Value = Label> {
    let ty = prop_oneof![6 => 1..7, 1 => 0..9];
    let value = label_value().prop_filter("JSON", |value| is_json(value));
    (0..4_usize, (-1..200, -1..5), label_name(), value, ty, 0..2)
        .prop_map(|(level, numbers, name, value, ty, optional)| Label { level, numbers, name, value, ty, optional })
}

/// Generates plans.
pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let way = prop::sample::select(vec![Way::Init, Way::Init2, Way::Registry, Way::Registry]);
    let labels = prop_oneof![Just(Vec::new()), vec(label(), 1..6)];
    (way, -1..5000, 0..8, vec(metric(), 0..6), vec(domain(), 0..4), labels).prop_map(
        |(way, cluster, flags, metrics, domains, labels)| Plan { way, cluster, flags, metrics, domains, labels },
    )
}

fn pointers(help: &[Option<Vec<u8>>; 2]) -> [Text; 2] {
    help.clone().map(|help| help.map_or(ptr::null(), text))
}

fn array(name: &[u8]) -> [u8; 64] {
    let mut array = [0; 64];
    array.iter_mut().zip(name).for_each(|(place, byte)| *place = *byte);
    // C reads beyond a name without a NUL.
    array[63] = 0;
    array
}

impl Plan {
    /// Starts the plan. Returns the handle, and the registry if there is one.
    pub(crate) fn start(
        &self,
        mmv: &Mmv,
        name: Text,
        is_c: bool,
        note: &mut impl FnMut(&str, i64, i32),
    ) -> (Pointer, Option<Pointer>) {
        match self.way {
            Way::Init => (self.init(mmv, name), None),
            Way::Init2 => (self.init2(mmv, name), None),
            Way::Registry => {
                let registry = unsafe { (mmv.mmv_stats_registry)(name, self.cluster, self.flags) };
                self.fill(mmv, registry, is_c, note);
                (unsafe { (mmv.mmv_stats_start)(registry) }, Some(registry))
            }
        }
    }

    fn init(&self, mmv: &Mmv, file: Text) -> Pointer {
        let metrics: Vec<Metric1> = self.metrics.iter().map(Metric::short).collect();
        let instances = self.instances(|id, name| Instance1 { internal: id, external: array(name) });
        self.init_with(mmv.mmv_stats_init, file, &metrics, &instances)
    }

    fn init2(&self, mmv: &Mmv, file: Text) -> Pointer {
        let metrics: Vec<Metric2> = self.metrics.iter().map(Metric::long).collect();
        let instances = self.instances(|id, name| Instance2 { internal: id, external: text(name.to_vec()) });
        self.init_with(mmv.mmv_stats2_init, file, &metrics, &instances)
    }

    /// Returns the instances of each domain in the form of one version.
    fn instances<I>(&self, form: impl Fn(i32, &[u8]) -> I) -> Vec<Vec<I>> {
        self.domains.iter().map(|d| d.instances.iter().map(|(id, name)| form(*id, name)).collect()).collect()
    }

    fn init_with<M, I>(&self, init: Init<M, I>, file: Text, metrics: &[M], instances: &[Vec<I>]) -> Pointer {
        let domains: Vec<_> =
            self.domains.iter().zip(instances).map(|(domain, instances)| domain.with(instances)).collect();
        let counts = [metrics.len() as c_int, domains.len() as c_int];
        unsafe { init(file, self.cluster, self.flags, metrics.as_ptr(), counts[0], domains.as_ptr(), counts[1]) }
    }

    /// Leaves out instance domains of a registry whose serial number another one has. Since PCP 7, C's library adds an
    /// instance to the first of them only; before, and in this library, to all of them.
    pub(crate) fn make_registry_serials_unique(&mut self) {
        if matches!(self.way, Way::Registry) {
            let mut seen = std::collections::BTreeSet::new();
            self.domains.retain(|domain| seen.insert(domain.serial));
        }
    }

    /// Leaves out labels that are maps. Since PCP 7.2, libpcp leaves out invalid names in them, where it refused the
    /// label before.
    pub(crate) fn leave_out_maps(&mut self) {
        self.labels.retain(|label| label.ty != 6);
    }

    fn fill(&self, mmv: &Mmv, registry: Pointer, is_c: bool, note: &mut impl FnMut(&str, i64, i32)) {
        let mut add = |what: &str, result: c_int| note(what, i64::from(result), if result < 0 { errno() } else { 0 });
        unsafe {
            for domain in &self.domains {
                let [short, long] = pointers(&domain.help);
                add("indom", (mmv.mmv_stats_add_indom)(registry, domain.serial as c_int, short, long));
                for (id, name) in &domain.instances {
                    let result =
                        (mmv.mmv_stats_add_instance)(registry, domain.serial as c_int, *id, text(name.clone()));
                    // Version 6.0.3 of libpcp_mmv adds the instance and reports an error.
                    add("instance", if is_c { 0 } else { result });
                }
            }
            add("unknown", (mmv.mmv_stats_add_instance)(registry, 77, 1, text("one")));
            for metric in &self.metrics {
                let Metric { name, item, ty, semantics, units, serial, help } = metric;
                let ([short, long], item, serial) = (pointers(help), *item as c_int, *serial as c_int);
                let name = text(name.clone());
                add(
                    "metric",
                    (mmv.mmv_stats_add_metric)(registry, name, item, *ty, *semantics, *units, serial, short, long),
                );
            }
            for Label { level, numbers: (a, b), name, value, ty, optional } in &self.labels {
                let (name, value) = (text(name.clone()), text(value.clone()));
                let result = match level {
                    0 => (mmv.mmv_stats_add_registry_label)(registry, name, value, *ty, *optional),
                    1 => (mmv.mmv_stats_add_metric_label)(registry, *a, name, value, *ty, *optional),
                    2 => (mmv.mmv_stats_add_indom_label)(registry, *a, name, value, *ty, *optional),
                    _ => (mmv.mmv_stats_add_instance_label)(registry, *a, *b, name, value, *ty, *optional),
                };
                add("label", result);
            }
        }
    }
}

impl Metric {
    fn short(&self) -> Metric1 {
        let ([short, long], Metric { item, ty, semantics, units, serial, .. }) = (pointers(&self.help), self.clone());
        Metric1 { name: array(&self.name), item, ty, semantics, units, indom: serial, short, long }
    }

    fn long(&self) -> Metric2 {
        let ([short, long], Metric { item, ty, semantics, units, serial, .. }) = (pointers(&self.help), self.clone());
        Metric2 { name: text(self.name.clone()), item, ty, semantics, units, indom: serial, short, long }
    }
}

impl Domain {
    fn with<I>(&self, instances: &[I]) -> Indom<I> {
        let [short, long] = pointers(&self.help);
        Indom { serial: self.serial, count: instances.len() as u32, instances: instances.as_ptr(), short, long }
    }
}

/// A call that changes a value.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    call: usize,
    metric: Option<Vec<u8>>,
    instances: [Option<Vec<u8>>; 2],
    number: f64,
    atom: u64,
    size: c_int,
    string: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Updates(pub(crate) Vec<Update>);

/// Generates updates.
pub(crate) fn updates() -> impl Strategy<Value = Updates> {
    let number = prop_oneof![
        8 => -1000.0..1000.0,
        2 => prop::sample::select(vec![1.0, -1.0, 0.0, 1e9, 3e9, 5e9, 1e15, 1e19, 1e30, -1e30, 2147483647.0, 4294967295.0]),
        1 => prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0]),
    ];
    let atom = prop_oneof![any::<u64>(), 0..100_u64, (-100.0..100.0).prop_map(f64::to_bits)];
    let size = prop_oneof![5 => 0..20, 1 => prop::sample::select(vec![-1, 200, 253, 254, 255, 256, 300])];
    let string = prop_oneof![3 => vec(1..=255_u8, 0..30), 1 => (250..260_usize).prop_map(|len| vec![b's'; len])];
    let names = (option::weighted(0.95, name()), [option::weighted(0.8, name()), option::weighted(0.8, name())]);
    let update = (0..14_usize, names, number, atom, size, string).prop_map(
        |(call, (metric, instances), number, atom, size, string)| Update {
            call,
            metric,
            instances,
            number,
            atom,
            size,
            string,
        },
    );
    vec(update, 0..12).prop_map(Updates)
}

/// Returns the type of the value at an address in a file.
unsafe fn ty(handle: Pointer, atom: Pointer) -> c_int {
    unsafe {
        let metric = handle.byte_add(*atom.cast::<u64>().add(2) as usize);
        let version = *handle.cast::<c_int>().add(1);
        *metric.cast::<c_int>().add(if version == 1 { 17 } else { 3 })
    }
}

impl Update {
    /// Makes the call. Returns the offset of its value in the file, or -1 if there is none.
    pub(crate) fn apply(&self, mmv: &Mmv, handle: Pointer) -> i64 {
        let name = |name: &Option<Vec<u8>>| name.clone().map_or(ptr::null(), text);
        let (metric, [instance, other]) = (name(&self.metric), [0, 1].map(|i| name(&self.instances[i])));
        unsafe {
            let atom = (mmv.mmv_lookup_value_desc)(handle, metric, instance);
            let string = text(self.string.clone());
            match self.call {
                0 | 1 => (mmv.mmv_inc_value)(handle, atom, self.number),
                2 => (mmv.mmv_set_value)(handle, atom, self.number),
                3 => (mmv.mmv_inc)(handle, atom),
                4 => (mmv.mmv_inc_atomvalue)(handle, atom, &raw const self.atom),
                5 => (mmv.mmv_add)(handle, atom, &raw const self.atom),
                call @ (6 | 7) => {
                    let is_string = !atom.is_null() && ty(handle, atom) == 6;
                    let value = if is_string { string as u64 } else { self.atom };
                    let set = if call == 6 { mmv.mmv_set_atomvalue } else { mmv.mmv_set };
                    set(handle, atom, &raw const value);
                }
                8 => {
                    // C reads as many bytes as the size says, since PCP 7 also those behind a NUL.
                    let behind = if self.size > 30 { [b'.'; 300] } else { [0; 300] };
                    let bytes = [&self.string[..], &behind, &[0]].concat().leak();
                    (mmv.mmv_set_string)(handle, atom, bytes.as_ptr().cast(), self.size);
                }
                9 => (mmv.mmv_stats_add)(handle, metric, instance, self.number),
                10 => (mmv.mmv_stats_inc_fallback)(handle, metric, instance, other),
                11 => (mmv.mmv_stats_add_fallback)(handle, metric, instance, other, self.number),
                12 => (mmv.mmv_stats_set)(handle, metric, instance, self.number),
                _ => (mmv.mmv_stats_set_string)(handle, metric, instance, string),
            }
            if atom.is_null() { -1 } else { atom.addr() as i64 - handle.addr() as i64 }
        }
    }
}
