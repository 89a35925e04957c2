//! Values as pmPrintValue(3) prints them.

use pcp_pdu::result::RawValue;
use pmapi::Type;

use crate::libpcp::{Random, compare, hex};

#[derive(Debug, Clone)]
enum Value {
    Word(u32),
    /// Type code and payload in network byte order.
    Block(u8, Vec<u8>),
}

#[derive(Debug, Clone)]
struct Case {
    value: Value,
    /// Code of the metric's type, 255 for `PM_TYPE_UNKNOWN`.
    ty: i32,
    width: usize,
}

impl Case {
    fn question(&self) -> String {
        let Case { ty, width, .. } = self;
        match &self.value {
            Value::Word(word) => format!("print 0 {ty} {width} 0 {word:x}"),
            Value::Block(code, payload) => {
                let mut host = payload.clone();
                if (2..=5).contains(code) {
                    host.reverse();
                }
                format!("print 1 {ty} {width} {code} {}", hex(host))
            }
        }
    }

    fn ours(&self) -> Vec<u8> {
        let raw = match &self.value {
            Value::Word(word) => RawValue::InSitu(*word),
            Value::Block(code, payload) => RawValue::Block(*code, payload),
        };
        raw.print(Type::from_code(self.ty).ok(), self.width).verbatim().to_bytes()
    }
}

#[test]
#[ignore = "needs PCP"]
fn words() {
    let mut random = Random(11);
    let cases: Vec<_> = (0..30_000)
        .map(|_| {
            let word =
                random.pick(&[0, 1, u32::MAX, 0x8000_0000, 0x7fc0_0000, random.0 as u32, random.0 as u32 & 0xff]);
            random.next();
            let ty = random.pick(&[-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255]);
            Case { value: Value::Word(word), ty, width: random.below(20) }
        })
        .collect();
    compare(&cases, &[], Case::question, |case, _| case.ours());
}

#[test]
#[ignore = "needs PCP"]
fn blocks() {
    let mut random = Random(12);
    let texts: [&[u8]; 8] =
        [b"", b"abc\0", b"with space\0", b"line\nbreak\ttab\0", b"text", b"a\0b\0", b"\xff\xfe\0", b"12345678"];
    let cases: Vec<_> = (0..60_000)
        .map(|_| {
            let code: u8 = random.pick(&[0, 2, 3, 4, 5, 6, 7, 8]);
            let ty =
                if random.below(4) > 0 { i32::from(code) } else { random.pick(&[-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 255]) };
            let payload = match code {
                6 | 7 if random.below(2) == 0 => random.pick(&texts).to_vec(),
                _ => {
                    let bits = random.next();
                    let number = (random.next() as f64 * random.pick(&[1e-30, 1e-19, 1e-12, 1.0, 1e10])).to_bits();
                    let special =
                        random.pick(&[0, 1, u64::MAX, f64::NAN.to_bits(), f64::INFINITY.to_bits(), 4.0_f64.to_bits()]);
                    let eight = random.pick(&[bits, number, special]).to_be_bytes();
                    let four = ((random.next() as f64 * 1e-15) as f32).to_be_bytes();
                    match (code, random.below(8)) {
                        (_, 0) => eight[..random.below(9)].to_vec(),
                        (4, _) => four.to_vec(),
                        _ => eight.to_vec(),
                    }
                }
            };
            // The byte order of a number with another size or no type code is unknown.
            let ty = if code == 0 { random.pick(&[0, 6, 7, 255]) } else { ty };
            let code = if (2..=5).contains(&code) && payload.len() % 4 != 0 { 7 } else { code };
            Case { value: Value::Block(code, payload), ty, width: random.below(25) }
        })
        .collect();
    compare(&cases, &[], Case::question, |case, _| case.ours());
}

#[test]
#[ignore = "needs PCP"]
fn events() {
    let mut random = Random(13);
    for highres in [false, true] {
        let cases: Vec<_> = (0..3000).map(|_| Events::random(&mut random, highres)).collect();
        compare(
            &cases,
            &[],
            |events| format!("print 2 {} 0 {} {}", events.code(), events.code(), hex(&events.host)),
            |events, _| {
                let ty = Type::from_code(events.code().into()).ok();
                RawValue::Block(events.code(), &events.wire).print(ty, 0).to_bytes()
            },
        );
    }
}

/// Event value in network byte order and in the host's byte order.
#[derive(Debug)]
struct Events {
    highres: bool,
    wire: Vec<u8>,
    host: Vec<u8>,
}

impl Events {
    fn code(&self) -> u8 {
        if self.highres { 10 } else { 9 }
    }

    fn random(random: &mut Random, highres: bool) -> Events {
        let mut events = Events { highres, wire: Vec::new(), host: Vec::new() };
        let records = random.below(6);
        events.word(records as u32);
        for _ in 0..records {
            let (seconds, fraction) = (random.below(2_000_000_000) as u64, random.below(1_000_000) as u64);
            if highres {
                events.long(seconds);
                events.long(fraction * 997);
            } else {
                events.word(seconds as u32);
                events.word(fraction as u32);
            }
            if random.below(4) == 0 {
                events.word(1 << 31);
                events.word(random.below(5) as u32);
                continue;
            }
            let params = random.below(4);
            events.word(random.pick(&[0, 1, 2, 4, 9]));
            events.word(params as u32);
            for _ in 0..params {
                events.word(29 << 22 | 5);
                let len = random.below(10);
                let head = 7 << 24 | (len as u32 + 4);
                events.wire.extend(head.to_be_bytes());
                events.host.extend(head.to_le_bytes());
                for side in [&mut events.wire, &mut events.host] {
                    side.extend(std::iter::repeat_n(b'x', len.next_multiple_of(4)));
                }
            }
        }
        events
    }

    fn word(&mut self, word: u32) {
        self.wire.extend(word.to_be_bytes());
        self.host.extend(word.to_le_bytes());
    }

    fn long(&mut self, long: u64) {
        self.wire.extend(long.to_be_bytes());
        self.host.extend(long.to_le_bytes());
    }
}
