//! Files of the configuration directory that are not written as the manual says, compared with PCP's agent: names, bytes,
//! comments, and names that clash.

use std::fs;

use crate::both::By;
use crate::compared::{Scene, metrics};

const DOCUMENT: &str = "# HELP a Help.\n# TYPE a counter\na{x=\"1\",y=\"2\"} 1\nb 3\n";
const SCRIPT: &[u8] = b"#!/bin/sh\necho a{x=\\\"1\\\"} 5\n";

/// Writes the files, and returns the names that their sources may have.
fn write(scene: &Scene) -> Vec<String> {
    let _ = fs::remove_dir_all(scene.path("config.d"));
    fs::create_dir(scene.path("config.d")).unwrap();
    let document = scene.path("document.txt");
    fs::write(&document, DOCUMENT).unwrap();
    let long_line = format!("a{{x=\"{}\"}} 1\nb 2\n", "v".repeat(20_000));
    fs::write(scene.path("long.txt"), format!("# HELP a {}\n{long_line}", "word ".repeat(5_000))).unwrap();
    let url = format!("file://{}", document.display());
    let long = format!("file://{}", scene.path("long.txt").display());
    let config = |name: &str, bytes: &[u8], mode: u32| {
        let path = scene.path("config.d").join(name);
        testkit::executable(path, bytes, mode);
    };
    let urls = [
        ("after_comment", format!("# a comment\n{url}\n")),
        ("after_blank", format!("\n\n{url}\n")),
        ("byte_order_mark", format!("\u{feff}{url}\n")),
        ("spaces_behind", format!("{url}   \n")),
        ("tab_before", format!("\t{url}\n")),
        ("two_urls", format!("{url}\n{long}\n")),
        ("crlf", format!("{url}\r\nFILTER: EXCLUDE METRIC b\r\n# comment\r\n")),
        ("no_newline", url.clone()),
        ("long_line", format!("{long}\n")),
        ("long_comment", format!("{url}\n# {}\nFILTER: EXCLUDE METRIC b\n", "c".repeat(100_000))),
        ("comments", format!("{url}\n#FILTER: EXCLUDE METRIC a\n  # indented\nFILTER: EXCLUDE METRIC b # not one\n")),
        ("unknown_lines", format!("{url}\nnonsense\nFOO: bar\nFILTER EXCLUDE METRIC a\n:\n")),
        ("header_of_file", format!("{url}\nHEADER: X-One: 1\nHEADER:\nHEADER: nothing\n")),
        ("metadata_twice", format!("{url}\nMETADATA: b u32 x counter byte\nMETADATA: b string y discrete none\n")),
        (".hidden", format!("{url}\n")),
        ("with space", format!("{url}\n")),
        ("clash", format!("{url}\n")),
        ("clash.more", format!("{url}\n")),
        ("é", format!("{url}\n")),
    ];
    for (name, text) in &urls {
        config(&format!("{name}.url"), text.as_bytes(), 0o644);
    }
    let odd = [url.as_bytes(), b"\nHEADER: X-One: \xff\xfe\nFILTER: EXCLUDE METRIC b\n"].concat();
    config("not_utf8_lines.url", &odd, 0o644);
    config("other_end.URL", url.as_bytes(), 0o644);
    config("backup.url~", url.as_bytes(), 0o644);
    config("executable.url", url.as_bytes(), 0o755);
    config("no_script.txt", SCRIPT, 0o644);
    config("group_only.sh", SCRIPT, 0o654);
    config("clash.sh", SCRIPT, 0o755);
    config("twins", SCRIPT, 0o755);
    config("twins.sh", SCRIPT, 0o755);
    config("empty_script.sh", b"", 0o755);
    config("no_first_line.sh", b"echo a 1\n", 0o755);
    config("not_utf8.sh", b"#!/bin/sh\n# \xff\xfe\necho a 1\n", 0o755);
    config(".hidden_script.sh", SCRIPT, 0o755);
    let scripts = "other_end backup executable no_script group_only twins empty_script no_first_line not_utf8 hidden_script \
        hidden_script.sh hidden not_utf8_lines";
    let names = urls.iter().map(|(name, _)| (*name).to_owned());
    names.chain(scripts.split_whitespace().map(str::to_owned)).collect()
}

/// Differences that the table in README.md has, each with its reason.
const KNOWN: [&str; 1] = ["not_utf8_lines"];

#[test]
#[ignore = "needs PCP"]
// Slow: both agents, one of them in Python, and pminfo for each file.
fn files_that_are_not_as_the_manual_says() {
    let Some(scene) = Scene::new() else { return };
    let run = |by: By| {
        let names = write(&scene);
        let pmcd = scene.start(by);
        let all: Vec<(String, String)> =
            names.iter().map(|name| (name.clone(), metrics(&pmcd, name, &["-dlmtTf"]))).collect();
        let status = pmcd.run("pminfo", ["-f", "openmetrics.control.status_code"]).text;
        (all, status)
    };
    let (theirs, ours) = (run(By::Pcp), run(By::Us));
    let mut different = String::new();
    let pairs = theirs.0.iter().zip(&ours.0).filter(|((name, _), _)| !KNOWN.contains(&&**name));
    for ((name, theirs), (_, ours)) in pairs.filter(|((_, theirs), (_, ours))| theirs != ours) {
        let pair = theirs.lines().zip(ours.lines()).find(|(theirs, ours)| theirs != ours);
        different += &format!("{name}: {pair:?}\n");
    }
    assert!(theirs.0.iter().filter(|(_, text)| text.contains(" value ")).count() > 15, "{theirs:?}");
    let known = ours.0.iter().filter(|(name, _)| KNOWN.contains(&&**name));
    assert!(
        known.clone().count() > 0 && known.into_iter().all(|(_, text)| text.contains("\nopenmetrics.not_utf8_lines.a"))
    );
    assert!(different.is_empty() && theirs.1 == ours.1, "{different}\n{}\n{}", theirs.1, ours.1);
}
