//! Values at any time, from the records around it (`PM_MODE_INTERP` of pmSetMode(3)).
//!
//! An [`Interpolator`] returns the values at an origin, and then at times that a step leads to, forward or back. It
//! reads each record once: records ahead of the time are read when an instance has no value after it yet, and their
//! values are kept until the time has passed them. So the cost of a whole grid is that of reading the records and of
//! the values that are returned, however sparse those in the records are.

mod clock;
mod datum;
mod fetch;
mod reach;
mod sample;
mod table;

pub use fetch::Interpolator;
pub use sample::{Interpolated, InterpolatedSet};

/// Which value an instant or discrete metric has between two records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Rule {
    /// Value of the record before, as libpcp did before PCP 6.3.2.
    Before632,
    /// Value of the nearer record, or of the one before if both are equally near, as libpcp does since PCP 6.3.2. Text
    /// and other values that are no numbers are those of the record before.
    #[default]
    Since632,
}

/// What a counter that falls from one record to the next means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Wrap {
    /// The counter goes down, on a line between the two values.
    #[default]
    Falls,
    /// The counter has passed its largest value (`PCP_COUNTER_WRAP`).
    Wraps,
}

/// What `<mark>` records mean.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Marks {
    /// Values before and after a `<mark>` are not related.
    #[default]
    Separate,
    /// `<mark>`s are as if they were not there (an empty `PCP_IGNORE_MARK_RECORDS`).
    Ignored,
}

/// Rules of interpolation: what is between two records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
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

    /// Sets which value an instant or discrete metric has between two records.
    pub fn rule(mut self, rule: Rule) -> Interpolation {
        self.rule = rule;
        self
    }

    /// Sets what a falling counter means.
    pub fn wrap(mut self, wrap: Wrap) -> Interpolation {
        self.wrap = wrap;
        self
    }

    /// Sets what `<mark>` records mean.
    pub fn marks(mut self, marks: Marks) -> Interpolation {
        self.marks = marks;
        self
    }
}
