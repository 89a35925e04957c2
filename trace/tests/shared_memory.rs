//! The shared-memory transport, read as an agent reads it: threads, forks, and rings that are too small. A process of its own:
//! no other test may hold a lock at a fork.

#![allow(clippy::unwrap_used, clippy::panic, unsafe_code)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, clone};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use pcp_trace::protocol::Kind;
use pcp_trace::shared_memory::sums::{EPOCHS, Extreme, Word};
use pcp_trace::shared_memory::{Claim, Directory, Process, Reader};
use pcp_trace::{Fields, Options, State, StateError, Tag, Trace, Transport};
use testkit::{Child, as_process_1};

use common::{ring, sums};

/// A running agent's directories, and options for it.
struct Scene {
    directory: Directory,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        Scene { directory: Directory::open(dir.path().join("4323"), dir.path()).unwrap(), _dir: dir }
    }

    fn options(&self) -> Options {
        Options::default().directory(self.directory.path()).transport(Transport::SharedMemory)
    }

    /// Returns the files with sums.
    fn files(&self) -> Vec<PathBuf> {
        common::files(self.directory.files())
    }

    /// Returns the only file with sums.
    fn file(&self) -> PathBuf {
        let [file] = &self.files()[..] else { panic!("{:?}", self.files()) };
        file.clone()
    }

    /// Opens the event records of the only process.
    fn reader(&self) -> Reader {
        Reader::open(&ring(&self.file())).unwrap()
    }
}

fn tag(name: &str) -> Tag {
    Tag::new(name).unwrap()
}

/// Returns the counts of a file, by tag.
fn counts(file: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (_, tag, _, count) in sums(file).into_iter().filter(|(_, _, word, _)| *word == Word::Count) {
        *counts.entry(tag).or_default() += count;
    }
    counts
}

/// Reads records. Returns the numbers of records read and missed.
fn records(reader: &mut Reader) -> (u64, u64) {
    let mut seen = 0;
    reader.look().unwrap();
    let missed = reader.records(u64::MAX, |_| seen += 1).unwrap();
    (seen, missed)
}

#[test]
fn every_kind_arrives_with_all_that_it_has() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    let [outer, inner, point, size, bytes] = ["outer", "inner", "point", "size", "bytes"].map(tag);
    let mut transaction = trace.begin(&outer);
    assert!(transaction.field("user", 7) && transaction.field("path", "/cart"));
    transaction.begin_part(&inner).end();
    transaction.point(&point);
    drop(transaction.begin_part(&inner));
    transaction.end();
    trace.transact(&outer, Duration::from_millis(250));
    trace.point_with(&point, &Fields::new().with("long", "x".repeat(500)));
    trace.observe(&size, 2.5);
    trace.observe(&size, 1.5);
    trace.counter(&bytes, 1e9);
    assert_eq!((trace.status().sent, trace.status().missed, trace.status().connected), (8, 0, true));

    let (mut reader, sums, tags) = (scene.reader(), sums(&scene.file()), common::tags(&scene.file()));
    let of = |kind, tag: &Tag, word| {
        sums.iter().find(|(of, name, has, _)| (*of, &**name, *has) == (kind, tag.name(), word)).unwrap().3
    };
    assert_eq!(of(Kind::Transact, &outer, Word::Count), 2);
    let total = of(Kind::Transact, &outer, Word::Total) as f64 / 1e9;
    assert!((0.25..5.0).contains(&total), "{total}");
    let epochs = 0..EPOCHS;
    let known = |word| Some(Extreme(of(Kind::Transact, &outer, word))).filter(|extreme| extreme.0 > 0);
    let shortest = epochs.clone().filter_map(|epoch| Some(known(Word::Shortest(epoch))?.as_shortest()));
    assert!(shortest.clone().all(|min| min > 0.0 && min <= 0.25) && shortest.count() > 0);
    let longest = epochs.filter_map(|epoch| Some(known(Word::Longest(epoch))?.as_longest()));
    assert_eq!(longest.reduce(f32::max), Some(0.25));
    assert_eq!([(Kind::Transact, &inner), (Kind::Point, &point)].map(|(kind, tag)| of(kind, tag, Word::Count)), [1, 2]);
    assert_eq!(of(Kind::Observe, &size, Word::Count), 2);
    assert_eq!(f64::from_bits(of(Kind::Observe, &size, Word::Last)), 1.5);
    assert_eq!(f64::from_bits(of(Kind::Counter, &bytes, Word::Last)), 1e9);
    assert!(of(Kind::Counter, &bytes, Word::When) <= pcp_trace::shared_memory::now());

    let mut seen = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    reader.look().unwrap();
    let missed = reader.records(u64::MAX, |record| {
        let fields: Vec<_> = record.fields().map(|(key, value)| format!("{}={}", text(key), value.len())).collect();
        seen.push((
            tags[&record.tag].clone(),
            record.begin,
            record.end,
            record.duration().is_some(),
            record.id,
            record.parent,
            fields.concat(),
        ));
    });
    let begun = |name: &str, id, parent| (name.to_owned(), true, false, false, id, parent, String::new());
    let point = |name: &str, parent, fields: &str| (name.to_owned(), false, false, false, 0, parent, fields.to_owned());
    let ended = |name: &str, counts, id, parent, fields: &str| {
        (name.to_owned(), false, true, counts, id, parent, fields.to_owned())
    };
    let expected = [
        begun("outer", 1, 0),
        begun("inner", 2, 1),
        ended("inner", true, 2, 1, ""),
        point("point", 1, ""),
        begun("inner", 3, 1),
        ended("inner", false, 3, 1, ""),
        ended("outer", true, 1, 0, "user=1path=5"),
        ("outer".to_owned(), true, true, true, 4, 0, String::new()),
        point("point", 0, "long=500"),
        point("size", 0, ""),
        point("size", 0, ""),
        point("bytes", 0, ""),
    ];
    assert_eq!((missed.unwrap(), &seen[..]), (0, &expected[..]));
    assert!(!reader.is_ended());
    drop(trace);
    assert_eq!(records(&mut reader), (0, 0));
    assert!(reader.is_ended());
}

