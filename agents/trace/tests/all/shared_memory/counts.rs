//! Counts of trace events from files, also of processes that are killed, forked or restarted.

use std::time::Duration;

use trace::{Options, State, Trace, Transport};

use super::scene::*;

#[test]
fn both_transports_count_together() {
    let mut served = Served::start(&["-T", "4", "-N", "4"]);
    let shared_memory = Trace::new(served.options());
    let tcp = Trace::new(served.options().transport(Transport::Tcp));
    for trace in [&shared_memory, &tcp, &shared_memory] {
        trace.point(&tag("point"));
        trace.transact(&tag("work"), Duration::from_millis(250));
        trace.observe(&tag("size"), 2.5);
        trace.counter(&tag("bytes"), 100.0);
    }
    shared_memory.transact(&tag("work"), Duration::from_millis(1250));
    assert_eq!((shared_memory.status().sent, tcp.status().sent), (9, 4));
    assert_eq!(served.points("point"), 3);
    assert_eq!((served.of(0, 0, "work"), served.of(5, 0, "work")), (Some(4.0), Some(2.0)));
    assert_eq!((served.of(8, 2, "size"), served.of(10, 2, "size")), (Some(3.0), Some(2.5)));
    assert_eq!((served.of(17, 3, "bytes"), served.of(19, 3, "bytes")), (Some(3.0), Some(100.0)));
    assert_eq!([(3, 0), (3, 1), (3, 2)].map(|(cluster, item)| served.own(cluster, item)), [1, 1, 0]);
    // For a while, the trace events are in complete buckets.
    wait_for("rates", || served.of(1, 0, "work") == Some(1.0));
    assert_eq!((served.of(3, 0, "work"), served.of(4, 0, "work")), (Some(0.25), Some(1.25)));
    assert_eq!((served.of(2, 0, "work"), served.of(7, 1, "point")), (Some(0.5), Some(0.75)));
    wait_for("no rates", || served.of(1, 0, "work").is_none());
    // After a reset earlier trace events are not counted again.
    served.reset();
    assert_eq!(served.points("point"), 0);
    shared_memory.point(&tag("point"));
    assert_eq!(served.points("point"), 1);
}

/// Options for an application that starts before the agent, and a function that starts the agent.
fn before_the_agent(state: State) -> (Options, impl FnOnce() -> Served) {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port("127.0.0.1"));
    let directory = dir.path().join(format!("trace/{port}"));
    let reconnect = vec![Duration::from_millis(10)];
    let options = Options::default().port(port).directory(directory).state(state).reconnect(reconnect);
    (options, move || Served { agent: start(dir.path(), port, &[]), port, dir })
}

#[test]
fn an_application_that_was_there_first_comes_the_light_way() {
    for state in [State::empty(), State::ASYNC] {
        let (options, agent) = before_the_agent(state);
        let (trace, point) = (Trace::new(options), tag("point"));
        trace.point(&point);
        assert!(trace.flush(Duration::from_secs(30)));
        assert_eq!(trace.status().missed, 1);
        let mut served = agent();
        let mut marked = 1;
        wait_for("shared memory", || {
            trace.point(&point);
            marked += 1;
            served.own(3, 0) == 1
        });
        (0..1000).for_each(|_| trace.point(&point));
        assert!(trace.flush(Duration::from_secs(30)));
        let status = trace.status();
        assert_eq!((status.sent + status.missed, status.connected), (marked + 1000, true));
        assert_eq!(served.points("point"), status.sent);
    }
}

#[test]
#[ignore = "needs PCP"]
fn after_pcps_agent_comes_this_one_and_each_mark_is_counted_once() {
    let binary = testkit::Pcp::required().path("PCP_PMDAS_DIR").join("trace/pmdatrace");
    let (options, agent) = before_the_agent(State::empty());
    let dir = tempfile::tempdir().unwrap();
    let theirs = start_binary(&binary, dir.path(), options.port, &["-d", "10"]);
    let mut theirs = Served { agent: theirs, port: options.port, dir };
    let (trace, point) = (Trace::new(options), tag("point"));
    (0..1000).for_each(|_| trace.point(&point));
    assert_eq!(theirs.points("point"), 1000);
    drop(theirs);
    let mut served = agent();
    (0..1000).for_each(|_| trace.point(&point));
    assert_eq!((served.points("point"), served.own(3, 0)), (1000, 1));
    assert_eq!((trace.status().sent, trace.status().missed), (2000, 0));
}

