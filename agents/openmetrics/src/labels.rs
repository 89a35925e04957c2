//! The labels of a metric or instance, in one allocation: a source may have very many instances.

use std::sync::Arc;

/// Names and values. Each is encoded as its length in four bytes, followed by the text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Labels(Arc<[u8]>);

impl Labels {
    pub(crate) fn new<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let mut bytes = Vec::new();
        for text in pairs.flat_map(|(name, value)| [name, value]) {
            // A document is shorter than 4 GiB.
            bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_ne_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        // All empty lists share one allocation.
        Labels(if bytes.is_empty() { Arc::default() } else { bytes.into() })
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let name = take(&mut rest)?;
            Some((name, take(&mut rest)?))
        })
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (len, after) = rest.split_first_chunk()?;
    let (text, after) = after.split_at_checked(u32::from_ne_bytes(*len) as usize)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text() {
        let pairs = [("", ""), ("a", "b"), ("é", "\0\n\""), ("long", &"x".repeat(70_000))];
        let labels = Labels::new(pairs.into_iter());
        assert_eq!(labels.iter().collect::<Vec<_>>(), pairs);
        assert_eq!(Labels::new([].into_iter()).iter().count(), 0);
    }
}
