//! Time windows and zones compared with libpcp.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::process::Command;

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

/// The current time of the comparisons, a Thursday.
const NOW: i64 = 1_526_567_890 * SECOND;

fn ours(line: &str, start: i64, end: i64, zone: &Zone) -> String {
    let mut fields = line.split('\t').map(|field| Some(field).filter(|field| !field.is_empty()));
    let mut next = || fields.next().flatten();
    let options = WindowOptions { start: next(), end: next(), align: next(), origin: next() };
    let end = Some(end).filter(|end| *end != 0).map(stamp);
    let Ok(window) = options.parse_at(stamp(NOW), stamp(start), end, zone) else {
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
// Slow: libpcp computes many windows.
fn windows_as_in_libpcp() {
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/window.c");
    let program = testkit::compile(source, &dir, &["-lpcp"]);
    let lines = lines();
    let (mut compared, mut errors, mut differences) = (0, 0, Vec::new());
    // An archive of six hours, one of four months over a change to daylight saving time, and live values.
    let start = 1_523_836_800 * SECOND;
    for (start, end) in
        [(start + 123_456_789, start + 6 * 3600 * SECOND), (start, start + 10_000_000 * SECOND), (start, 0)]
    {
        for zone in ZONES {
            let arguments = [start.to_string(), end.to_string(), (*zone).to_owned(), NOW.to_string()];
            let theirs = testkit::answers(Command::new(&program).args(arguments), &(lines.join("\n") + "\n"));
            assert_eq!(theirs.lines().count(), lines.len());
            let zone = Zone::named(zone).unwrap();
            for (line, theirs) in lines.iter().zip(theirs.lines()) {
                let ours = ours(line, start, end, &zone);
                compared += 1;
                errors += usize::from(ours == "error");
                let mut fields = line.split('\t').skip(2);
                // libpcp 6.0 computes the aligned origin of an open window by an overflow; 7.2 does not align it.
                let overflows = end == 0 && fields.all(|field| !field.is_empty());
                if ours != theirs && !overflows {
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

/// Words of dates. Some are invalid, or have a meaning only for our parser.
const ITEMS: [&[&str]; 7] = [
    &[
        "10:30",
        "5pm",
        "12 am",
        "12:01:02 p.m.",
        "23:59:59",
        "7",
        "0915",
        "1730",
        "10:30 +0200",
        "1:02:03 -0530",
        "10:30 +99999",
        "25:00",
        "13 pm",
    ],
    &[
        "16 Apr",
        "16-Apr-2018",
        "Apr 16, 2017",
        "april 16",
        "4/16",
        "4/16/18",
        "2019/3/4",
        "2018-12-01",
        "sept. 9",
        "may 3 1971",
        "28 feb 99",
        "13/13",
        "Feb 30",
        "1 jan 68",
    ],
    &["monday", "tue", "Wednes,", "next friday", "last sunday", "third thurs", "-1 sat", "saturday", "this sunday"],
    &["yesterday", "tomorrow", "today", "2 tomorrow", "-3 yesterday"],
    &[
        "now",
        "1 month",
        "last month",
        "3 days ago",
        "1 year",
        "-1 week",
        "2 fortnights ago",
        "+5 minutes",
        "year",
        "next week",
        "last hour",
        "10 sec",
        "-90 mins",
        "4 months ago",
        "12 hours",
        "second",
        "this week",
        "1 day 2 hours ago",
        "day ago",
    ],
    &["utc", "EST", "edt", "cet dst", "bst", "e.s.t", "z", "j", "nzdt", "Q"],
    &["(a comment)", "-", "+", ",", "2018", "ago", "x", "noon", "dst", "/", "( open", "1:2:3:4", "%", "2020"],
];

/// Returns dates of one to four items, each with a different mixture of kinds.
fn dates() -> Vec<String> {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    // A number before a day of the week means that many of these days, so this date is tested separately.
    let numbers = ["20180416", "20180416 10:30", "5 pm 20180416"];
    let mut found: Vec<String> = [&ITEMS.concat()[..], &numbers].concat().into_iter().map(str::to_owned).collect();
    while found.len() < 4000 {
        let items: Vec<&str> = (0..2 + random(3))
            .map(|_| {
                // The last kind has mistakes.
                let kind = ITEMS[random(ITEMS.len() + 12) % ITEMS.len()];
                kind[random(kind.len())]
            })
            .collect();
        let text = items.join(" ");
        found.push(match random(8) {
            0 => text.to_uppercase(),
            1 => format!(" @ {text}"),
            2 => format!("+{text} "),
            3 => format!("@{text}"),
            _ => text,
        });
    }
    found
}

#[test]
#[ignore = "needs PCP"]
// Slow: libpcp reads many dates.
fn dates_in_words_as_in_libpcp() {
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/window.c");
    let program = testkit::compile(source, &dir, &["-lpcp"]);
    let dates = dates();
    // The dates are the end of the window, which may be before its start: so each time is shown as it was parsed.
    let input: String = dates.iter().map(|date| format!("\t{date}\t\t\n")).collect();
    let (mut times, mut errors, mut differences) = (0, 0, Vec::new());
    let start = 1_523_836_800 * SECOND;
    for (start, end) in [(start + 123_456_789, start + 7 * 3600 * SECOND), (start, 4_000_000_000 * SECOND)] {
        for zone in ZONES {
            let arguments = [start.to_string(), end.to_string(), (*zone).to_owned(), NOW.to_string()];
            let theirs = testkit::answers(Command::new(&program).args(arguments), &input);
            let zone = Zone::named(zone).unwrap();
            for (date, theirs) in dates.iter().zip(theirs.lines()) {
                let ours = ours(&format!("\t{date}\t\t"), start, end, &zone);
                // libpcp adds an hour in a summer whose clocks are an hour behind; dates of ISO 8601 are local times here.
                let is_iso = date.starts_with("2018-12-01") && zone.text().starts_with("EST-11EST-10");
                match () {
                    () if ours == theirs && ours == "error" => errors += 1,
                    () if ours == theirs => times += 1,
                    () if is_iso => (),
                    () => differences.push(format!("{} {date:?} ({end}): {ours:?}, libpcp's {theirs:?}", zone.text())),
                }
            }
            assert_eq!(theirs.lines().count(), dates.len());
        }
    }
    println!("{times} times, {errors} errors, {} differences", differences.len());
    differences.truncate(40);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(times > 10_000 && errors > 5000, "{times} {errors}");
}

#[test]
fn dates_that_do_not_exist() {
    let zone = Zone::named("UTC").unwrap();
    let start = stamp(1_517_400_000 * SECOND);
    let parsed = |text: &str| {
        let options = WindowOptions { start: Some(text), ..WindowOptions::default() };
        options.parse_at(start, start, Some(stamp(4_000_000_000 * SECOND)), &zone).map(|window| window.start.seconds)
    };
    assert_eq!(parsed("2 days"), Ok(1_517_400_000 + 2 * 86_400));
    assert_eq!(parsed("next day"), Ok(1_517_400_000 + 2 * 86_400));
    assert_eq!(parsed("2018-02-01T10:30:00Z"), Ok(1_517_481_000));
    // From the 31st of January: the day is missing in the month, the number too large, the year before 1970.
    for text in [
        "1 month",
        "30 feb",
        "9223372036854775807 years",
        "9223372036854775807 weeks 9223372036854775807 weeks",
        "99999999999999999999 days",
        "1 jan 1969",
        "9999999999999999 monday",
        "-9223372036854775807 fortnights ago",
        "-9223372036854775807 sec -1 sec ago",
        "-9223372036854775807 months -1 month ago",
        "@10:30 +9223372036854775807",
        "@10:30 -9223372036854775807",
        "@10:30 -92233720368547758",
        "@0:00 +92233720368547758",
        "12345678901234567 jan",
        "\u{e9}t\u{e9}",
        "monday\u{a0}",
        "1:2:3:",
        "\0",
    ] {
        assert!(parsed(text).is_err_and(|e| e.to_string().lines().count() > 0), "{text:?}: {:?}", parsed(text));
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(512))]

    #[test]
    fn any_date(text in "(@|[-+])?(([0-9]{1,20}|[a-z]{1,4}\\.?|next|last|ago|month|year|day|monday|feb|tomorrow|[-+/:,(). ]|pm|\\PC) ?){0,8}", now in proptest::num::i64::ANY) {
        let zone = Zone::named("EST-11EST-10,89/2:00,299/2:00").unwrap();
        let options = WindowOptions { start: Some(&text), end: Some(&text), origin: Some(&text), align: None };
        for end in [None, Some(stamp(now))] {
            if let Ok(window) = options.parse_at(stamp(now), stamp(now / 2), end, &zone) {
                proptest::prop_assert!(window.start >= stamp(now / 2));
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(512))]

    #[test]
    fn any_offset(text in "@[0-9]{1,2}:[0-9]{2} [+-][0-9]{1,19}") {
        let zone = Zone::named("UTC").unwrap();
        let options = WindowOptions { end: Some(&text), ..WindowOptions::default() };
        // A panic, or a time that has wrapped around, is a bug.
        if let Ok(window) = options.parse_at(stamp(NOW), stamp(0), None, &zone) {
            let end = window.end.unwrap().seconds;
            proptest::prop_assert!((0..253_402_000_000).contains(&end), "{}", end);
        }
    }
}

/// A hostile archive may start at any time.
#[test]
fn a_day_before_all_times() {
    let zone = Zone::named("EST-11").unwrap();
    let first = Stamp { seconds: i64::MIN, nanoseconds: 0 };
    for text in ["( year", "utc ( year", "@( day", "-1 year"] {
        let options = WindowOptions { start: Some(text), ..WindowOptions::default() };
        assert!(options.parse_at(stamp(NOW), first, None, &zone).is_err(), "{text}");
    }
}
