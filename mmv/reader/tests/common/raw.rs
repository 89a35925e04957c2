//! Valid and invalid files, byte by byte.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) const INDOMS: u32 = 1;
pub(crate) const INSTANCES: u32 = 2;
pub(crate) const METRICS: u32 = 3;
pub(crate) const VALUES: u32 = 4;
pub(crate) const STRINGS: u32 = 5;
pub(crate) const LABELS: u32 = 6;

/// The bytes of a file.
#[derive(Clone)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

/// A metric of version 1.
pub(crate) struct MetricV1 {
    pub(crate) name: &'static str,
    pub(crate) item: u32,
    pub(crate) ty: i32,
    pub(crate) indom: u32,
    pub(crate) short: u64,
    pub(crate) long: u64,
}

impl Default for MetricV1 {
    fn default() -> Self {
        MetricV1 { name: "badmmv", item: 1, ty: 1, indom: u32::MAX, short: 0, long: 0 }
    }
}

impl Raw {
    /// Creates a file of zeros with a valid header of version 1.
    pub(crate) fn new(len: usize, tocs: i32) -> Raw {
        let mut raw = Raw(vec![0; len.max(40)]);
        raw.put(0, b"MMV\0").i32(4, 1).u64(8, 1).u64(16, 1).i32(24, tocs);
        raw.0.truncate(len);
        raw
    }

