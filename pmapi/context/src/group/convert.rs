//! Conversion of the values of a fetch group: rates, scales and types.

use pmapi::cnum::{exponential, is_space, scan};
use pmapi::{Atom, Converted, Desc, Error, ParseUnitsError, Result, Semantics, TimeScale, Type, Units};

/// Value of a fetch group, in the requested type (`pmAtomValue`).
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// Value of [`Type::I32`].
    I32(i32),
    /// Value of [`Type::U32`].
    U32(u32),
    /// Value of [`Type::I64`].
    I64(i64),
    /// Value of [`Type::U64`].
    U64(u64),
    /// Value of [`Type::Float`].
    Float(f32),
    /// Value of [`Type::Double`].
    Double(f64),
    /// Value of [`Type::String`].
    String(Vec<u8>),
}

impl Value {
    /// Returns the value, borrowed.
    pub fn atom(&self) -> Atom<'_> {
        match self {
            Value::I32(value) => Atom::I32(*value),
            Value::U32(value) => Atom::U32(*value),
            Value::I64(value) => Atom::I64(*value),
            Value::U64(value) => Atom::U64(*value),
            Value::Float(value) => Atom::Float(*value),
            Value::Double(value) => Atom::Double(*value),
            Value::String(text) => Atom::String(text),
        }
    }

    fn of(atom: Atom<'_>) -> Result<Value> {
        Ok(match atom {
            Atom::I32(value) => Value::I32(value),
            Atom::U32(value) => Value::U32(value),
            Atom::I64(value) => Value::I64(value),
            Atom::U64(value) => Value::U64(value),
            Atom::Float(value) => Value::Float(value),
            Atom::Double(value) => Value::Double(value),
            Atom::String(text) => Value::String(text.to_vec()),
            _ => return Err(Error::TYPE),
        })
    }

    fn text(text: String) -> Value {
        Value::String(text.into_bytes())
    }
}

/// Why a conversion is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Type of the metric.
    From(Type),
    /// Requested type.
    To(Type),
    /// Syntax error in the scale.
    Scale(ParseUnitsError),
    /// Scale of another dimension.
    Units(Units),
}

/// Conversion of the values of a metric.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Conversion {
    pub(crate) is_rate: bool,
    /// Target units, and the factor to apply after the conversion.
    units: Option<(Units, f64)>,
    desc: Desc,
    to: Type,
}

/// Value of the previous sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'v> {
    /// Seconds between the samples.
    pub(crate) seconds: f64,
    pub(crate) value: Result<Atom<'v>>,
    pub(crate) wrap: CounterWrap,
}

/// What it means when the value of a counter decreases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum CounterWrap {
    /// The counter has been reset: its rate has no value (`PM_ERR_VALUE`).
    #[default]
    Refused,
    /// The counter has passed the largest number of its type, once (`$PCP_COUNTER_WRAP`).
    Once,
}

const fn is_supported(ty: Type) -> bool {
    ty.is_numeric() || matches!(ty, Type::String)
}

impl Conversion {
    /// Prepares the conversion to a scale: `None`, "rate", "instant", or units as of [`Units::parse`].
    pub(crate) fn new(desc: Desc, scale: Option<&str>, to: Type) -> Result<Conversion, Refusal> {
        if !is_supported(desc.ty) {
            return Err(Refusal::From(desc.ty));
        }
        if !is_supported(to) {
            return Err(Refusal::To(to));
        }
        let plain = |is_rate| Ok(Conversion { is_rate, units: None, desc, to });
        match scale {
            None => plain(desc.semantics == Semantics::Counter),
            Some("rate") => plain(true),
            Some("instant") => plain(false),
            Some(scale) => {
                let (units, factor) = Units::parse(scale).map_err(Refusal::Scale)?;
                let (is_rate, units) = scaled(desc.units, units, factor).ok_or(Refusal::Units(desc.units))?;
                Ok(Conversion { is_rate, units: Some(units), desc, to })
            }
        }
    }

    /// Converts a value. Only a rate uses `before`, which is `None` without a previous sample.
    pub(crate) fn convert(&self, now: Atom<'_>, before: Option<Before<'_>>) -> Result<Value> {
        if !self.is_rate && self.units.is_none() {
            return typed(now, self.to);
        }
        let now = double(now)?;
        let number = match (self.is_rate, before) {
            (false, _) => now,
            (true, None) => return Err(Error::AGAIN),
            (true, Some(before)) => self.rate(now, before)?,
        };
        stored(self.in_units(number)?, self.to)
    }

