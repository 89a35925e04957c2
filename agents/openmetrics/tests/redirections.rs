//! Where redirections may lead, with servers at loopback, link-local and other addresses. A process of its own: it starts
//! itself again in a network with these addresses.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "all/server.rs"]
mod server;

use std::fs;
use std::net::Ipv6Addr;
use std::process::Command;

use server::{Server, send};

/// Variable of the environment in the network of its own.
const INSIDE: &str = "PMDA_TEST_NETWORK";

const SETUP: &str = "ip link set lo up && ip address add 192.0.2.1/32 dev lo && ip address add 169.254.7.7/32 dev lo &&
    ip -6 address add 2001:db8::1/128 dev lo nodad && mount --bind \"$HOSTS\" /etc/hosts && exec \"$@\"";

/// Names of hosts in the network.
const HOSTS: &str =
    "192.0.2.1 outside\n127.0.0.1 inside\n169.254.7.7 metadata\n::1 inside6\n127.0.0.1 both\n192.0.2.1 both\n";

/// Each server answers requests for `/to/URL` with a redirection to `http://URL`, and others with a document.
fn answer(stream: &mut std::net::TcpStream, request: &str) {
    let path = request.split(' ').nth(1).unwrap_or_default();
    match path.strip_prefix("/to/") {
        Some(to) => {
            let (server, rest) = to.split_once('/').unwrap();
            let server = server.replace("%5B", "[").replace("%5D", "]");
            send(stream, "302 Found", &format!("Location: http://{server}/{rest}\r\n"), b"")
        }
        None => send(stream, "200 OK", "", b"arrived 1\n"),
    }
}

fn check(url: &str) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pmdaopenmetrics")).args(["--check", url]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs itself where the addresses exist.
#[test]
#[ignore = "needs root"]
fn no_redirection_leads_nearer() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let hosts = tempfile::NamedTempFile::new().unwrap();
    fs::write(&hosts, HOSTS).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", SETUP, "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["no_redirection_leads_nearer", "--exact", "--include-ignored", "--nocapture"]);
    for name in
        ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"]
    {
        command.env_remove(name);
    }
    let output = command.env(INSIDE, "1").env("HOSTS", hosts.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

fn inside() {
    // It has all addresses, those of IPv4 too.
    let server = Server::at((Ipv6Addr::UNSPECIFIED, 0).into(), answer);
    let port = server.port;
    let at = |hosts: &str| -> String {
        let urls: Vec<_> = hosts.split(" > ").map(|host| format!("{host}:{port}")).collect();
        let later = urls[1..].iter().map(|url| format!("/to/{}", url.replace('[', "%5B").replace(']', "%5D")));
        format!("http://{}{}/", urls[0], later.collect::<String>())
    };
    for chain in [
        "192.0.2.1",
        "127.0.0.1",
        "192.0.2.1 > 192.0.2.1",
        "192.0.2.1 > outside > [2001:db8::1]",
        "127.0.0.1 > 127.0.0.2 > [::1] > localhost > 0.0.0.0",
        "localhost > 169.254.7.7 > metadata",
        "inside > 192.0.2.1",
        "metadata > 169.254.7.7 > outside",
        "[::1] > [::ffff:127.0.0.1]",
        // The other address of this name.
        "192.0.2.1 > both",
    ] {
        let (is_good, text) = check(&at(chain));
        assert!(is_good && text.contains("arrived"), "{chain}: {text}");
    }
    for chain in [
        "192.0.2.1 > 127.0.0.1",
        "192.0.2.1 > 127.1",
        "192.0.2.1 > 2130706433",
        "192.0.2.1 > 127.255.255.254",
        "192.0.2.1 > 0.0.0.0",
        "192.0.2.1 > localhost",
        "192.0.2.1 > LocalHost",
        "192.0.2.1 > inside",
        "192.0.2.1 > inside6",
        "192.0.2.1 > [::1]",
        "192.0.2.1 > [::]",
        "192.0.2.1 > [::ffff:127.0.0.1]",
        "192.0.2.1 > [::ffff:7f00:1]",
        "192.0.2.1 > 169.254.7.7",
        "192.0.2.1 > metadata",
        "192.0.2.1 > [::ffff:169.254.7.7]",
        "192.0.2.1 > user:word@127.0.0.1",
        "outside > 192.0.2.1 > outside > 127.0.0.1",
        "[2001:db8::1] > 127.0.0.1",
        "127.0.0.1 > 192.0.2.1 > 127.0.0.1",
        "169.254.7.7 > 127.0.0.1",
        "127.0.0.1 > 169.254.7.7 > 127.0.0.1",
    ] {
        let before = server.requests.lock().unwrap().len();
        let (is_good, text) = check(&at(chain));
        assert!(!is_good && text.contains("a redirection leads from a server elsewhere"), "{chain}: {text}");
        let sent = server.requests.lock().unwrap().len() - before;
        assert_eq!(sent, chain.split(" > ").count() - 1, "{chain}: the last one is sent no request");
    }
}
