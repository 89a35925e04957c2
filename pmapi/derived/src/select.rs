//! Ternary operator: for each instance, the value of one arm.

use std::sync::Arc;

use super::data::{Data, Number};
use super::join::Lookup;
use super::values::{Column, InstIds};

/// Positions of the result's instances in the guard and the arms. Recomputed only when the instances of one of them
/// change.
#[derive(Debug)]
pub(crate) struct Select {
    /// Instances of the guard and of both arms; empty without an instance domain.
    sources: [Arc<InstIds>; 3],
    ids: Arc<InstIds>,
    places: [Places; 3],
    truth: Vec<bool>,
    kept: Vec<u32>,
}

#[derive(Debug, Default)]
enum Places {
    /// No instance has a value.
    None,
    /// One value for all instances.
    #[default]
    First,
    /// Position in the operand, equal to that in the result.
    Same,
    List(Vec<u32>),
}

const ABSENT: u32 = u32::MAX;

impl Default for Select {
    fn default() -> Select {
        let none = || Arc::clone(InstIds::none());
        let (truth, kept) = (Vec::new(), Vec::new());
        Select { sources: [none(), none(), none()], ids: none(), places: Default::default(), truth, kept }
    }
}

impl Places {
    #[inline]
    fn get(&self, at: usize) -> Option<usize> {
        match self {
            Places::None => None,
            Places::First => Some(0),
            Places::Same => Some(at),
            Places::List(list) => list.get(at).filter(|place| **place != ABSENT).map(|place| *place as usize),
        }
    }
}

/// Guard or arm: its values, `None` for `novalue`; and whether it has an instance domain.
pub(crate) type Side<'a> = (Option<&'a Column>, bool);

impl Select {
    /// Computes the result. The guard and each arm that is not `novalue` must have values.
    pub(crate) fn run(&mut self, guard: &Column, sides: [Side<'_>; 3], output: &mut Column) {
        self.update(sides);
        self.truth.clear();
        match &guard.data {
            Data::I32(column) => self.truth.extend(column.iter().map(|v| *v != 0)),
            Data::U32(column) => self.truth.extend(column.iter().map(|v| *v != 0)),
            Data::I64(column) => self.truth.extend(column.iter().map(|v| *v != 0)),
            Data::U64(column) => self.truth.extend(column.iter().map(|v| *v != 0)),
            Data::Float(column) => self.truth.extend(column.iter().map(|v| *v != 0.0)),
            Data::Double(column) => self.truth.extend(column.iter().map(|v| *v != 0.0)),
            Data::Bytes(_) => {}
        }
        self.kept.clear();
        output.data.clear();
        let arms = [sides[1].0, sides[2].0].map(|arm| arm.map(|arm| &arm.data));
        if let Some(all) = self.chosen_for_all(arms) {
            output.data.copy_from(all, None);
            return output.set_ids(&self.ids);
        }
        match &mut output.data {
            Data::I32(column) => self.numbers(arms, column),
            Data::U32(column) => self.numbers(arms, column),
            Data::I64(column) => self.numbers(arms, column),
            Data::U64(column) => self.numbers(arms, column),
            Data::Float(column) => self.numbers(arms, column),
            Data::Double(column) => self.numbers(arms, column),
            Data::Bytes(_) => self.texts(arms, &mut output.data),
        }
        if output.data.len() == self.ids.list.len() { output.set_ids(&self.ids) } else { output.set_list(&self.kept) }
    }

    /// Returns the arm that all values come from: the guard must have one value for all instances, and the arm must
    /// have the instances of the result.
    fn chosen_for_all<'a>(&self, [left, right]: [Option<&'a Data>; 2]) -> Option<&'a Data> {
        let [Places::First, left_places, right_places] = &self.places else { return None };
        let (places, arm) = if *self.truth.first()? { (left_places, left) } else { (right_places, right) };
        arm.filter(|arm| matches!(places, Places::Same) && arm.len() == self.ids.list.len())
    }

    fn numbers<T: Number>(&mut self, arms: [Option<&Data>; 2], output: &mut Vec<T>) {
        let [left, right] = arms.map(|arm| arm.and_then(T::column).map_or(&[][..], |column| column));
        let [guard, left_places, right_places] = &self.places;
        if let (Places::Same, Places::Same, Places::Same) = (guard, left_places, right_places) {
            let pairs = left.iter().zip(right);
            output
                .extend(self.truth.iter().zip(pairs).map(|(truth, (left, right))| if *truth { *left } else { *right }));
            return;
        }
        for (at, id) in self.ids.list.iter().enumerate() {
            let Some(truth) = guard.get(at).and_then(|at| self.truth.get(at)) else { continue };
            let value = if *truth {
                left_places.get(at).and_then(|at| left.get(at))
            } else {
                right_places.get(at).and_then(|at| right.get(at))
            };
            if let Some(value) = value {
                output.push(*value);
                self.kept.push(*id);
            }
        }
    }

    fn texts(&mut self, [left, right]: [Option<&Data>; 2], output: &mut Data) {
        let [guard, left_places, right_places] = &self.places;
        for (at, id) in self.ids.list.iter().enumerate() {
            let Some(truth) = guard.get(at).and_then(|at| self.truth.get(at)) else { continue };
            let (places, data) = if *truth { (left_places, left) } else { (right_places, right) };
            if let Some((place, data)) = places.get(at).zip(data).filter(|(place, data)| *place < data.len()) {
                output.push_from(data, place);
                self.kept.push(*id);
            }
        }
    }

    fn update(&mut self, sides: [Side<'_>; 3]) {
        let none = InstIds::none();
        let sources = sides.map(|(values, indom)| values.filter(|_| indom).map_or(none, |values| &values.ids));
        if !Arc::ptr_eq(&self.ids, none) && self.sources.iter().zip(sources).all(|(old, new)| Arc::ptr_eq(old, new)) {
            return;
        }
        self.sources = sources.map(Arc::clone);
        let of_arms = [1, 2].map(|arm| (sides[arm].0.is_some() && sides[arm].1).then_some(sources[arm]));
        self.ids = match of_arms {
            [Some(left), Some(right)] => union(left, right),
            [Some(one), None] | [None, Some(one)] => Arc::clone(one),
            [None, None] if sides[0].1 => Arc::clone(sources[0]),
            [None, None] => Arc::clone(InstIds::singular()),
        };
        self.places = sides.map(|(values, indom)| match values {
            None => Places::None,
            Some(_) if !indom => Places::First,
            Some(values) if Arc::ptr_eq(&values.ids, &self.ids) || values.ids.list == self.ids.list => Places::Same,
            Some(values) => {
                let lookup = Lookup::new(&values.ids);
                Places::List(self.ids.list.iter().map(|id| lookup.find(*id).unwrap_or(ABSENT)).collect())
            }
        });
    }
}

/// Returns the instances of the left side, followed by those that only the right side has.
fn union(left: &Arc<InstIds>, right: &Arc<InstIds>) -> Arc<InstIds> {
    if Arc::ptr_eq(left, right) {
        return Arc::clone(left);
    }
    let lookup = Lookup::new(left);
    let more: Vec<u32> = right.list.iter().copied().filter(|id| lookup.find(*id).is_none()).collect();
    if more.is_empty() { Arc::clone(left) } else { InstIds::new([&left.list[..], &more].concat()) }
}
