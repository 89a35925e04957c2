//! Event records, as PCP's tools print them.

use pcp_collector::{Collector, Local};
use pcp_pdu::event::{self, Layout};
use pmapi::{Atom, Domain, Item, PmId, Type};
use testkit::{Pcp, Pmcd};

use super::stage::{self as items, Stage};
use super::{compile, stage};

fn show(pmcd: &Pmcd, tool: &str, arguments: &[&str]) -> String {
    pmcd.run(tool, arguments).text
}

/// Returns the output of `pminfo -x` for the first value, without times, PMIDs and the agent's name.
fn records(text: &str, agent: &str) -> Vec<String> {
    let text = text.replace(&format!("{agent}.event."), "");
    let words = |line: &str| {
        let own = |word: &&str| !word.contains(':') && !word.contains("(29.") && !word.contains("(401.");
        line.split_whitespace().filter(own).collect::<Vec<_>>().join(" ")
    };
    let lines = text.lines().skip_while(|line| !line.contains("value [")).map(words);
    let lines = lines.take_while(|line| !line.contains("inst [1"));
    // The first line begins with the instance, if there is one.
    lines.map(|line| line.replace("inst [0 or \"fungus\"] ", "")).filter(|line| !line.is_empty()).collect()
}

#[test]
#[ignore = "needs PCP"]
fn records_are_shown_as_those_of_the_c_agent() {
    let pcp = Pcp::required();
    let sample = pcp.c_agent("sample");
    let pmcd = pcp.pmcd().pmdas_dir(sample.pmdas_dir()).agent(sample.agent()).agent(stage()).start();
    for (theirs, ours) in [("records", "array"), ("highres_records", "highres_array")] {
        for count in [0, 1, 2, 5] {
            let theirs = show(&pmcd, "pminfo", &["-x", &format!("sample.event.{theirs}")]);
            let ours = show(&pmcd, "pminfo", &["-x", &format!("stage.event.{ours}")]);
            let (theirs, ours) = (records(&theirs, "sample"), records(&ours, "stage"));
            assert_eq!(ours, theirs);
            assert_eq!(theirs.iter().filter(|line| line.starts_with("--- event record")).count(), count, "{theirs:?}");
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn the_tools_show_the_events_of_a_queue() {
    let pmcd = Pcp::required().pmcd().agent(stage()).start();
    for n in 1..=5 {
        pmcd.run("pmstore", ["stage.event.add", &n.to_string()]).ok();
    }
    let records = |numbers: &[u32]| -> Vec<String> {
        let record = |(n, number): (usize, &u32)| {
            let head = format!("--- event record [{n}] timestamp flags 0x1 (point) ---");
            [head, "param_u64".into(), format!("value {number}"), "param_string".into(), "value \"stored\"".into()]
        };
        numbers.iter().enumerate().flat_map(record).collect()
    };
    let shown = |text: &str| self::records(text, "stage").split_off(1);
    // A queue that keeps events returns them to each new client. Another queue has none before the first client.
    let text = show(&pmcd, "pminfo", &["-x", "stage.event.highres_records"]);
    assert!(text.contains("value [5 event records timestamps 00:16:41.002000003...00:16:45.002000003]"), "{text}");
    assert_eq!(shown(&text), records(&[1, 2, 3, 4, 5]));
    assert!(show(&pmcd, "pminfo", &["-x", "stage.event.records"]).contains("No value(s) available!"));
    let text = show(&pmcd, "pmval", &["-s", "1", "stage.event.highres_records"]);
    let numbers = text.lines().filter_map(|line| line.trim().strip_prefix("stage.event.param_u64 "));
    assert_eq!(numbers.collect::<Vec<_>>(), ["1", "2", "3", "4", "5"], "{text}");
    // This queue requires a filter.
    let text = show(&pmcd, "pmval", &["-x", "3", "-s", "1", "stage.event.filtered"]);
    assert!(text.contains("stage.event.filtered: 1 event records\n  00:16:43.002 ---"), "{text}");
    for (tool, options, said) in [
        ("pmval", &["-s", "1"][..], "No permission to perform requested operation"),
        ("pminfo", &["-x"], "No permission to perform requested operation"),
        ("pmval", &["-s", "1", "-x", "three"], "store value \"three\" failed: Impossible value or scale conversion"),
    ] {
        let text = show(&pmcd, tool, &[options, &["stage.event.filtered"]].concat());
        assert!(text.contains(said), "{text}");
    }
    // The clients have disconnected, and the queue holds no events for them.
    for (metric, value) in [("count", "5"), ("memory", "0"), ("clients", "0")] {
        let metric = format!("stage.event.{metric}");
        assert_eq!(show(&pmcd, "pmprobe", &["-v", &metric]), format!("{metric} 1 {value}\n"));
    }
}

#[test]
#[ignore = "needs PCP"]
fn a_client_that_is_slow_sees_how_many_it_has_missed() {
    let pmcd = Pcp::required().pmcd().agent(stage()).start();
    let text = show(&pmcd, "pmval", &["-s", "2", "-t", "0.05", "stage.event.flood"]);
    let records: Vec<&str> =
        text.lines().filter(|line| line.contains("---") || line.contains("missed event")).collect();
    let missed =
        records.get(1).and_then(|line| line.trim().strip_prefix("==> ")?.strip_suffix(" missed event records"));
    let missed: usize = missed.and_then(|missed| missed.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    // The record of missed events has the time of the next event.
    let first = format!(":{:02}.000 --- event record [0] flags 0x80000000 (missed) ---", missed + 1);
    assert!(records[0].ends_with(&first), "{text}");
    assert!(missed > 0 && missed + records[2..].len() == 100, "{text}");
}

/// In our queue and in C's, a single client reads and misses the same events.
#[test]
#[ignore = "needs PCP"]
fn a_queue_gives_one_client_what_it_gives_in_c() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile("queue.c", include_str!("queue.c"), dir.path());
    let mut agent = Collector::new(Local::<Stage>::new().unwrap());
    let pmid = |item: Item| PmId::new(Domain::new(items::DOMAIN).unwrap(), item);
    let number = |agent: &mut Collector<Local<Stage>>, item: Item| match agent.value(pmid(item)).unwrap() {
        Atom::U64(n) => n,
        other => panic!("{other:?}"),
    };
    let bursts = [3, 0, 1, 30, 5, 60, 0, 200, 46, 47, 1, 0, 45, 44, 48, 2];
    let (mut added, mut ours) = (0u32, String::new());
    for burst in bursts {
        for _ in 0..burst {
            added += 1;
            agent.store(pmid(items::ADD), None, Atom::U32(added)).unwrap();
        }
        let fetched = agent.fetch(&[pmid(items::RECORDS)]).unwrap();
        if let Some((_, raw)) = fetched.sets().next().unwrap().values().next() {
            let Ok(Atom::Event(payload)) = raw.atom(Type::Event) else { panic!() };
            for record in event::records(payload, Layout::Micro).unwrap() {
                // C does not report dropped events.
                if let Some((_, Atom::U64(n))) = record.params().next() {
                    ours.push_str(&format!("{n:04} "));
                }
            }
        }
        let [count, _, memory, clients] = items::STATISTICS.map(|item| number(&mut agent, item));
        ours.push_str(&format!("memory {memory} count {count} clients {clients}\n"));
    }
    // C's queue gets a size with which it can hold as many events of four bytes as ours.
    let capacity = items::QUEUE as u64 / (number(&mut agent, items::STATISTICS[1]) / u64::from(added));
    let mut command = std::process::Command::new(program);
    command.arg((capacity * 4).to_string()).args(bursts.map(|burst| burst.to_string()));
    assert_eq!(ours, Pcp::required().run_command(command, "").ok());
    assert!(capacity < 60, "{capacity}");
}
