//! Metrics about the agent itself and its sources: those of PCP's agent, and more.

use pmda::prelude::*;
use pmda::{Dynamic, Mistake};

use crate::metric::Likeness;
use crate::sources::Sources;

/// Cluster of these metrics.
pub(crate) const CLUSTER: u16 = 0;
/// Instance domain of the sources. The first instance stands for all of them.
pub(crate) const SOURCES: Serial = Serial::new(0);

const CALLS: Item = Item::new(CLUSTER, 1);
const FETCH_TIME: Item = Item::new(CLUSTER, 2);
const PARSE_TIME: Item = Item::new(CLUSTER, 3);
const DEBUG: Item = Item::new(CLUSTER, 4);
const STATUS: Item = Item::new(CLUSTER, 5);
const STATUS_CODE: Item = Item::new(CLUSTER, 6);
const AGE: Item = Item::new(CLUSTER, 16);
const DURATION: Item = Item::new(CLUSTER, 17);
const BYTES: Item = Item::new(CLUSTER, 18);
const SAMPLES: Item = Item::new(CLUSTER, 19);
const LEFT_OUT: Item = Item::new(CLUSTER, 20);
const REFUSED: Item = Item::new(CLUSTER, 21);
const LATE: Item = Item::new(CLUSTER, 22);
const STATE: Item = Item::new(CLUSTER, 23);
const ERRORS: Item = Item::new(CLUSTER, 24);
const ERROR: Item = Item::new(CLUSTER, 25);
const MEMORY: Item = Item::new(CLUSTER, 26);
const LIMITS_MEMORY: Item = Item::new(CLUSTER, 27);

/// Adds the metrics below a name.
pub(crate) fn show(dynamic: &mut Dynamic, root: &str, likeness: Likeness) -> std::result::Result<(), Mistake> {
    let more = if likeness == Likeness::Better { more(root) } else { Vec::new() };
    pcps(root).into_iter().chain(more).try_for_each(|metric| dynamic.insert(&metric))
}

fn pcps(root: &str) -> Vec<MetricDef> {
    let metric = |name: &str, item, ty| MetricDef::new(format!("{root}.control.{name}"), item, ty);
    let of_sources = |name: &str, item, ty| {
        let mut metric = metric(name, item, ty);
        metric.indom(SOURCES);
        metric
    };
    let mut calls = of_sources("calls", CALLS, Type::U64);
    calls.counter().units(Units::COUNT).help("How often each source has been read", "");
    let mut fetch_time = of_sources("fetch_time", FETCH_TIME, Type::U64);
    fetch_time.counter().units(Units::MILLISECONDS).help("Time that each source took to send its documents", "");
    let mut parse_time = of_sources("parse_time", PARSE_TIME, Type::U64);
    parse_time.counter().units(Units::MILLISECONDS).help("Time that the documents of each source took to parse", "");
    let mut debug = metric("debug", DEBUG, Type::U32);
    debug
        .discrete()
        .restricted()
        .help("Whether the log has debug messages", "Store 1 to switch them on, and 0 to switch them off.");
    let mut status = of_sources("status", STATUS, Type::String);
    status.help(
        "Outcome of the last reading of each source",
        "success, or why there is no document, or which lines were not read.",
    );
    let mut code = of_sources("status_code", STATUS_CODE, Type::I32);
    code.discrete()
        .help("HTTP status code of the last reading of each source", "0 without an answer of a HTTP server.");
    vec![calls, fetch_time, parse_time, debug, status, code]
}

