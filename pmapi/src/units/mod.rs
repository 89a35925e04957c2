//! Dimension and scale of values (`pmUnits`).
//!
//! ```
//! use pmapi::Units;
//! const THROUGHPUT: Units = Units::KBYTES.per(Units::SECONDS);
//! assert_eq!(THROUGHPUT.to_string(), "Kbyte / sec");
//! ```

mod convert;
mod parse;
mod scale;
mod text;

pub use parse::ParseUnitsError;
pub use scale::{ExtraUnit, Quantity, SpaceScale, TimeScale};

/// Dimension and scale of a metric's values (`pmUnits`), as the word of the wire encoding.
///
/// From the highest bit, the word has the dimensions of space (4 bits), time (4) and count (4), and the scales of space
/// (4), time (4) and count (4). Since PCP 7.2 an extra unit (5) and its scale (3) follow. Dimensions, the scale of
/// count and the extra unit are in two's complement.
///
/// Start from a constant ([`Units::BYTES`], [`Units::SECONDS`], [`Units::COUNT`]) or a constructor ([`Units::space`],
/// [`Units::time`], [`Units::count`], [`Units::extra`]) and combine with [`Units::per`], [`Units::times`] and
/// [`Units::pow`]. [`Units::from_dims`] accepts the six numbers of C's `PMDA_PMUNITS`.
///
/// `Display` gives the text of pmUnitsStr(3), which is empty for [`Units::NONE`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Units(u32);

/// Bit field of the word: its lowest bit and its width.
#[derive(Clone, Copy)]
struct Field(u32, u32);

const DIM_SPACE: Field = Field(28, 4);
const DIM_TIME: Field = Field(24, 4);
const DIM_COUNT: Field = Field(20, 4);
const SCALE_SPACE: Field = Field(16, 4);
const SCALE_TIME: Field = Field(12, 4);
const SCALE_COUNT: Field = Field(8, 4);
const EXTRA_UNIT: Field = Field(3, 5);
const EXTRA_SCALE: Field = Field(0, 3);

impl Field {
    const fn unsigned(self, word: u32) -> u8 {
        (word >> self.0 & ((1 << self.1) - 1)) as u8
    }

    const fn signed(self, word: u32) -> i8 {
        ((word << (32 - self.0 - self.1)) as i32 >> (32 - self.1)) as i8
    }

    const fn fits_signed(self, value: i32) -> bool {
        value >= -(1 << (self.1 - 1)) && value < 1 << (self.1 - 1)
    }

    const fn set(self, word: u32, value: i32) -> u32 {
        let mask = ((1 << self.1) - 1) << self.0;
        word & !mask | (value as u32) << self.0 & mask
    }
}

impl Units {
    /// No dimension.
    pub const NONE: Units = Units(0);
    /// Number of events or things.
    pub const COUNT: Units = Units::count(0);

    /// Bytes.
    pub const BYTES: Units = Units::space(SpaceScale::Byte);
    /// Kibibytes.
    pub const KBYTES: Units = Units::space(SpaceScale::Kbyte);
    /// Mebibytes.
    pub const MBYTES: Units = Units::space(SpaceScale::Mbyte);
    /// Gibibytes.
    pub const GBYTES: Units = Units::space(SpaceScale::Gbyte);
    /// Tebibytes.
    pub const TBYTES: Units = Units::space(SpaceScale::Tbyte);

    /// Nanoseconds.
    pub const NANOSECONDS: Units = Units::time(TimeScale::Nsec);
    /// Microseconds.
    pub const MICROSECONDS: Units = Units::time(TimeScale::Usec);
    /// Milliseconds.
    pub const MILLISECONDS: Units = Units::time(TimeScale::Msec);
    /// Seconds.
    pub const SECONDS: Units = Units::time(TimeScale::Sec);
    /// Minutes.
    pub const MINUTES: Units = Units::time(TimeScale::Min);
    /// Hours.
    pub const HOURS: Units = Units::time(TimeScale::Hour);

    /// Degrees Celsius (PCP 7.2).
    pub const CELSIUS: Units = Units::extra(ExtraUnit::Celsius);
    /// Volts (PCP 7.2).
    pub const VOLTS: Units = Units::extra(ExtraUnit::Volt);
    /// Amperes (PCP 7.2).
    pub const AMPERES: Units = Units::extra(ExtraUnit::Ampere);
    /// Watts (PCP 7.2).
    pub const WATTS: Units = Units::extra(ExtraUnit::Watt);

