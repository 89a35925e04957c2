//! `--check` prints errors as libpcp does, prints metrics as pminfo does, and reads the same files as libpcp.

use std::fs;

use super::stage::Stage;

const DEFINITIONS: &str = r#"good = sample.long.one + sample.bin
good(oneline) = a good one
unfinished = sample.long.one +
	tabs	=	sample.long.one	sample.long.ten
exponent = 5e3
string = rescale(sample.byte_ctr, "Kbyte
units = rescale(sample.byte_ctr, "no such unit")
unknown = sample.long.one + no.such.metric
dimensions = sample.byte_ctr + sample.milliseconds
words = sample.string.hullo + 1
domains = sample.bin + sample.colour
no expression =
no equals sign
2bad = 1
good = 2
good(oneline) = again
nobody(oneline) = none
part = sample.bin[bin-500]
"#;

#[test]
#[ignore = "needs PCP"]
fn errors_and_metrics() {
    let stage = Stage::new(DEFINITIONS);
    let output = stage.check_text();
    let (metrics, errors) =
        stage.client(DEFINITIONS, &["good", "part", "unknown", "dimensions", "words", "domains"]).unwrap();
    let (lines, said) = output.split_at(output.find("derived.good\n").unwrap());
    assert_eq!(lines, "");

    // `--check` prints errors in the order of the file, among the metrics.
    let mut ours: Vec<&str> = Vec::new();
    for line in said.lines() {
        let is_metric =
            line.starts_with("derived.") || line.starts_with("    Data") || line.starts_with("    Semantics");
        if !is_metric {
            ours.push(
                line.split_once("] ").filter(|(_, text)| text.starts_with("Semantic")).map_or(line, |(_, text)| text),
            );
        }
    }
    let [own, client] = stage.files();
    let theirs = errors.replace(&client, "FILE");
    let mut ours: Vec<String> = ours.iter().map(|line| line.replace(&own, "FILE")).collect();
    let mut theirs: Vec<String> = theirs.lines().map(str::to_owned).collect();
    // libpcp binds definitions when it has read all of them.
    let is_semantic = |line: &String| line.starts_with("Semantic");
    let semantic = |lines: &[String]| lines.iter().filter(|line| is_semantic(line)).cloned().collect::<Vec<_>>();
    // Before 7.1 libpcp does not report this.
    if stage.pcp.version() < testkit::Version(7, 1, 0) {
        ours.retain(|line| !line.ends_with("operand no.such.metric: Unknown operand metric"));
    }
    assert_eq!(semantic(&ours), semantic(&theirs));
    ours.retain(|line| !is_semantic(line));
    theirs.retain(|line| !is_semantic(line) && !line.ends_with(": Unknown metric name"));
    assert_eq!(ours.join("\n"), theirs.join("\n"));
    assert!(theirs.len() > 30, "{theirs:#?}");

    for (name, answer) in metrics {
        let block = said.split_once(&format!("derived.{name}\n")).unwrap().1;
        let shown: String = block.lines().take(2).flat_map(|line| [line, "\n"]).collect();
        assert_eq!(super::stage::answer(&shown).meta, answer.meta);
    }
}

#[test]
#[ignore = "needs PCP"]
fn files_and_directories() {
    let stage = Stage::new("");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for sub in ["one/deep/er", "two", "empty"] {
        fs::create_dir_all(path(sub)).unwrap();
    }
    let files =
        ["one/a.conf", "one/no-suffix", "one/deep/er/b", "two/.hidden", "two/c~", "two/d.rpmsave", "alone", "beside"];
    for (number, name) in files.iter().enumerate() {
        fs::write(path(name), format!("m{number} = {number}\n")).unwrap();
    }
    std::os::unix::fs::symlink(path("beside"), path("one/link")).unwrap();
    std::os::unix::fs::symlink(path("nowhere"), path("two/dangling")).unwrap();
    nix::unistd::mkfifo(&path("two/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let paths = format!("{0}/one:{0}/missing:{0}/two/:{0}/empty::{0}/alone", dir.path().display());

    let names: Vec<String> = (0..files.len()).map(|number| format!("m{number}")).collect();
    let mut pminfo = stage.pcp.command("pminfo");
    pminfo.args(["-h", &stage.pmcd.host()]).args(&names).env("PCP_DERIVED_CONFIG", &paths);
    let output = pminfo.output().unwrap();
    let mut theirs: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    let mut ours: Vec<String> = stage.check_path(&paths, &[]).into_keys().collect();
    theirs.sort();
    ours.sort();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), files.len());
}