fn more(root: &str) -> Vec<MetricDef> {
    let of_sources = |name: &str, item, ty| {
        let mut metric = MetricDef::new(format!("{root}.control.{name}"), item, ty);
        metric.indom(SOURCES);
        metric
    };
    let mut age = of_sources("age", AGE, Type::Double);
    age.units(Units::SECONDS).help("Time since the last complete document of each source", "");
    let mut duration = of_sources("duration", DURATION, Type::Double);
    duration.units(Units::SECONDS).help("Duration of the last reading of each source", "");
    let mut bytes = of_sources("bytes", BYTES, Type::U64);
    bytes.units(Units::BYTES).help("Length of the last document of each source", "Uncompressed.");
    let mut samples = of_sources("samples", SAMPLES, Type::U64);
    samples.units(Units::COUNT).help("Lines with values in the last document of each source", "");
    let mut left_out = of_sources("left_out", LEFT_OUT, Type::U64);
    left_out.counter().units(Units::COUNT).help(
        "Metrics and instances of each source that were left out",
        "A source has at most 1,024 metrics, and as many instances as the option --instances or its file allows.",
    );
    let mut refused = of_sources("refused", REFUSED, Type::String);
    refused.help(
        "First line of the last document of each source that was refused",
        "LINE: REASON. Lines that are refused have no values. Empty if all lines are good.",
    );
    let mut late = of_sources("late", LATE, Type::U32);
    late.help(
        "Whether requests do not wait for a source",
        "1 for a source that has not answered in its usual time. Requests are answered from its last document until it\n\
         answers again, or has failed.",
    );
    let mut state = of_sources("state", STATE, Type::String);
    state.help(
        "What each source does",
        "ready: the last reading was successful. reading: a reading is in progress. late: requests do not wait for it.\n\
         pausing: the last readings did not end in time. failed: the last reading failed. new: not read yet.",
    );
    let mut errors = of_sources("errors", ERRORS, Type::U64);
    errors.counter().units(Units::COUNT).help("Readings of each source that failed", "");
    let mut error = of_sources("error", ERROR, Type::String);
    error.help(
        "Why the last reading of each source failed that did",
        "Empty if none has failed. The log has the reasons, too, but not all of them if many sources fail at once.",
    );
    let mut memory = of_sources("memory", MEMORY, Type::U64);
    memory.units(Units::BYTES).help(
        "Memory for the metrics, instances and samples of each source",
        "An estimate, which the limit of the option --memory applies to.",
    );
    let mut short = MetricDef::new(format!("{root}.control.limits.memory"), LIMITS_MEMORY, Type::U64);
    short.counter().units(Units::COUNT).help(
        "Metrics, instances and samples that were left out of documents because memory was short",
        "All sources together have the memory of the option --memory, and each source a quarter of it.",
    );
    vec![memory, short, age, duration, bytes, samples, left_out, refused, late, state, errors, error]
}

/// Puts the values of a metric.
pub(crate) fn fetch(item: Item, sources: &Sources, debug: u32, out: &mut Values<'_>) -> Result {
    if item == DEBUG {
        return out.put(debug);
    }
    if item == LIMITS_MEMORY {
        return out.put(sources.budget().left_out());
    }
    let all = Inst::new(0);
    let sum = |of: fn(&crate::source::Figures) -> std::time::Duration| -> std::time::Duration {
        sources.iter().map(|(_, source)| of(&source.figures)).sum()
    };
    match item {
        CALLS => out.put_inst(all, sources.calls)?,
        FETCH_TIME => out.put_inst(all, milliseconds(sum(|figures| figures.fetching)))?,
        PARSE_TIME => out.put_inst(all, milliseconds(sum(|figures| figures.parsing)))?,
        STATUS => out.put_inst(all, "none")?,
        STATUS_CODE => out.put_inst(all, 0)?,
        _ => {}
    }
    for (cluster, source) in sources.iter().filter(|(_, source)| !source.is_removed) {
        let (inst, figures) = (Inst::new(u32::from(cluster)), &source.figures);
        match item {
            CALLS => out.put_inst(inst, figures.calls)?,
            FETCH_TIME => out.put_inst(inst, milliseconds(figures.fetching))?,
            PARSE_TIME => out.put_inst(inst, milliseconds(figures.parsing))?,
            STATUS => out.put_inst(inst, figures.status.as_str())?,
            STATUS_CODE => out.put_inst(inst, figures.code)?,
            AGE => match figures.taken {
                Some(taken) => out.put_inst(inst, taken.elapsed().as_secs_f64())?,
                None => out.fail_inst(inst, Error::AGAIN),
            },
            DURATION => out.put_inst(inst, figures.took.as_secs_f64())?,
            BYTES => out.put_inst(inst, figures.bytes)?,
            SAMPLES => out.put_inst(inst, figures.lines)?,
            LEFT_OUT => out.put_inst(inst, figures.left_out)?,
            REFUSED => out.put_inst(inst, figures.refused.as_str())?,
            LATE => out.put_inst(inst, u32::from(source.is_late))?,
            STATE => out.put_inst(inst, source.state())?,
            ERRORS => out.put_inst(inst, figures.errors)?,
            MEMORY => out.put_inst(inst, figures.memory as u64)?,
            ERROR => out.put_inst(inst, figures.error.as_str())?,
            _ => return Err(Error::PMID),
        }
    }
    Ok(())
}

fn milliseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Switches debug messages on or off. Returns the value of the metric.
pub(crate) fn store(item: Item, value: Atom<'_>) -> Result<u32> {
    let (DEBUG, Atom::U32(on)) = (item, value) else { return Err(Error::PERMISSION) };
    let on = u32::from(on != 0);
    pmda::log::set_debug_options(if on == 1 { "appl0".parse().unwrap_or_default() } else { Default::default() });
    tracing::info!("debug messages are switched {}", if on == 1 { "on" } else { "off" });
    Ok(on)
}