    /// Creates units of space with dimension 1.
    pub const fn space(scale: SpaceScale) -> Units {
        Units(DIM_SPACE.set(SCALE_SPACE.set(0, scale as i32), 1))
    }

    /// Creates units of time with dimension 1.
    pub const fn time(scale: TimeScale) -> Units {
        Units(DIM_TIME.set(SCALE_TIME.set(0, scale as i32), 1))
    }

    /// Creates units of count with dimension 1 and a power of ten as scale: `Units::count(6)` is millions of events.
    ///
    /// # Panics
    /// Panics when the scale is not in -8 to 7; in a `const` the compilation fails.
    pub const fn count(scale: i8) -> Units {
        assert!(SCALE_COUNT.fits_signed(scale as i32), "scale of count not in -8 to 7");
        Units(DIM_COUNT.set(SCALE_COUNT.set(0, scale as i32), 1))
    }

    /// Creates extra units, which PCP before 7.2 shows as no dimension.
    pub const fn extra(unit: ExtraUnit) -> Units {
        Units(EXTRA_UNIT.set(EXTRA_SCALE.set(0, unit.scale() as i32), unit.quantity() as i32))
    }

    /// Creates units from six numbers, in the order of C's `PMDA_PMUNITS`; `None` when one does not fit its field of
    /// four bits. As in C, meaningless scales are accepted.
    pub const fn from_dims(
        dim_space: i8,
        dim_time: i8,
        dim_count: i8,
        scale_space: u8,
        scale_time: u8,
        scale_count: i8,
    ) -> Option<Units> {
        let fits = DIM_SPACE.fits_signed(dim_space as i32)
            && DIM_TIME.fits_signed(dim_time as i32)
            && DIM_COUNT.fits_signed(dim_count as i32)
            && SCALE_COUNT.fits_signed(scale_count as i32)
            && scale_space < 16
            && scale_time < 16;
        if !fits {
            return None;
        }
        let word = DIM_SPACE.set(0, dim_space as i32);
        let word = DIM_TIME.set(word, dim_time as i32);
        let word = DIM_COUNT.set(word, dim_count as i32);
        let word = SCALE_SPACE.set(word, scale_space as i32);
        let word = SCALE_TIME.set(word, scale_time as i32);
        Some(Units(SCALE_COUNT.set(word, scale_count as i32)))
    }

    /// Divides these units by others: `Units::COUNT.per(Units::SECONDS)`.
    ///
    /// # Panics
    /// Panics when both have a dimension at different scales, since kilobytes per byte is a factor, not a unit. Panics
    /// when both have different extra units, or when a dimension is not in -8 to 7. In a `const` the compilation fails.
    #[must_use]
    pub const fn per(self, divisor: Units) -> Units {
        self.combine(divisor, -1)
    }

    /// Multiplies these units by others.
    ///
    /// # Panics
    /// Panics in the cases of [`Units::per`].
    #[must_use]
    pub const fn times(self, factor: Units) -> Units {
        self.combine(factor, 1)
    }

    /// Raises these units to a power; `Units::SECONDS.pow(-1)` is "/ sec".
    ///
    /// # Panics
    /// Panics when a dimension is not in -8 to 7, and for a power of an extra unit other than -1 and 1.
    #[must_use]
    pub const fn pow(self, exponent: i8) -> Units {
        Units::NONE.combine(self, exponent)
    }

    const fn combine(self, other: Units, exponent: i8) -> Units {
        let mut word = combine_dim(self.0, other.0, exponent, DIM_SPACE, SCALE_SPACE);
        word = combine_dim(word, other.0, exponent, DIM_TIME, SCALE_TIME);
        word = combine_dim(word, other.0, exponent, DIM_COUNT, SCALE_COUNT);
        let (ours, theirs) = (EXTRA_UNIT.signed(word) as i32, EXTRA_UNIT.signed(other.0) as i32 * exponent as i32);
        if theirs == 0 {
            return Units(word);
        }
        assert!(exponent == 1 || exponent == -1, "power of an extra unit");
        if ours == 0 {
            return Units(EXTRA_UNIT.set(EXTRA_SCALE.set(word, EXTRA_SCALE.unsigned(other.0) as i32), theirs));
        }
        assert!(
            ours == -theirs && EXTRA_SCALE.unsigned(word) == EXTRA_SCALE.unsigned(other.0),
            "extra unit on both sides"
        );
        Units(EXTRA_UNIT.set(EXTRA_SCALE.set(word, 0), 0))
    }

