//! Limits on the resources that the sources of operands can use up, for each group. The README has the table.

/// Longest answer of a pmcd or an agent, in bytes.
pub(crate) const ANSWER: u32 = 64 << 20;

/// Number of instance domains of all groups, including those of earlier configurations.
pub(crate) const DOMAINS: usize = 65_536;

/// Limits that tests change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Memory for the values of a sample, in bytes.
    pub(crate) values: usize,
    /// Memory for the names and labels of instances, in bytes.
    pub(crate) lists: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { values: 64 << 20, lists: 64 << 20 }
    }
}
