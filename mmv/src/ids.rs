//! Numbers derived from names, which are the same in every run.

/// Returns the first free number below `count`, starting with the one that `hash` selects. One number must be free.
/// `count` must be small, because names can be chosen such that all numbers have to be tried.
pub(crate) fn probe(hash: u64, count: u64, taken: impl Fn(u64) -> bool) -> u64 {
    from(hash, count).find(|n| !taken(*n)).unwrap_or(hash % count)
}

/// Returns a free number as [`probe`] does, or `None` after 64 attempts. Names can be chosen such that this happens.
pub(crate) fn probe_near(hash: u64, count: u64, taken: impl Fn(u64) -> bool) -> Option<u64> {
    from(hash, count).take(TRIES).find(|n| !taken(*n))
}

const TRIES: usize = 64;

fn from(hash: u64, count: u64) -> impl Iterator<Item = u64> {
    let start = hash % count;
    (start..count).chain(0..start)
}

/// Returns a hash that is the same on every machine and in every version of this crate. All its bits depend on the
/// whole name.
pub(crate) fn hash(name: &str) -> u64 {
    let words = name.as_bytes().chunks_exact(8);
    let rest = words.remainder().iter().rfold(name.len() as u64, |word, byte| word << 8 | u64::from(*byte));
    let words = words.filter_map(<[u8]>::first_chunk).map(|word| u64::from_le_bytes(*word));
    words.chain([rest]).fold(0, |hash, word| mix(hash ^ word))
}

/// Combines both halves of a product, so that every bit of `n` affects the result.
fn mix(n: u64) -> u64 {
    let product = u128::from(n ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn stable() {
        let names = ["", "a", "\0a", "requests", "requests.failed"];
        let expected =
            [0x1ff5c2923a788d2c, 0x1ce8f19f54715ba6, 0xd000bbd8a1853e53, 0x5824d8a878bdbc96, 0x61c3b428c3e3994b];
        assert_eq!(names.map(hash), expected);
        let numbers = (0..1000).map(|n| hash(&format!("metric{n}")));
        let (first, last): (HashSet<_>, HashSet<_>) = numbers.map(|hash| (hash >> 54, hash % 1024)).unzip();
        assert!(first.len() > 600 && last.len() > 600, "{} {}", first.len(), last.len());
    }

    #[test]
    fn wraps_round() {
        let first = probe(hash("x"), 10, |_| false);
        assert_eq!(probe(hash("x"), 10, |n| n == first), (first + 1) % 10);
        assert_eq!(probe(hash("x"), 10, |n| n != 3), 3);
        assert_eq!(probe_near(hash("x"), 10, |n| n != 3), Some(3));
        assert_eq!(probe_near(5, 1000, |n| n < 5 + TRIES as u64), None);
    }
}
