//! Fetch groups compared with libpcp, over archives and over a live pmcd.
#![allow(clippy::panic, clippy::unwrap_used, unsafe_code)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pcp_archive::{Interpolation, Rule};
use pcp_context::{Context, EventHandle, FetchGroup, GroupError, InDomHandle, ItemHandle, LocalAgents, Mode, Value};
use pmapi::{Config, Desc, Error, OptionWord as _, Type};
use testkit::Pcp;

/// Request of a fetch group, as a line of the C program's input.
#[derive(Clone, Debug)]
enum Request {
    Item(String, String, String, Type),
    InDom(String, String, Type),
    Event(String, String, String, String, Type),
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Request::Item(metric, instance, scale, ty) => {
                write!(f, "item\t{metric}\t{instance}\t{scale}\t{}", ty.code())
            }
            Request::InDom(metric, scale, ty) => write!(f, "indom\t{metric}\t{scale}\t{}", ty.code()),
            Request::Event(metric, instance, field, scale, ty) => {
                write!(f, "event\t{metric}\t{instance}\t{field}\t{scale}\t{}", ty.code())
            }
        }
    }
}

enum Handle {
    Item(ItemHandle),
    InDom(InDomHandle),
    Event(EventHandle),
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn add(group: &mut FetchGroup, request: &Request) -> Result<Handle, GroupError> {
    match request {
        Request::Item(metric, instance, scale, ty) => {
            group.item(metric, some(instance), some(scale), *ty).map(Handle::Item)
        }
        Request::InDom(metric, scale, ty) => group.indom(metric, some(scale), *ty).map(Handle::InDom),
        Request::Event(metric, instance, field, scale, ty) => {
            group.event(metric, some(instance), field, some(scale), *ty).map(Handle::Event)
        }
    }
}

fn shown(value: Result<&Value, Error>) -> String {
    match value {
        Err(e) => format!(" error {}\n", e.code()),
        Ok(Value::I32(value)) => format!(" {value}\n"),
        Ok(Value::U32(value)) => format!(" {value}\n"),
        Ok(Value::I64(value)) => format!(" {value}\n"),
        Ok(Value::U64(value)) => format!(" {value}\n"),
        Ok(Value::Float(value)) => format!(" {:08x}\n", value.to_bits()),
        Ok(Value::Double(value)) => format!(" {:016x}\n", value.to_bits()),
        Ok(Value::String(text)) => format!(" {}\n", text.iter().map(|b| format!("{b:02x}")).collect::<String>()),
        Ok(other) => panic!("{other:?}"),
    }
}

/// Returns the rules of interpolation of the installed PCP.
fn rules() -> Interpolation {
    let version = Pcp::required().config("PCP_VERSION").to_owned();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap());
    let is_older = [numbers.next(), numbers.next(), numbers.next()] < [Some(6), Some(3), Some(2)];
    Interpolation::new().rule(if is_older { Rule::Before632 } else { Rule::Since632 })
}

