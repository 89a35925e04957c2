//! Option `--limit NAME=N`.

use std::str::FromStr;

/// Function that sets a limit of `L` to a number. It may convert the number to another unit.
pub type Setter<L> = fn(&mut L, u64);

/// Limits of an agent that option `--limit NAME=N` can change, one at a time.
pub trait Settable: 'static {
    /// The names of the limits.
    const NAMES: &'static [(&'static str, Setter<Self>)];
}

/// Value of option `--limit NAME=N`: the limit `NAME` is the number `N`, less than 2^32, in place of its default.
///
/// ```
/// use clap::Parser;
/// use pmda::limits::{Settable, Setter, Setting};
///
/// #[derive(Clone, Debug)]
/// struct Limits {
///     files: u64,
///     bytes: u64,
/// }
///
/// impl Settable for Limits {
///     const NAMES: &'static [(&'static str, Setter<Limits>)] = &[
///         ("files", |limits, n| limits.files = n),
///         ("memory", |limits, n| limits.bytes = n << 20), // MiB
///     ];
/// }
///
/// #[derive(Parser)]
/// struct Options {
///     /// Sets a limit: files or memory (MiB).
///     #[arg(long = "limit", value_name = "NAME=N")]
///     limits: Vec<Setting<Limits>>,
/// }
///
/// let options = Options::parse_from(["pmdax", "--limit", "memory=2"]);
/// let limits = Setting::change(&options.limits, Limits { files: 10, bytes: 1 << 20 });
/// assert_eq!((limits.files, limits.bytes), (10, 2 << 20));
/// ```
#[derive(Debug)]
pub struct Setting<L> {
    set: Setter<L>,
    value: u64,
}

impl<L> Clone for Setting<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Setting<L> {}

impl<L> Setting<L> {
    /// Returns `limits` with changes in their order.
    pub fn change(settings: &[Setting<L>], mut limits: L) -> L {
        settings.iter().for_each(|setting| (setting.set)(&mut limits, setting.value));
        limits
    }
}

impl<L: Settable> FromStr for Setting<L> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("--limit {text}: NAME=NUMBER is expected"));
        };
        let Some((_, set)) = L::NAMES.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = L::NAMES.iter().map(|(known, _)| *known).collect();
            return Err(format!("--limit {text}: unknown limit; the limits are {}", known.join(", ")));
        };
        let value: u32 = value.parse().map_err(|_| format!("--limit {text}: a number below 2^32 is expected"))?;
        Ok(Setting { set: *set, value: value.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq, Debug)]
    struct Limits(u64, u64);

    impl Settable for Limits {
        const NAMES: &'static [(&'static str, Setter<Limits>)] =
            &[("files", |limits, n| limits.0 = n), ("memory", |limits, n| limits.1 = n << 20)];
    }

    #[test]
    fn the_last_setting_of_a_limit_holds() {
        let settings = ["files=7", "memory=4294967295", "files=8"].map(|text| text.parse().unwrap());
        assert_eq!(Setting::change(&settings, Limits(1, 1)), Limits(8, u64::from(u32::MAX) << 20));
    }

    #[test]
    fn errors_name_the_option_and_the_limits() {
        let error = |text: &str| text.parse::<Setting<Limits>>().unwrap_err();
        assert_eq!(error("fish=1"), "--limit fish=1: unknown limit; the limits are files, memory");
        assert_eq!(error("files"), "--limit files: NAME=NUMBER is expected");
        for bad in ["files=", "files=-1", "files=many", "files=4294967296", "files= 1"] {
            assert_eq!(error(bad), format!("--limit {bad}: a number below 2^32 is expected"));
        }
    }
}
