//! Values that take little memory, because there may be very many sources and metrics.

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// A type with a default that needs no memory of its own.
pub(crate) trait Sparse: Clone + 'static {
    /// The default.
    const NONE: &'static Self;
}

/// A value that most sources leave at its default. The default takes the memory of a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Rare<T>(Option<Arc<T>>);

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Rare(None)
    }
}

impl<T> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Rare(Some(Arc::new(value)))
    }
}

impl<T: Sparse> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::NONE)
    }
}

impl<T: Sparse> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_with(|| Arc::new(T::NONE.clone())))
    }
}

/// Texts that very many metrics have, such as the help of the same exporter on many hosts. Each is in memory once.
#[derive(Debug)]
pub(crate) struct Texts(Mutex<Option<State>>);

#[derive(Debug, Default)]
struct State {
    known: HashSet<Arc<str>>,
    /// Number of texts at which unused ones are removed.
    limit: usize,
}

/// Number of texts without a user that may stay in memory.
const SPARE: usize = 1000;

impl Texts {
    pub(crate) const fn new() -> Texts {
        Texts(Mutex::new(None))
    }

    /// Returns the known copy of a text, or a new one.
    pub(crate) fn shared(&self, text: &str) -> Arc<str> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state.get_or_insert_default();
        if let Some(known) = state.known.get(text) {
            return Arc::clone(known);
        }
        if state.known.len() >= state.limit {
            state.known.retain(|text| Arc::strong_count(text) > 1);
            state.known.shrink_to_fit();
            state.limit = 2 * state.known.len() + SPARE;
        }
        let text: Arc<str> = text.into();
        state.known.insert(Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shared_and_forgotten() {
        let texts = Texts::new();
        let (one, other) = (texts.shared("a"), texts.shared("b"));
        assert!(Arc::ptr_eq(&one, &texts.shared("a")) && !Arc::ptr_eq(&one, &other));
        (0..10 * SPARE).for_each(|n| drop(texts.shared(&n.to_string())));
        let known =
            |texts: &Texts| texts.0.lock().map_or(0, |state| state.as_ref().map_or(0, |state| state.known.len()));
        assert!(known(&texts) <= 2 * SPARE + 2, "{}", known(&texts));
        assert!(Arc::ptr_eq(&one, &texts.shared("a")));
    }

    #[test]
    fn rare_values() {
        #[derive(Clone, PartialEq, Debug)]
        struct Number(u64);
        impl Sparse for Number {
            const NONE: &'static Number = &Number(0);
        }
        let mut one: Rare<Number> = Rare::default();
        let other = one.clone();
        one.0 = Some(Arc::new(Number(1)));
        let copy = one.clone();
        *one = Number(2);
        assert_eq!((&*one, &*copy, &*other), (&Number(2), &Number(1), &Number(0)));
        assert_eq!(size_of::<Rare<[u64; 100]>>(), size_of::<usize>());
    }
}
