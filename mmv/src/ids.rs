//! Numbers that follow from names, so that they are the same in every run.

/// The first number from the one that a name's hash leads to, below `count`, that is not taken.
/// There must be one.
pub(crate) fn probe(hash: u64, count: u64, taken: impl Fn(u64) -> bool) -> u64 {
    let start = hash % count;
    (start..count).chain(0..start).find(|n| !taken(*n)).unwrap_or(start)
}

/// FNV-1a: the same on every machine and in every version of this crate.
pub(crate) fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn wraps_round() {
        let first = probe(hash("x"), 10, |_| false);
        assert_eq!(probe(hash("x"), 10, |n| n == first), (first + 1) % 10);
        assert_eq!(probe(hash("x"), 10, |n| n != 3), 3);
    }
}
