//! Time windows and zones compared with libpcp.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use pcp_context::{WindowOptions, Zone};
use pcp_pdu::event::Stamp;

const SECOND: i64 = 1_000_000_000;

fn stamp(nano: i64) -> Stamp {
    Stamp { seconds: nano.div_euclid(SECOND), nanoseconds: nano.rem_euclid(SECOND) as u32 }
}

/// Times of the options `-S`, `-T` and `-O`.
const TIMES: &[&str] = &[
    "",
    "0",
    "10s",
    "+90min",
    " + 1 hour 2 min",
    "-1h",
    "- 30 sec",
    "2",
    "1.5days",
    "@10:30",
    "@ 10:30:15.25",
    "@11",
    "@ 5 pm",
    "@ 5:10 pm",
    "@12:01am",
    "@ Apr 16",
    "@ Apr 16 11:00",
    "@Mon Apr 16 10:30:00 2018",
    "@ Mar 2",
    "@16",
    "@ 16 12:00",
    "@17 1:00",
    "@2018",
    "@ Apr 2018",
    "@ 16 Apr 2018",
    "@:20",
    "@:20:30",
    "@ Dec 31 23:59:60 2017",
    "@Mon",
    "@ 25:00",
    "@x",
    "x",
    "1 mumble",
    "@ 10:30 x",
    "@ 13 pm",
    "@ 0 10:30",
    "@",
    "-",
    "-1x",
    "@10:30:",
    "@ 10 am 2018",
    "9999days",
    "-9999days",
    "@ May",
    "@ Monday",
    "@ Feb 30",
    "@ 31",
    "1hour 30",
    "@ Apr 16 10:59:59.999999999 2018",
];
const ALIGNS: &[&str] = &["", "1min", "1hour", "7s", "1day", "400days", "0", "x", "0.25", "13 min 7 sec"];
const ZONES: &[&str] = &["UTC", "EST-11EST-10,89/2:00,299/2:00", "IST-5:30", "EST", "CET-1CEST,M3.5.0,M10.5.0/3"];

fn ours(line: &str, start: i64, end: i64, zone: &Zone) -> String {
    let mut fields = line.split('\t').map(|field| Some(field).filter(|field| !field.is_empty()));
    let mut next = || fields.next().flatten();
    let options = WindowOptions { start: next(), end: next(), align: next(), origin: next() };
    let Ok(window) = options.parse(stamp(start), Some(end).filter(|end| *end != 0).map(stamp), zone) else {
        return "error".to_owned();
    };
    let mut text = i32::from(window.warning.is_none()).to_string();
    let never = Stamp { seconds: i64::MAX, nanoseconds: 0 };
    for time in [window.start, window.end.unwrap_or(never), window.origin] {
        write!(text, " {}.{:09}", time.seconds, time.nanoseconds).unwrap();
    }
    text + " " + &zone.ctime(window.start.seconds)
}

fn lines() -> Vec<String> {
    let mut lines = Vec::new();
    for (nth, time) in TIMES.iter().enumerate() {
        for (mth, align) in ALIGNS.iter().enumerate() {
            let other = TIMES[(nth * 7 + mth * 11 + 3) % TIMES.len()];
            let third = TIMES[(nth * 5 + mth * 3 + 1) % TIMES.len()];
            lines.push(format!("{time}\t\t{align}\t"));
            lines.push(format!("\t{time}\t{align}\t"));
            lines.push(format!("\t\t{align}\t{time}"));
            lines.push(format!("{time}\t{other}\t{align}\t{third}"));
        }
    }
    lines
}

#[test]
#[ignore = "needs PCP"]
fn windows_as_in_libpcp() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("window");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/window.c");
    assert!(Command::new("gcc").arg("-o").arg(&program).args([source, "-lpcp"]).status().unwrap().success());
    let lines = lines();
    let (mut compared, mut errors, mut differences) = (0, 0, Vec::new());
    // An archive of six hours, one of four months over a change of the clock, and live values.
    let start = 1_523_836_800 * SECOND;
    for (start, end) in
        [(start + 123_456_789, start + 6 * 3600 * SECOND), (start, start + 10_000_000 * SECOND), (start, 0)]
    {
        for zone in ZONES {
            let mut child = Command::new(&program)
                .args([start.to_string(), end.to_string(), (*zone).to_owned()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = child.stdin.take().unwrap();
            let text = lines.join("\n") + "\n";
            let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
            let output = child.wait_with_output().unwrap();
            writer.join().unwrap();
            let theirs = String::from_utf8(output.stdout).unwrap();
            assert_eq!(theirs.lines().count(), lines.len());
            let zone = Zone::named(zone).unwrap();
            for (line, theirs) in lines.iter().zip(theirs.lines()) {
                let ours = ours(line, start, end, &zone);
                compared += 1;
                errors += usize::from(ours == "error");
                // What libpcp reads as words of getdate, relative to the current time, is an error here.
                let mut fields = line.split('\t').skip(2);
                // libpcp 6.0 computes the aligned origin of an open window by an overflow; 7.2 does not align it.
                let overflows = end == 0 && fields.all(|field| !field.is_empty());
                if ours != theirs && ours != "error" && !overflows {
                    differences.push(format!("{} {line:?} ({end}): {ours:?}, libpcp's {theirs:?}", zone.text()));
                }
            }
        }
    }
    println!("{compared} windows, {errors} of them errors");
    differences.truncate(40);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared > 20_000 && errors * 2 < compared);
}
