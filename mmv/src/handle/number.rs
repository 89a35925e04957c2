//! Numbers and their encoding in a value's 64-bit word.

use std::fmt;

use crate::format::{ValueType, word_of_half};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that a metric can have: `i32`, `u32`, `i64`, `u64`, `f32` or `f64`.
///
/// Integers wrap around on overflow, as they do in C.
pub trait Number: Copy + fmt::Debug + PartialOrd + Send + Sync + Sealed + 'static {
    /// Type of the number in the file.
    #[doc(hidden)]
    const TYPE: ValueType;
    #[doc(hidden)]
    const ZERO: Self;
    #[doc(hidden)]
    const ONE: Self;
    /// The word that means "no value" in a file with sentinels.
    #[doc(hidden)]
    const NO_VALUE: u64;

    /// Returns the word that holds the number.
    #[doc(hidden)]
    fn word(self) -> u64;
    #[doc(hidden)]
    fn from_word(word: u64) -> Self;
    #[doc(hidden)]
    fn plus(self, n: Self) -> Self;
    #[doc(hidden)]
    fn minus(self, n: Self) -> Self;

    /// Adds the number to `word`, atomically. The half of the word that a 32-bit number does not use may change.
    #[doc(hidden)]
    fn add_to(self, word: &AtomicU64);
}

/// Prevents implementations of [`Number`] outside of this crate.
pub trait Sealed {}

macro_rules! integer {
    ($($int:ty, $ty:ident, |$n:ident| $word:expr, |$w:ident| $from:expr;)*) => {$(
        impl Sealed for $int {}

        impl Number for $int {
            const TYPE: ValueType = ValueType::$ty;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const NO_VALUE: u64 = u64::MAX;

            #[inline]
            fn word(self) -> u64 {
                let $n = self;
                $word
            }

            #[inline]
            fn from_word($w: u64) -> Self {
                $from
            }

            #[inline]
            fn plus(self, n: Self) -> Self {
                self.wrapping_add(n)
            }

            #[inline]
            fn minus(self, n: Self) -> Self {
                self.wrapping_sub(n)
            }

            // Adding words adds the numbers in them: the carry of a 32-bit number goes into the unused half, or is
            // lost.
            #[inline]
            fn add_to(self, word: &AtomicU64) {
                word.fetch_add(self.word(), Relaxed);
            }
        }
    )*};
}

integer! {
    u64, U64, |n| n, |w| w;
    i64, I64, |n| n as u64, |w| w as i64;
    u32, U32, |n| word_of_half(n), |w| half(w);
    i32, I32, |n| word_of_half(n as u32), |w| half(w) as i32;
}

macro_rules! float {
    ($($float:ty, $ty:ident, |$n:ident| $word:expr, |$w:ident| $from:expr;)*) => {$(
        impl Sealed for $float {}

        impl Number for $float {
            const TYPE: ValueType = ValueType::$ty;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NO_VALUE: u64 = {
                let $n = <$float>::NAN;
                $word
            };

            #[inline]
            fn word(self) -> u64 {
                let $n = self;
                $word
            }

            #[inline]
            fn from_word($w: u64) -> Self {
                $from
            }

            #[inline]
            fn plus(self, n: Self) -> Self {
                self + n
            }

            #[inline]
            fn minus(self, n: Self) -> Self {
                self - n
            }

            #[inline]
            fn add_to(self, word: &AtomicU64) {
                let mut old = word.load(Relaxed);
                while let Err(now) =
                    word.compare_exchange_weak(old, Self::from_word(old).plus(self).word(), Relaxed, Relaxed)
                {
                    old = now;
                }
            }
        }
    )*};
}

float! {
    f64, Double, |n| n.to_bits(), |w| f64::from_bits(w);
    f32, Float, |n| word_of_half(n.to_bits()), |w| f32::from_bits(half(w));
}

/// Largest magnitude of a value in a distribution. The sum of up to 2^64 such values is finite.
const LARGEST: f64 = f64::MAX / 18_446_744_073_709_551_616.0;

/// Returns whether a value can be added to the sum of a distribution. The sum would never recover from an infinity.
pub(super) fn is_summable(value: f64) -> bool {
    value.abs() <= LARGEST
}

/// Returns the word that means "no value" for a type.
pub(crate) const fn no_value(ty: ValueType) -> u64 {
    match ty {
        ValueType::Double => f64::NO_VALUE,
        ValueType::Float => f32::NO_VALUE,
        _ => u64::MAX,
    }
}

const fn half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: Number>(numbers: &[T]) {
        for n in numbers {
            assert_eq!(format!("{:?}", T::from_word(n.word())), format!("{n:?}"));
        }
    }

    #[test]
    fn words() {
        there_and_back(&[0, 1, i32::MIN, -1, i32::MAX]);
        there_and_back(&[0, 1, u32::MAX]);
        there_and_back(&[0, 1, i64::MIN, -1, i64::MAX]);
        there_and_back(&[0, 1, u64::MAX]);
        there_and_back(&[0.0, -0.0, 1.5, f32::MIN, f32::INFINITY, f32::NAN]);
        there_and_back(&[0.0, -0.0, 1.5, f64::MIN, f64::INFINITY, f64::NAN]);
    }

    fn sum<T: Number>(numbers: &[T]) -> T {
        let word = AtomicU64::new(T::ZERO.word());
        numbers.iter().for_each(|n| n.add_to(&word));
        T::from_word(word.into_inner())
    }

    #[test]
    fn sums() {
        assert_eq!(sum(&[-1, -2, 1, i32::MAX, i32::MAX]), -4);
        assert_eq!(sum(&[u32::MAX, 3]), 2);
        assert_eq!(sum(&[u64::MAX, 3]), 2);
        assert_eq!(sum(&[i64::MIN, -1]), i64::MAX);
        assert_eq!(sum(&[0.5f32, 0.25]), 0.75);
        assert_eq!(sum(&[0.5f64, 0.25]), 0.75);
    }

    #[test]
    fn only_the_first_half() {
        let bytes = (-2i32).word().to_ne_bytes();
        assert_eq!(bytes.get(..4), Some((-2i32).to_ne_bytes().as_slice()));
        assert_eq!(bytes.get(4..), Some([0; 4].as_slice()));
    }
}
