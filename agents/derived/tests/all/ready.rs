//! The configurations that come with the agent, over made-up values and over those of PCP's own agents.

#[path = "../../../../pmapi/derived/tests/all/derive/table.rs"]
#[allow(dead_code)]
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pcp_derived::{Controls, Definitions, Evaluator, Scope, UnknownNames};
use pcp_pdu::metadata::TextKind;
use pmapi::{Atom, Semantics, Type, Units};
use table::Table;
use testkit::{Agent, Pcp};

fn etc() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("etc")
}

fn definitions() -> Definitions {
    let mut definitions = Definitions::new(Scope::Global);
    let loaded = definitions.load(etc().to_str().unwrap(), &mut Controls::default()).unwrap();
    assert_eq!(loaded.messages, []);
    definitions
}

#[test]
fn each_has_a_text() {
    for definition in &definitions() {
        let oneline = definition.text(TextKind::OneLine);
        assert!(oneline.is_some_and(|text| text.len() < 80 && !text.contains('\n')), "{}", definition.name());
    }
}

/// Metric with two samples: name, units, serial of the domain, and for each instance the values in both samples.
type Metric<'a> = (&'a str, &'a str, u32, &'a [[f64; 2]]);

/// In ten seconds, one CPU is always busy, and the other one is idle for eight seconds and waits for two.
const COUNTERS: &[Metric<'_>] = &[
    ("kernel.all.cpu.user", "millisec", 0, &[[500.0, 8500.0]]),
    ("kernel.all.cpu.nice", "millisec", 0, &[[0.0, 500.0]]),
    ("kernel.all.cpu.sys", "millisec", 0, &[[7.0, 507.0]]),
    ("kernel.all.cpu.intr", "millisec", 0, &[[9.0, 409.0]]),
    ("kernel.all.cpu.steal", "millisec", 0, &[[1.0, 601.0]]),
    ("kernel.all.cpu.idle", "millisec", 0, &[[0.0, 8000.0]]),
    ("kernel.all.cpu.wait.total", "millisec", 0, &[[100.0, 2100.0]]),
    ("kernel.percpu.cpu.user", "millisec", 1, &[[500.0, 8500.0], [0.0, 0.0]]),
    ("kernel.percpu.cpu.nice", "millisec", 1, &[[0.0, 500.0], [5.0, 5.0]]),
    ("kernel.percpu.cpu.sys", "millisec", 1, &[[7.0, 507.0], [5.0, 5.0]]),
    ("kernel.percpu.cpu.intr", "millisec", 1, &[[9.0, 409.0], [5.0, 5.0]]),
    ("kernel.percpu.cpu.steal", "millisec", 1, &[[1.0, 601.0], [5.0, 5.0]]),
    ("kernel.percpu.cpu.idle", "millisec", 1, &[[0.0, 0.0], [0.0, 8000.0]]),
    ("kernel.percpu.cpu.wait.total", "millisec", 1, &[[0.0, 0.0], [100.0, 2100.0]]),
    ("kernel.all.pswitch", "count", 0, &[[1000.0, 5000.0]]),
    ("disk.dev.total", "count", 2, &[[10.0, 60.0], [0.0, 0.0]]),
    ("disk.dev.total_bytes", "Kbyte", 2, &[[100.0, 500.0], [0.0, 0.0]]),
    ("disk.dev.total_rawactive", "millisec", 2, &[[5.0, 255.0], [0.0, 0.0]]),
    ("disk.dev.avactive", "millisec", 2, &[[5.0, 2505.0], [0.0, 0.0]]),
    ("disk.dev.aveq", "millisec", 2, &[[5.0, 15005.0], [0.0, 0.0]]),
    ("disk.all.total", "count", 0, &[[10.0, 60.0]]),
    ("disk.all.total_bytes", "Kbyte", 0, &[[100.0, 500.0]]),
    ("swap.pagesin", "count", 0, &[[1.0, 31.0]]),
    ("swap.pagesout", "count", 0, &[[1.0, 11.0]]),
    ("network.interface.in.bytes", "byte", 3, &[[0.0, 5e6], [0.0, 131_072_000.0]]),
    ("network.interface.out.bytes", "byte", 3, &[[0.0, 5e6], [0.0, 262_144_000.0]]),
    ("network.interface.total.errors", "count", 3, &[[0.0, 0.0], [2.0, 12.0]]),
    ("network.interface.total.drops", "count", 3, &[[0.0, 0.0], [2.0, 12.0]]),
    ("network.interface.total.packets", "count", 3, &[[0.0, 0.0], [0.0, 8000.0]]),
    ("network.tcp.retranssegs", "count", 0, &[[5.0, 10.0]]),
    ("network.tcp.outsegs", "count", 0, &[[0.0, 200.0]]),
];
const GAUGES: &[Metric<'_>] = &[
    ("kernel.all.load", "", 4, &[[0.0, 1.0], [0.0, 3.0], [0.0, 0.5]]),
    ("hinv.ncpu", "", 0, &[[2.0, 2.0]]),
    ("mem.physmem", "Kbyte", 0, &[[8000.0, 8000.0]]),
    ("mem.util.available", "Kbyte", 0, &[[1.0, 6000.0]]),
    ("swap.length", "byte", 0, &[[0.0, 0.0]]),
    ("swap.used", "byte", 0, &[[0.0, 0.0]]),
    ("vfs.files.count", "", 0, &[[0.0, 50.0]]),
    ("vfs.files.max", "", 0, &[[0.0, 200.0]]),
    ("filesys.usedfiles", "", 5, &[[0.0, 30.0], [0.0, 0.0]]),
    ("filesys.maxfiles", "", 5, &[[40.0, 40.0], [0.0, 0.0]]),
    ("network.interface.speed", "Mbyte/sec", 3, &[[0.0, 0.0], [125.0, 125.0]]),
];

