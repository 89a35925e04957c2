//! Texts of numbers, intervals, metric specifications, types, flags and identifiers.

use pcp_pdu::event::EventFlags;
use pmapi::number::Number;
use pmapi::spec::{MetricSpec, Source};
use pmapi::{Atom, Config, Error, InDom, OrNull, PmId, Semantics, Type, interval};

use testkit::{Pcp, Version};

use crate::libpcp::{Random, compare, hex};

#[test]
#[ignore = "needs PCP"]
fn numbers() {
    let mut random = Random(1);
    let mut cases: Vec<f64> = vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
    // Values around every limit and rounding step of each magnitude.
    for exponent in -3..17 {
        for mantissa in [0.5, 0.99995, 0.999_949, 0.999_995, 0.99999, 1.0, 1.005, 1.015, 2.675, 9.995, 99.995, 123.455]
        {
            let value: f64 = mantissa * 10_f64.powi(exponent);
            cases.extend([value, value.next_up(), value.next_down(), -value, -value.next_up(), -value.next_down()]);
        }
    }
    cases.extend((0..50_000).map(|_| f64::from_bits(random.next())));
    cases.extend((0..100_000).map(|_| {
        let thousandths = random.below(1_000_000) as f64 * random.pick(&[1.0, -1.0]);
        thousandths * random.pick(&[1e-3, 1.0, 1e3, 1e6, 1e9])
    }));
    compare(&cases, &[], |v| format!("number {:x}", v.to_bits()), |v, _| Number(*v).to_string().into());
}

#[test]
#[ignore = "needs PCP"]
fn intervals() {
    let mut random = Random(2);
    let pieces = [
        "1",
        "2.5",
        "10",
        "0x1f",
        ".5",
        "1e3",
        "999999.9999999",
        "1e18",
        "12345678.123456789",
        "+3",
        "-0",
        "-1",
        "inf",
        "1e-7",
        "0.0000000005",
        "nanoseconds",
        "microsecond",
        "milliseconds",
        "seconds",
        "minute",
        "Hours",
        "day",
        "DAYS",
        "msec",
        "usecs",
        "nsec",
        "sec",
        "mins",
        "hr",
        "hrs",
        "s",
        "m",
        "ms",
        "us",
        "h",
        "d",
        "ss",
        " ",
        " ",
        "\t",
        "\n",
        ",",
        ":",
        "foo",
        "é",
        "secs",
    ];
    let mut cases: Vec<String> = vec![String::new()];
    cases.extend((0..40_000).map(|_| random.text(&pieces, 7)));
    compare(
        &cases,
        &[],
        |text| format!("interval {}", hex(text)),
        |text, theirs| match interval::parse(text) {
            // The largest `time_t` is too large for `f64`, and from 1e6 seconds on 7.2 has only microseconds.
            Err(_) if theirs.starts_with(b"-9223372036854775808") => theirs.to_vec(),
            Err(e) => format!("{e}\n").into(),
            Ok(time) => {
                let theirs = String::from_utf8(theirs.to_vec()).unwrap();
                let numbers = theirs.split_once(' ').map(|(s, n)| (s.parse::<i128>(), n.parse::<i128>()));
                let Some((Ok(seconds), Ok(nanoseconds))) = numbers else { return format!("{time:?}").into() };
                let difference = seconds * 1_000_000_000 + nanoseconds - time.as_nanos() as i128;
                let allowed = if seconds > 999_999 { 500 } else { 0 };
                if difference.abs() <= allowed { theirs } else { format!("{time:?}") }.into()
            }
        },
    );
}

#[test]
#[ignore = "needs PCP"]
fn metric_specs() {
    let mut random = Random(3);
    let pieces = ["a", "b.c", ":", "/", "[", "]", "\"", ",", " ", "\\", "@", "é", "\t", "-1", "[", "]", "x[a,b]"];
    let mut cases: Vec<String> =
        ["h:m", "@:m[i]", "a/b/m.n[ \"x y\" , z ]", "m[]", "m[,a]", "m[a\" \"]"].map(String::from).into();
    cases.extend((0..40_000).map(|_| random.text(&pieces, 9)));
    compare(
        &cases,
        &[],
        |text| format!("spec {}", hex(text)),
        |text, _| match text.parse::<MetricSpec>() {
            Err(e) => format!("{e}\n").into(),
            Ok(spec) => {
                let (kind, source) = match spec.source {
                    None => (0, "DEFAULT".to_owned()),
                    Some(Source::Host(host)) => (0, host),
                    Some(Source::Archive(archive)) => (1, archive),
                    Some(Source::Local) => (2, "@".to_owned()),
                };
                let instances: String = spec.instances.iter().map(|i| format!("|{i}")).collect();
                format!("{kind}|{source}|{}{instances}", spec.metric).into()
            }
        },
    );
}

