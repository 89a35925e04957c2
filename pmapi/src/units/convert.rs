//! Conversion of values between units (pmConvScale(3)).

use super::{ExtraUnit, Quantity, Units};
use crate::{Atom, Error};

impl Units {
    /// Converts a value from these units to other units of the same dimension (pmConvScale(3)).
    ///
    /// Units without a dimension are treated as [`Units::COUNT`]. As in libpcp, one half is added to an integer before
    /// its fraction is cut off: 1.5 becomes 2, and -1.6 becomes -1. A result that does not fit its type wraps around.
    ///
    /// # Errors
    /// `PM_ERR_CONV` when the dimensions differ or the value is not a number. `PM_ERR_UNIT` for a meaningless scale;
    /// zettabytes and yottabytes cannot be converted either. `PM_ERR_TRUNC` for a result that does not fit its type, if
    /// the factor overflows to a division by 0, which kills libpcp. Between extra units, such as temperatures,
    /// `PM_ERR_TRUNC` for a result that does not fit and `PM_ERR_SIGN` for a negative one of an unsigned type.
    pub fn convert<'a>(self, to: Units, value: Atom<'_>) -> Result<Atom<'a>, Error> {
        let (from, to) = (self.or_count(), to.or_count());
        let dims = |u: Units| (u.dim_space(), u.dim_time(), u.dim_count(), u.extra_unit());
        if dims(from) != dims(to) {
            return Err(Error::CONV);
        }
        let value = Ratio::new(from, to)?.apply(value)?;
        if from.extra_unit() == 0 || from.extra_scale() == to.extra_scale() {
            return Ok(value);
        }
        convert_extra(from, to, value)
    }

    fn or_count(self) -> Units {
        if self.is_dimensionless() { Units(self.0 | Units::COUNT.0) } else { self }
    }
}

/// Product of powers of 2, 3 and 5, the primes of all scale factors.
#[derive(Clone, Copy, Default)]
struct Product([u32; 3]);

const PRIMES: [u32; 3] = [2, 3, 5];

impl Product {
    fn multiply(&mut self, powers: [u32; 3], times: u32) {
        for (sum, power) in self.0.iter_mut().zip(powers) {
            *sum += power * times;
        }
    }

    fn checked_div(self, divisor: Product) -> Option<Product> {
        let [a, b, c] = self.0;
        let [d, e, f] = divisor.0;
        Some(Product([a.checked_sub(d)?, b.checked_sub(e)?, c.checked_sub(f)?]))
    }

    /// Returns the product in 64 bits, wrapped around.
    fn wrapped(self) -> i64 {
        let powers = PRIMES.into_iter().zip(self.0).map(|(prime, power)| i64::from(prime).wrapping_pow(power));
        powers.fold(1, i64::wrapping_mul)
    }

    fn factors(self) -> impl Iterator<Item = u32> {
        PRIMES.into_iter().zip(self.0).flat_map(|(prime, power)| std::iter::repeat_n(prime, power as usize))
    }
}

/// Factor of a conversion: values are multiplied by `mult` and divided by `div`.
struct Ratio {
    mult: Product,
    div: Product,
}

impl Ratio {
    fn new(from: Units, to: Units) -> Result<Ratio, Error> {
        let mut ratio = Ratio { mult: Product::default(), div: Product::default() };
        if from.dim_space() != 0 {
            ratio.scale(from.dim_space(), space(from)?, space(to)?);
        }
        if from.dim_time() != 0 {
            ratio.scale(from.dim_time(), time(from)?, time(to)?);
        }
        if from.dim_count() != 0 {
            ratio.scale(from.dim_count(), count(from), count(to));
        } else if from.dim_space() == 0 && from.dim_time() == 0 {
            // For extra units alone, the scale of count applies even without its dimension.
            ratio.scale(1, count(from), count(to));
        }
        Ok(ratio)
    }

    fn scale(&mut self, dim: i8, from: Scale, to: Scale) {
        let (up, down) = if dim > 0 { (&mut self.mult, &mut self.div) } else { (&mut self.div, &mut self.mult) };
        let times = u32::from(dim.unsigned_abs());
        up.multiply(from.up, times);
        up.multiply(to.down, times);
        down.multiply(from.down, times);
        down.multiply(to.up, times);
    }