    fn rate(&self, now: f64, before: Before<'_>) -> Result<f64> {
        const SHORTEST: f64 = 1e-9;
        let mut delta = now - double(before.value?)?;
        if delta < 0.0 {
            if before.wrap == CounterWrap::Refused {
                return Err(Error::VALUE);
            }
            delta += match self.desc.ty {
                Type::I32 | Type::U32 => f64::from(u32::MAX) + 1.0,
                Type::I64 | Type::U64 => u64::MAX as f64,
                _ => 0.0,
            };
        }
        Ok(delta / before.seconds.max(SHORTEST))
    }

    fn in_units(&self, number: f64) -> Result<f64> {
        let Some((units, factor)) = self.units else { return Ok(number) };
        match self.desc.units.convert(units, Atom::Double(number))? {
            Atom::Double(converted) => Ok(converted * factor),
            _ => Err(Error::CONV),
        }
    }
}

/// Returns how values in units `from` are converted to the scale `to`: the target units, the factor to apply
/// afterwards, and whether the result is a rate. Returns `None` if the dimensions do not fit.
fn scaled(from: Units, to: Units, factor: f64) -> Option<(bool, (Units, f64))> {
    if (from.dim_space(), from.dim_count()) != (to.dim_space(), to.dim_count()) {
        return None;
    }
    if from.dim_time() == to.dim_time() && from.extra_unit() == to.extra_unit() {
        return Some((false, (to, factor)));
    }
    if i16::from(from.dim_time()) != i16::from(to.dim_time()) + 1 {
        return None;
    }
    // Rates are computed per second. The factor converts them to the scale's unit of time.
    let factor = match TimeScale::from_code(to.scale_time())? {
        TimeScale::Nsec => factor / 1e9,
        TimeScale::Usec => factor / 1e6,
        TimeScale::Msec => factor / 1e3,
        TimeScale::Sec => factor,
        TimeScale::Min => factor * 60.0,
        TimeScale::Hour => factor * 3600.0,
    };
    let dims = (to.dim_space(), from.dim_time(), to.dim_count());
    let units = Units::from_dims(dims.0, dims.1, dims.2, to.scale_space(), to.scale_time(), to.scale_count())?;
    Some((true, (units, factor)))
}

fn double(atom: Atom<'_>) -> Result<f64> {
    match typed(atom, Type::Double)? {
        Value::Double(number) => Ok(number),
        _ => Err(Error::CONV),
    }
}

/// Converts between types, texts included.
fn typed(atom: Atom<'_>, to: Type) -> Result<Value> {
    match (atom, to) {
        (Atom::String(text), Type::String) => Ok(Value::String(text.to_vec())),
        (Atom::String(text), _) => parsed(text, to),
        (Atom::Float(number), Type::String) => Ok(Value::text(exponential(number.into(), 9))),
        (Atom::Double(number), Type::String) => Ok(Value::text(exponential(number, 17))),
        _ => match atom.convert(to)? {
            Converted::Atom(atom) => Value::of(atom),
            Converted::Text(text) => Ok(Value::text(text)),
        },
    }
}

/// Converts a number that has been computed. In C, a NaN as an integer is undefined.
fn stored(number: f64, to: Type) -> Result<Value> {
    let within = |low: f64, high: f64| match number {
        _ if number.is_nan() => Err(Error::CONV),
        _ if number > high => Err(Error::TRUNC),
        _ if number < low && low == 0.0 => Err(Error::SIGN),
        _ if number < low => Err(Error::TRUNC),
        _ => Ok(()),
    };
    match to {
        Type::I32 => within(i32::MIN.into(), i32::MAX.into()).map(|()| Value::I32(number as i32)),
        Type::U32 => within(0.0, u32::MAX.into()).map(|()| Value::U32(number as u32)),
        Type::I64 => within(i64::MIN as f64, i64::MAX as f64).map(|()| Value::I64(number as i64)),
        Type::U64 => within(0.0, u64::MAX as f64).map(|()| Value::U64(number as u64)),
        Type::Float if number.abs() > f64::from(f32::MAX) => Err(Error::TRUNC),
        Type::Float => Ok(Value::Float(number as f32)),
        Type::Double => Ok(Value::Double(number)),
        Type::String => Ok(Value::text(exponential(number, 17))),
        _ => Err(Error::TYPE),
    }
}

