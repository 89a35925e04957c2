//! Linear regression by least squares.

/// A regression line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) slope: f64,
    /// Standard error of the slope.
    pub(super) error: f64,
    /// Distance from the first to the last sample.
    length: f64,
}

impl Line {
    /// Fits a line to samples `(x, y)`. Returns `None` with fewer than three samples, or if all have the same x.
    pub(super) fn fit(samples: &[(f64, f64)]) -> Option<Line> {
        let n = samples.len() as f64;
        let (first, last) = (samples.first()?, samples.last()?);
        let mean = |of: fn(&(f64, f64)) -> f64| samples.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|s| s.0), mean(|s| s.1));
        let spread: f64 = samples.iter().map(|s| (s.0 - x).powi(2)).sum();
        if samples.len() < 3 || spread == 0.0 {
            return None;
        }
        let slope = samples.iter().map(|s| (s.0 - x) * (s.1 - y)).sum::<f64>() / spread;
        let rest: f64 = samples.iter().map(|s| (s.1 - y - slope * (s.0 - x)).powi(2)).sum();
        Some(Line { slope, error: (rest / (n - 2.0) / spread).sqrt(), length: last.0 - first.0 })
    }

    /// Returns the rise of the line from the first to the last sample.
    pub(super) fn rise(&self) -> f64 {
        self.slope * self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_noise_has_its_slope() {
        let samples: Vec<_> = (0..100).map(|n| (f64::from(n), 5.0 + 2.0 * f64::from(n) + f64::from(n % 2))).collect();
        let line = Line::fit(&samples).unwrap();
        assert!((line.slope - 2.0).abs() < 0.01 && line.error < 0.01 && (line.rise() - 198.0).abs() < 1.0);
        assert!(Line::fit(&samples[..2]).is_none() && Line::fit(&[(1.0, 2.0); 5]).is_none());
    }
}