    /// Writes bytes at an offset. Bytes beyond the end of the file are dropped.
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) -> &mut Raw {
        for (place, byte) in self.0.iter_mut().skip(at as usize).zip(bytes) {
            *place = *byte;
        }
        self
    }

    pub(crate) fn i32(&mut self, at: u64, n: i32) -> &mut Raw {
        self.put(at, &n.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, at: u64, n: u32) -> &mut Raw {
        self.put(at, &n.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, at: u64, n: u64) -> &mut Raw {
        self.put(at, &n.to_ne_bytes())
    }

    pub(crate) fn toc(&mut self, index: u64, section: u32, count: i32, offset: u64) -> &mut Raw {
        let at = 40 + 16 * index;
        self.u32(at, section).i32(at + 4, count).u64(at + 8, offset)
    }

    pub(crate) fn metric(&mut self, at: u64, m: &MetricV1) -> &mut Raw {
        self.put(at, m.name.as_bytes()).u32(at + 64, m.item).i32(at + 68, m.ty).i32(at + 72, 3);
        self.u32(at + 80, m.indom).u64(at + 88, m.short).u64(at + 96, m.long)
    }

    pub(crate) fn indom(&mut self, at: u64, serial: u32, count: i32, instances: u64) -> &mut Raw {
        self.u32(at, serial).i32(at + 4, count).u64(at + 8, instances)
    }

    pub(crate) fn instance(&mut self, at: u64, indom: u64, id: i32, name: &str) -> &mut Raw {
        self.u64(at, indom).i32(at + 12, id).put(at + 16, name.as_bytes())
    }

    pub(crate) fn value(&mut self, at: u64, word: u64, extra: i64, metric: u64, instance: u64) -> &mut Raw {
        self.u64(at, word).u64(at + 8, extra as u64).u64(at + 16, metric).u64(at + 24, instance)
    }
}

/// Returns the cases that badmmv of PCP's QA writes, with their names.
pub(crate) fn bad_files() -> Vec<(&'static str, Raw)> {
    let mut cases = bad_headers();
    cases.extend(bad_contents());
    cases.extend(bad_indoms());
    cases.extend(bad_metrics());
    cases
}

fn bad_headers() -> Vec<(&'static str, Raw)> {
    let header = |change: &dyn Fn(&mut Raw)| {
        let mut raw = Raw::new(40, 2);
        change(&mut raw);
        raw
    };
    vec![
        ("header_short", Raw::new(8, 2)),
        ("header_magic", header(&|raw| _ = raw.put(0, b"MMv\0"))),
        ("header_version", header(&|raw| _ = raw.i32(4, 9999))),
        ("header_cluster", header(&|raw| _ = raw.i32(36, 1 << 26))),
        ("header_no_contents", Raw::new(40, 0)),
        ("header_negative_contents", Raw::new(40, -1)),
    ]
}

fn bad_contents() -> Vec<(&'static str, Raw)> {
    let len = 72 + 104 + 32 + 256;
    let contents = |section, count| {
        let mut raw = Raw::new(len, 2);
        raw.toc(0, section, count, 0).toc(1, STRINGS, 1, 72);
        raw
    };
    let mut short = Raw::new(48, 2);
    short.toc(0, METRICS, 5, 0);
    // The header is claimed to be a value, and also that value's metric.
    let mut header = Raw::new(len, 2);
    header.toc(0, METRICS, -1, 0).toc(1, VALUES, 1, 0).u64(8, 0).u64(16, 0);
    vec![
        ("contents_header", header),
        ("contents_short", short),
        ("contents_section", contents(0x270f, 1)),
        ("contents_empty", contents(METRICS, 0)),
        ("contents_negative", contents(METRICS, -1)),
    ]
}

fn bad_indoms() -> Vec<(&'static str, Raw)> {
    let file = |len, count| {
        let mut raw = Raw::new(len, 2);
        raw.toc(0, INDOMS, 1, 72).toc(1, INSTANCES, 1, 104);
        raw.indom(72, 1, count, 104).instance(104, 72, 1, "ii");
        raw
    };
    let text = |at: u64| {
        let mut raw = Raw::new(72 + 32 + 80 + 1, 3);
        raw.toc(0, INDOMS, 1, 88).toc(1, INSTANCES, 1, 120).toc(2, STRINGS, 1, 200);
        raw.indom(88, 1, 1, 120).u64(88 + at, 200).instance(120, 88, 1, "ii");
        raw
    };
    vec![
        ("indoms_short", file(73, 1)),
        ("indoms_short_instances", file(105, 1)),
        ("indoms_empty", file(184, 0)),
        ("indoms_negative", file(184, -1)),
        ("indoms_short_help", text(24)),
        ("indoms_short_line", text(16)),
    ]
}

fn bad_metrics() -> Vec<(&'static str, Raw)> {
    let two = |len, metric: u64| {
        let mut raw = Raw::new(len, 2);
        raw.toc(0, METRICS, 1, 72).toc(1, VALUES, 1, 176);
        raw.metric(72, &MetricV1::default()).value(176, 0, 0, metric, 0);
        raw
    };
    let three = |metric: &MetricV1, extra| {
        let mut raw = Raw::new(88 + 104 + 32 + 1, 3);
        raw.toc(0, METRICS, 1, 88).toc(1, VALUES, 1, 192).toc(2, STRINGS, 1, 224);
        raw.metric(88, metric).value(192, 0, extra, 88, 0);
        raw
    };
    let mut short = two(73, 72);
    short.u64(8, 0).u64(16, 0);
    vec![
        ("metrics_short", short),
        ("metrics_short_values", two(177, 72)),
        ("metrics_back_pointer", two(208, 209)),
        ("metrics_short_string", three(&MetricV1 { ty: 6, ..MetricV1::default() }, 224)),
        ("metrics_short_help", three(&MetricV1 { long: 224, ..MetricV1::default() }, 0)),
        ("metrics_short_line", three(&MetricV1 { short: 224, ..MetricV1::default() }, 0)),
    ]
}

/// Returns a file without a cluster, with one metric.
pub(crate) fn one_metric(name: &'static str) -> Raw {
    let mut raw = Raw::new(72 + 104 + 32, 2);
    raw.toc(0, METRICS, 1, 72).toc(1, VALUES, 1, 176);
    raw.metric(72, &MetricV1 { name, ..MetricV1::default() }).value(176, 1, 0, 72, 0);
    raw
}
