//! The agent over pmdalinux, which it starts itself, compared with what libpcp's clients derive from the same metrics.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::{Agent, Pcp, Pmcd};

/// Definitions whose values do not change while the test runs.
const DEFINITIONS: &str = "\
ncpu = hinv.ncpu * 2
memory = rescale(mem.physmem, \"Mbyte\")
mtu = network.interface.mtu + network.interface.mtu
loop = matchinst(/^lo/, network.interface.mtu)
noloop = matchinst(!/^lo/, network.interface.mtu)
lo = network.interface.mtu[lo]
devs = count(disk.dev.read)
same = disk.dev.read - disk.dev.read
cpu = kernel.all.cpu.user - kernel.all.cpu.user
average = avg(kernel.percpu.cpu.vuser) < 0
fs = filesys.capacity / 1024
big = filesys.capacity > 100000 ? filesys.capacity : filesys.capacity * 0
release = kernel.uname.release
";

/// Returns pminfo's output without names and identifiers, which differ.
fn comparable(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| line.is_empty()).skip(1);
    lines.map(|line| line.split_once("  InDom: ").map_or(line, |(ty, _)| ty).to_owned()).collect()
}

/// Starts a pmcd whose only agent is `derived`.
fn derived(dir: &Path) -> Pmcd {
    let pcp = Pcp::required();
    let conf = dir.join("conf.toml");
    let mut group = format!(
        "[group.linux]\nagent = {{ domain = 60, command = ['{}', '-d', '60', '-l', '{}'], pmns = '{}' }}\n",
        pcp.path("PCP_PMDAS_DIR").join("linux/pmdalinux").display(),
        dir.join("linux.log").display(),
        pcp.path("PCP_VAR_DIR").join("pmns/root_linux").display()
    );
    for (name, expression) in definitions() {
        writeln!(group, "metric.{name} = '{expression}'").unwrap();
    }
    std::fs::write(&conf, group).unwrap();
    let binary = env!("CARGO_BIN_EXE_pmdaderived");
    let pmda = dir.join("pmda");
    assert!(Command::new(binary).arg("-c").arg(&conf).arg("--write-pmda").arg(&pmda).status().unwrap().success());
    let agent = Agent::new("derived", 404, binary).pmns(&pmda.join("pmns"));
    // The default timeout of pmcd, instead of the test kit's longer one.
    pcp.pmcd().options(["-t", "5"]).agent(agent.args(["-c", conf.to_str().unwrap(), "-U", "root"])).start()
}

fn definitions() -> impl Iterator<Item = (&'static str, &'static str)> {
    DEFINITIONS.lines().map(|line| line.split_once(" = ").unwrap())
}

#[test]
#[ignore = "needs PCP"]
fn as_clients_derive_it() {
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let pmcd = derived(dir.path());
    let (text, var) = (dir.path().join("text"), pcp.var_dir());
    std::fs::write(&text, DEFINITIONS).unwrap();
    for (name, _) in definitions() {
        for what in ["-d", "-f"] {
            let ours = pmcd.run("pminfo", [what, &format!("derived.{name}")]).ok();
            let mut pminfo = pcp.command("pminfo");
            pminfo.args(["-L", "-K", "clear", "-K", "add,60,linux/pmda_linux.so,linux_init", what, name]);
            pminfo.env("PCP_DERIVED_CONFIG", &text).env("PCP_VAR_DIR", var.path());
            let theirs = pcp.run_command(pminfo, "").ok();
            assert!(theirs.contains(if what == "-d" { "Data Type" } else { "value " }), "{theirs}");
            assert_eq!(comparable(&ours), comparable(&theirs), "{what} {name}\n{}", pmcd.log("derived"));
        }
    }
}

/// pmcd waits five seconds for an agent. So no request waits for the agents that agent derived has started.
#[test]
#[ignore = "needs PCP"]
fn an_agent_that_hangs_does_not_take_this_one_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let pmcd = derived(dir.path());
    let ncpu = || pmcd.run("pminfo", ["-f", "derived.ncpu"]).text;
    assert!(ncpu().contains("value "), "{}", ncpu());
    let derived = pmcd.agent_pid("derived").unwrap();
    let linux = linux_of(derived);
    kill(linux, Signal::SIGSTOP).unwrap();
    // Until it is given up, and another one has started, there are the last values, or none.
    let end = Instant::now() + Duration::from_secs(60);
    while kill(linux, None).is_ok() {
        let text = ncpu();
        assert!(text.contains("value ") || text.contains("Try again") || text.contains("No values"), "{text}");
        assert_eq!(pmcd.agent_status("derived"), 0);
        assert!(Instant::now() < end, "{}", pmcd.log("derived"));
        sleep(Duration::from_millis(50));
    }
    while !ncpu().contains("value ") {
        assert!(Instant::now() < end, "{}", pmcd.log("derived"));
        sleep(Duration::from_millis(50));
    }
    assert_eq!(pmcd.agent_pid("derived"), Some(derived));
    assert_ne!(linux_of(derived), linux);
}

/// Returns the process pmdalinux that a thread of agent derived has started. Another child process ends it when the agent is
/// killed.
fn linux_of(derived: i32) -> Pid {
    let tasks = std::fs::read_dir(format!("/proc/{derived}/task")).unwrap().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: String = children.collect::<Vec<_>>().join(" ");
    let is_linux =
        |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it == "pmdalinux\n");
    Pid::from_raw(children.split_whitespace().find(is_linux).unwrap().parse().unwrap())
}