/// Writes the same output as the C program.
fn ours(context: Context, requests: &[Request], fetches: usize, step: i64) -> String {
    let (mut text, mut handles) = (String::new(), Vec::new());
    let mut group = FetchGroup::new(context);
    for request in requests {
        let added = add(&mut group, request);
        writeln!(text, "add {}", added.as_ref().map_or_else(|e| e.code().code(), |_| 0)).unwrap();
        if let Err(e) = &added {
            assert_eq!(e.to_string().lines().count(), 1, "{e}");
        }
        handles.push(added.ok());
    }
    if step != 0 {
        let start = group.context().bounds().unwrap().0;
        group.context().set_interpolation(rules()).unwrap();
        group.context().set_mode(Mode::Interpolated { step: step * 1_000_000 }, Some(start)).unwrap();
    }
    for _ in 0..fetches {
        let fetched = group.fetch();
        match (&fetched, group.time()) {
            (Ok(_), Some(time)) => {
                writeln!(text, "fetch {}.{:06}", time.seconds, time.nanoseconds / 1000).unwrap();
            }
            (Err(e), None) => writeln!(text, "fetch error {}", e.code().code()).unwrap(),
            other => panic!("{other:?}"),
        }
        for (nth, handle) in handles.iter().enumerate().filter_map(|(nth, handle)| Some((nth, handle.as_ref()?))) {
            write!(text, "{nth}").unwrap();
            match handle {
                Handle::Item(item) => text.push_str(&shown(group.value(*item))),
                Handle::InDom(indom) => match group.values(*indom) {
                    Err(e) => text.push_str(&shown(Err(e))),
                    Ok(values) => {
                        writeln!(text, " count {}", values.len()).unwrap();
                        for value in values {
                            let name = value.name.as_ref().map_or("-".into(), |name| String::from_utf8_lossy(name));
                            write!(
                                text,
                                " {} {name}{}",
                                value.inst.word() as i32,
                                shown(value.value.as_ref().map_err(|e| *e))
                            )
                            .unwrap();
                        }
                    }
                },
                Handle::Event(event) => match group.fields(*event) {
                    Err(e) => text.push_str(&shown(Err(e))),
                    Ok(fields) => {
                        writeln!(text, " count {}", fields.len()).unwrap();
                        for field in fields {
                            let time = field.time;
                            let value = shown(field.value.as_ref().map_err(|e| *e));
                            match field.value {
                                Ok(_) => write!(text, " {}.{:09}{value}", time.seconds, time.nanoseconds).unwrap(),
                                Err(_) => text.push_str(&value),
                            }
                        }
                    }
                },
            }
        }
        if fetched.is_err() {
            break;
        }
    }
    text
}

struct Oracle {
    dir: tempfile::TempDir,
    /// File with the names of a local context.
    names: Option<PathBuf>,
}

impl Oracle {
    fn new() -> Oracle {
        let dir = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/group.c");
        let program = dir.path().join("group");
        assert!(Command::new("gcc").arg("-o").arg(program).args([source, "-lpcp"]).status().unwrap().success());
        Oracle { dir, names: None }
    }

    /// Uses a name space, which libpcp reads for a local context without a preprocessor.
    fn with_names(pcp: &Pcp, root: &Path) -> Oracle {
        let includes = pcp.path("PCP_VAR_DIR").join("pmns");
        let tree = pmns::Loader::new().include_dir(includes).load(root).unwrap();
        let oracle = Oracle::new();
        let names = oracle.dir.path().join("names");
        std::fs::write(&names, pmns::write::root(&tree)).unwrap();
        Oracle { names: Some(names), ..oracle }
    }