    fn apply<'a>(&self, value: Atom<'_>) -> Result<Atom<'a>, Error> {
        let (mut mult, mut div) = (self.mult.wrapped(), self.div.wrapped());
        let defined = mult.checked_rem(div).is_some();
        if mult.checked_rem(div) == Some(0) {
            (mult, div) = (mult / div, 1);
        }
        let in_64_bits = |v: i64| {
            let sum = v.wrapping_mul(mult).wrapping_add(div / 2);
            sum.checked_div(div).filter(|_| defined).map_or_else(|| self.exact(v.into()), |q| Ok(q.into()))
        };
        Ok(match value {
            Atom::I32(v) if defined => Atom::I32(in_64_bits(v.into())? as i32),
            Atom::I32(v) => Atom::I32(fit(self.exact(v.into())?)?),
            Atom::U32(v) if defined => Atom::U32(in_64_bits(v.into())? as u32),
            Atom::U32(v) => Atom::U32(fit(self.exact(v.into())?)?),
            Atom::I64(v) => Atom::I64(fit(in_64_bits(v)?)?),
            Atom::U64(v) if defined => {
                // Unsigned throughout, also for a factor that has wrapped to a negative number.
                let sum = v.wrapping_mul(mult as u64).wrapping_add((div / 2) as u64);
                Atom::U64(sum / div as u64)
            }
            Atom::U64(v) => Atom::U64(fit(self.exact(v.into())?)?),
            Atom::Float(v) if defined => Atom::Float(v * (mult as f32 / div as f32)),
            Atom::Float(v) => Atom::Float(finite(v.into(), (f64::from(v) * self.ratio()) as f32)?),
            Atom::Double(v) if defined => Atom::Double(v * (mult as f64 / div as f64)),
            Atom::Double(v) => Atom::Double(finite(v, v * self.ratio())?),
            _ => return Err(Error::CONV),
        })
    }

    fn ratio(&self) -> f64 {
        let powers = self.mult.0.into_iter().zip(self.div.0).map(|(m, d)| m as i32 - d as i32);
        PRIMES.into_iter().zip(powers).map(|(prime, power)| f64::from(prime).powi(power)).product()
    }

    /// Returns (value * mult + div / 2) / div without intermediate overflow, rounded towards 0 as in C.
    fn exact(&self, value: i128) -> Result<i128, Error> {
        let (mult, div) = match self.mult.checked_div(self.div) {
            Some(mult) => (mult, Product::default()),
            None => (self.mult, self.div),
        };
        let mut product = Big::new(value.unsigned_abs());
        mult.factors().for_each(|f| product.multiply(f));
        let mut half = Big::new(1);
        div.factors().for_each(|f| half.multiply(f));
        half.divide(2);
        let (sum, negative) = if value >= 0 { (product.plus(&half), false) } else { product.minus(&half) };
        let mut quotient = sum;
        div.factors().for_each(|f| quotient.divide(f));
        let magnitude = i128::try_from(quotient.value().ok_or(Error::TRUNC)?).map_err(|_| Error::TRUNC)?;
        Ok(if negative { -magnitude } else { magnitude })
    }
}

fn fit<T: TryFrom<i128>>(value: i128) -> Result<T, Error> {
    T::try_from(value).map_err(|_| Error::TRUNC)
}

fn finite<T: Into<f64> + Copy>(input: f64, output: T) -> Result<T, Error> {
    if input.is_finite() && !output.into().is_finite() { Err(Error::TRUNC) } else { Ok(output) }
}

/// Scale, as a factor and a divisor from its dimension's canonical unit. One of the two is 1.
struct Scale {
    up: [u32; 3],
    down: [u32; 3],
}

fn space(units: Units) -> Result<Scale, Error> {
    const MBYTE: u32 = 2;
    const EBYTE: u32 = 6;
    let scale = u32::from(units.scale_space());
    if scale > EBYTE {
        return Err(Error::UNIT);
    }
    Ok(Scale { up: [10 * scale.saturating_sub(MBYTE), 0, 0], down: [10 * MBYTE.saturating_sub(scale), 0, 0] })
}

fn time(units: Units) -> Result<Scale, Error> {
    const ONE: [u32; 3] = [0; 3];
    Ok(match units.scale_time() {
        scale @ 0..=3 => {
            let thousands = u32::from(3 - scale);
            Scale { up: ONE, down: [3 * thousands, 0, 3 * thousands] }
        }
        4 => Scale { up: [2, 1, 1], down: ONE },
        5 => Scale { up: [4, 2, 2], down: ONE },
        _ => return Err(Error::UNIT),
    })
}

