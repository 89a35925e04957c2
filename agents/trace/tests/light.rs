//! Processes that trace over the light transport: several at once, killed, and hostile ones.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::{User, chown, geteuid};
use pmapi::pdu::event::{EventFlags, Layout, records};
use pmapi::{Atom, Domain, Error, InDom, Item, PmId, Serial};
use pmda::collector::{Collector, Launch, Process};
use trace::{Options, Tag, Trace, Transport};

/// The agent without pmcd.
struct Served {
    agent: Collector<Process>,
    port: u16,
    dir: tempfile::TempDir,
}

fn start(dir: &Path, port: u16, args: &[&str]) -> Collector<Process> {
    let user = User::from_uid(geteuid()).unwrap().unwrap().name;
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdatrace"));
    let user = if args.contains(&"-M") { &[][..] } else { &["-M", &user] };
    command.args(["-l", "trace.log", "-I", &port.to_string()]).args(user).args(args).current_dir(dir);
    command.env("PCP_RUN_DIR", dir);
    let mut agent = Launch::pipe(command).start().unwrap();
    // It listens when it answers.
    let _ = agent.value(pmid(0, 14)).unwrap();
    agent
}

impl Served {
    fn start(args: &[&str]) -> Served {
        Self::in_directory(tempfile::tempdir().unwrap(), args)
    }

    fn in_directory(dir: tempfile::TempDir, args: &[&str]) -> Served {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Served { agent: start(dir.path(), port, args), port, dir }
    }

    fn directory(&self) -> PathBuf {
        self.dir.path().join(format!("trace/{}", self.port))
    }

    fn options(&self) -> Options {
        let directory = Some(self.directory());
        Options { host: "127.0.0.1".into(), port: self.port, directory, ..Options::default() }
    }

    fn light(&self) -> Trace {
        Trace::new(self.options().light())
    }

    fn files(&self) -> usize {
        fs::read_dir(self.directory()).unwrap().count()
    }

    /// The value of a metric for a tag.
    fn of(&mut self, item: u16, kind: u32, tag: &str) -> Option<f64> {
        let indom = InDom::new(Domain::new(10).unwrap(), Serial::new(kind));
        let inst = self.agent.instance_of(indom, tag).ok()?;
        let values = self.agent.values(pmid(0, item)).unwrap();
        Some(number(values.get(inst)?))
    }

    fn points(&mut self, tag: &str) -> u64 {
        self.of(6, 1, tag).unwrap_or(0.0) as u64
    }

    fn own(&mut self, cluster: u16, item: u16) -> u64 {
        number(self.agent.value(pmid(cluster, item)).unwrap()) as u64
    }

    /// The records that a client has not read, and how many it was told to have missed.
    fn records(&mut self, client: i32) -> (Vec<Seen>, u64) {
        let values = self.agent.as_client(client).values(pmid(1, 5)).unwrap();
        let Some((_, Atom::HighResEvent(payload))) = values.iter().next() else { return Default::default() };
        let (mut seen, mut missed) = (Vec::new(), 0);
        for record in records(payload, Layout::Nano).unwrap() {
            let param = |item| record.params().find(|(id, _)| *id == Some(pmid(1, item))).map(|(_, value)| value);
            if record.flags.contains(EventFlags::MISSED) {
                missed += u64::from(record.missed);
            } else {
                let Some(Atom::String(tag)) = param(10) else { panic!("{record:?}") };
                let tag = String::from_utf8(tag.to_vec()).unwrap();
                let time = i128::from(record.time.seconds) * 1_000_000_000 + i128::from(record.time.nanoseconds);
                let params = record.params().map(|(id, _)| id.unwrap().item()).collect();
                seen.push(Seen { tag, flags: record.flags.0, time, params });
            }
        }
        (seen, missed)
    }
}

#[derive(Debug)]
struct Seen {
    tag: String,
    flags: u32,
    time: i128,
    params: Vec<Item>,
}

fn pmid(cluster: u16, item: u16) -> PmId {
    PmId::new(Domain::new(10).unwrap(), Item::new(cluster, item))
}

fn number(atom: Atom<'_>) -> f64 {
    match atom {
        Atom::U64(value) => value as f64,
        Atom::U32(value) => value.into(),
        Atom::Double(value) => value,
        Atom::Float(value) => value.into(),
        other => panic!("{other:?}"),
    }
}

