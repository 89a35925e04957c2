//! The agent over PCP's agent of the kernel's metrics, which it starts itself, compared with what libpcp's clients
//! derive from the same metrics.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::process::Command;

use testkit::{Agent, Pcp};

/// Values that stay the same from one look to the next, whatever the machine does.
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

/// Without names and identifiers, which differ.
fn comparable(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| line.is_empty()).skip(1);
    lines.map(|line| line.split_once("  InDom: ").map_or(line, |(ty, _)| ty).to_owned()).collect()
}

#[test]
#[ignore = "needs PCP"]
fn as_clients_derive_it() {
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let (text, conf) = (dir.path().join("text"), dir.path().join("conf.toml"));
    std::fs::write(&text, DEFINITIONS).unwrap();
    let linux = pcp.path("PCP_PMDAS_DIR").join("linux");
    let mut group = format!(
        "[group.linux]\nagent = {{ domain = 60, command = ['{}', '-d', '60', '-l', '{}'], pmns = '{}' }}\n",
        linux.join("pmdalinux").display(),
        dir.path().join("linux.log").display(),
        pcp.path("PCP_VAR_DIR").join("pmns/root_linux").display()
    );
    let definitions = DEFINITIONS.lines().map(|line| line.split_once(" = ").unwrap());
    for (name, expression) in definitions.clone() {
        writeln!(group, "metric.{name} = '{expression}'").unwrap();
    }
    std::fs::write(&conf, group).unwrap();

    let binary = env!("CARGO_BIN_EXE_pmdaderived");
    let pmda = dir.path().join("pmda");
    assert!(Command::new(binary).arg("-c").arg(&conf).arg("--write-pmda").arg(&pmda).status().unwrap().success());
    let agent = Agent::new("derived", 404, binary).pmns(&pmda.join("pmns"));
    let pmcd = pcp.pmcd().agent(agent.args(["-c", conf.to_str().unwrap(), "-U", "root"])).start();

    for (name, _) in definitions {
        for what in ["-d", "-f"] {
            let ours = pmcd.run("pminfo", [what, &format!("derived.{name}")]).ok();
            let mut pminfo = pcp.command("pminfo");
            pminfo.args(["-L", "-K", "clear", "-K", "add,60,linux/pmda_linux.so,linux_init", what, name]);
            pminfo.env("PCP_DERIVED_CONFIG", &text);
            let theirs = pcp.run_command(pminfo, "").ok();
            assert_eq!(comparable(&ours), comparable(&theirs), "{what} {name}\n{}", pmcd.log("derived"));
            assert!(comparable(&ours).len() > 1 || what == "-f", "{ours}");
        }
    }
}
