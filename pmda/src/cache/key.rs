//! Numbers of instances, made from keys.

/// Returns the numbers that an instance with this key may have, in the order in which they are tried. They are hashes
/// of the key, each seeded with the previous one, scaled to 0 to `max` (pmdaCacheStoreKey(3)).
///
/// The hashes are those of `libpcp_pmda`, so that an instance has the same number in C and here.
pub(super) fn numbers(key: &[u8], max: u32) -> impl Iterator<Item = u32> {
    let seeds = std::iter::successors(Some(0), |seed| Some(hash(key, *seed)));
    seeds.skip(1).take(TRIES).map(move |hash| (u64::from(hash) % (u64::from(max) + 1)) as u32)
}

const TRIES: usize = 10;

/// Bob Jenkins' hash of 1996, over signed bytes.
fn hash(key: &[u8], seed: u32) -> u32 {
    const GOLDEN: u32 = 0x9e37_79b9;
    let mut state = [GOLDEN, GOLDEN, seed];
    let blocks = key.chunks_exact(12);
    let rest = blocks.remainder();
    for block in blocks {
        for (i, byte) in block.iter().enumerate() {
            add(&mut state, i, *byte);
        }
        mix(&mut state);
    }
    // The lowest byte of the last word holds the length.
    state[2] = state[2].wrapping_add(key.len() as u32);
    for (i, byte) in rest.iter().enumerate() {
        add(&mut state, if i < 8 { i } else { i + 1 }, *byte);
    }
    mix(&mut state);
    state[2]
}

fn add(state: &mut [u32; 3], at: usize, byte: u8) {
    let signed = i32::from(byte as i8) as u32;
    if let Some(word) = state.get_mut(at / 4) {
        *word = word.wrapping_add(signed << (8 * (at % 4)));
    }
}

fn mix(state: &mut [u32; 3]) {
    const ROUNDS: [[u32; 3]; 3] = [[13, 8, 13], [12, 16, 5], [3, 10, 15]];
    let [mut a, mut b, mut c] = *state;
    for [to_a, to_b, to_c] in ROUNDS {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> to_a);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << to_b);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> to_c);
    }
    *state = [a, b, c];
}
