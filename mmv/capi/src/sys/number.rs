//! Numbers as C converts them on x86-64.

/// The number 2 to the power of 63.
const TOP: f64 = 9_223_372_036_854_775_808.0;

/// Converts like `(__int64_t)number`; numbers out of range become the smallest `i64`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unused_unsafe, reason = "the functions are safe in newer versions of Rust")]
pub(crate) fn to_i64(number: f64) -> i64 {
    use std::arch::x86_64::{_mm_cvttsd_si64, _mm_set_sd};
    // SAFETY: the functions need SSE2, which every x86-64 has.
    unsafe { _mm_cvttsd_si64(_mm_set_sd(number)) }
}

/// Converts like `(__int64_t)number`; numbers out of range become the smallest `i64`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn to_i64(number: f64) -> i64 {
    if number >= -TOP && number < TOP {
        // SAFETY: the number is finite, and fits without its fraction.
        unsafe { number.to_int_unchecked() }
    } else {
        i64::MIN
    }
}

/// Converts like `(__uint64_t)number`: a negative number wraps around.
#[inline(always)]
pub(crate) fn to_u64(number: f64) -> u64 {
    if number >= TOP { to_i64(number - TOP) as u64 ^ 1 << 63 } else { to_i64(number) as u64 }
}

/// Converts like `(__int32_t)number`; numbers out of range become the smallest `i32`.
#[inline(always)]
pub(crate) fn to_i32(number: f64) -> i32 {
    i32::try_from(to_i64(number)).unwrap_or(i32::MIN)
}

/// Converts like `(__uint32_t)number`: a negative number wraps around.
#[inline(always)]
pub(crate) fn to_u32(number: f64) -> u32 {
    to_i64(number) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions() {
        assert_eq!(
            [to_i64(-1.9), to_i64(1e18), to_i64(1e19), to_i64(f64::NAN)],
            [-1, 10_i64.pow(18), i64::MIN, i64::MIN]
        );
        assert_eq!([to_u64(-1.0), to_u64(1e19), to_u64(1e20)], [u64::MAX, 10_u64.pow(19), 0]);
        assert_eq!([to_i32(-1.0), to_i32(2147483647.5), to_i32(2147483648.0)], [-1, i32::MAX, i32::MIN]);
        assert_eq!([to_u32(-1.0), to_u32(4294967295.0), to_u32(1e30)], [u32::MAX, u32::MAX, 0]);
    }
}
