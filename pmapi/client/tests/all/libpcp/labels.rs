//! Label sets: `__pmAddLabels` and `__pmGetDomainLabels`.

use pmapi::{Config, Error, LabelError, LabelFlags, LabelSet};

use testkit::{Pcp, Version};

use crate::libpcp::{Random, compare, hex};

#[derive(Debug)]
struct Steps(Vec<(u8, String)>);

impl Steps {
    fn question(&self) -> String {
        self.0.iter().fold("labels".to_owned(), |line, (flags, text)| format!("{line} {flags} {}", hex(text)))
    }

    fn ours(&self) -> Vec<u8> {
        let mut set = LabelSet::new();
        for (flags, text) in &self.0 {
            let added = LabelSet::parse_flagged(text, LabelFlags::from_bits_retain(*flags)).and_then(|s| set.merge(&s));
            if let Err(e) = added {
                return shown(Err(e));
            }
        }
        shown(Ok(set))
    }
}

/// Formats a set in the same way as the C program.
fn shown(set: Result<LabelSet, LabelError>) -> Vec<u8> {
    match set {
        Err(e) => Error::from(e).code().to_string().into(),
        Ok(set) => {
            let mut text = format!("{} {}", set.len(), set.json());
            for l in set.index() {
                text += &format!(" {},{},{},{},{}", l.name, l.name_len, l.flags.bits(), l.value, l.value_len);
            }
            text.into()
        }
    }
}

/// Returns an object that libpcp handles correctly: no blanks in arrays, one level of nesting.
fn object(random: &mut Random, nested: bool) -> String {
    let blank = |random: &mut Random| random.pick(&["", "", "", " ", "\n\t"]);
    let mut names = vec!["a", "ab", "abc", "b", "b_1", "B", "c", "zero", "x9", "long_name_of_a_label"];
    // Before 7.2, libpcp refuses such a set, instead of leaving out labels with invalid names.
    if random.below(10) == 0 && Pcp::required().version() >= Version(7, 2, 0) {
        names.extend(["_a", "1a", "a-b", "", "a.b", "é", "a b"]);
    }
    let mut text = format!("{}{{", blank(random));
    let mut used = Vec::new();
    for i in 0..random.below(6) {
        let name = random.pick(&names);
        if used.contains(&name) && random.below(20) > 0 {
            continue;
        }
        used.push(name);
        let value = match random.below(12) {
            0 => "null".to_owned(),
            1 => "true".to_owned(),
            2 => "-12.5e3".to_owned(),
            3 => "[1,\"a b\",true]".to_owned(),
            4 => "[]".to_owned(),
            5 => "\"\"".to_owned(),
            6 if nested => object(random, false),
            7 => "\"\\\"\\u00e9\\\\\"".to_owned(),
            8 => "\"é ü\"".to_owned(),
            _ => format!("\"value {i}\""),
        };
        let comma = if text.ends_with('{') { "" } else { "," };
        let (a, b, c) = (blank(random), blank(random), blank(random));
        text += &format!("{comma}{a}\"{name}\"{b}:{c}{value}");
    }
    text + blank(random) + "}"
}

#[test]
#[ignore = "needs PCP"]
// Slow: libpcp parses 30,000 texts, too.
fn sets_of_one_text() {
    let mut random = Random(21);
    let flags = [0, 1, 2, 32, 64, 128, 160];
    let mut cases: Vec<_> =
        (0..30_000).map(|_| Steps(vec![(random.pick(&flags), object(&mut random, false))])).collect();
    for text in ["", "{}", "\"x\"", "{\"a\":1} x", "{\"a\":tru}", "{\"a\":01}", "{\"a\":1,}", "{a:1}", "{\"a\":\"\t\"}"]
    {
        cases.push(Steps(vec![(0, text.to_owned())]));
    }
    cases.push(Steps(vec![(0, format!("{{\"a\":\"{}\"}}", "x".repeat(65_535)))]));
    cases.push(Steps(vec![(0, format!("{{\"{}\":1}}", "n".repeat(254)))]));
    if Pcp::required().version() >= Version(7, 2, 0) {
        cases.push(Steps(vec![(0, format!("{{\"a\":1,\"{}\":1}}", "n".repeat(255)))]));
    }
    cases.push(Steps(vec![(0, r#"{"a":{"b":1,"c":"x"},"d":{},"e":2}"#.to_owned())]));
    compare(&cases, &[], Steps::question, |steps, _| steps.ours());
}

#[test]
#[ignore = "needs PCP"]
// Slow: libpcp merges 30,000 sets, too.
fn merged_sets() {
    let mut random = Random(22);
    let cases: Vec<_> = std::iter::repeat_with(|| {
        let step = |random: &mut Random| (random.pick(&[0, 32, 128]), object(random, false));
        Steps((0..2 + random.below(3)).map(|_| step(&mut random)).collect())
    })
    // libpcp sorts the text of a set that is added to an explicit empty one, but not of the first set.
    .filter(|steps| !LabelSet::parse(&steps.0[0].1).is_ok_and(|set| set.is_empty()))
    .take(30_000)
    .collect();
    compare(&cases, &[], Steps::question, |steps, _| steps.ours());
}

#[test]
#[ignore = "needs PCP"]
fn compound_names() {
    // At most two sets: with a third one libpcp confuses names.
    let mut random = Random(23);
    let member = |random: &mut Random| {
        let (a, b) = (random.pick(&["one", "two"]), random.pick(&["three", "four"]));
        format!(r#"{{"obj{}":{{"{a}":1,"{b}":"x"}},"plain":{}}}"#, random.below(3), random.below(10))
    };
    let cases: Vec<_> =
        (0..2000).map(|_| Steps((0..1 + random.below(2)).map(|_| (0, member(&mut random))).collect())).collect();
    compare(&cases, &[], Steps::question, |steps, _| steps.ours());
}

#[test]
#[ignore = "needs PCP"]
fn default_labels_of_agents() {
    let names = ["simple", "pmdasimple", "pmda", "sample DSO", " DSO", "pmdapmdax", "x"];
    compare(&names, &[], |name| format!("domain {}", hex(name)), |name, _| shown(LabelSet::domain(name)));
}

#[test]
#[ignore = "needs PCP"]
fn labels_of_the_host() {
    let etc = tempfile::tempdir().unwrap();
    let path = etc.path().to_str().unwrap();
    let env = [("PCP_SYSCONF_DIR", path)];
    let config = Config::new(b"", [("PCP_SYSCONF_DIR".into(), path.into())]);
    let write = |name: &str, text: &str| std::fs::write(etc.path().join(name), text).unwrap();
    std::fs::create_dir_all(etc.path().join("labels/optional")).unwrap();
    write("labels/20-b", r#"{"site":"B","x.y":2}"#);
    write("labels/10-a", r#"{"site":"A","rack":{"row":1}}"#);
    write("labels/30-broken", r#"{"site":tru"#);
    write("labels/.hidden", r#"{"hidden":1}"#);
    write("labels/optional/n", r#"{"note":"n","site":"C"}"#);
    compare(&["context"], &env, |q| (*q).to_owned(), |_, _| shown(Ok(LabelSet::context(&config))));
    for conf in [
        "",
        "[global]\n# comment\n  machineid_hash = sha256\n",
        "machineid_hash: none\n",
        "[other]\nmachineid_hash=sha256\n",
    ] {
        write("labels.conf", conf);
        compare(&["host"], &env, |q| (*q).to_owned(), |_, _| shown(pcp_client::host_labels(&config)));
    }
}