    /// Returns the word of the wire encoding.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Creates the units with this word. Every word is valid.
    pub const fn from_word(word: u32) -> Units {
        Units(word)
    }

    /// Returns the dimension of space, -8 to 7.
    pub const fn dim_space(self) -> i8 {
        DIM_SPACE.signed(self.0)
    }

    /// Returns the dimension of time, -8 to 7.
    pub const fn dim_time(self) -> i8 {
        DIM_TIME.signed(self.0)
    }

    /// Returns the dimension of count, -8 to 7.
    pub const fn dim_count(self) -> i8 {
        DIM_COUNT.signed(self.0)
    }

    /// Returns the code of the scale of space, 0 to 15, see [`SpaceScale::from_code`].
    pub const fn scale_space(self) -> u8 {
        SCALE_SPACE.unsigned(self.0)
    }

    /// Returns the code of the scale of time, 0 to 15, see [`TimeScale::from_code`].
    pub const fn scale_time(self) -> u8 {
        SCALE_TIME.unsigned(self.0)
    }

    /// Returns the scale of count, a power of ten, -8 to 7.
    pub const fn scale_count(self) -> i8 {
        SCALE_COUNT.signed(self.0)
    }

    /// Returns the code of the extra unit, -16 to 15, see [`Quantity::from_code`]. 0 is no extra unit, a negative code
    /// a divisor.
    pub const fn extra_unit(self) -> i8 {
        EXTRA_UNIT.signed(self.0)
    }

    /// Returns the code of the extra unit's scale, 0 to 7, see [`ExtraUnit::from_codes`].
    pub const fn extra_scale(self) -> u8 {
        EXTRA_SCALE.unsigned(self.0)
    }

    /// Returns whether all dimensions are 0 and there is no extra unit; scales do not matter.
    pub const fn is_dimensionless(self) -> bool {
        self.dim_space() == 0 && self.dim_time() == 0 && self.dim_count() == 0 && self.extra_unit() == 0
    }
}

const fn combine_dim(word: u32, other: u32, exponent: i8, dim: Field, scale: Field) -> u32 {
    let (ours, theirs) = (dim.signed(word) as i32, dim.signed(other) as i32 * exponent as i32);
    if theirs == 0 {
        return word;
    }
    assert!(ours == 0 || scale.unsigned(word) == scale.unsigned(other), "one dimension at two scales");
    assert!(dim.fits_signed(ours + theirs), "dimension not in -8 to 7");
    let new_scale = if ours + theirs == 0 { 0 } else { scale.unsigned(other) as i32 };
    dim.set(scale.set(word, new_scale), ours + theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructors() {
        assert_eq!(Units::KBYTES.per(Units::SECONDS).word(), 0x1f01_3000);
        assert_eq!(Units::from_dims(1, -1, 0, 1, 3, 0), Some(Units::KBYTES.per(Units::SECONDS)));
        assert_eq!(Units::from_dims(1, -1, 2, 3, 4, 5).unwrap().word(), 0x1f23_4500);
        assert_eq!(Units::from_dims(8, 0, 0, 0, 0, 0), None);
        assert_eq!(Units::from_dims(0, 0, 0, 16, 0, 0), None);
        assert_eq!(Units::count(-3).word(), 0x0010_0d00);
        assert_eq!(Units::SECONDS.per(Units::SECONDS), Units::NONE);
        assert_eq!(Units::SECONDS.pow(-2).word(), 0x0e00_3000);
        assert_eq!(Units::BYTES.times(Units::BYTES), Units::BYTES.pow(2));
        assert_eq!(Units::WATTS.word(), 4 << 3 | 2);
        assert_eq!(Units::COUNT.per(Units::WATTS).extra_unit(), -4);
        assert_eq!(Units::VOLTS.per(Units::VOLTS), Units::NONE);
    }

    #[test]
    #[should_panic(expected = "two scales")]
    fn one_dimension_at_two_scales() {
        let _ = Units::KBYTES.per(Units::BYTES);
    }

    #[test]
    fn every_word_has_fields() {
        let units = Units::from_word(0x9382_d0af);
        assert_eq!((units.dim_space(), units.dim_time(), units.dim_count()), (-7, 3, -8));
        assert_eq!((units.scale_space(), units.scale_time(), units.scale_count()), (2, 13, 0));
        assert_eq!((units.extra_unit(), units.extra_scale()), (-11, 7));
    }
}