const RANGE: Error = Error::from_errno(34);

/// Parses a number: a decimal integer, a hexadecimal one with `0x`, or a floating point number. The whole text must be
/// a number.
fn parsed(text: &[u8], to: Type) -> Result<Value> {
    let text = std::str::from_utf8(text).map_err(|_| Error::TYPE)?;
    let trimmed = text.trim_start_matches(|c| u8::try_from(c).is_ok_and(is_space));
    let hex = trimmed.strip_prefix('-').unwrap_or(trimmed).get(..2).is_some_and(|head| head.eq_ignore_ascii_case("0x"));
    let rest = if hex { trimmed.strip_prefix('-').unwrap_or(trimmed).get(2..).unwrap_or_default() } else { "" };
    let is_hex = hex && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if matches!(to, Type::Float | Type::Double) {
        // As in libpcp, a number in base 16 is an integer only.
        let number = if is_hex { None } else { scan(trimmed) };
        return match number {
            None if text.is_empty() => stored(0.0, to),
            Some(number) if number.len == trimmed.len() => match to {
                _ if number.out_of_range => Err(RANGE),
                Type::Float if number.value.abs() > f32::MAX.into() => Err(RANGE),
                Type::Float if number.value != 0.0 && number.value.abs() < f32::MIN_POSITIVE.into() => Err(RANGE),
                Type::Float => Ok(Value::Float(number.value as f32)),
                _ => Ok(Value::Double(number.value)),
            },
            _ => Err(Error::TYPE),
        };
    }
    let is_negative = trimmed.starts_with('-');
    let digits = if is_hex { rest } else { trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed) };
    let radix = if is_hex { 16 } else { 10 };
    if text.is_empty() {
        return stored(0.0, to);
    }
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(Error::TYPE);
    }
    let magnitude = u64::from_str_radix(digits, radix).map_err(|_| RANGE)?;
    let signed = || {
        let whole = if is_negative { -i128::from(magnitude) } else { magnitude.into() };
        i64::try_from(whole).map_err(|_| RANGE)
    };
    // As strtoul(3) does, a minus sign makes the complement.
    let unsigned = if is_negative { magnitude.wrapping_neg() } else { magnitude };
    match to {
        Type::I32 => signed()?.try_into().map(Value::I32).map_err(|_| RANGE),
        Type::U32 => unsigned.try_into().map(Value::U32).map_err(|_| RANGE),
        Type::I64 => signed().map(Value::I64),
        Type::U64 => Ok(Value::U64(unsigned)),
        _ => Err(Error::TYPE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmapi::PmId;

    fn desc(ty: Type, semantics: Semantics, units: Units) -> Desc {
        Desc { pmid: PmId::from_word(1).unwrap(), ty, indom: None, semantics, units }
    }

    fn before(value: f64, seconds: f64, wrap: CounterWrap) -> Option<Before<'static>> {
        Some(Before { seconds, value: Ok(Atom::Double(value)), wrap })
    }

    #[test]
    fn rates_and_scales() {
        let bytes = desc(Type::U32, Semantics::Counter, Units::KBYTES);
        let convert = |scale, to| Conversion::new(bytes, scale, to).unwrap();
        let plain = convert(None, Type::Double);
        assert_eq!(plain.convert(Atom::U32(7), None), Err(Error::AGAIN));
        let refused = before(5.0, 2.0, CounterWrap::Refused);
        assert_eq!(plain.convert(Atom::U32(7), refused), Ok(Value::Double(1.0)));
        assert_eq!(plain.convert(Atom::U32(3), refused), Err(Error::VALUE));
        let wrapped = before(4_294_967_295.0, 1.0, CounterWrap::Once);
        assert_eq!(plain.convert(Atom::U32(3), wrapped), Ok(Value::Double(4.0)));
        assert_eq!(convert(Some("instant"), Type::U32).convert(Atom::U32(7), None), Ok(Value::U32(7)));
        assert_eq!(convert(Some("bytes"), Type::U64).convert(Atom::U32(7), None), Ok(Value::U64(7168)));
        let hourly = convert(Some("Mbyte / hour"), Type::Double);
        assert_eq!(hourly.convert(Atom::U32(5 + 1024), refused), Ok(Value::Double(1800.0)));
        // A time per time is a number.
        let busy = desc(Type::U64, Semantics::Counter, Units::MILLISECONDS);
        let utilization = Conversion::new(busy, Some("s/s"), Type::Float);
        let refusal = Conversion::new(busy, Some("bytes"), Type::Float);
        assert_eq!(refusal, Err(Refusal::Units(Units::MILLISECONDS)));
        if let Ok(utilization) = utilization {
            let since = before(0.0, 1.0, CounterWrap::Refused);
            assert_eq!(utilization.convert(Atom::U64(500), since), Ok(Value::Float(0.5)));
        }
        assert!(matches!(Conversion::new(busy, Some("nonsense"), Type::Float), Err(Refusal::Scale(_))));
        assert_eq!(Conversion::new(busy, None, Type::Event), Err(Refusal::To(Type::Event)));
        let event = desc(Type::Event, Semantics::Instant, Units::NONE);
        assert_eq!(Conversion::new(event, None, Type::U32), Err(Refusal::From(Type::Event)));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

        /// For any scale, metric and values, the result is a value of the requested type or an error.
        #[test]
        fn any_scale_and_value(
            scale in "[ a-zA-Z0-9/^.*-]{0,12}|[kM]?byte( / (s|min|hour))?|count|rate|ms/s",
            units in proptest::num::u32::ANY,
            kinds in (0..7_usize, 0..7_usize),
            bits in proptest::num::u64::ANY,
            text in "[ -]?(0x)?[0-9a-f.]{0,22}",
            seconds in proptest::num::f64::ANY,
        ) {
            const TYPES: [Type; 7] =
                [Type::I32, Type::U32, Type::I64, Type::U64, Type::Float, Type::Double, Type::String];
            let (from, to) = (TYPES[kinds.0], TYPES[kinds.1]);
            let atom = match from {
                Type::I32 => Atom::I32(bits as i32),
                Type::U32 => Atom::U32(bits as u32),
                Type::I64 => Atom::I64(bits as i64),
                Type::U64 => Atom::U64(bits),
                Type::Float => Atom::Float(f32::from_bits(bits as u32)),
                Type::Double => Atom::Double(f64::from_bits(bits)),
                _ => Atom::String(text.as_bytes()),
            };
            let desc = desc(from, Semantics::Counter, Units::from_word(units));
            if let Ok(conversion) = Conversion::new(desc, Some(&scale), to) {
                let before = Before { seconds, value: Ok(Atom::U64(bits >> 1)), wrap: CounterWrap::Once };
                if let Ok(value) = conversion.convert(atom, Some(before)) {
                    proptest::prop_assert_eq!(value.atom().ty(), to);
                }
            }
        }
    }

    #[test]
    fn texts() {
        let parsed = |text: &str, to| parsed(text.as_bytes(), to);
        assert_eq!(parsed(" -0x1f", Type::I32), Ok(Value::I32(-31)));
        assert_eq!(parsed("12", Type::U32), Ok(Value::U32(12)));
        assert_eq!(parsed("-1", Type::U64), Ok(Value::U64(u64::MAX)));
        assert_eq!(parsed("-1", Type::U32), Err(RANGE));
        assert_eq!(parsed("2147483648", Type::I32), Err(RANGE));
        assert_eq!(parsed("1.5", Type::I32), Err(Error::TYPE));
        assert_eq!(parsed("1.5", Type::Float), Ok(Value::Float(1.5)));
        assert_eq!(parsed("0x10", Type::Double), Err(Error::TYPE));
        assert_eq!(parsed("1e39", Type::Float), Err(RANGE));
        assert_eq!(parsed("x", Type::Double), Err(Error::TYPE));
        assert_eq!(parsed("", Type::Double), Ok(Value::Double(0.0)));
        assert_eq!(typed(Atom::Double(0.1), Type::String), Ok(Value::text("1.00000000000000006e-01".into())));
        assert_eq!(typed(Atom::Float(1.5), Type::String), Ok(Value::text("1.500000000e+00".into())));
        assert_eq!(stored(-0.5, Type::U64), Err(Error::SIGN));
        assert_eq!(stored(1e39, Type::Float), Err(Error::TRUNC));
        assert_eq!(stored(f64::NAN, Type::I64), Err(Error::CONV));
    }
}