/// Values after ten seconds, computed by hand.
const EXPECTED: &[(&str, &[(u32, f64)])] = &[
    ("cpu.load", &[(0, 0.5), (1, 1.5), (2, 0.25)]),
    ("cpu.percpu.util", &[(0, 100.0), (1, 0.0)]),
    ("cpu.steal", &[(0, 3.0)]),
    ("cpu.switches", &[(0, 200.0)]),
    ("cpu.util", &[(0, 50.0)]),
    ("cpu.wait", &[(0, 10.0)]),
    ("disk.all.avgsz", &[(0, 8.0)]),
    ("disk.dev.avgsz", &[(0, 8.0), (1, 0.0)]),
    ("disk.dev.await", &[(0, 5.0), (1, 0.0)]),
    ("disk.dev.queue", &[(0, 1.5), (1, 0.0)]),
    ("disk.dev.util", &[(0, 25.0), (1, 0.0)]),
    ("files.util", &[(0, 25.0)]),
    ("filesys.inodes", &[(0, 75.0), (1, 0.0)]),
    ("mem.util", &[(0, 25.0)]),
    ("network.interface.bad", &[(0, 0.0), (1, 0.25)]),
    ("network.interface.in.util", &[(1, 10.0)]),
    ("network.interface.out.util", &[(1, 20.0)]),
    ("network.tcp.retrans", &[(0, 2.5)]),
    ("swap.traffic", &[(0, 4.0)]),
    ("swap.util", &[(0, 0.0)]),
];