#[test]
fn threads_are_counted_exactly_while_they_are_read() {
    const EACH: u64 = 50_000;
    let scene = Scene::new();
    // A small ring, so that records are missed.
    let trace = Trace::new(scene.options().ring_len(8192));
    let tags: Vec<Tag> = (0..100).map(|n| tag(&format!("tag {n}"))).collect();
    trace.point(&tags[0]);
    let mut reader = scene.reader();
    let (mut seen, mut missed) = (0, 0);
    let mut take = |reader: &mut Reader| {
        let (more, lost) = records(reader);
        (seen, missed) = (seen + more, missed + lost);
    };
    for _ in 0..2 {
        // The second round's threads reuse the lanes of the first round.
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..EACH).for_each(|n| trace.point(&tags[n as usize % tags.len()]))))
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                take(&mut reader);
            }
            // A scope ends before its threads have given back their lanes, unless they are joined.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
    take(&mut reader);
    let counted = counts(&scene.file());
    assert_eq!(reader.lanes(), 5);
    let expected = |n: usize| 8 * EACH / 100 + u64::from(n == 0);
    assert_eq!(counted.len(), tags.len());
    assert!((0..tags.len()).all(|n| counted[tags[n].name()] == expected(n)), "{counted:?}");
    assert_eq!(seen + missed, 8 * EACH + 1);
    assert!(seen > 0 && missed > 0, "{seen} {missed}");
    assert_eq!((trace.status().sent, trace.status().missed), (8 * EACH + 1, 0));
}

#[test]
fn without_an_agent_nothing_is_made_and_everything_missed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("4323");
    for there in [false, true] {
        if there {
            fs::create_dir(&path).unwrap();
        }
        let options = Options::default().directory(path.clone()).reconnect([Duration::ZERO]);
        let trace = Trace::new(options.transport(Transport::SharedMemory));
        (0..10).for_each(|_| trace.point(&tag("tag")));
        trace.begin(&tag("tag")).end();
        assert_eq!((trace.status().sent, trace.status().missed, trace.status().connected), (0, 11, false));
        assert!(trace.status().failure.is_some());
        if there {
            // The agent starts.
            let agent = Directory::open(path.clone(), dir.path()).unwrap();
            let files = agent.files().to_owned();
            trace.point(&tag("tag"));
            assert_eq!((trace.status().sent, trace.status().missed, trace.status().connected), (1, 11, true));
            drop(agent);
            drop(trace);
            // Without an agent the library removes its file, because no agent would.
            assert_eq!(fs::read_dir(&files).unwrap().count(), 0);
        }
    }
}

#[test]
fn the_way_is_found() {
    let scene = Scene::new();
    let auto = scene.options().transport(Transport::Auto).port(1);
    for (options, shared_memory) in [
        (auto.clone(), true),
        (auto.clone().host("127.0.0.1"), true),
        (auto.clone().host("192.0.2.1").connect_timeout(Duration::from_millis(1)), false),
        (auto.clone().transport(Transport::Tcp), false),
        (auto.clone().directory("/nonexistent"), false),
        (auto.state(State::NOAGENT), false),
    ] {
        let what = format!("{options:?}");
        let trace = Trace::new(options);
        trace.point(&tag("tag"));
        assert_eq!(trace.status().sent, u64::from(shared_memory), "{what}");
        assert_eq!(scene.files().len(), usize::from(shared_memory), "{what}");
        drop(trace);
        // The agent would remove the files of ended handles.
        scene
            .files()
            .iter()
            .for_each(|file| [file, &ring(file)].iter().for_each(|file| fs::remove_file(file).unwrap()));
    }
}