#[test]
fn processes_are_counted_exactly() {
    const EACH: u64 = 50_000;
    let mut served = Served::start(&[]);
    let mut markers = [0; 2].map(|_| Marker::start(&served.directory(), "tag"));
    let _ = served.records(1);
    for round in 1..=2 {
        markers.iter_mut().for_each(|marker| marker.begin(EACH));
        let (mut seen, mut missed) = (0, 0);
        let mut take = |served: &mut Served| {
            let (records, more) = served.records(1);
            (seen, missed) = (seen + records.len() as u64, missed + more);
            seen + missed
        };
        (0..20).for_each(|_| _ = take(&mut served));
        markers.iter_mut().for_each(Marker::wait);
        // The first fetch after the last trace event counts all of them.
        assert_eq!(served.points("tag"), round * 4 * EACH);
        // Records may be read in a later round.
        wait_for("all records", || take(&mut served) >= 4 * EACH);
        assert_eq!(seen + missed, 4 * EACH, "{seen} {missed}");
        assert!(seen > 0 && missed > 0);
    }
    assert_eq!(served.own(1, 1) + served.own(1, 2), 8 * EACH);
    assert_eq!((served.own(3, 0), served.own(3, 1), served.own(3, 2)), (2, 4, 0));
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let mut served = Served::start(&[]);
    let _ = served.records(1);
    let mut marker = Marker::start(&served.directory(), "killed");
    marker.begin(50);
    marker.wait();
    assert_eq!(served.files(), 2);
    drop(marker);
    wait_for("the file's end", || served.files() == 0);
    assert_eq!(served.points("killed"), 100);
    assert_eq!(served.records(1).0.len(), 100);
    assert_eq!(served.own(3, 0), 0);
    // A process that exits leaves nothing behind, either.
    let trace = served.shared_memory();
    trace.point(&tag("ended"));
    drop(trace);
    wait_for("the file's end", || served.files() == 0);
    assert_eq!(served.points("ended"), 1);
}

#[test]
fn files_outlive_an_agent() {
    let mut served = Served::start(&[]);
    let trace = served.shared_memory();
    trace.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    let other = tempfile::tempdir().unwrap();
    let _ = std::mem::replace(&mut served.agent, start(other.path(), 0, &[])).close();
    trace.point(&tag("tag"));
    assert_eq!((trace.status().missed, trace.status().connected), (0, false));
    served.agent = start(served.dir.path(), served.port, &[]);
    assert!(trace.status().connected);
    // The new agent counts the totals in existing files.
    assert_eq!((served.points("tag"), served.own(1, 1)), (2, 2));
    drop(trace);
    wait_for("the file's end", || served.files() == 0);
    let (directory, place) = (served.directory(), served.place());
    served.agent.close();
    assert!(!directory.exists() && !place.exists());
}

#[test]
fn a_process_that_becomes_another_program_goes_on() {
    let mut served = Served::start(&[]);
    let mut marker = Marker::start(&served.directory(), "tag");
    for round in 1..=3 {
        marker.begin_and_execute(10);
        marker.wait();
        assert_eq!(served.points("tag"), 20 * round);
    }
    drop(marker);
    wait_for("the files' end", || served.files() == 0);
    assert_eq!(served.points("tag"), 60);
}

#[test]
fn a_reset_takes_what_was_marked_before_it() {
    let mut served = Served::start(&[]);
    let trace = served.shared_memory();
    trace.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    (0..100).for_each(|_| trace.point(&tag("tag")));
    served.reset();
    trace.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
}
