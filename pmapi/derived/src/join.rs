//! Join of two columns by instance.

use std::sync::Arc;

use super::values::InstIds;

/// Instances that both columns have, in the order of the left one. Recomputed only when either column has other
/// instances.
#[derive(Debug)]
pub(crate) struct Join {
    left: Arc<InstIds>,
    right: Arc<InstIds>,
    same: bool,
    pub(crate) ids: Arc<InstIds>,
    pub(crate) left_places: Vec<u32>,
    pub(crate) right_places: Vec<u32>,
}

impl Default for Join {
    fn default() -> Join {
        let none = || Arc::clone(InstIds::none());
        Join { left: none(), right: none(), same: true, ids: none(), left_places: Vec::new(), right_places: Vec::new() }
    }
}

impl Join {
    /// Returns whether both columns have the same instances in the same order. Otherwise sets the positions to combine.
    pub(crate) fn update(&mut self, left: &Arc<InstIds>, right: &Arc<InstIds>) -> bool {
        if Arc::ptr_eq(left, right) {
            return true;
        }
        if Arc::ptr_eq(&self.left, left) && Arc::ptr_eq(&self.right, right) {
            return self.same;
        }
        (self.left, self.right) = (Arc::clone(left), Arc::clone(right));
        self.same = left.list == right.list;
        if !self.same {
            self.find();
        }
        self.same
    }

    fn find(&mut self) {
        self.left_places.clear();
        self.right_places.clear();
        let mut list = Vec::new();
        let (left, right) = (&self.left, &self.right);
        let places = Lookup::new(right);
        let mut from = 0;
        for (at, id) in left.list.iter().enumerate() {
            let place = if left.ascending && right.ascending { places.next(*id, &mut from) } else { places.find(*id) };
            if let Some(place) = place {
                self.left_places.push(at as u32);
                self.right_places.push(place);
                list.push(*id);
            }
        }
        self.ids = if list == left.list { Arc::clone(left) } else { InstIds::new(list) };
    }
}

/// Search for the position of an instance. Among duplicates, it finds the first one.
pub(crate) struct Lookup<'a> {
    ids: &'a InstIds,
    sorted: Vec<(u32, u32)>,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(ids: &'a InstIds) -> Lookup<'a> {
        let mut sorted = Vec::new();
        if !ids.ascending {
            sorted.extend(ids.list.iter().enumerate().map(|(at, id)| (*id, at as u32)));
            sorted.sort_unstable();
        }
        Lookup { ids, sorted }
    }

    pub(crate) fn find(&self, id: u32) -> Option<u32> {
        if self.ids.ascending {
            return self.ids.list.binary_search(&id).ok().map(|at| at as u32);
        }
        let at = self.sorted.partition_point(|(other, _)| *other < id);
        self.sorted.get(at).filter(|(other, _)| *other == id).map(|(_, place)| *place)
    }

    /// Finds an instance as [`Lookup::find`] does. If instances ascend on both sides, one pass finds all of them.
    fn next(&self, id: u32, from: &mut usize) -> Option<u32> {
        while self.ids.list.get(*from).is_some_and(|other| *other < id) {
            *from += 1;
        }
        self.ids.list.get(*from).filter(|other| **other == id).map(|_| *from as u32)
    }
}
