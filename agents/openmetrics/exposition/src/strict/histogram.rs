//! Rules of `OpenMetrics` for the samples of a histogram that have the same labels and timestamp.

use super::Violation;

/// What the samples of a histogram have shown so far.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// Bound and value of the last bucket.
    bucket: Option<(f64, f64)>,
    count: Option<f64>,
    sum: Option<f64>,
    /// Whether the sum is one of a `gaugehistogram`, which may be negative.
    is_gauge: bool,
    has_negative: bool,
}

impl Histogram {
    /// Checks a sample by the ending of its name. `bound` is the label `le` of a bucket.
    pub(super) fn add(&mut self, ending: &str, bound: Option<f64>, value: f64) -> Result<(), Violation> {
        match ending {
            "_bucket" => self.bucket(bound.filter(|bound| !bound.is_nan()).ok_or(Violation::Bound)?, value),
            "_count" | "_gcount" => {
                self.count = Some(value);
                Ok(())
            }
            "_sum" | "_gsum" => {
                (self.sum, self.is_gauge) = (Some(value), ending == "_gsum");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn bucket(&mut self, bound: f64, value: f64) -> Result<(), Violation> {
        self.has_negative |= bound < 0.0;
        match self.bucket.replace((bound, value)) {
            Some((before, _)) if bound <= before => Err(Violation::BucketOrder),
            Some((_, before)) if value < before => Err(Violation::BucketValues),
            _ => Ok(()),
        }
    }

    /// Checks the samples together.
    pub(super) fn end(self) -> Result<(), Violation> {
        let refused = |reason| Err(Violation::Histogram(reason));
        let Some((_, all)) = self.bucket.filter(|(bound, _)| *bound == f64::INFINITY) else {
            return refused("it has no last bucket with le=\"+Inf\"");
        };
        match (self.count, self.sum) {
            (Some(count), _) if count != all => refused("its count is not the value of its last bucket"),
            (None, Some(_)) => refused("it has a sum, but no count"),
            (Some(_), None) => refused("it has a count, but no sum"),
            (_, Some(_)) if self.has_negative && !self.is_gauge => refused("it has a negative bound, and a sum"),
            (_, Some(sum)) if sum < 0.0 && !self.has_negative => refused("its sum is negative, but no bound is"),
            _ => Ok(()),
        }
    }
}
