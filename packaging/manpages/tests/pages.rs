//! The man pages and completions that the program writes.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const COMMANDS: [&str; 15] = [
    "cargo-pmda",
    "pcp-agents",
    "pcp-rs-chkhelp",
    "pcp-rs-dbpmda",
    "pcp-rs-mmvdump",
    "pcp-rs-newhelp",
    "pcp-rs-pmda-host",
    "pcp-rs-pmdumplog",
    "pcp-rs-pmgenmap",
    "pcp-rs-pmlogderive",
    "pcp-rs-pmlogdump",
    "pcp-rs-pmnsadd",
    "pcp-rs-pmnsdel",
    "pcp-rs-pmnsmerge",
    "pcp-view",
];

fn written() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_manpages")).arg(dir.path()).status().unwrap();
    assert!(ended.success());
    dir
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn pages(dir: &Path) -> Vec<PathBuf> {
    let folders = ["man1", "man8"].map(|folder| dir.join(folder));
    folders.iter().flat_map(|folder| names(folder).into_iter().map(|name| folder.join(name))).collect()
}

/// Each agent has a folder with a manifest.
fn agents() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../agents");
    names(&folder).into_iter().filter(|name| folder.join(name).join("Cargo.toml").exists()).collect()
}

#[test]
fn every_command_and_agent_has_a_page_and_commands_have_completions() {
    let dir = written();
    let mut expected: Vec<String> = COMMANDS.map(str::to_owned).to_vec();
    expected.extend(agents().into_iter().map(|agent| format!("pcp-rs-pmda{agent}")));
    for name in expected {
        assert!(dir.path().join(format!("man1/{name}.1")).is_file(), "{name}");
    }
    assert!(dir.path().join("man8/pcp-rs-pmda.8").is_file());
    let mut commands = COMMANDS.map(str::to_owned).to_vec();
    commands.push("pcp-rs-pmda".to_owned());
    commands.sort();
    assert_eq!(names(&dir.path().join("bash")), commands);
    assert_eq!(names(&dir.path().join("zsh")), commands.iter().map(|name| format!("_{name}")).collect::<Vec<_>>());
    let mut fish: Vec<String> = commands.iter().map(|name| format!("{name}.fish")).collect();
    fish.sort();
    assert_eq!(names(&dir.path().join("fish")), fish);
}

#[test]
fn pages_name_their_options() {
    let dir = written();
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap().replace('\\', "");
    assert!(
        page("man1/pcp-rs-newhelp.1").contains("fB-ofR, fB--outputfR fI<FILE>fR"),
        "{}",
        page("man1/pcp-rs-newhelp.1")
    );
    assert!(page("man1/pcp-rs-pmdatrace.1").contains("fB-MfR fI<username>fR\nuser that the agent changes to"));
    assert!(page("man1/pcp-rs-pmdaderived.1").contains("--agent-timeout"));
    assert!(page("man8/pcp-rs-pmda-install.8").contains("--replace"));
    let help = fs::read_to_string(dir.path().join("pcp-rs-pmda.help")).unwrap();
    assert!(help.contains("pcp-rs-pmda install [OPTIONS] <AGENT>"), "{help}");
}

#[test]
#[ignore = "needs man"]
// Slow: man formats each page.
fn man_formats_the_pages_without_warnings() {
    let dir = written();
    let pages = pages(dir.path());
    assert!(pages.len() > 12);
    for page in pages {
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-Tutf8", "-l"])
            .arg(&page)
            .env("MANWIDTH", "80")
            .env("LC_ALL", "C.UTF-8");
        let output = man.output().unwrap();
        let shown = output.stdout.len();
        assert!(output.status.success() && shown > 300, "{}: {shown} bytes", page.display());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", page.display());
    }
}

#[test]
fn shells_parse_the_completions() {
    let dir = written();
    let shells = [("bash", "bash", "-n"), ("zsh", "zsh", "-n"), ("fish", "fish", "--no-execute")];
    for (folder, shell, option) in shells {
        for name in names(&dir.path().join(folder)) {
            // Completions for this shell are not needed on a machine without it.
            let Ok(output) = Command::new(shell).arg(option).arg(dir.path().join(folder).join(&name)).output() else {
                break;
            };
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_manpages")).arg("/dev/null/pages").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "manpages: /dev/null/pages: Not a directory (os error 20)\n");
}
