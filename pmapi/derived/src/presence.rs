//! Whether a sample has an operand.

/// Relation of an operand to a sample.
///
/// Samples of a pmcd have all operands. Records of an archive do not: a logging group has its own records, and some
/// metrics are logged only once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Presence {
    // The order counts: an operation has the largest value of its operands.
    /// The sample does not have the operand, and the values of the last sample that has it hold.
    Kept,
    /// The sample has values of the operand, or an error in their place.
    Sampled,
    /// The sample does not have the operand.
    Absent,
}
