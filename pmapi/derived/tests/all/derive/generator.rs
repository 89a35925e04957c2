//! Pseudo-random expressions, valid and invalid, the same in every run.
//!
//! They avoid features that libpcp 6.0.3 does not support.

use super::tokens;

/// Number of operands without units that are not counters.
const PLAIN: usize = 23;
pub(crate) const OPERANDS: &[&str] = &[
    "sample.long.one",
    "sample.long.ten",
    "sample.long.hundred",
    "sample.long.million",
    "sample.ulong.ten",
    "sample.ulong.hundred",
    "sample.longlong.ten",
    "sample.longlong.million",
    "sample.ulonglong.ten",
    "sample.ulonglong.hundred",
    "sample.float.ten",
    "sample.float.hundred",
    "sample.double.ten",
    "sample.double.million",
    "sample.write_me",
    "sample.bin",
    "sample.part_bin",
    "sample.ulong.bin",
    "sample.longlong.bin",
    "sample.ulonglong.bin",
    "sample.float.bin",
    "sample.double.bin",
    "sample.scramble.bin",
    "sampledso.bin",
    "sample.bucket",
    "sample.colour",
    "sample.load",
    "sample.step",
    "sample.step_counter",
    "sample.darkness",
    "sample.noinst",
    "sample.mirage",
    "sample.byte_ctr",
    "sample.kbyte_ctr",
    "sample.byte_rate",
    "sample.kbyte_rate",
    "sample.byte_rate_perhour",
    "sample.seconds",
    "sample.milliseconds",
    "sample.string.hullo",
    "sample.aggregate.hullo",
    "sample.bad.unknown",
    "sample.bad.novalues",
    "sample.no.such",
    "sample.wrap.long",
    "sample.longlong.bin_ctr",
    "sample.double.bin_ctr",
    "sample.float.bin_ctr",
    "sample.ulonglong.bin_ctr",
    "sample.drift",
    "sample.pdu",
    "sample.recv_pdu",
    "sample.const_rate.value",
    "kernel.all.cpu.user",
    "kernel.all.load",
    "kernel.all.uptime",
    "kernel.percpu.cpu.user",
    "kernel.percpu.cpu.idle",
    "mem.util.free",
    "mem.physmem",
    "hinv.ncpu",
    "network.interface.in.bytes",
    "network.interface.out.packets",
];

const INSTANCES: &[&str] = &["bin-100", "bin-300", "red", "lo", "cpu0", "1 minute", "5 minute", "none such", "m-00"];
const PATTERNS: &[&str] =
    &["bin-[1-5]00", "^lo", "0$", "cpu", "(red|blue)", "[^0-9]+", "minute", "a*b?c+", "[[:alpha:]]"];
const UNITS: &[&str] =
    &["byte", "Kbyte", "Mbyte/sec", "msec", "sec", "hour", "count", "count/sec", "none", "Kbyte / hour", "10^3 count"];
const NUMBERS: &[&str] = &["0", "1", "2", "100", "4294967295", "0.5", "1.", ".25", "1000000", "3.14159"];

/// Pseudo-random numbers (xorshift), the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % below
    }

    pub(crate) fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.next(list.len())]
    }

    /// Returns an operand, mostly one without units that is not a counter.
    fn name(&mut self) -> String {
        let all = self.next(4) == 0;
        self.of(if all { OPERANDS } else { &OPERANDS[..PLAIN] }).to_owned()
    }

    fn expr(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.next(5) {
                0 => self.of(NUMBERS).to_owned(),
                _ => self.name(),
            };
        }
        let depth = depth - 1;
        match self.next(20) {
            0..=7 => {
                let op =
                    self.of(&["+", "-", "*", "/", "+", "-", "*", "/", "<", "<=", "==", ">=", ">", "!=", "&&", "||"]);
                let space = if self.next(4) == 0 { "" } else { " " };
                format!("{}{space}{op}{space}{}", self.expr(depth), self.expr(depth))
            }
            8 => format!("({})", self.expr(depth)),
            9 => format!("-{}", self.expr(depth)),
            10 if self.next(2) == 0 => format!("!{}", self.expr(depth)),
            10 | 11 => {
                let function = self.of(&["avg", "count", "max", "min", "sum", "defined", "delta", "rate", "instant"]);
                format!("{function}({})", self.name())
            }
            12 => format!("scalar({})", self.expr(depth)),
            13 => format!("rescale({}, \"{}\")", self.expr(depth), self.of(UNITS)),
            // The oracle needs a separate process for each of these.
            14 | 16 if self.next(3) > 0 => self.expr(0),
            14 => format!("matchinst({}/{}/, {})", self.of(&["", "!"]), self.of(PATTERNS), self.expr(depth)),
            15 => format!("{}[{}]", self.name(), self.of(INSTANCES)),
            16 => format!("({})[{}]", self.expr(depth), self.of(INSTANCES)),
            17 => {
                let guard =
                    format!("{} {} {}", self.name(), self.of(&["<", ">", "==", "!="]), self.of(&["1", "100", "400"]));
                format!("({guard} ? {} : {})", self.expr(depth), self.expr(depth))
            }
            18 => {
                let ty = self.of(&["32", "u32", "64", "U64", "float", "DOUBLE"]);
                let semantics = self.of(&["counter", "instant", "discrete"]);
                format!("mkconst({}, type={ty}, semantics={semantics}, units=\"{}\")", self.next(1000), self.of(UNITS))
            }
            _ => self.expr(0),
        }
    }

    /// Changes a token of the expression, which mostly makes it invalid.
    pub(crate) fn spoil(&mut self, expr: &str) -> String {
        let tokens = tokens::split(expr);
        let other = self.of(&tokens::all());
        let at = self.next(tokens.len());
        let (before, after) = (tokens[..at].concat(), tokens[at + 1..].concat());
        match self.next(4) {
            0 => before + &after,
            1 => format!("{before} {other} {}{after}", tokens[at]),
            2 => format!("{before}{other}{after}"),
            _ => before,
        }
    }
}