#[test]
#[ignore = "needs PCP"]
fn names_of_codes() {
    let mut random = Random(4);
    let codes: Vec<i32> = (-5..300).collect();
    compare(&codes, &[], |c| format!("type {c}"), |c, _| Type::name_of(*c).into());
    compare(&codes, &[], |c| format!("sem {c}"), |c, _| Semantics::name_of(*c).into());
    let mut flags: Vec<u32> = (0..64).chain([1 << 31, u32::MAX]).collect();
    flags.extend((0..1000).map(|_| random.next() as u32));
    compare(&flags, &[], |f| format!("flags {f}"), |f, _| EventFlags::from_bits_retain(*f).to_string().into());
}

/// Codes whose text is different before 6.1, where "archive" was "archive log".
const REWORDED: [i32; 8] = [-12354, -12370, -12372, -12373, -12375, -12378, -12379, -12380];

#[test]
#[ignore = "needs PCP"]
fn error_codes() {
    let version = Pcp::required().version();
    let reworded = if version < Version(6, 1, 0) { &REWORDED[..] } else { &[] };
    let unknown = if version < Version(6, 0, 5) { &[Error::ARG][..] } else { &[] };
    let listed = std::process::Command::new("pmerr").arg("-l").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut unlisted: Vec<_> = Error::ALL.iter().map(|e| e.0).collect();
    for line in listed.lines().skip(1) {
        let (code, rest) = line.trim_start().split_once(' ').unwrap();
        let (name, text) = rest.trim_start().split_once(' ').unwrap();
        let error = Error::from_code(code.parse().unwrap()).unwrap();
        unlisted.retain(|e| *e != error);
        assert_eq!(error.name(), Some(name), "{line}");
        let same = error.to_string() == text.trim_start();
        assert_eq!(same, !reworded.contains(&error.code()), "{line}: {error}");
    }
    assert_eq!(unlisted, unknown);
    let codes = (-200..0).chain(-13_500..-12_300).chain(-21_344..-21_300);
    let known: Vec<i32> =
        codes.filter(|c| !reworded.contains(c) && unknown.iter().all(|error| error.code() != *c)).collect();
    compare(&known, &[], |c| format!("err {c}"), |c, _| Error::from_code(*c).unwrap().to_string().into());
}

#[test]
#[ignore = "needs PCP"]
fn atoms_of_bytes() {
    let mut random = Random(6);
    let lengths = [0, 1, 3, 4, 5, 11, 12, 13, 33, 34, 36, 37, 38, 39, 80];
    let cases: Vec<Vec<u8>> =
        (0..2000).map(|_| (0..random.pick(&lengths)).map(|_| random.pick(b"abc xyz\"\\.,")).collect()).collect();
    compare(&cases, &[], |b| format!("atom 6 {}", hex(b)), |b, _| Atom::String(b).to_string().into());
    compare(&cases, &[], |b| format!("atom 7 {}", hex(b)), |b, _| Atom::Aggregate(b).to_string().into());
}

#[test]
#[ignore = "needs PCP"]
fn identifiers() {
    let mut random = Random(5);
    let mut words: Vec<u32> =
        vec![0, u32::MAX, u32::MAX >> 1, 511 << 22 | 29 << 10, 511 << 22, 511 << 22 | 29 << 10 | 1];
    words.extend((0..4096).map(|cluster| 511 << 22 | cluster << 10));
    words.extend((0..5000).map(|_| random.next() as u32));
    compare(&words, &[], |w| format!("pmid {w}"), |w, _| OrNull(PmId::from_word(*w)).to_string().into());
    compare(&words, &[], |w| format!("indom {w}"), |w, _| OrNull(InDom::from_word(*w)).to_string().into());
}

#[test]
#[ignore = "needs PCP"]
fn configuration() {
    let text = "PCP_A=file\n#PCP_B=comment\nPCP_C=\"quoted words\"\nPCP_D='single'\nPCP_E=\"half\nPCP_A=second\n PCP_F=x\nPCP_G=a=b \n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pcp.conf");
    std::fs::write(&path, text).unwrap();
    let env = [("PCP_CONF", path.to_str().unwrap()), ("PCP_D", "environment"), ("PCP_H", "only")];
    let config = Config::new(text.as_bytes(), env.iter().map(|(k, v)| (k.into(), v.into())));
    let names =
        ["PCP_A", "PCP_B", "#PCP_B", "PCP_C", "PCP_D", "PCP_E", "PCP_F", "PCP_G", "PCP_H", "PCP_CONF", "PCP_DIR"];
    compare(
        &names,
        &env,
        |name| format!("config {name}"),
        |name, _| config.var(name).map_or("(unset)".into(), |v| v.to_str().unwrap().into()),
    );
    let installed = Config::try_load().unwrap();
    let listed = std::process::Command::new(installed.binadm_dir().join("pmconfig")).arg("-l").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let lines: Vec<_> = listed.lines().filter_map(|l| l.split_once('=')).collect();
    assert!(lines.len() > 30, "{listed}");
    for (name, value) in lines {
        assert_eq!(installed.var(name).and_then(|v| v.to_str()), Some(value), "{name}");
    }
}