    fn run(&self, kind: &str, source: &str, requests: &[Request], fetches: usize, step: i64) -> String {
        let mut child = Command::new(self.dir.path().join("group"))
            .args([kind, source, &fetches.to_string(), &step.to_string()])
            .env("PCP_DERIVED_CONFIG", "")
            .envs(self.names.iter().map(|path| ("PMNS_DEFAULT", path)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let text: String = requests.iter().map(|request| format!("{request}\n")).collect();
        let writer = std::thread::spawn(move || _ = input.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

const TYPES: [Type; 7] = [Type::Double, Type::U32, Type::String, Type::I64, Type::Float, Type::U64, Type::I32];
const SCALES: [&str; 12] = [
    "",
    "rate",
    "instant",
    "Mbyte",
    "Kbyte / min",
    "count / hour",
    "sec",
    "2.5 msec / s",
    "1000 count",
    "nonsense",
    "byte / usec",
    "hour / hour",
];

/// Returns requests over the metrics of a context: a few scales and types for each.
fn requests(context: &mut Context, most: usize) -> Vec<Request> {
    let mut names = context.traverse("").unwrap();
    names.sort();
    let metrics: Vec<(String, Desc)> = names
        .into_iter()
        .filter_map(|name| {
            let pmid = context.lookup_name(&name).ok()?;
            Some((name, context.lookup_desc(pmid).ok()?))
        })
        .collect();
    let step = metrics.len() / most + 1;
    let mut requests = vec![
        Request::Item("no.such".into(), String::new(), String::new(), Type::Double),
        Request::InDom("no.such".into(), String::new(), Type::Double),
    ];
    for (nth, (metric, desc)) in metrics.into_iter().step_by(step).enumerate() {
        let instances: Vec<String> = match desc.indom {
            None => vec![String::new(), "none".into()],
            Some(indom) => {
                let all = context.indom_ever(indom).or_else(|_| context.indom(indom)).unwrap_or_default();
                let names = all.into_iter().filter_map(|(_, name)| String::from_utf8(name).ok());
                // In C, names with blanks are compared by their first word.
                names.filter(|name| !name.contains([' ', '\t'])).take(2).chain([String::new(), "none".into()]).collect()
            }
        };
        for (k, instance) in instances.iter().enumerate() {
            for j in 0..4 {
                let (scale, ty) = (SCALES[(nth + 5 * j + k) % SCALES.len()], TYPES[(nth / 2 + j + k) % TYPES.len()]);
                requests.push(Request::Item(metric.clone(), instance.clone(), scale.into(), ty));
            }
        }
        for j in 0..3 {
            let (scale, ty) = (SCALES[(nth + 7 * j) % SCALES.len()], TYPES[(nth + j) % TYPES.len()]);
            requests.push(Request::InDom(metric.clone(), scale.into(), ty));
        }
    }
    requests
}

/// Compares line by line, and returns the number of values.
fn compare(what: &str, requests: &[Request], ours: &str, theirs: &str) -> usize {
    let (mut values, mut request) = (0, String::new());
    let adds = ours.lines().zip(requests).filter(|(line, _)| line.starts_with("add"));
    let adds: Vec<_> = adds.map(|(_, request)| request.to_string()).collect();
    for (nth, (left, right)) in ours.lines().zip(theirs.lines()).enumerate() {
        match left.split(' ').next().and_then(|word| word.parse::<usize>().ok()) {
            Some(at) => request = requests[at].to_string(),
            None if left.starts_with("add") => request = adds.get(nth).cloned().unwrap_or_default(),
            None => (),
        }
        assert_eq!(left, right, "{what}: line {nth}: {request:?}");
        values += usize::from(!left.contains("error") && !left.starts_with(['a', 'f']));
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{what}");
    values
}

/// Returns archives of PCP's testsuite whose files are small, except those with values that do not match their type.
fn archives() -> Vec<PathBuf> {
    let dir = Pcp::required().testsuite().join("archives");
    let names = [
        "ok-foo",
        "mirage-1",
        "rep",
        "moomba.pmkstat",
        "eventrec",
        "pcp-mpstat",
        "gap",
        "wrap",
        "procsched",
        "kenj-pc-1",
        "multi",
    ];
    let list = ["diff2", "diff1"].map(|name| dir.join(name).display().to_string()).join(",");
    names.iter().map(|name| dir.join(name)).chain([PathBuf::from(list)]).collect()
}

#[test]
#[ignore = "needs PCP"]
// Slow: libpcp fetches groups over the installed archives.
fn groups_over_archives_as_in_libpcp() {
    let (oracle, mut values, mut archives_compared) = (Oracle::new(), 0, 0);
    for path in archives() {
        let Ok(mut context) = Context::open_archive(&path) else { continue };
        let requests = requests(&mut context, 60);
        // Between the records around a counter's wrap, libpcp computes integers that overflow.
        let is_wrapping = path.ends_with("wrap");
        for step in [0, 700].into_iter().filter(|step| *step == 0 || !is_wrapping) {
            let context = Context::open_archive(&path).unwrap();
            let source = path.to_str().unwrap();
            let theirs = oracle.run("archive", source, &requests, 40, step);
            let what = format!("{source}, step {step}");
            values += compare(&what, &requests, &ours(context, &requests, 40, step), &theirs);
        }
        archives_compared += 1;
    }
    println!("{values} equal values of {archives_compared} archives");
    assert!(values > 10_000 && archives_compared >= 8, "{values} {archives_compared}");
}

#[test]
#[ignore = "needs PCP"]
fn groups_over_a_pmcd_as_in_libpcp() {
    let pcp = Pcp::required();
    let sample = pcp.c_agent("sample");
    let mut pmcd = pcp.pmcd().pmdas_dir(sample.pmdas_dir()).agent(sample.agent()).start();
    let oracle = Oracle::new();
    let requests = fixed_requests();
    let theirs = without_times(oracle.run("host", &pmcd.host(), &requests, 1, 0));
    // The events depend on the fetches since the start of the agent.
    pmcd.restart();
    let found = without_times(ours(Context::connect(&pmcd.host()).unwrap(), &requests, 1, 0));
    let values = compare("pmcd", &requests, &found, &theirs);
    println!("{values} equal values of a pmcd");
    assert!(values > 100, "{values}");
}

#[test]
#[ignore = "needs PCP"]
fn local_agents_as_in_libpcp() {
    let pcp = Pcp::required();
    let sample = pcp.c_agent("sample");
    let oracle = Oracle::with_names(&pcp, &sample.root());
    let spec = format!("add,{},{},sample_init", sample.domain(), sample.shared_object().display());
    let mut agents = LocalAgents::empty(&Config::load());
    agents.specify(&spec).unwrap();
    agents.set_names(oracle.names.clone().unwrap());
    let _alone = LOCAL.lock().unwrap();
    // SAFETY: this is an agent of PCP.
    let mut context = unsafe { Context::open_local(agents) }.unwrap();
    assert!(context.local_failures().is_empty(), "{:?}", context.local_failures());
    assert!(!context.host_name().unwrap().is_empty() && context.traverse("sample").unwrap().len() > 100);
    let indom = context.lookup_name("sample.bin").and_then(|pmid| context.lookup_desc(pmid)).unwrap().indom.unwrap();
    assert_eq!(context.indom(indom).unwrap().len(), 9);
    let copy = context.duplicate().unwrap();
    let requests = fixed_requests();
    let theirs = without_times(oracle.run("local", &spec, &requests, 1, 0));
    let found = without_times(ours(copy, &requests, 1, 0));
    let values = compare("local", &requests, &found, &theirs);
    println!("{values} equal values of a local context");
    assert!(values > 100, "{values}");
}

#[test]
#[ignore = "needs PCP"]
fn local_agents_in_processes() {
    let pcp = Pcp::required();
    let sample = pcp.c_agent("sample");
    let oracle = Oracle::with_names(&pcp, &sample.root());
    // Uses the same agent as a daemon, in place of a program that loads the shared object.
    let host = oracle.dir.path().join("host");
    let daemon = sample.binary();
    let (log, domain) = (oracle.dir.path().join("log"), sample.domain());
    let script = format!(
        "#!/bin/sh\n[ \"$1 $3 $4 $5 $6 $7\" = '--so --entry sample_init -d {domain} -l' ] || exit 1\n\
         exec {} -d $6 -U root -l {}\n",
        daemon.display(),
        log.display()
    );
    testkit::executable(&host, script, 0o755);
    let spec = format!("add,{domain},{},sample_init", sample.shared_object().display());
    let mut agents = LocalAgents::empty(&Config::load());
    agents.specify(&spec).unwrap();
    agents.set_names(oracle.names.clone().unwrap());
    let _alone = LOCAL.lock().unwrap();
    let context = Context::open_hosted(agents, host).unwrap();
    assert!(context.local_failures().is_empty(), "{:?}", context.local_failures());
    let requests = fixed_requests();
    let theirs = without_times(oracle.run("local", &spec, &requests, 1, 0));
    let found = without_times(ours(context, &requests, 1, 0));
    let values = compare("processes", &requests, &found, &theirs);
    assert!(values > 100, "{values}");
}

#[test]
#[ignore = "needs PCP"]
fn local_agents_get_attributes_as_from_libpcp() {
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/attributes.c");
    let object = testkit::compile(source, &dir, &["-shared", "-fPIC", "-lpcp_pmda", "-lpcp"]);
    let root = dir.path().join("root");
    std::fs::write(&root, "root { seen 251:0:0 }\n").unwrap();
    let spec = format!("add,251,{},attributes_init", object.display());
    let mut agents = LocalAgents::empty(&Config::load());
    agents.specify(&spec).unwrap();
    agents.set_names(&root);
    let _alone = LOCAL.lock().unwrap();
    // SAFETY: this is an agent of PCP.
    let mut context = unsafe { Context::open_local(agents) }.unwrap();
    assert!(context.local_failures().is_empty(), "{:?}", context.local_failures());
    let pmid = context.lookup_name("seen").unwrap();
    let seen = |context: &mut Context| {
        let sample = context.fetch(&[pmid]).unwrap();
        let value = sample.set(0).unwrap().values().next().unwrap().1.atom(Type::String).unwrap().to_string();
        let mut fields: Vec<String> = value.trim_matches('"').split_whitespace().map(str::to_owned).collect();
        fields.sort();
        fields
    };
    let found = seen(&mut context);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(seen(&mut context.duplicate().unwrap()), found);
    let mut theirs = pcp.command("pminfo");
    theirs.args(["-L", "-K", "clear", "-K", &spec, "-f", "-n"]).arg(&root).arg("seen");
    let child = theirs.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let mut expected: Vec<String> = text.split('"').nth(1).unwrap().split_whitespace().map(str::to_owned).collect();
    expected.sort();
    // The number of the process and its length differ.
    let has = |fields: &[String], pid: u32| fields.iter().any(|f| f.starts_with(&format!("14={pid}/")));
    assert!(has(&found, std::process::id()) && has(&expected, pid), "{found:?} {expected:?}");
    let others = |fields: &[String]| -> Vec<String> {
        fields.iter().filter(|field| !field.starts_with("14=")).cloned().collect()
    };
    assert_eq!(others(&found), others(&expected));
}

/// A process has one local context at a time.
static LOCAL: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Returns requests for metrics of the agent `sample` that do not change, and for metrics whose texts are numbers.
fn fixed_requests() -> Vec<Request> {
    let metrics = [
        "sample.long.ten",
        "sample.float.hundred",
        "sample.double.million",
        "sample.ulong.bin",
        "sample.bin",
        "sample.string.hullo",
        "sample.longlong.ten",
        "sample.part_bin",
        "sample.bogus_bin",
        "sample.noinst",
        "sample.dodgey.control",
        "sample.aggregate.hullo",
        "sample.darkness",
        "sample.bad.unknown",
        "sample.bigid",
        "sample.secret.foo.one",
        "sample.scale_step.bytes_up",
        "sample.const_rate.value",
    ];
    let mut requests = Vec::new();
    for (nth, metric) in metrics.iter().enumerate() {
        for (j, ty) in TYPES.iter().enumerate() {
            // These two are counters of time.
            let is_fixed = !metric.contains("step") && !metric.contains("rate");
            let scale = ["", "instant", "byte", "count", "sec", "Kbyte"][(nth + j) % 6];
            let scale = if is_fixed { scale } else { "nonsense" };
            requests.push(Request::Item((*metric).into(), String::new(), scale.into(), *ty));
            requests.push(Request::Item((*metric).into(), "bin-300".into(), scale.into(), *ty));
            requests.push(Request::InDom((*metric).into(), scale.into(), *ty));
        }
    }
    for field in ["sample.event.type", "sample.event.param_string", "event.flags", "event.missed", "sample.bin", "x"] {
        for (scale, ty) in [("", Type::U32), ("rate", Type::U32), ("", Type::String), ("instant", Type::Double)] {
            let request = |metric: &str, instance: &str| {
                Request::Event(metric.into(), instance.into(), field.into(), scale.into(), ty)
            };
            requests.extend([
                request("sample.event.records", "fungus"),
                request("sample.event.no_indom_records", ""),
                request("sample.event.highres_records", "fungus"),
                request("sample.long.ten", ""),
                request("sample.event.records", ""),
            ]);
        }
    }
    requests
}

/// Removes times: the two programs are different clients. The agent's events are equal apart from their times.
fn without_times(text: String) -> String {
    let without_time = |line: &str| match line.split_once(' ') {
        Some(("fetch", _)) => "fetch".to_owned(),
        Some(("", rest)) if rest.contains('.') && rest.split(' ').next().unwrap().len() > 12 => {
            format!(" {}", rest.split_once(' ').unwrap().1)
        }
        _ => line.to_owned(),
    };
    text.lines().map(without_time).collect::<Vec<_>>().join("\n")
}
