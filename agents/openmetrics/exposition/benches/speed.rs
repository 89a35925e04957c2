//! Speed of the parser on a document of 1,000 metrics with 10 instances, in MB/s, beside that of memchr, which only
//! finds the ends of lines. Run it with `cargo bench -p pcp-exposition`.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use exposition::{Line, Lines, Sample, number};

/// Time of one measurement.
const TIME: Duration = Duration::from_millis(500);
/// Number of measurements. The fastest one counts.
const ROUNDS: usize = 5;

fn document() -> String {
    let mut text = String::new();
    for metric in 0..1000 {
        let name = format!("bench_metric_{metric:04}_seconds_total");
        let _ = writeln!(text, "# HELP {name} Time that something took.\n# TYPE {name} counter");
        for instance in 0..10 {
            let _ =
                writeln!(text, "{name}{{device=\"eth{instance}\",host=\"h1.example.org\"}} {}", metric * 7 + instance);
        }
    }
    text
}

fn measure(what: &str, bytes: usize, mut run: impl FnMut() -> usize) -> f64 {
    let speed = |_| {
        let (begin, mut times) = (Instant::now(), 0);
        while begin.elapsed() < TIME {
            black_box(run());
            times += 1;
        }
        (times * bytes) as f64 / begin.elapsed().as_secs_f64() / 1e6
    };
    let best = (0..ROUNDS).map(speed).fold(0.0, f64::max);
    println!("{what:<40} {best:>8.0} MB/s");
    best
}

fn main() {
    let text = document();
    println!("{} bytes, {} lines", text.len(), Lines::new(&text).count());
    let find = measure("memchr: ends of lines", text.len(), || memchr::memchr_iter(b'\n', text.as_bytes()).count());
    let parsed = || Lines::new(&text).filter_map(|(_, line)| Line::parse(line).ok());
    let lines = measure("lines", text.len(), || parsed().count());
    measure("lines, labels and numbers", text.len(), || {
        let of = |sample: &Sample<'_>| sample.labels().count() + usize::from(number::float(sample.value()).is_some());
        parsed().map(|line| if let Line::Sample(sample) = line { of(&sample) } else { 0 }).sum()
    });
    let keys: Vec<&str> =
        parsed().filter_map(|line| if let Line::Sample(sample) = line { Some(sample.key()) } else { None }).collect();
    let known = measure("known keys, and numbers", text.len(), || {
        let (mut expected, mut numbers) = (keys.iter().peekable(), 0);
        for (_, line) in Lines::new(&text) {
            if let Some((value, _)) = expected.peek().and_then(|key| Sample::parse_known(line, key)) {
                numbers += usize::from(number::float(value).is_some());
                expected.next();
            }
        }
        numbers
    });
    println!("memchr is {:.1} times as fast as parsed lines, {:.1} times as known keys", find / lines, find / known);
}
