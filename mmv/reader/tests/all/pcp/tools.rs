//! PCP's tools with a separate directory.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

/// A directory that replaces `$PCP_TMP_DIR`.
pub(crate) struct Scene {
    dir: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mmv")).unwrap();
        fs::write(dir.path().join("pmns"), "root {\n    mmv 70:*:*\n}\n").unwrap();
        Scene { dir }
    }

    /// Returns the directory of the files.
    pub(crate) fn files(&self) -> PathBuf {
        self.dir.path().join("mmv")
    }

    /// Writes a file with the C library.
    pub(crate) fn c_writer(&self, version: i32, flags: i32, name: &str) {
        let mut writer = Command::new(WRITER.path().join("writer"));
        writer.env("PCP_TMP_DIR", self.dir.path()).args([version.to_string(), flags.to_string(), name.to_owned()]);
        assert!(writer.status().unwrap().success());
    }

    /// Returns pminfo's output about each metric, with the C agent in its own process.
    pub(crate) fn pminfo(&self) -> BTreeMap<String, String> {
        let pmns = self.dir.path().join("pmns");
        let agent = "add,70,/var/lib/pcp/pmdas/mmv/pmda_mmv.so,mmv_init";
        let output = Command::new("pminfo")
            .env("PCP_TMP_DIR", self.dir.path())
            .arg("-n")
            .arg(pmns)
            .args(["-L", "-K", "clear", "-K", agent, "-dfmtTl", "mmv"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // A help text can have empty lines, but is unlikely to have one that looks like a metric.
        let blocks = text.split("\n\nmmv.").map(|block| format!("mmv.{}", block.trim_start_matches("\nmmv.")));
        let named = blocks.map(|block| (block.split(' ').next().unwrap().to_owned(), without_host_labels(&block)));
        named.filter(|(name, _)| name != "mmv." && !name.starts_with("mmv.control.")).collect()
    }
}

/// The compiled `writer.c`.
static WRITER: LazyLock<TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/pcp/writer.c");
    testkit::compile(source, &dir, &["-lpcp_mmv", "-lpcp"]);
    dir
});

/// Removes the labels of the host and the agent, which the file does not contain.
fn without_host_labels(block: &str) -> String {
    let own = |line: &str| {
        let Some((before, json)) = line.split_once("labels {") else { return Some(line.to_owned()) };
        let mut labels: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&format!("{{{json}")).unwrap();
        let host = ["agent", "domainname", "groupid", "hostname", "machineid", "userid", "containername"];
        labels.retain(|name, _| !host.contains(&name.as_str()));
        (!labels.is_empty()).then(|| format!("{before}labels {}", serde_json::to_string(&labels).unwrap()))
    };
    block.lines().filter_map(own).map(|line| line + "\n").collect()
}

/// Returns a command's output, and whether it succeeds.
pub(crate) fn run(command: &str, args: &[&str]) -> (Vec<u8>, bool) {
    let output = Command::new(command).args(args).output().unwrap();
    (output.stdout, output.status.success())
}

/// Runs PCP's mmvdump.
pub(crate) fn mmvdump(path: &Path) -> (Vec<u8>, bool) {
    run("/usr/lib/pcp/pmdas/mmv/mmvdump", &[path.to_str().unwrap()])
}

/// Removes running intervals, which grow between two runs.
pub(crate) fn without_clock(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = |line: &str| match line.split_once("(value=") {
        Some((before, after)) => format!("{} (value={after}\n", before.rsplit_once('=').unwrap().0),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}