fn tag(name: &str) -> Tag {
    Tag::new(name).unwrap()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// This program again, as another process that marks points.
struct Marker(Child, BufReader<std::process::ChildStdout>);

impl Marker {
    fn start(directory: &Path, tag: &str) -> Marker {
        Self::of(Command::new(std::env::current_exe().unwrap()), directory, tag)
    }

    fn of(mut command: Command, directory: &Path, tag: &str) -> Marker {
        command.args(["--exact", "marker", "--nocapture"]).env("MARKER", directory).env("MARKER_TAG", tag);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Marker(child, output)
    }

    /// Has points marked in each of two threads.
    fn begin(&mut self, points: u64) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{points}").unwrap();
    }

    fn wait(&mut self) {
        let mut line = String::new();
        while !line.starts_with("marked ") {
            line.clear();
            assert!(self.1.read_line(&mut line).unwrap() > 0);
        }
        assert_eq!(line, "marked 0 missed\n");
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a [`Marker`] does; alone it does nothing.
#[test]
fn marker() {
    let (Some(directory), Ok(name)) = (std::env::var_os("MARKER"), std::env::var("MARKER_TAG")) else { return };
    let trace = Trace::new(Options { directory: Some(directory.into()), ..Options::default() }.light());
    let tag = tag(&name);
    for line in std::io::stdin().lines() {
        let points: u64 = line.unwrap().parse().unwrap();
        std::thread::scope(|scope| {
            (0..2).for_each(|_| _ = scope.spawn(|| (0..points).for_each(|_| trace.point(&tag))));
        });
        println!("\nmarked {} missed", trace.status().missed);
    }
}

#[test]
fn both_transports_count_together() {
    let mut served = Served::start(&["-T", "4", "-N", "4"]);
    let light = Trace::new(served.options());
    let tcp = Trace::new(Options { transport: Transport::Tcp, ..served.options() });
    for trace in [&light, &tcp, &light] {
        trace.point(&tag("point"));
        trace.transact(&tag("work"), Duration::from_millis(250));
        trace.observe(&tag("size"), 2.5);
        trace.counter(&tag("bytes"), 100.0);
    }
    light.transact(&tag("work"), Duration::from_millis(1250));
    assert_eq!((light.status().sent, tcp.status().sent), (9, 4));
    assert_eq!(served.points("point"), 3);
    assert_eq!((served.of(0, 0, "work"), served.of(5, 0, "work")), (Some(4.0), Some(2.0)));
    assert_eq!((served.of(8, 2, "size"), served.of(10, 2, "size")), (Some(3.0), Some(2.5)));
    assert_eq!((served.of(17, 3, "bytes"), served.of(19, 3, "bytes")), (Some(3.0), Some(100.0)));
    assert_eq!([(3, 0), (3, 1), (3, 2)].map(|(cluster, item)| served.own(cluster, item)), [1, 1, 0]);
    // In complete buckets for a while.
    until("rates", || served.of(1, 0, "work") == Some(1.0));
    assert_eq!((served.of(3, 0, "work"), served.of(4, 0, "work")), (Some(0.25), Some(1.25)));
    assert_eq!((served.of(2, 0, "work"), served.of(7, 1, "point")), (Some(0.5), Some(0.75)));
    until("no rates", || served.of(1, 0, "work").is_none());
    // After a reset what was there does not come again.
    served.agent.store(pmid(0, 15), None, Atom::U32(1)).unwrap();
    assert_eq!(served.points("point"), 0);
    light.point(&tag("point"));
    assert_eq!(served.points("point"), 1);
}

#[test]
fn processes_are_counted_exactly() {
    const EACH: u64 = 200_000;
    let mut served = Served::start(&[]);
    let mut markers = [0; 2].map(|_| Marker::start(&served.directory(), "tag"));
    let _ = served.records(1);
    for round in 1..=2 {
        markers.iter_mut().for_each(|marker| marker.begin(EACH));
        let (mut seen, mut missed) = (0, 0);
        let mut take = |served: &mut Served| {
            let (records, more) = served.records(1);
            (seen, missed) = (seen + records.len() as u64, missed + more);
        };
        (0..20).for_each(|_| take(&mut served));
        markers.iter_mut().for_each(Marker::wait);
        // The first fetch after the last mark has all of them.
        assert_eq!(served.points("tag"), round * 4 * EACH);
        take(&mut served);
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
    assert_eq!(served.files(), 1);
    drop(marker);
    until("the file's end", || served.files() == 0);
    assert_eq!(served.points("killed"), 100);
    assert_eq!(served.records(1).0.len(), 100);
    assert_eq!(served.own(3, 0), 0);
    // One that ends by itself, too.
    let trace = served.light();
    trace.point(&tag("ended"));
    drop(trace);
    until("the file's end", || served.files() == 0);
    assert_eq!(served.points("ended"), 1);
}

#[test]
fn files_outlive_an_agent() {
    let mut served = Served::start(&[]);
    let trace = served.light();
    trace.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    let other = tempfile::tempdir().unwrap();
    let _ = std::mem::replace(&mut served.agent, start(other.path(), 0, &[])).close();
    trace.point(&tag("tag"));
    assert_eq!((trace.status().missed, trace.status().connected), (0, false));
    served.agent = start(served.dir.path(), served.port, &[]);
    assert!(trace.status().connected);
    // What is there is counted, but did not happen just now.
    assert_eq!((served.points("tag"), served.own(1, 1)), (2, 2));
    drop(trace);
    until("the file's end", || served.files() == 0);
    let directory = served.directory();
    served.agent.close();
    assert!(!directory.exists());
}

#[test]
fn hostile_files_harm_nobody() {
    let mut served = Served::start(&[]);
    let (good, directory) = (served.light(), served.directory());
    good.point(&tag("good"));
    assert_eq!(served.points("good"), 1);
    let file = fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    let copy = fs::read(&file).unwrap();
    fs::write(directory.join("text"), "no such file").unwrap();
    fs::write(directory.join("empty"), "").unwrap();
    fs::create_dir(directory.join("directory")).unwrap();
    nix::unistd::mkfifo(&directory.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/dev/zero", directory.join("zero")).unwrap();
    for at in (0..copy.len()).step_by(1 << 12) {
        let mut damaged = copy.clone();
        damaged.iter_mut().skip(at).take(64).for_each(|byte| *byte = 0xff);
        fs::write(directory.join(format!("damaged {at}")), damaged).unwrap();
    }
    // One whose process is gone, and that becomes shorter while it is read.
    let mut gone = copy.clone();
    gone[16..24].copy_from_slice(&u64::from(u32::MAX).to_ne_bytes());
    fs::write(directory.join("gone"), &gone).unwrap();
    fs::write(directory.join("shorter"), &copy).unwrap();
    let before = served.points("good");
    until("one that is gone", || {
        let _ = served.points("good");
        !directory.join("gone").exists()
    });
    let shorter = fs::OpenOptions::new().write(true).open(directory.join("shorter")).unwrap();
    shorter.set_len(5000).unwrap();
    shorter.write_all_at(&[0xff; 32], 4096).unwrap();
    let _ = served.points("good");
    let before = before.max(served.points("good"));
    (0..10).for_each(|_| good.point(&tag("good")));
    assert_eq!(served.points("good"), before + 10);
    let log = fs::read_to_string(served.dir.path().join("trace.log")).unwrap();
    assert!(log.contains("shorter: ") && log.contains("text: "), "{log}");
}

#[test]
fn each_client_has_its_own_records_and_filter() {
    let mut served = Served::start(&[]);
    let trace = served.light();
    let (_, _) = (served.records(1), served.records(2));
    let [outer, inner, point] = ["outer", "inner", "point"].map(tag);
    let mut transaction = trace.begin(&outer);
    transaction.field("user", 7);
    transaction.begin_part(&inner).end();
    transaction.point(&point);
    transaction.end();
    trace.point_with(&point, &trace::Fields::new().with("user", 8).with("user name", "x"));
    let (records, missed) = served.records(1);
    let seen: Vec<_> = records.iter().map(|record| (record.tag.as_str(), record.flags)).collect();
    // Start, end, identifier, parent.
    let expected = [
        ("outer", 2 | 8),
        ("inner", 2 | 8 | 16),
        ("inner", 4 | 8 | 16),
        ("point", 1 | 16),
        ("outer", 4 | 8),
        ("point", 1),
    ];
    assert_eq!((&seen[..], missed), (&expected[..], 0));
    assert!(records.is_sorted_by_key(|record| record.time));
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i128;
    assert!(records.iter().all(|record| (0..60_000_000_000).contains(&(wall - record.time))), "{records:?}");
    let param = |item| Item::new(1, item);
    assert_eq!(records[2].params, [14, 15, 10, 11, 12, 16].map(param));
    assert_eq!(records[4].params, [&[14, 10, 11, 12, 16].map(param)[..], &[Item::new(2, 0)]].concat());
    assert_eq!(served.agent.pmid("trace.event.field.user_name").unwrap().item(), Item::new(2, 1));

    assert_eq!(served.records(2).0.len(), 6);
    for (filter, left) in [
        ("tag=inner", 2),
        ("tag~^(inner|outer)$; kind=transact", 4),
        ("user=7", 1),
        ("user~.", 2),
        ("user=7; longer=3600", 0),
        ("longer=0", 2),
        ("process=1", 0),
        ("new field=1", 0),
        ("", 6),
    ] {
        served.agent.as_client(2).store(pmid(1, 5), None, Atom::from(filter)).unwrap();
        let mut transaction = trace.begin(&outer);
        transaction.field("user", 7);
        transaction.begin_part(&inner).end();
        transaction.point(&point);
        transaction.end();
        trace.point_with(&point, &trace::Fields::new().with("user", 8));
        assert_eq!(served.records(2).0.len(), left, "{filter}");
        assert_eq!(served.records(1).0.len(), 6);
    }
    for bad in ["inner", "tag~(", "longer=soon"] {
        let stored = served.agent.as_client(2).store(pmid(1, 5), None, Atom::from(bad));
        assert_eq!(stored.map_err(|e| e.code()), Err(Error::BADSTORE), "{bad}");
    }
}

#[test]
fn who_is_slow_misses_records_and_is_told() {
    let mut served = Served::start(&[]);
    let trace = served.light();
    let _ = (served.records(1), served.records(2));
    let (mut prompt, mut slow) = (0, 0);
    // More than the queue holds, and few enough at a time for the ring.
    for _ in 0..100 {
        (0..1000).for_each(|_| trace.point(&tag("tag")));
        let (records, missed) = served.records(1);
        assert_eq!(missed, 0);
        prompt += records.len();
    }
    let (records, missed) = served.records(2);
    slow += records.len();
    assert_eq!((prompt, slow as u64 + missed), (100_000, 100_000));
    assert!(missed > 0 && slow > 1000, "{missed} {slow}");
    // And what nobody can have read both are told.
    (0..10_000).for_each(|_| trace.point(&tag("tag")));
    let told = [1, 2].map(|client| {
        let (records, missed) = served.records(client);
        assert_eq!(records.len() as u64 + missed, 10_000);
        missed
    });
    assert!(told[0] > 0 && told[0] == told[1]);
    assert_eq!(served.own(1, 2), told[0]);
}

#[test]
fn over_tcp_records_are_for_those_who_read() {
    let mut served = Served::start(&[]);
    let trace = Trace::new(Options { transport: Transport::Tcp, ..served.options() });
    trace.point(&tag("before"));
    assert!(served.records(1).0.is_empty());
    trace.transact(&tag("work"), Duration::from_millis(5));
    trace.observe(&tag("size"), 5.0);
    let records = served.records(1).0;
    let seen: Vec<_> = records.iter().map(|record| (record.tag.as_str(), record.flags)).collect();
    assert_eq!(seen, [("work", 2 | 4), ("size", 1)]);
}

#[test]
fn a_host_that_may_not_connect_has_no_directory() {
    let served = Served::start(&["-A", "disallow:127.*"]);
    assert!(!served.directory().exists());
    let served = Served::start(&["-A", "disallow:*", "-A", "allow:localhost:2"]);
    let mode = fs::metadata(served.directory()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o1777);
}

/// The agent is PCP's user, and the process is nobody: neither may do anything to what is the other's.
#[test]
#[ignore = "needs PCP"]
fn any_user_may_trace_and_the_agent_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let pcp = User::from_name("pcp").unwrap().unwrap();
    let nobody = User::from_name("nobody").unwrap().unwrap();
    chown(dir.path(), Some(pcp.uid), Some(pcp.gid)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("marker");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut served = Served::in_directory(dir, &["-M", "pcp"]);
    let mut command = Command::new(program);
    command.uid(nobody.uid.as_raw()).gid(nobody.gid.as_raw());
    let mut marker = Marker::of(command, &served.directory(), "tag");
    marker.begin(10);
    marker.wait();
    assert_eq!(served.points("tag"), 20);
    let file = fs::read_dir(served.directory()).unwrap().next().unwrap().unwrap().metadata().unwrap();
    assert_eq!((file.uid(), file.mode() & 0o7777), (nobody.uid.as_raw(), 0o644));
    assert_eq!(fs::metadata(served.directory()).unwrap().uid(), pcp.uid.as_raw());
    drop(marker);
    until("the file's end", || served.files() == 0);
    assert_eq!(served.points("tag"), 20);
}
