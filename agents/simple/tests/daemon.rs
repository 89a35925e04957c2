//! The daemon without PCP: options, transports, log and files.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

use pcp_collector::{Address, Collector, End, Launch, Process};
use pmapi::{Atom, Domain, InDom, Inst, Item, PmId, Serial};

fn agent(dir: &Path) -> Command {
    fs::create_dir_all(dir.join("simple")).unwrap();
    fs::write(dir.join("simple/simple.conf"), "sec\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdasimple"));
    command.current_dir(dir).env("PCP_PMDAS_DIR", dir).env("PCP_VAR_DIR", dir).env_remove("PCP_CONF");
    command
}

/// Runs the agent as the user of the tests, because PCP's user need not exist.
fn same_user(mut command: Command) -> Command {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    command.args(["-U", &user]);
    command
}

fn user(name: &str) -> nix::unistd::User {
    nix::unistd::User::from_name(name).unwrap().unwrap()
}

fn ask(simple: &mut Collector<Process>) {
    let numfetch = PmId::new(Domain::new(253).unwrap(), Item::new(0, 0));
    assert_eq!(simple.value(numfetch).unwrap(), Atom::U32(1));
}

fn run(mut command: Command, args: &[&str]) -> Output {
    command.args(args).stdin(testkit::ended_input()).output().unwrap()
}

#[test]
fn the_log_is_pcps() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let mut simple = Launch::pipe(same_user(agent(dir.path()))).start().unwrap();
        ask(&mut simple);
        assert!(
            matches!(simple.close_within(std::time::Duration::from_secs(60)), End::Exited(status) if status.success()),
            "{round}"
        );
    }
    for name in ["simple.log", "simple.log.prev"] {
        let log = fs::read_to_string(dir.path().join(name)).unwrap();
        let mut lines = log.lines();
        let head = lines.next().unwrap();
        assert!(head.starts_with("Log for pmdasimple on ") && head.contains(" started "), "{log}");
        assert!(lines.next() == Some("") && log.ends_with('\n'), "{log}");
        assert!(log.lines().last().unwrap().starts_with("Log finished "), "{log}");
    }
    let mut simple = Launch::pipe(same_user(agent(dir.path()))).start().unwrap();
    ask(&mut simple);
    // A PDU that is not a request is ignored and logged.
    simple.send_bytes(&[0, 0, 0, 12, 0, 0, 0x70, 2, 0, 0, 0, 0]).unwrap();
    let _ = simple.close();
    let log = fs::read_to_string(dir.path().join("simple.log")).unwrap();
    let line = log.lines().nth(2).unwrap();
    let (time, rest) = line.split_once("] pmdasimple(").unwrap();
    assert_eq!(time.len(), "[Sat Nov 21 10:30:00".len(), "{line}");
    assert!(rest.contains(") Error: PROFILE PDU: context: 4 bytes needed, 0 left"), "{line}");
}

#[test]
fn a_log_that_is_no_file_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Open for reading and writing, so that neither side waits for the other.
    let mut end = fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let out = run(same_user(agent(dir.path())), &["-l", fifo.to_str().unwrap()]);
    assert!(out.status.success(), "{out:?}");
    let mut head = [0; 22];
    std::io::Read::read_exact(&mut end, &mut head).unwrap();
    assert_eq!(&head, b"Log for pmdasimple on ");
    assert!(!dir.path().join("fifo.prev").exists());
}

#[test]
fn debug_options_are_filters() {
    let dir = tempfile::tempdir().unwrap();
    for (options, shown, hidden) in
        [("pdu", "got FETCH PDU", "received FETCH"), ("libpmda", "received FETCH", "got FETCH PDU")]
    {
        let mut command = same_user(agent(dir.path()));
        command.args(["-D", options, "-l", "other.log"]);
        let mut simple = Launch::pipe(command).start().unwrap();
        ask(&mut simple);
        let _ = simple.close();
        let log = fs::read_to_string(dir.path().join("other.log")).unwrap();
        assert!(log.contains(") Debug: ") && log.contains(shown) && !log.contains(hidden), "{log}");
    }
}

#[test]
fn sockets_take_one_connection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let free = |at: &str| TcpListener::bind((at, 0)).map(|l| l.local_addr().unwrap().port());
    let inet = free("127.0.0.1").unwrap();
    let mut cases = vec![Address::Unix(path.clone()), Address::Inet(inet)];
    // Hosts without IPv6 leave this case out.
    cases.extend(free("::1").ok().map(Address::Ipv6));
    for address in cases {
        let mut command = same_user(agent(dir.path()));
        command.args(address.option()).env("PCP_USER", "nobody");
        let mut simple = Launch::socket(address.clone()).command(command).start().unwrap();
        ask(&mut simple);
        if address == Address::Unix(path.clone()) {
            let meta = fs::metadata(&path).unwrap();
            assert!(meta.file_type().is_socket() && meta.permissions().mode() & 0o777 == 0o660);
            // pmcd's user owns the socket, if the agent may change the owner.
            let owner = if nix::unistd::geteuid().is_root() { user("nobody").uid } else { nix::unistd::geteuid() };
            assert_eq!(meta.uid(), owner.as_raw());
        }
        assert!(Launch::socket(address.clone()).start().is_err(), "{address}: a second connection");
        assert!(
            matches!(simple.close_within(std::time::Duration::from_secs(60)), End::Exited(status) if status.success()),
            "{address}"
        );
    }
}