#[test]
fn the_asynchronous_protocol_is_refused_while_shared_memory_is_in_use() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    assert_eq!(trace.set_state(State::COMMS), Ok(State::empty()));
    trace.point(&tag("tag"));
    assert_eq!(trace.set_state(State::ASYNC), Err(StateError::SharedMemory));
    assert_eq!(trace.set_state(State::empty()), Ok(State::COMMS));
    // The flag may be set before: it applies if TCP is used instead.
    let trace = Trace::new(scene.options().state(State::ASYNC));
    trace.point(&tag("tag"));
    assert_eq!(trace.set_state(State::empty()), Ok(State::ASYNC));
    assert_eq!(trace.set_state(State::ASYNC), Ok(State::empty()));
}

#[test]
fn a_child_has_a_file_of_its_own() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    let (before, after) = (tag("before"), tag("after"));
    let open = trace.begin(&before);
    (0..3).for_each(|_| trace.point(&before));
    let parent = scene.file();
    let mut open = Some(open);
    Child::new(|| {
        (0..5).for_each(|_| trace.point(&after));
        thread::scope(|scope| scope.spawn(|| (0..5).for_each(|_| trace.point(&after))).join()).unwrap();
        open.take().unwrap().end();
        assert_eq!((trace.status().sent, trace.status().missed), (11, 0));
    })
    .ends();
    trace.point(&before);
    open.unwrap().end();
    let expected = [("before".to_owned(), 5)];
    let mut parents_files = 0;
    assert_eq!(counts(&parent), BTreeMap::from(expected));
    for file in scene.files() {
        let reader = Reader::open(&ring(&file)).unwrap();
        if reader.process().pid == std::process::id() {
            parents_files += 1;
            continue;
        }
        assert_eq!(counts(&file), BTreeMap::from([("after".to_owned(), 10), ("before".to_owned(), 1)]));
        // The child has exited, so that its process is not alive.
        assert!(!reader.process().is_alive());
    }
    assert_eq!((parents_files, scene.files().len()), (1, 2));
}

#[test]
#[ignore = "needs PCP"] // And root.
fn process_1_of_each_pid_name_space_has_its_own_file() {
    as_process_1(|| {
        let scene = Scene::new();
        let trace = Trace::new(scene.options());
        trace.point(&tag("outer"));
        let parent = scene.file();
        as_process_1(|| {
            trace.point(&tag("inner"));
            assert_eq!((trace.status().sent, trace.status().missed), (1, 0));
        });
        trace.point(&tag("outer"));
        assert_eq!(counts(&parent), BTreeMap::from([("outer".to_owned(), 2)]));
        assert_eq!(scene.files().len(), 2);
    });
}

#[test]
// Slow: 16,384 tags are added, as many as a process can have.
fn what_has_no_room_is_missed() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    (0..17_000).for_each(|n| trace.point(&tag(&format!("tag {n}"))));
    assert_eq!((trace.status().sent, trace.status().missed), (16_384, 17_000 - 16_384));
    let mut reader = scene.reader();
    assert_eq!(counts(&scene.file()).len(), 16_384);
    let (seen, missed) = records(&mut reader);
    assert_eq!(seen + missed, 16_384);
    assert_eq!(reader.missed(), 17_000 - 16_384);
    // Known tags count on.
    trace.point(&tag("tag 7"));
    assert_eq!((trace.status().sent, counts(&scene.file())["tag 7"]), (16_385, 2));
}

/// A tag may have any text. Its instance in the MMV file has a name without control characters.
#[test]
fn tags_may_have_any_characters() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    let tags = [" first", "two\nlines", "\\x0a", "größe", "\u{202e}", "\u{7f}", "a, b", &"x".repeat(254)];
    tags.iter().for_each(|name| trace.point(&tag(name)));
    assert_eq!(trace.status().missed, 0);
    assert_eq!(counts(&scene.file()), tags.iter().map(|name| ((*name).to_owned(), 1)).collect());
    // The escapes have no room in a name of an MMV file.
    trace.point(&tag(&"\n".repeat(64)));
    assert_eq!(trace.status().missed, 1);
}

/// Rings are read in parts. Records at the end of a part are cut, and read again.
#[test]
fn a_long_ring_is_read_to_the_last_record() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options().ring_len(4 << 20));
    let (point, fields) = (tag("point"), Fields::new().with("text", "x".repeat(300)));
    trace.point(&point);
    let mut reader = scene.reader();
    assert_eq!(records(&mut reader), (1, 0));
    for round in 0..3 {
        (0..10_000).for_each(|n| if n % 3 == round { trace.point(&point) } else { trace.point_with(&point, &fields) });
        let mut whole = 0;
        reader.look().unwrap();
        let missed = reader.records(u64::MAX, |record| {
            let lens: Vec<_> = record.fields().map(|(_, value)| value.len()).collect();
            whole += u64::from(lens.is_empty() || lens == [300]);
        });
        assert_eq!((whole, missed.unwrap()), (10_000, 0));
    }
}

