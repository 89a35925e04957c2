//! An agent, and other processes that trace to it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Uid, User, chown, geteuid};
use pcp_collector::{Collector, Launch, Process};
use pcp_pdu::event::{EventFlags, Layout, records};
use pcp_pdu::handshake::Attribute;
use pmapi::{Atom, Domain, InDom, Item, PmId, Serial};
pub(crate) use testkit::{free_port, wait_for};
use trace::shared_memory::format::ring_name;
use trace::{Options, Tag, Trace, Transport};

/// The agent, over a pipe to this test instead of pmcd.
pub(crate) struct Served {
    pub(crate) agent: Collector<Process>,
    pub(crate) port: u16,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) fn start(dir: &Path, port: u16, args: &[&str]) -> Collector<Process> {
    start_binary(env!("CARGO_BIN_EXE_pmdatrace").as_ref(), dir, port, args)
}

/// Starts this agent or PCP's over a pipe.
pub(crate) fn start_binary(binary: &Path, dir: &Path, port: u16, args: &[&str]) -> Collector<Process> {
    let user = User::from_uid(geteuid()).unwrap().unwrap().name;
    let mut command = Command::new(binary);
    let user = if args.contains(&"-M") { &[][..] } else { &["-M", &user] };
    command.args(["-l", "trace.log", "-I", &port.to_string()]).args(user).args(args).current_dir(dir);
    command.env("PCP_RUN_DIR", dir).env("PCP_TRACE_DIR", dir);
    let mut agent = Launch::pipe(command).start().unwrap();
    // The agent listens before it answers its first request.
    let _ = agent.value(pmid(0, 14)).unwrap();
    agent
}

impl Served {
    pub(crate) fn start(args: &[&str]) -> Served {
        Self::in_directory(tempfile::tempdir().unwrap(), args)
    }

    pub(crate) fn in_directory(dir: tempfile::TempDir, args: &[&str]) -> Served {
        let port = free_port("127.0.0.1");
        Served { agent: start(dir.path(), port, args), port, dir }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.dir.path().join(format!("trace/{}", self.port))
    }

    pub(crate) fn options(&self) -> Options {
        let directory = self.directory();
        Options::default().host("127.0.0.1").port(self.port).directory(directory)
    }

    pub(crate) fn shared_memory(&self) -> Trace {
        Trace::new(self.options().transport(Transport::SharedMemory))
    }

    /// Returns the directory of files.
    pub(crate) fn place(&self) -> PathBuf {
        fs::read_to_string(self.directory().join("agent")).unwrap().into()
    }

    /// Returns the number of names in the directory of files: each process has two files.
    pub(crate) fn files(&self) -> usize {
        fs::read_dir(self.place()).unwrap().count()
    }

    /// Returns the path of a file with sums, and the contents of both files of the process.
    pub(crate) fn file(&self) -> (PathBuf, [Vec<u8>; 2]) {
        let names = fs::read_dir(self.place()).unwrap().map(|entry| entry.unwrap().path());
        let mut files = names.filter(|path| !path.file_name().unwrap().as_bytes().starts_with(b"."));
        let file = files.next().unwrap();
        let bytes = [&file, &ring(&file)].map(|path| fs::read(path).unwrap());
        (file, bytes)
    }

    /// Returns the value of a metric for a tag.
    pub(crate) fn of(&mut self, item: u16, kind: u32, tag: &str) -> Option<f64> {
        let indom = InDom::new(Domain::new(10).unwrap(), Serial::new(kind));
        let inst = self.agent.instance_of(indom, tag).ok()?;
        let values = self.agent.values(pmid(0, item)).unwrap();
        Some(number(values.get(inst)?))
    }

    /// Resets the agent, as root does.
    pub(crate) fn reset(&mut self) {
        self.agent.attribute(Attribute::USERID, "0").unwrap();
        self.agent.store(pmid(0, 15), None, Atom::U32(1)).unwrap();
    }

    pub(crate) fn points(&mut self, tag: &str) -> u64 {
        self.of(6, 1, tag).unwrap_or(0.0) as u64
    }

    pub(crate) fn own(&mut self, cluster: u16, item: u16) -> u64 {
        number(self.agent.value(pmid(cluster, item)).unwrap()) as u64
    }

