//! Documents and configurations, and damage to them.

use crate::rng::Rng;
use crate::texts::damage::damage as any;

/// Documents of exporters, and of PCP's agent.
const DOCUMENTS: [&str; 8] = [
    "# HELP letters_total Letters that the post has carried.\n# TYPE letters_total counter\n\
     letters_total{by=\"air\",class=\"first\"} 512 1700000000000\nletters_total{by=\"ship\",class=\"second\"}    7 1700000000000\n\n\
     # The name of a file, and a quotation:\nopened_seconds{path=\"D:\\\\mail\\\\in.txt\",said=\"not here:\\n\\\"in.txt\\\"\"} \
     1.7e9\n\n# No labels:\nstamps 31.4\n\nodd{why=\"no number\"} +Inf -77\n",
    "# HELP walk_seconds How long a letter carrier walks.\n# TYPE walk_seconds histogram\nwalk_seconds_bucket{le=\"60\"} 3\n\
     walk_seconds_bucket{le=\"600\"} 44\nwalk_seconds_bucket{le=\"+Inf\"} 50\nwalk_seconds_sum 9000.5\nwalk_seconds_count 50\n",
    "# TYPE rpc summary\n# UNIT rpc seconds\nrpc{quantile=\"0.01\"} 11\nrpc{quantile=\"0.99\"} 222\nrpc_sum 3.5e+04\n\
     rpc_count 420\nrpc_created 1700000000.5\n# TYPE foo histogram\nfoo_bucket{le=\"0.01\"} 0\n\
     foo_bucket{le=\"1.0\"} 11 # {trace_id=\"KOO5S4vxi0o\"} 0.67\nfoo_bucket{le=\"10.0\"} 17 # {trace_id=\"oHg5SJ\"} 9.8 \
     1520879607.789\nfoo_count 17\n# EOF\n",
    "# PCP5 disk.dev.read 60.0.4 u64 60.1 counter count\n# HELP disk_dev_read per-disk reads\n# TYPE disk_dev_read counter\n\
     disk_dev_read{instname=\"sda\",instid=\"0\"} 18446744073709551615\ndisk_dev_read{instname=\"sdb\",instid=\"1\"} 5\n\
     # PCP5 kernel.uname 60.12.0 string PM_INDOM_NULL discrete none\nkernel_uname \"Linux\"\n",
    "# PCP mem.util instant Kbyte\n# TYPE mem_util gauge\nmem_util 123456\n# PCP a.b counter\na_b{instance=\"x y\"} -1e3\n",
    "{\"utf8.name\",\"a b\"=\"c\"} 1\n{\"my metric\"} 2\ncolon:name{x=\"\u{e9}\"} 3\nodd{a=\"1\",a=\"2\",} NaN\n\u{fc}mlaut 4\n",
    "# TYPE go_info gauge\r\ngo_info{version=\"go1.21\"} 1\r\n# TYPE up untyped\r\nup 1\r\n\r\n",
    "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 1_000.5\nnode_cpu_seconds_total{cpu=\"0\",mode=\"user\"} .5\n\
     node_cpu_seconds_total{cpu=\"1\",mode=\"idle\"} 5.\nnode_cpu_seconds_total{cpu=\"1\",mode=\"user\"} 1e400\n",
];

/// Lines of `.url` files.
const LINES: [&str; 25] = [
    "# a comment",
    "HEADER: X-Test: a: b",
    "HEADER: Accept: text/plain",
    "FILTER: INCLUDE METRIC l.*",
    "FILTER: EXCLUDE METRIC (a|b)*_total$",
    "FILTER: OPTIONAL LABEL [a-m].*",
    "FILTER: EXCLUDE LABEL .*",
    "FILTER: EXCLUDE METRIC \\p{L}{1,40}",
    "METADATA: .* u64 60.1 counter byte / sec",
    "METADATA: l.* string PM_INDOM_NULL discrete none",
    "TIMEOUT: 300msec",
    "WAIT: 10msec",
    "INTERVAL: 1sec",
    "INSTANCES: 20",
    "BYTES: 3000",
    "BEARER: /etc/hostname",
    "BASIC: /nonexistent",
    "AUTHORITIES: /etc/hostname",
    "CERTIFICATE: /dev/zero",
    "KEY: /etc/shadow",
    "SOCKET: /dev/log",
    "BACKOFF: 1sec",
    "EXEMPLARS: metrics",
    "FORMAT: openmetrics",
    "",
];