#[test]
fn it_runs_as_the_user_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = user("nobody");
    let mut command = agent(dir.path());
    command.args(["-U", "nobody", "-l", "-"]);
    if !nix::unistd::geteuid().is_root() {
        let out = run(command, &[]);
        assert!(String::from_utf8_lossy(&out.stderr).contains("for user \"nobody\""), "{out:?}");
        return;
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut simple = Launch::pipe(command).start().unwrap();
    ask(&mut simple);
    let status = fs::read_to_string(format!("/proc/{}/status", simple.pid().unwrap())).unwrap();
    let ids = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(|id| id.parse().unwrap()).collect()
    };
    assert_eq!(ids("Uid:"), [nobody.uid.as_raw(); 4]);
    assert_eq!(ids("Gid:"), [nobody.gid.as_raw(); 4]);
    // The agent has kept none of root's groups.
    assert!(ids("Groups:").iter().all(|gid| *gid == nobody.gid.as_raw()));
}

#[test]
fn its_version_comes_from_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = same_user(agent(dir.path()));
    command.stdin(testkit::ended_input()).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let creds = child.wait_with_output().unwrap().stdout;
    let header = pcp_pdu::Header::parse(&creds).unwrap().unwrap();
    assert_eq!((header.pdu, header.from), (pcp_pdu::PduType::CREDS, pid as i32));
}

#[test]
fn a_request_for_instances_reads_the_configuration_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut simple = Launch::pipe(same_user(agent(dir.path()))).start().unwrap();
    let now = InDom::new(Domain::new(253).unwrap(), Serial::new(1));
    assert_eq!(simple.instances(now).unwrap(), [(Inst::new(0), "sec".into())]);
    fs::write(dir.path().join("simple/simple.conf"), "hour,sec\n").unwrap();
    assert_eq!(simple.instances(now).unwrap(), [(Inst::new(0), "sec".into()), (Inst::new(1), "hour".into())]);
}

#[test]
fn the_times_are_those_of_the_process() {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike as _;

    let dir = tempfile::tempdir().unwrap();
    let config = pmapi::Config::new(b"", [("PCP_VAR_DIR".into(), dir.path().into())]);
    let builder = pmda::host::Engine::<pmda_simple::Simple>::builder().config(config);
    let local = pcp_collector::Local::start(builder).unwrap();
    let mut simple = Collector::new(local);
    let [user, sys] = ["simple.time.user", "simple.time.sys"].map(|name| simple.metric(name).unwrap());
    let used = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
        [usage.user_time(), usage.system_time()].map(|time| time.num_microseconds() as f64 / 1e6)
    };
    // User time must differ from system time.
    while used()[0] < used()[1] + 0.05 {
        std::hint::black_box((0..10_000u64).map(std::hint::black_box).sum::<u64>());
    }
    for (metric, which) in [(user, 0), (sys, 1)] {
        let before = used()[which];
        let Atom::Double(seconds) = simple.value(metric).unwrap() else { panic!() };
        assert!((before..=used()[which]).contains(&seconds), "{seconds} of {which}");
    }
}

#[test]
fn mistakes_end_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let out = run(agent(dir.path()), args);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{args:?}: {out:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(said(&["-d", "0"]).starts_with("pmdasimple: invalid value '0' for '--domain <NUM>': 0 is not in 1..=510"));
    assert!(said(&["-i", "1", "-p"]).contains("cannot be used with"));
    assert!(said(&["-D", "nonsense"]).contains("unrecognized debug options specification (nonsense)"));
    assert!(said(&["-l", "-", "-U", "no such user"]).contains(") Critical: user \"no such user\" does not exist"));
    assert!(
        said(&["-l", "-", "-u", "/no/such/dir/socket"])
            .contains("Critical: unix socket /no/such/dir/socket: No such file")
    );
    assert!(said(&["-l", "-", "-i", "no-such-service"]).contains("no port and no service \"no-such-service\""));
    let help = run(agent(dir.path()), &["-?"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--username"), "{help:?}");
}

#[test]
fn a_bad_help_file_is_named_and_the_agent_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bad.dir"), "no help").unwrap();
    fs::write(dir.path().join("bad.pag"), "PcPh22\n").unwrap();
    let mut command = same_user(agent(dir.path()));
    command.arg("-h").arg(dir.path().join("bad"));
    let mut simple = Launch::pipe(command).start().unwrap();
    ask(&mut simple);
    let _ = simple.close();
    let log = fs::read_to_string(dir.path().join("simple.log")).unwrap();
    assert!(log.contains("Warning: ") && log.contains("bad.dir"), "{log}");
}

#[test]
fn the_binary_writes_its_pcp_directory() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    let out = run(agent(dir.path()), &["--write-pmda", target.to_str().unwrap(), "-d", "300"]);
    assert!(out.status.success(), "{out:?}");
    let read = |name: &str| fs::read_to_string(target.join(name)).unwrap();
    assert_eq!(read("domain.h"), "#define SIMPLE 300\n");
    assert!(
        read("pmns").contains("numfetch\tSIMPLE:0:0") || read("pmns").contains("numfetch SIMPLE:0:0"),
        "{}",
        read("pmns")
    );
    assert!(read("root").contains("#include \"pmns\""));
    assert!(read("help").contains("@ simple.numfetch ") && read("help").contains("@ 300.1 "));
    assert_eq!(read("simple.conf"), "sec,min,hour\n");
    for program in ["Install", "Remove", "pmdasimple"] {
        assert_eq!(fs::metadata(target.join(program)).unwrap().permissions().mode() & 0o777, 0o755, "{program}");
    }
    assert!(read("README").contains("simple.color"));
    assert!(["Install", "Remove"].iter().all(|name| !read(name).contains("@NAME@")));
}