/// Returns expressions, except those that mean something else to libpcp 6.0.3.
pub(crate) fn expressions(count: usize) -> Vec<(String, String)> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut expressions = Vec::new();
    while expressions.len() < count {
        let depth = 1 + random.next(3);
        let mut expr = random.expr(depth);
        if random.next(3) == 0 {
            expr = random.spoil(&expr);
        }
        // An agent decides which instance an empty name means; a `\` at the end would join the next line of a file.
        if !expr.trim().is_empty() && !is_newer(&expr) && !expr.contains("[]") && !expr.ends_with('\\') {
            expressions.push((format!("g.e{}", expressions.len()), expr.trim_start().to_owned()));
        }
    }
    expressions
}

/// Returns whether libpcp 6.0.3 does not support an expression: some functions, tags and units; `delta`, `rate` and
/// `instant` of anything but a name; and expressions with another meaning there.
pub(crate) fn is_newer(expr: &str) -> bool {
    let takes_name = |rest: &str| {
        let name = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        let keyword = ["type", "semantics", "units", "indom"].iter().any(|word| rest.trim_start().starts_with(word));
        rest.trim_start().starts_with(|c: char| c.is_ascii_alphabetic())
            && name.trim_start().starts_with(')')
            && !keyword
    };
    let has_meta =
        expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).any(|word| word == "meta");
    let newer = ["novalue", "indom", "temperature", "voltage", "current", "power"];
    has_meta
        || newer.iter().any(|word| expr.contains(word))
        || ["delta(", "rate(", "instant("].iter().any(|word| expr.split(word).skip(1).any(|rest| !takes_name(rest)))
}

/// Returns whether libpcp 6.0.3 lacks this reason of a syntax error.
pub(crate) fn is_newer_reason(reason: &str) -> bool {
    reason.ends_with("follow mkconst(type") || reason.contains("Unrecognized value") && reason.contains('.')
}

/// Returns the documented reason why an answer may differ from libpcp's; `None` if it must not differ.
pub(crate) fn listed(expr: &str, is_counter: impl Fn(&str) -> bool) -> Option<&'static str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let has_counter = expr.contains("semantics=counter") || expr.split(word).any(is_counter);
    let negation = expr.replace("!=", "==").replace("matchinst(!", "matchinst(").contains('!');
    let has = |texts: &[&str]| texts.iter().any(|text| expr.contains(text));
    match () {
        _ if negation => Some("negation"),
        _ if has_counter && has(&["<", ">", "==", "!=", "&&", "||", "*", "/"]) => Some("semantics with a counter"),
        _ if has(&["?"]) => Some("ternary by instance"),
        _ if has(&["min(", "max("]) => Some("largest of nothing"),
        _ if has(&["mkconst("]) && has(&["+", "-", "*", "/"]) => Some("scale of a constant"),
        _ => None,
    }
}

/// Number of definitions that libpcp gets at once.
pub(crate) const BATCH: usize = 100;

/// Groups definitions for libpcp. Definitions that may affect its parser for later ones are alone in their group.
pub(crate) fn batches(definitions: &[(String, String)]) -> Vec<Vec<&(String, String)>> {
    let is_alone = |expr: &str| expr.contains("matchinst") || expr.contains(")[");
    let (alone, together): (Vec<_>, Vec<_>) = definitions.iter().partition(|(_, expr)| is_alone(expr));
    together.chunks(BATCH).chain(alone.chunks(1)).map(<[_]>::to_vec).collect()
}

/// Calls `ask` with each group of definitions. If `ask` returns false, because they crash libpcp, it is called with each
/// half of the group. Returns the definitions that crash libpcp alone.
pub(crate) fn in_groups(
    definitions: &[(String, String)],
    mut ask: impl FnMut(&[&(String, String)]) -> bool,
) -> Vec<&(String, String)> {
    let (mut groups, mut deadly) = (batches(definitions), Vec::new());
    while let Some(group) = groups.pop() {
        match &group[..] {
            group if ask(group) => {}
            [definition] => deadly.push(*definition),
            group => groups.extend(group.chunks(group.len().div_ceil(2)).map(<[_]>::to_vec)),
        }
    }
    deadly
}