fn count(units: Units) -> Scale {
    let scale = i32::from(units.scale_count());
    let ten = |power: i32| [power.max(0).unsigned_abs(), 0, power.max(0).unsigned_abs()];
    Scale { up: ten(scale), down: ten(-scale) }
}

/// Unsigned number of any size, in digits of 32 bits, the lowest first.
struct Big(Vec<u32>);

impl Big {
    fn new(value: u128) -> Big {
        Big((0..4).map(|i| (value >> (32 * i)) as u32).collect())
    }

    fn multiply(&mut self, factor: u32) {
        let mut carry = 0;
        for digit in &mut self.0 {
            let product = u64::from(*digit) * u64::from(factor) + carry;
            *digit = product as u32;
            carry = product >> 32;
        }
        if carry != 0 {
            self.0.push(carry as u32);
        }
    }

    fn divide(&mut self, divisor: u32) {
        let mut rest = 0;
        for digit in self.0.iter_mut().rev() {
            let dividend = rest << 32 | u64::from(*digit);
            *digit = (dividend / u64::from(divisor)) as u32;
            rest = dividend % u64::from(divisor);
        }
    }

    fn digits(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied().chain(std::iter::repeat(0))
    }

    fn plus(&self, other: &Big) -> Big {
        let mut carry = 0;
        let len = self.0.len().max(other.0.len()) + 1;
        Big(self
            .digits()
            .zip(other.digits())
            .take(len)
            .map(|(a, b)| {
                let sum = u64::from(a) + u64::from(b) + carry;
                carry = sum >> 32;
                sum as u32
            })
            .collect())
    }

    /// Returns the difference's magnitude, and whether the minuend is the greater one.
    fn minus(&self, other: &Big) -> (Big, bool) {
        let len = self.0.len().max(other.0.len());
        let greater = self.digits().take(len).zip(other.digits()).fold(false, |greater, (a, b)| match a.cmp(&b) {
            std::cmp::Ordering::Equal => greater,
            order => order.is_gt(),
        });
        let (large, small) = if greater { (self, other) } else { (other, self) };
        let mut borrow = 0;
        let digits = large.digits().zip(small.digits()).take(len).map(|(a, b)| {
            let difference = i64::from(a) - i64::from(b) - borrow;
            borrow = i64::from(difference < 0);
            difference as u32
        });
        (Big(digits.collect()), greater)
    }

    fn value(&self) -> Option<u128> {
        let high = self.0.iter().skip(4).all(|d| *d == 0);
        high.then(|| self.0.iter().take(4).rev().fold(0, |value, d| value << 32 | u128::from(*d)))
    }
}

/// Converts a value between scales of the same extra unit.
fn convert_extra<'a>(from: Units, to: Units, value: Atom<'_>) -> Result<Atom<'a>, Error> {
    let unit = |u: Units| {
        // The scale of a divisor cannot be converted.
        let quantity = Quantity::from_code(u.extra_unit()).filter(|q| *q as i8 == u.extra_unit());
        ExtraUnit::from_codes(quantity?, u.extra_scale())
    };
    let (from, to) = unit(from).zip(unit(to)).ok_or(Error::UNIT)?;
    let convert = |v: f64| {
        let [a, b, c, d] = coefficients(from, to);
        a + b * (v + c) / d
    };
    Ok(match value {
        Atom::I32(v) => Atom::I32(fit_real(convert(v.into()))?),
        Atom::U32(v) => Atom::U32(fit_real(convert(v.into()))?),
        Atom::I64(v) => Atom::I64(fit_real(convert(v as f64))?),
        Atom::U64(v) => Atom::U64(fit_real(convert(v as f64))?),
        Atom::Float(v) => Atom::Float(convert(v.into()) as f32),
        Atom::Double(v) => Atom::Double(convert(v)),
        _ => return Err(Error::CONV),
    })
}

/// Returns a, b, c and d of a + b * (value + c) / d.
fn coefficients(from: ExtraUnit, to: ExtraUnit) -> [f64; 4] {
    use ExtraUnit::*;
    match (from, to) {
        (Celsius, Fahrenheit) => [32.0, 18.0, 0.0, 10.0],
        (Fahrenheit, Celsius) => [0.0, 10.0, -32.0, 18.0],
        (Celsius, Kelvin) => [273.15, 1.0, 0.0, 1.0],
        (Kelvin, Celsius) => [0.0, 1.0, -273.15, 1.0],
        (Fahrenheit, Kelvin) => [273.15, 10.0, -32.0, 18.0],
        (Kelvin, Fahrenheit) => [32.0, 18.0, -273.15, 10.0],
        _ => {
            let (from, to) = (from.thousandths(), to.thousandths());
            let factor = |power: u32| 1000_f64.powi(power as i32);
            [0.0, factor(to.saturating_sub(from)), 0.0, factor(from.saturating_sub(to))]
        }
    }
}

