//! Columns: the values of one metric in one sample.

use std::sync::{Arc, LazyLock};

use super::Presence;
use super::data::Data;
use pmapi::{Atom, Error, Inst, OptionWord, Type};

/// Instances of a column. Columns of one instance domain share them while they do not change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct InstIds {
    /// Instance identifiers; `PM_IN_NULL` for a singular metric.
    pub(crate) list: Vec<u32>,
    /// Whether each identifier is larger than the one before.
    pub(crate) ascending: bool,
}

static NONE: LazyLock<Arc<InstIds>> = LazyLock::new(|| InstIds::new(Vec::new()));
static SINGULAR: LazyLock<Arc<InstIds>> = LazyLock::new(|| InstIds::new(vec![u32::MAX]));

impl InstIds {
    /// Returns the shared empty list.
    pub(crate) fn none() -> &'static Arc<InstIds> {
        &NONE
    }

    /// Returns the shared list of a singular metric.
    pub(crate) fn singular() -> &'static Arc<InstIds> {
        &SINGULAR
    }

    pub(crate) fn new(list: Vec<u32>) -> Arc<InstIds> {
        let ascending = list.is_sorted_by(|a, b| a < b);
        Arc::new(InstIds { list, ascending })
    }
}

/// Values of a metric in a sample: a column of instances, and a column of numbers or of byte strings.
#[derive(Debug)]
pub struct Column {
    pub(crate) ids: Arc<InstIds>,
    pub(crate) data: Data,
    pub(crate) ty: Type,
    pub(crate) status: Result<(), Error>,
    /// Relation to the last sample, in which the column of an absent operand does not change. `None` if the values
    /// depend on no operand.
    pub(crate) presence: Option<Presence>,
}

/// Returns an empty column of type `U32`.
impl Default for Column {
    fn default() -> Column {
        Column::new(Type::U32)
    }
}

/// [`Clone::clone_from`] reuses the memory of a column of the same type.
impl Clone for Column {
    fn clone(&self) -> Column {
        Column { ids: Arc::clone(&self.ids), data: self.data.clone(), ..*self }
    }

    fn clone_from(&mut self, from: &Column) {
        (self.ty, self.status, self.presence) = (from.ty, from.status, from.presence);
        if std::mem::discriminant(&self.data) == std::mem::discriminant(&from.data) {
            self.data.copy_from(&from.data, None);
        } else {
            self.data = from.data.clone();
        }
        if !Arc::ptr_eq(&self.ids, &from.ids) {
            self.ids = Arc::clone(&from.ids);
        }
    }
}

impl Column {
    /// Returns an empty column.
    pub(crate) fn new(ty: Type) -> Column {
        Column { ids: Arc::clone(InstIds::none()), data: Data::new(ty), ty, status: Ok(()), presence: None }
    }

    /// Returns the number of values; 0 if there is an error.
    pub fn len(&self) -> usize {
        self.ids.list.len()
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.ids.list.is_empty()
    }

    /// Returns whether another column has the same instances, in the same order.
    pub fn same_instances(&self, other: &Column) -> bool {
        Arc::ptr_eq(&self.ids, &other.ids) || self.ids.list == other.ids.list
    }

    /// Returns the type of the values.
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// Returns the error in place of values, if there is one.
    ///
    /// # Errors
    /// The error that the sample has for the metric.
    pub fn status(&self) -> Result<(), Error> {
        self.status
    }

    /// Returns each value with its instance, which is `None` for a singular metric.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Option<Inst>, Atom<'_>)> {
        let ids = self.ids.list.iter().enumerate();
        ids.map(|(at, id)| (Inst::from_word(*id), self.data.atom(at, self.ty)))
    }

    /// Calls `each` for every value with its instance, as [`Column::iter`] returns them. Faster than `iter`, because
    /// each type has a separate loop.
    ///
    /// # Errors
    /// The first error of `each`, which ends the loop.
    pub fn try_each<E>(&self, mut each: impl FnMut(Option<Inst>, Atom<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut ids = self.ids.list.iter().map(|id| Inst::from_word(*id));
        macro_rules! numbers {
            ($($kind:ident)*) => {
                match &self.data {
                    $(Data::$kind(column) => ids.zip(column).try_for_each(|(id, value)| each(id, Atom::$kind(*value))),)*
                    Data::Bytes(_) => (0..).zip(&mut ids).try_for_each(|(at, id)| each(id, self.data.atom(at, self.ty))),
                }
            };
        }
        numbers!(I32 U32 I64 U64 Float Double)
    }

    /// Removes the values and sets the status.
    pub(crate) fn fail(&mut self, status: Result<(), Error>) {
        self.status = status;
        self.data.clear();
        self.ids = Arc::clone(InstIds::none());
    }

    /// Removes the values and sets the instances of the next ones.
    pub(crate) fn begin(&mut self, ids: &Arc<InstIds>) {
        self.data.clear();
        self.set_ids(ids);
    }

    /// Removes the values and sets the instances for the one value of a singular metric.
    pub(crate) fn begin_singular(&mut self) {
        self.begin(InstIds::singular());
    }

    /// Sets the instances of the present values.
    pub(crate) fn set_ids(&mut self, ids: &Arc<InstIds>) {
        self.status = Ok(());
        if !Arc::ptr_eq(&self.ids, ids) {
            self.ids = Arc::clone(ids);
        }
    }

    /// Sets the instances of the present values from a list. Allocates only if the instances have changed.
    pub(crate) fn set_list(&mut self, list: &[u32]) {
        self.status = Ok(());
        if self.ids.list != list {
            self.ids = InstIds::new(list.to_vec());
        }
    }
}

