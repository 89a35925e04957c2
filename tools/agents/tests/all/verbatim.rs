//! No text of PCP is in this repository: no line of 40 characters or more of the installed PCP stands in our files.
//!
//! Any white space counts as one space, line ends included. Comment marks and quotes at the ends of a line are ignored.
//! `verbatim.allowed` has the exceptions, each with its reason.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use testkit::{Pcp, Version};

/// Shortest line that counts, in bytes.
const SHORTEST: usize = 40;

/// Lines of PCP by their first bytes, each with the file that contains it.
type Lines = HashMap<Vec<u8>, Vec<(String, PathBuf)>>;

/// Calls `visit` with each file in a directory and below, apart from links.
fn walk(dir: &Path, skip: &[&str], visit: &mut dyn FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name();
        if kind.is_dir() && !skip.iter().any(|skipped| name == *skipped) {
            walk(&path, skip, visit);
        } else if kind.is_file() {
            visit(&path);
        }
    }
}

/// Returns a file's text. A compressed page is decompressed; of a program, only the printable text is returned. Files
/// of more than 16 MiB are left out.
fn text(path: &Path) -> String {
    let large = path.metadata().is_ok_and(|status| status.len() > 16 << 20);
    let mut bytes = if large { Vec::new() } else { fs::read(path).unwrap_or_default() };
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut expanded = Vec::new();
        let _ = GzDecoder::new(&*bytes).read_to_end(&mut expanded);
        bytes = expanded;
    }
    if bytes.contains(&0) {
        bytes.iter_mut().filter(|byte| !byte.is_ascii_graphic() && **byte != b' ').for_each(|byte| *byte = b'\n');
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a line without escapes, and without characters at its ends other than letters and digits.
fn plain(line: &str) -> String {
    let line = if line.contains('\\') {
        line.replace("\\n", " ").replace("\\-", "-").replace("\\\"", "\"").replace("\\f", " ")
    } else {
        line.to_owned()
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ").trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

fn lines_of_pcp(pcp: &Pcp) -> Lines {
    let mut lines = Lines::new();
    let mut add = |path: &Path| {
        let text = text(path);
        let lines_of_text = text.lines().filter(|line| line.len() >= SHORTEST).map(plain);
        for line in lines_of_text.filter(|line| line.len() >= SHORTEST && line.contains(' ')) {
            let known = lines.entry(line.as_bytes()[..SHORTEST].to_vec()).or_default();
            if !known.iter().any(|(other, _)| *other == line) {
                known.push((line, path.to_owned()));
            }
        }
    };
    let var = pcp.path("PCP_VAR_DIR");
    let dirs = [&var.join("pmdas"), &var.join("pmns"), &var.join("config"), pcp.path("PCP_BINADM_DIR")];
    let dirs = dirs.into_iter().chain(["PCP_SYSCONF_DIR", "PCP_INC_DIR", "PCP_SHARE_DIR"].map(|name| pcp.path(name)));
    for dir in dirs {
        walk(dir, &["tmp"], &mut add);
    }
    for (dir, starts) in [
        ("/usr/share/man", &["pm", "PM", "pcp", "mmv", "newhelp", "chkhelp", "dbpmda", "labels", "derived"][..]),
        ("/usr/share/doc", &["pcp"]),
        (pcp.config("PCP_BIN_DIR"), &["pm", "pcp", "dbpmda", "newhelp", "chkhelp"]),
        (pcp.config("PCP_LIB_DIR"), &["libpcp"]),
    ] {
        walk(Path::new(dir), &["python3", "systemd", "modules", "gcc"], &mut |path| {
            let name = path.file_name().unwrap().to_string_lossy();
            if starts.iter().any(|start| name.starts_with(start)) {
                add(path);
            }
        });
    }
    walk(&pcp.testsuite(), &["archives", "badarchives", "tmp"], &mut add);
    lines
}

/// Returns one of our files as a single line, without comment marks and quotes at the ends of lines.
fn flat(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim().trim_end_matches("\\n\\").trim_end_matches('\\').trim_end_matches("\\n");
        line.trim_start_matches(['/', '*', '#', '!', ' ']).trim_matches(['"', ' ']).to_owned()
    });
    plain(&lines.collect::<Vec<_>>().join(" "))
}

/// Returns PCP's lines that one of our texts contains, each with PCP's file.
fn found<'a>(text: &str, pcp: &'a Lines) -> BTreeMap<&'a str, &'a Path> {
    let mut found = BTreeMap::new();
    let mut before = b' ';
    for (at, byte) in text.bytes().enumerate() {
        let starts = byte.is_ascii_alphanumeric() && !before.is_ascii_alphanumeric();
        before = byte;
        let Some(head) = text.as_bytes().get(at..at + SHORTEST).filter(|_| starts) else { continue };
        let Some(lines) = pcp.get(head) else { continue };
        let here = lines.iter().filter(|(line, _)| text[at..].starts_with(line.as_str()));
        found.extend(here.map(|(line, path)| (line.as_str(), path.as_path())));
    }
    found
}

/// Lines of PCP that our files may contain. An entry has a file or the start of its path, PCP's line, and the reason.
struct Allowed {
    entries: Vec<[String; 3]>,
    used: Vec<bool>,
}

impl Allowed {
    fn load(path: &Path) -> Allowed {
        let entry = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            assert!(fields.len() == 3 && !fields[2].is_empty(), "{}: {line:?} has no reason", path.display());
            [0, 1, 2].map(|at| fields[at].to_owned())
        };
        let text = fs::read_to_string(path).unwrap();
        let entries: Vec<_> =
            text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(entry).collect();
        Allowed { used: vec![false; entries.len()], entries }
    }

    /// Returns whether a file may contain a line.
    fn allows(&mut self, file: &str, line: &str) -> bool {
        let is = |[start, text, _]: &[String; 3]| file.starts_with(start.as_str()) && (text == line || text == "*");
        let mut any = false;
        for (entry, used) in self.entries.iter().zip(&mut self.used).filter(|(entry, _)| is(entry)) {
            (any, *used) = (true, true);
            let _ = entry;
        }
        any
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: all lines of the repository are compared with PCP's.
fn testsuite_and_sources_of_pcp_are_not_copied() {
    let installed = Pcp::required();
    let pcp = lines_of_pcp(&installed);
    assert!(pcp.len() > 100_000, "{}", pcp.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|dir| dir.join("check").exists()).unwrap();
    let mut allowed = Allowed::load(&root.join("tools/agents/tests/verbatim.allowed"));
    let mut copies = Vec::new();
    walk(root, &["target", ".git", "corpus"], &mut |path| {
        let file = path.strip_prefix(root).unwrap().to_str().unwrap();
        if file == "Cargo.lock" || file.starts_with("LICENSE") || file.ends_with("verbatim.allowed") {
            return;
        }
        for (line, from) in found(&flat(&text(path)), &pcp) {
            if !allowed.allows(file, line) {
                copies.push(format!("{file}\t{line}\t{}", from.display()));
            }
        }
    });
    // Other versions of PCP have other texts.
    let of_this = |entry: &[String; 3]| !entry[2].starts_with("PCP 7:") || installed.version() >= Version(7, 0, 0);
    let unused = allowed.entries.iter().zip(&allowed.used).filter(|(entry, used)| !**used && of_this(entry));
    let unused: Vec<String> = unused.map(|(entry, _)| entry.join(" ")).collect();
    assert!(copies.is_empty(), "{} lines of PCP:\n{}", copies.len(), copies.join("\n"));
    assert!(unused.is_empty(), "these exceptions are not needed:\n{}", unused.join("\n"));
}