    /// Returns the records that a client has not read yet, and the number of those that it has missed.
    pub(crate) fn records(&mut self, client: i32) -> (Vec<Seen>, u64) {
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
                seen.push(Seen { tag, flags: record.flags.bits(), time, params });
            }
        }
        (seen, missed)
    }
}

/// Returns the path of the event records beside a file with sums.
pub(crate) fn ring(file: &Path) -> PathBuf {
    file.with_file_name(ring_name(file.file_name().unwrap()))
}

/// Writes a file with holes for pages of zeros, as processes have them.
fn write_sparse(path: &Path, bytes: &[u8]) {
    let file = File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (page, at) in bytes.chunks(4096).zip((0..).step_by(4096)) {
        if page.iter().any(|byte| *byte != 0) {
            file.write_all_at(page, at).unwrap();
        }
    }
}

/// Creates the files of a process, of sums and of event records, and locks them until the returned handle is dropped.
pub(crate) fn put(place: &Path, name: &str, [sums, records]: &[Vec<u8>; 2], uid: Option<u32>) -> Flock<File> {
    let (hidden, uid) = (place.join(format!(".{name}")), uid.map(Uid::from_raw));
    let records_at = ring(&place.join(name));
    write_sparse(&records_at, records);
    write_sparse(&hidden, sums);
    [&hidden, &records_at].iter().for_each(|path| chown(*path, uid, None).unwrap());
    let file = File::options().read(true).write(true).open(&records_at).unwrap();
    let file = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    fs::rename(hidden, place.join(name)).unwrap();
    file
}

/// Words of the header of event records: the process, and the end of the blocks.
pub(crate) const PID: usize = 2;
pub(crate) const END: usize = 4;

/// Replaces a word of the event records.
pub(crate) fn with_word([sums, records]: &[Vec<u8>; 2], at: usize, word: u64) -> [Vec<u8>; 2] {
    let mut records = records.clone();
    records[8 * at..][..8].copy_from_slice(&word.to_ne_bytes());
    [sums.clone(), records]
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) tag: String,
    pub(crate) flags: u32,
    pub(crate) time: i128,
    pub(crate) params: Vec<Item>,
}

pub(crate) fn pmid(cluster: u16, item: u16) -> PmId {
    PmId::new(Domain::new(10).unwrap(), Item::new(cluster, item))
}

pub(crate) fn number(atom: Atom<'_>) -> f64 {
    match atom {
        Atom::U64(value) => value as f64,
        Atom::U32(value) => value.into(),
        Atom::Double(value) => value,
        Atom::Float(value) => value.into(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn tag(name: &str) -> Tag {
    Tag::new(name).unwrap()
}

/// This test program as another process, which traces points.
pub(crate) struct Marker(Child, BufReader<std::process::ChildStdout>);

impl Marker {
    pub(crate) fn start(directory: &Path, tag: &str) -> Marker {
        Self::of(Command::new(std::env::current_exe().unwrap()), directory, tag)
    }

    pub(crate) fn of(mut command: Command, directory: &Path, tag: &str) -> Marker {
        command
            .args(["--exact", "shared_memory::scene::marker", "--nocapture"])
            .env("MARKER", directory)
            .env("MARKER_TAG", tag);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Marker(child, output)
    }

    /// Has the process trace `points` points in each of two threads.
    pub(crate) fn begin(&mut self, points: u64) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{points}").unwrap();
    }

    /// Has the process trace `points` points in each of two threads, and then execute this program again.
    pub(crate) fn begin_and_execute(&mut self, points: u64) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{points} again").unwrap();
    }

    pub(crate) fn wait(&mut self) {
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

/// The process of a [`Marker`]. Does nothing in a normal run of the tests.
#[test]
fn marker() {
    let (Some(directory), Ok(name)) = (std::env::var_os("MARKER"), std::env::var("MARKER_TAG")) else { return };
    let trace = Trace::new(Options::default().directory(directory).transport(Transport::SharedMemory));
    let tag = tag(&name);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (points, again) = line.split_once(' ').map_or((&*line, false), |(points, _)| (points, true));
        let points: u64 = points.parse().unwrap();
        std::thread::scope(|scope| {
            (0..2).for_each(|_| _ = scope.spawn(|| (0..points).for_each(|_| trace.point(&tag))));
        });
        println!("\nmarked {} missed", trace.status().missed);
        if again {
            panic!("{}", Command::new(std::env::current_exe().unwrap()).args(std::env::args_os().skip(1)).exec());
        }
    }
}