#[test]
fn values_computed_by_hand() {
    let mut table = Table::default();
    for (list, semantics) in [(COUNTERS, Semantics::Counter), (GAUGES, Semantics::Instant)] {
        for (name, units, serial, _) in list {
            let ty = if semantics == Semantics::Counter { Type::U64 } else { Type::Double };
            let units = if units.is_empty() {
                Units::default()
            } else {
                Units::parse(units).unwrap_or_else(|e| panic!("{units}: {e}")).0
            };
            table = table.metric(name, ty, semantics, units, *serial);
        }
    }
    let definitions = definitions();
    let mut evaluator = Evaluator::bind(&definitions, &mut &table, UnknownNames::Refused);
    let plan = evaluator.plan(evaluator.ids());
    for sample in 0..2 {
        for (name, _, _, values) in COUNTERS.iter().chain(GAUGES) {
            let values: Vec<(u32, f64)> = (0..).zip(values.iter().map(|values| values[sample])).collect();
            table.set(name, &values);
        }
        evaluator.evaluate(&plan, Duration::from_secs(10 * sample as u64), &mut &table);
    }
    let values = |id| -> Vec<(u32, f64)> {
        let values = evaluator.values(id).unwrap();
        let number = |atom| if let Atom::Double(number) = atom { number } else { panic!("{atom:?}") };
        values.iter().map(|(inst, atom)| (inst.map_or(0, pmapi::Inst::word), number(atom))).collect()
    };
    let values: BTreeMap<&str, Vec<(u32, f64)>> =
        evaluator.ids().zip(&definitions).map(|(id, definition)| (definition.name(), values(id))).collect();
    let expected: BTreeMap<&str, Vec<(u32, f64)>> =
        EXPECTED.iter().map(|(name, values)| (*name, values.to_vec())).collect();
    assert_eq!(values, expected);
}

/// Returns what `--check` and pminfo print about a metric, below its name.
fn block<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("{name}\n")).unwrap_or_else(|| panic!("{name} is not in\n{text}"));
    rest.split("\nderived.").next().unwrap()
}

fn value(block: &str) -> f64 {
    block.rsplit_once("value ").unwrap_or_else(|| panic!("{block}")).1.trim().parse().unwrap()
}

#[test]
#[ignore = "needs PCP"]
fn over_the_metrics_of_this_machine() {
    let pcp = Pcp::required();
    let pmns = pcp.path("PCP_VAR_DIR").join("pmns/root_linux");
    let linux = Agent::new("linux", 60, pcp.path("PCP_PMDAS_DIR").join("linux/pmdalinux")).pmns(&pmns);
    let pmcd = pcp.pmcd().agent(linux).start();
    let mut check = Command::new(env!("CARGO_BIN_EXE_pmdaderived"));
    check.arg("--check").arg(etc()).args(["--host", &pmcd.host(), "--samples", "2", "-t", "200msec"]);
    let output = check.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("Error"), "{text}");
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("derived.")).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, EXPECTED.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, units, domain) in [
        ("disk.dev.avgsz", "Kbyte / count", "60.1 "),
        ("disk.dev.await", "millisec / count", "60.1 "),
        ("cpu.percpu.util", "none", "60.0 "),
        ("cpu.switches", "count / sec", "PM_INDOM_NULL "),
        ("network.interface.in.util", "none", "60.3 "),
    ] {
        let block = block(&text, &format!("derived.{name}"));
        assert!(block.contains(&format!("Units: {units}\n")) && block.contains(&format!("InDom: {domain}")), "{block}");
    }
    // Values that hardly change are compared with pminfo's.
    let raw = |name: &str| value(&pmcd.run("pminfo", ["-f", name]).ok());
    let memory = 100.0 * (1.0 - raw("mem.util.available") / raw("mem.physmem"));
    assert!((value(block(&text, "derived.mem.util")) - memory).abs() < 20.0, "{memory} {text}");
    for name in ["cpu.util", "cpu.wait", "cpu.steal", "mem.util", "swap.util", "files.util"] {
        assert!((0.0..=100.0).contains(&value(block(&text, &format!("derived.{name}")))), "{name} {text}");
    }
}

#[test]
fn files_are_those_that_install_writes() {
    let dir = tempfile::tempdir().unwrap();
    let pmda = dir.path().join("pmda");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdaderived"));
    assert!(command.args(["-c", "/dev/null", "--write-pmda"]).arg(&pmda).status().unwrap().success());
    let names = |dir: &Path| -> Vec<_> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&pmda.join("etc")), names(&etc()));
    for name in names(&etc()) {
        assert_eq!(fs::read(pmda.join("etc").join(&name)).unwrap(), fs::read(etc().join(&name)).unwrap());
    }
    let facts: serde_json::Value = serde_json::from_slice(&fs::read(pmda.join("install.json")).unwrap()).unwrap();
    assert_eq!(facts["not_ready"], true);
}
