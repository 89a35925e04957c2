//! Attributes of clients, as the real pmcd reports them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use testkit::{Pcp, Pmcd};

use super::stage;

/// Returns the output of pmprobe for a singular metric, without its name.
fn probe(pmcd: &Pmcd, metric: &str) -> String {
    let text = pmcd.run("pmprobe", ["-v", metric]).text;
    text.strip_prefix(metric).unwrap_or(&text).trim().to_owned()
}

const REFUSED: &str = "No permission to perform requested operation";

#[test]
#[ignore = "needs PCP"]
fn who_the_client_is_decides() {
    let pcp = Pcp::required();
    let pmcd = pcp.pmcd().agent(stage()).start();
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    assert_eq!(probe(&pmcd, "stage.client.uid"), format!("1 {uid}"));
    assert_eq!(probe(&pmcd, "stage.client.gid"), format!("1 {gid}"));
    assert!(probe(&pmcd, "stage.client.pid").starts_with("1 "));
    let stored = pmcd.run("pmstore", ["stage.client.secret", "1"]).text;
    assert!(stored.contains(if uid.is_root() { "new value=1" } else { REFUSED }), "{stored}");
    // Clients over TCP have no known user.
    let tcp = format!("localhost:{}", pmcd.port());
    let stored = pcp.run("pmstore", ["-h", &tcp, "stage.client.secret", "2"]).failed();
    assert!(stored.contains(REFUSED), "{stored}");
    let text = pcp.run("pminfo", ["-h", &tcp, "-f", "stage.client.uid"]).text;
    assert!(text.contains("Missing metric value(s)"), "{text}");
    if !uid.is_root() {
        return;
    }
    // Other users must be able to connect to the socket.
    fs::set_permissions(pmcd.dir(), PermissionsExt::from_mode(0o755)).unwrap();
    let as_nobody = |tool: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65533", "--clear-groups", tool, "-h", &pmcd.host()]).args(arguments);
        pcp.run_command(command, "").text
    };
    assert!(as_nobody("pmstore", &["stage.client.secret", "2"]).contains(REFUSED));
    let text = as_nobody("pmprobe", &["-v", "stage.client.uid", "stage.client.gid"]);
    assert_eq!(text, "stage.client.uid 1 65534\nstage.client.gid 1 65533\n");
    assert_eq!(probe(&pmcd, "stage.client.secret"), "1 1");
}

#[test]
#[ignore = "needs PCP"]
fn what_is_kept_for_a_client_goes_with_it() {
    let pmcd = Pcp::required().pmcd().agent(stage()).start();
    for _ in 0..3 {
        let text = pmcd.run("pmval", ["-s", "3", "-t", "0.05", "stage.client.visits"]).ok();
        let visits: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("interval")).skip(1).collect();
        assert_eq!(visits.iter().map(|line| line.trim()).collect::<Vec<_>>(), ["1", "2", "3"], "{text}");
        assert_eq!(probe(&pmcd, "stage.client.visitors"), "1 0");
    }
    let text = pmcd.run("pminfo", ["--container=web", "-f", "stage.client.container"]).ok();
    assert!(text.contains("value \"web\""), "{text}");
    // The next client has the same number, but not the container.
    assert!(probe(&pmcd, "stage.client.container").contains("Missing metric value(s)"));
}