impl ExtraUnit {
    /// Returns the number of divisions by 1000 from the largest unit of the quantity; meaningless for temperatures.
    fn thousandths(self) -> u32 {
        u32::from(self.scale())
    }
}

/// Returns the integer part, if it fits.
fn fit_real<T: TryFrom<i128>>(value: f64) -> Result<T, Error> {
    let whole = value.trunc();
    if !whole.is_finite() {
        return Err(Error::TRUNC);
    }
    let whole = whole as i128;
    T::try_from(whole).map_err(|_| if whole < 0 && T::try_from(-1).is_err() { Error::SIGN } else { Error::TRUNC })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_units() {
        let convert = |from, to, value| Units::extra(from).convert(Units::extra(to), value);
        use ExtraUnit::*;
        assert_eq!(convert(Celsius, Fahrenheit, Atom::I32(100)), Ok(Atom::I32(212)));
        assert_eq!(convert(Fahrenheit, Kelvin, Atom::Double(32.0)), Ok(Atom::Double(273.15)));
        assert_eq!(convert(Kilowatt, Milliwatt, Atom::U64(3)), Ok(Atom::U64(3_000_000)));
        assert_eq!(convert(Microvolt, Volt, Atom::Float(1500.0)), Ok(Atom::Float(0.0015)));
        assert_eq!(convert(Kilowatt, Microwatt, Atom::U32(5)), Err(Error::TRUNC));
        assert_eq!(convert(Fahrenheit, Celsius, Atom::U32(0)), Err(Error::SIGN));
        assert_eq!(convert(Volt, Watt, Atom::U32(0)), Err(Error::CONV));
        let divisor = Units::COUNT.per(Units::VOLTS);
        assert_eq!(divisor.convert(divisor, Atom::U32(7)), Ok(Atom::U32(7)));
        assert_eq!(divisor.convert(Units::COUNT.per(Units::extra(Millivolt)), Atom::U32(7)), Err(Error::UNIT));
    }

    #[test]
    fn factors_of_more_than_64_bits() {
        let ratio = |mult, div| Ratio { mult: Product(mult), div: Product(div) };
        let bytes = |scale| Units::from_dims(2, 0, 0, scale, 0, 0).unwrap();
        assert_eq!(bytes(0).convert(bytes(6), Atom::U64(u64::MAX)), Ok(Atom::U64(0)));
        assert_eq!(bytes(0).convert(bytes(6), Atom::Double(1.0)), Ok(Atom::Double((-120_f64).exp2())));
        // As in C, the factor is 0 when it wraps to 0.
        assert_eq!(bytes(6).convert(bytes(0), Atom::U64(1)), Ok(Atom::U64(0)));
        assert_eq!(ratio([130, 0, 0], [70, 0, 0]).apply(Atom::I64(-7)), Ok(Atom::I64(-7 << 60)));
        assert_eq!(ratio([140, 0, 0], [70, 0, 0]).apply(Atom::U64(1)), Err(Error::TRUNC));
        assert_eq!(ratio([0, 0, 90], [70, 0, 0]).apply(Atom::Float(-1.0)), Err(Error::TRUNC));
    }

    #[test]
    fn exact_rounding() {
        let ratio = |mult, div| Ratio { mult: Product(mult), div: Product(div) };
        // As in C, 5/2 and -5/2 are (5 + 1) / 2 and (-5 + 1) / 2.
        assert_eq!(ratio([0, 0, 1], [1, 0, 0]).exact(1), Ok(3));
        assert_eq!(ratio([0, 0, 1], [1, 0, 0]).exact(-1), Ok(-2));
        assert_eq!(ratio([0, 0, 0], [0, 0, 1]).exact(3), Ok(1));
        assert_eq!(ratio([0, 0, 0], [0, 0, 1]).exact(-3), Ok(0));
        assert_eq!(ratio([200, 0, 0], [198, 0, 0]).exact(-3), Ok(-12));
        assert_eq!(ratio([0, 0, 90], [0, 0, 88]).exact(i64::MAX.into()), Ok(i128::from(i64::MAX) * 25));
    }
}
