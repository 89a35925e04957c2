//! Pseudo-random numbers, which are the same for the same seed on every machine.

/// The generator `SplitMix64`: one addition and two multiplications for each number.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates the generator of part `n`, for example a round, of the job with this seed.
    pub(crate) fn of(seed: u64, n: u64) -> Rng {
        let mut rng = Rng(seed ^ n.wrapping_mul(0xd134_2543_de82_ef95));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`; 0 when `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Returns true with probability 1/n; always when `n` is 0 or 1.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.next() as u32
    }

    /// Returns an element of a list; the type's default for an empty list.
    pub(crate) fn pick<T: Copy + Default>(&mut self, list: &[T]) -> T {
        list.get(self.below(list.len())).copied().unwrap_or_default()
    }

    /// Returns a number that programs often handle wrongly: the limit of a type, a number next to one, or any number.
    pub(crate) fn odd_number(&mut self) -> u64 {
        const ODD: [u64; 16] = [
            0,
            1,
            2,
            u64::MAX,
            i32::MAX as u64,
            u32::MAX as u64,
            1 << 31,
            1 << 32,
            i64::MAX as u64,
            1 << 63,
            255,
            256,
            65_535,
            65_536,
            1 << 20,
            u64::MAX - 7,
        ];
        match self.below(4) {
            0 => self.next() >> self.below(64),
            1 => self.pick(&ODD).wrapping_add(self.below(3) as u64).wrapping_sub(1),
            _ => self.pick(&ODD),
        }
    }
}

/// Derives the seed of a job from its name and the campaign's seed, by the hash FNV-1a.
pub(crate) fn seed_of(seed: u64, name: &str) -> u64 {
    name.bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |mut rng: Rng| std::array::from_fn::<u64, 8, _>(|_| rng.next());
        assert_eq!(numbers(Rng::of(7, 3)), numbers(Rng::of(7, 3)));
        assert_ne!(numbers(Rng::of(7, 3)), numbers(Rng::of(7, 4)));
        assert_eq!(Rng(0).next(), 0xe220_a839_7b1d_cdaf);
        let mut rng = Rng(1);
        assert!((0..1000).all(|_| rng.below(7) < 7) && rng.below(0) == 0);
    }
}