/// Receiver of an operand's values from a [`Source`](super::Source).
#[derive(Debug)]
pub struct Load<'a> {
    values: &'a mut Column,
    /// The instances of the values.
    list: &'a mut Vec<u32>,
}

impl<'a> Load<'a> {
    /// Removes the values of the previous sample. `list` is memory to reuse.
    pub(crate) fn new(values: &'a mut Column, list: &'a mut Vec<u32>) -> Load<'a> {
        values.status = Ok(());
        values.data.clear();
        list.clear();
        Load { values, list }
    }

    /// Returns the type that the values must have: that of the descriptor with which the operand was bound.
    pub fn ty(&self) -> Type {
        self.values.ty
    }

    /// Adds a value; `inst` is `None` for a singular metric. A value of another type makes the operand fail with
    /// `PM_ERR_CONV`.
    #[inline]
    pub fn push(&mut self, inst: Option<Inst>, value: Atom<'_>) {
        self.list.push(inst.word());
        if !self.values.data.push(value) {
            self.values.status = Err(Error::CONV);
        }
    }

    /// Adds values as [`Load::push`] does. Faster for many values, because the loop handles one type.
    #[inline]
    pub fn extend<'v>(&mut self, values: impl IntoIterator<Item = (Option<Inst>, Atom<'v>)>) {
        let Load { values: Column { data, status, .. }, list } = self;
        let mut wrong = false;
        let values = values.into_iter();
        macro_rules! take {
            ($column:expr, $kind:ident) => {
                append(list, $column, values, |value| match value {
                    Atom::$kind(value) => value,
                    _ => {
                        wrong = true;
                        Default::default()
                    }
                })
            };
        }
        match data {
            Data::I32(column) => take!(column, I32),
            Data::U32(column) => take!(column, U32),
            Data::I64(column) => take!(column, I64),
            Data::U64(column) => take!(column, U64),
            Data::Float(column) => take!(column, Float),
            Data::Double(column) => take!(column, Double),
            Data::Bytes(bytes) => {
                for (inst, value) in values {
                    list.push(inst.word());
                    wrong |= !bytes.push_atom(value);
                }
            }
        }
        if wrong {
            *status = Err(Error::CONV);
        }
    }

    /// Completes the sample with its instances or its error. Returns whether the instances have changed.
    pub(crate) fn finish(self, result: Result<(), Error>) -> bool {
        let Load { values, list } = self;
        if let Err(error) = result.and(values.status) {
            values.fail(Err(error));
            return true;
        }
        let changed = values.ids.list != *list;
        if changed {
            values.ids = InstIds::new(list.clone());
        }
        changed
    }
}

/// Appends instances to a list and numbers to a column. Reserves memory beforehand if the number of values is known, so
/// that single values need no check.
#[inline]
fn append<'v, T: Copy + Default>(
    list: &mut Vec<u32>,
    column: &mut Vec<T>,
    values: impl Iterator<Item = (Option<Inst>, Atom<'v>)>,
    mut number: impl FnMut(Atom<'v>) -> T,
) {
    let (start, mut count) = (list.len(), 0);
    let (expected, most) = values.size_hint();
    if most != Some(expected) {
        return values.for_each(|(inst, value)| {
            list.push(inst.word());
            column.push(number(value));
        });
    }
    list.resize(start + expected, 0);
    column.resize(start + expected, T::default());
    let places = list.split_at_mut(start).1.iter_mut().zip(column.split_at_mut(start).1);
    places.zip(values).for_each(|(place, (inst, value))| {
        (*place.0, *place.1) = (inst.word(), number(value));
        count += 1;
    });
    list.truncate(start + count);
    column.truncate(start + count);
}