/// Strings with a meaning in documents and configurations.
const PIECES: [&[u8]; 40] = [
    b"{",
    b"}",
    b"{}",
    b"\"",
    b"=\"",
    b"\",",
    b"\\\"",
    b"\\\\",
    b"\\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"\t",
    b" ",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xc2\xa0",
    b"\x1c",
    b"\xef\xbb\xbf",
    b"\xff",
    b"# TYPE ",
    b"# HELP ",
    b"# UNIT ",
    b"# EOF\n",
    b"# PCP5 ",
    b"# PCP5 a.b 1.2.3 u32 1.2 counter none\n",
    b"# PCP ",
    b" # {} 1",
    b"NaN",
    b"-Inf",
    b"1e-400",
    b"18446744073709551616",
    b"_1_0",
    b"{a=\"b\"} 1\n",
    b"instance=\"1\",",
    b"instname=\"\",",
    b"le=\"+Inf\"",
    b"{\"x\"} 1\n",
    b"control 1\n",
    b"a..b 1\n",
];

/// Returns a line with a known value, followed by a damaged document.
pub(super) fn document(rng: &mut Rng) -> Vec<u8> {
    let mut text = rng.pick(&DOCUMENTS).as_bytes().to_vec();
    if rng.one_in(3) {
        text.extend_from_slice(rng.pick(&DOCUMENTS).as_bytes());
    }
    damage(rng, &mut text);
    let mut whole = b"honest 12345\n".to_vec();
    whole.append(&mut text);
    whole
}

/// Returns a damaged `.url` file. In most cases its URL is valid.
pub(super) fn url_file(rng: &mut Rng) -> String {
    let mut text = Vec::new();
    for _ in 0..rng.below(8) {
        text.extend_from_slice(rng.pick(&LINES).as_bytes());
        text.push(b'\n');
    }
    damage(rng, &mut text);
    let first = if rng.one_in(16) { "" } else { "http://localhost/metrics\n" };
    format!("{first}{}", String::from_utf8_lossy(&text))
}

/// Damages a text by a few random changes, half of which insert strings from documents.
pub(super) fn damage(rng: &mut Rng, text: &mut Vec<u8>) {
    if rng.one_in(2) {
        return any(rng, text);
    }
    for _ in 0..=rng.below(5) {
        let at = rng.below(text.len() + 1);
        let end = (at + rng.below(30)).min(text.len());
        let piece = PIECES.get(rng.below(PIECES.len())).copied().unwrap_or_default();
        match rng.below(8) {
            0 => drop(text.splice(at..end, piece.iter().copied())),
            1 => drop(text.splice(at..at, piece.repeat(1 << rng.below(10)))),
            2 => drop(text.drain(at..end)),
            3 => lines(rng, text, at),
            _ => drop(text.splice(at..at, piece.iter().copied())),
        }
    }
}

/// Inserts very many lines: metrics, instances of one metric, labels, or one long line.
fn lines(rng: &mut Rng, text: &mut Vec<u8>, at: usize) {
    let count = 1 << rng.below(12);
    let kind = rng.below(4);
    let all: String = match kind {
        0 => (0..count).map(|n| format!("metric{n} {n}\n")).collect(),
        1 => (0..count).map(|n| format!("many{{n=\"{n}\"}} {n}\n")).collect(),
        2 => (0..count).map(|n| format!("l{n}=\"{n}\",")).collect(),
        _ => "x".repeat(4 * count),
    };
    text.splice(at..at, all.into_bytes());
}