/// Beyond the limit on file sizes, trace events are missed. The process gets no signal.
#[test]
fn a_limit_of_the_size_of_files_is_no_room() {
    use nix::sys::resource::{Resource, setrlimit};
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    trace.point(&tag("tag"));
    Child::new(|| {
        // The limit leaves room for the header only.
        setrlimit(Resource::RLIMIT_FSIZE, 4096, 4096).unwrap();
        (0..10).for_each(|_| trace.point(&tag("tag")));
        assert_eq!(trace.status().missed, 10);
    })
    .ends();
}

#[test]
fn other_users_cannot_read_or_lock_a_file() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    trace.point(&tag("tag"));
    let directory = fs::metadata(scene.directory.files()).unwrap();
    for file in [scene.file(), ring(&scene.file())] {
        let file = fs::metadata(file).unwrap();
        assert_eq!((file.mode() & 0o7777, file.gid()), (0o640, directory.gid()));
    }
    assert_eq!(directory.gid(), nix::unistd::getegid().as_raw());
}

#[test]
fn a_process_is_believed_if_it_is_the_owners() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    trace.point(&tag("tag"));
    assert_eq!(scene.reader().claim(), Claim::Own);
    let (file, own) = (ring(&scene.file()), scene.reader().process());
    let claim = |pid: u64, start: Option<u64>| {
        let copy = scene.directory.path().join("copy");
        let mut bytes = fs::read(&file).unwrap();
        bytes[16..24].copy_from_slice(&pid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&start.unwrap_or(own.start).to_ne_bytes());
        fs::write(&copy, bytes).unwrap();
        Reader::open(&copy).unwrap().claim()
    };
    let init = Process::find(1).unwrap();
    // The number alone does not identify a process: the start time must agree.
    assert_eq!([claim(1, None), claim(1, Some(init.start + 1))], [Claim::Unknown; 2]);
    assert_eq!(claim(u32::MAX.into(), None), Claim::Gone);
    // Files of root may name processes of any user.
    let others = if nix::unistd::geteuid().is_root() { Claim::Own } else { Claim::Foreign };
    assert_eq!(claim(1, Some(init.start)), others);
}

/// The process sees the `/proc` of the outer namespace, where its own number belongs to another process.
#[test]
#[ignore = "needs root"]
fn a_process_in_a_pid_namespace_is_found_by_the_number_that_proc_has() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    let in_namespace = || {
        trace.point(&tag("tag"));
        let number = fs::read_link("/proc/self").unwrap().to_str().unwrap().parse().unwrap();
        let found = scene.reader().process() == Process::find(number).unwrap();
        isize::from(std::process::id() != 1 || number == 1 || trace.status().sent != 1 || !found)
    };
    let mut stack = vec![0; 1 << 20];
    // SAFETY: the child only traces. It has a copy of the memory, as after fork(2).
    let child = unsafe {
        clone(Box::new(in_namespace), &mut stack, CloneFlags::CLONE_NEWPID, Some(Signal::SIGCHLD as i32)).unwrap()
    };
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
    assert_eq!(counts(&scene.file()), BTreeMap::from([("tag".to_owned(), 1)]));
}

#[test]
fn a_mark_costs_no_system_call() {
    let scene = Scene::new();
    let trace = Trace::new(scene.options());
    let [work, part, point, size] = ["work", "part", "point", "size"].map(tag);
    let fields = Fields::new().with("user", 7);
    let mark = || {
        let transaction = trace.begin(&work);
        transaction.begin_part(&part).end();
        trace.point(&point);
        trace.point_with(&point, &fields);
        trace.observe(&size, 1.5);
        transaction.end();
    };
    // SAFETY: the child traces, allocates nothing, and exits by the only system call that it is allowed.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => unsafe {
            mark();
            forbid_system_calls();
            (0..10_000).for_each(|_| mark());
            nix::libc::syscall(nix::libc::SYS_exit, 0);
            unreachable!()
        },
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
    assert_eq!(counts(&scene.file()).values().sum::<u64>(), 5 * 10_001);
}

/// From now on, any system call except exit(2) ends the process with a signal.
fn forbid_system_calls() {
    use nix::libc::{self, BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
    let step = |code: u32, jf, k: u32| sock_filter { code: code as u16, jt: 0, jf, k };
    let mut steps = [
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, libc::SYS_exit as u32),
        step(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        step(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program and its steps live until the calls return.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}
