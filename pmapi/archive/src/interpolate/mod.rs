//! Values at any time, from the records around it (`PM_MODE_INTERP` of pmSetMode(3)).
//!
//! An [`Interpolator`] returns the values at an origin, and then at regular steps forward or backward. It reads each
//! record once. It reads ahead while an instance has no value after the requested time, and keeps values until the time
//! has passed them. So the cost of a whole grid is that of reading the records and returning the values, however sparse
//! the recorded values are.

mod clock;
mod datum;
mod fetch;
mod reach;
mod sample;
mod table;

pub use fetch::Interpolator;
pub use sample::{Interpolated, InterpolatedSet};

/// Rule for the value of an instant or discrete metric between two records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Rule {
    /// Value of the record before, as libpcp did before PCP 6.3.2.
    Before632,
    /// Value of the nearer record, or of the one before if both are equally near, as libpcp does since PCP 6.3.2. Texts
    /// and other values that are not numbers are those of the record before.
    #[default]
    Since632,
}

/// Meaning of a counter that falls from one record to the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Wrap {
    /// The counter goes down, on a line between the two values.
    #[default]
    Falls,
    /// The counter has passed its largest value (`PCP_COUNTER_WRAP`).
    Wraps,
}

/// Treatment of `<mark>` records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Marks {
    /// Values before and after a `<mark>` are not related.
    #[default]
    Separate,
    /// `<mark>`s are skipped (an empty `PCP_IGNORE_MARK_RECORDS`).
    Ignored,
}

/// Rules of interpolation between two records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[must_use]
pub struct Interpolation {
    rule: Rule,
    wrap: Wrap,
    marks: Marks,
}

impl Interpolation {
    /// Returns the default rules: those of the newest libpcp without settings in the environment.
    pub fn new() -> Interpolation {
        Interpolation::default()
    }

    /// Sets the rule for the value of an instant or discrete metric between two records.
    pub fn rule(mut self, rule: Rule) -> Interpolation {
        self.rule = rule;
        self
    }

    /// Sets the meaning of a falling counter.
    pub fn wrap(mut self, wrap: Wrap) -> Interpolation {
        self.wrap = wrap;
        self
    }

    /// Sets the treatment of `<mark>` records.
    pub fn marks(mut self, marks: Marks) -> Interpolation {
        self.marks = marks;
        self
    }
}
