//! Identifiers as text: `D.C.I` and `D.S`.

use std::fmt;
use std::str::FromStr;

use crate::{Domain, InDom, Inst, Item, PmId, Serial};

/// Error for a text that is not an identifier in its syntax and range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not a valid {what}")]
pub struct ParseIdError {
    text: String,
    what: &'static str,
}

/// Parses `N` numbers separated by dots; `largest` has the largest value of each.
fn numbers<const N: usize>(text: &str, largest: [u32; N], what: &'static str) -> Result<[u32; N], ParseIdError> {
    let error = || ParseIdError { text: text.to_owned(), what };
    let mut numbers = [0; N];
    let mut parts = text.split('.');
    for (number, max) in numbers.iter_mut().zip(largest) {
        let part = parts.next().filter(|p| p.bytes().all(|b| b.is_ascii_digit())).ok_or_else(error)?;
        *number = part.parse().ok().filter(|n| *n <= max).ok_or_else(error)?;
    }
    if parts.next().is_some() { Err(error()) } else { Ok(numbers) }
}

const DOMAIN: u32 = 511;
const CLUSTER: u32 = Item::MAX_CLUSTER as u32;
const ITEM: u32 = Item::MAX_ITEM as u32;

/// Parses `domain.cluster.item`, or `domain.*.*` for the root of a dynamic part of the name space.
impl FromStr for PmId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<PmId, ParseIdError> {
        let what = "metric identifier: domain.cluster.item of at most 511.4095.1023 expected";
        let [domain, cluster, item] = match text.strip_suffix(".*.*") {
            Some(domain) => {
                let [root] = numbers(domain, [CLUSTER], what)?;
                [Domain::DYNAMIC.get().into(), root, 0]
            }
            None => numbers(text, [DOMAIN, CLUSTER, ITEM], what)?,
        };
        let word = domain << 22 | cluster << 10 | item;
        PmId::from_word(word).ok_or_else(|| ParseIdError { text: text.to_owned(), what })
    }
}

/// Parses `domain.serial`.
impl FromStr for InDom {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<InDom, ParseIdError> {
        let what = "instance domain: domain.serial of at most 511.4194303 expected";
        let [domain, serial] = numbers(text, [DOMAIN, Serial::MAX], what)?;
        InDom::from_word(domain << 22 | serial).ok_or_else(|| ParseIdError { text: text.to_owned(), what })
    }
}

/// Parses `cluster.item`.
impl FromStr for Item {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Item, ParseIdError> {
        let what = "metric: cluster.item of at most 4095.1023 expected";
        let [cluster, item] = numbers(text, [CLUSTER, ITEM], what)?;
        Item::try_new(cluster as u16, item as u16).ok_or_else(|| ParseIdError { text: text.to_owned(), what })
    }
}

/// Optional identifier displayed as PCP's tools do: `None` is `PM_ID_NULL` (pmIDStr(3)), `PM_INDOM_NULL`
/// (pmInDomStr(3)) or -1 for an instance.
///
/// ```
/// use pmapi::{InDom, OrNull};
/// assert_eq!(OrNull(None::<InDom>).to_string(), "PM_INDOM_NULL");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrNull<T>(pub Option<T>);

macro_rules! or_null {
    ($($id:ty => $null:literal),*) => {$(
        impl fmt::Display for OrNull<$id> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match &self.0 {
                    Some(id) => f.pad(&id.to_string()),
                    None => f.pad($null),
                }
            }
        }
    )*};
}
or_null!(PmId => "PM_ID_NULL", InDom => "PM_INDOM_NULL", Inst => "-1");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed() {
        for text in ["253.2.4", "0.0.0", "511.4095.1023", "29.*.*"] {
            assert_eq!(text.parse::<PmId>().unwrap().to_string(), text);
        }
        assert_eq!("253.1".parse::<InDom>().unwrap().word(), 0x3f40_0001);
        assert_eq!("2.4".parse(), Ok(Item::new(2, 4)));
    }

    #[test]
    fn refused() {
        for text in
            ["", "1.2", "1.2.3.4", "512.0.0", "1.4096.0", "1.0.1024", "1.+2.3", " 1.2.3", "1..3", "4096.*.*", "1.*.3"]
        {
            assert!(text.parse::<PmId>().is_err(), "{text}");
        }
        for text in ["1", "1.4194304", "-1.0", "1.99999999999999999999"] {
            assert!(text.parse::<InDom>().is_err(), "{text}");
        }
        let error = "1.x".parse::<Item>().unwrap_err().to_string();
        assert_eq!(error, "\"1.x\" is not a valid metric: cluster.item of at most 4095.1023 expected");
    }
}
