//! Texts of units (pmUnitsStr(3)).

use std::fmt::{self, Write};

use super::{ExtraUnit, Quantity, SpaceScale, TimeScale, Units};

/// Longest text of an extra unit in libpcp, which cuts off the rest. Only "temperature" with a scale without meaning is
/// longer.
const EXTRA_TEXT_MAX: usize = 19;

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extra = i32::from(self.extra_unit());
        let parts = [
            Part::new(extra.signum(), || self.extra_text()),
            Part::new(self.dim_space().into(), || self.space_text()),
            Part::new(self.dim_time().into(), || self.time_text()),
            Part::new(self.dim_count().into(), || self.count_text()),
        ];
        let mut text = String::new();
        for part in parts.iter().filter(|p| p.dim > 0) {
            separate(&mut text);
            part.write(&mut text)?;
        }
        if parts.iter().any(|p| p.dim < 0) {
            separate(&mut text);
            text.push('/');
            for part in parts.iter().filter(|p| p.dim < 0) {
                separate(&mut text);
                part.write(&mut text)?;
            }
        }
        // libpcp shows a scale of count even without its dimension.
        if text.is_empty() && self.scale_count() != 0 {
            text = self.count_text();
        }
        f.pad(&text)
    }
}

/// Dimension that is not 0, and the text of its scale.
struct Part {
    dim: i32,
    text: String,
}

impl Part {
    fn new(dim: i32, text: impl FnOnce() -> String) -> Part {
        Part { dim, text: if dim == 0 { String::new() } else { text() } }
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        out.push_str(&self.text);
        match self.dim.abs() {
            1 => Ok(()),
            exponent => write!(out, "^{exponent}"),
        }
    }
}

fn separate(out: &mut String) {
    if !out.is_empty() {
        out.push(' ');
    }
}

impl Units {
    fn space_text(self) -> String {
        SpaceScale::from_code(self.scale_space())
            .map_or_else(|| format!("space-{}", self.scale_space()), |s| s.name().to_owned())
    }

    fn time_text(self) -> String {
        TimeScale::from_code(self.scale_time())
            .map_or_else(|| format!("time-{}", self.scale_time()), |s| s.name().to_owned())
    }

    fn count_text(self) -> String {
        match self.scale_count() {
            0 => "count".to_owned(),
            1 => "count x 10".to_owned(),
            scale => format!("count x 10^{scale}"),
        }
    }

    fn extra_text(self) -> String {
        let (code, scale) = (self.extra_unit(), self.extra_scale());
        let Some(quantity) = Quantity::from_code(code) else {
            return format!("extra-{}", code.unsigned_abs());
        };
        let mut text = match ExtraUnit::from_codes(quantity, scale) {
            Some(unit) => format!("{} ({})", quantity.name(), unit.symbol()),
            None => format!("{} (scale-{scale})", quantity.name()),
        };
        text.truncate(EXTRA_TEXT_MAX);
        text
    }
}

impl fmt::Debug for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Units({:#010x} \"{self}\")", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let text = |word| Units::from_word(word).to_string();
        assert_eq!(Units::NONE.to_string(), "");
        assert_eq!(Units::COUNT.per(Units::SECONDS).to_string(), "count / sec");
        assert_eq!(Units::SECONDS.pow(-1).to_string(), "/ sec");
        assert_eq!(text(0x0000_0600), "count x 10^6");
        assert_eq!(text(0x9382_d0af), "time-13^3 / extra-11 Mbyte^7 count^8");
        assert_eq!(text(0x5741_eb0e), "temperature (scale- Kbyte^5 time-14^7 count x 10^-5^4");
        assert_eq!(text(0xb914_4117), "voltage (scale-7) count x 10 / Tbyte^5 min^7");
        assert_eq!(format!("[{:>7}]", Units::BYTES), "[   byte]");
    }
}
