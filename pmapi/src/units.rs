//! Dimension and scale of values (`pmUnits`).

/// Dimension and scale of a metric's values (`pmUnits`), as the word that travels.
///
/// Word, most significant bits first: dimension of space (4 bits), of time (4), of count (4), scale
/// of space (4), of time (4), of count (4); since PCP 7.2 an extra unit (5) and its scale (3).
/// Dimensions, the scale of count and the extra unit are two's complement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Units(u32);

impl Units {
    /// The word as it travels.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// The units of a word; every word has units.
    pub const fn from_word(word: u32) -> Units {
        Units(word)
    }
}

impl std::fmt::Debug for Units {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Units({:#010x})", self.0)
    }
}
