//! The values of one metric in one sample, in columns.

use std::sync::{Arc, LazyLock};

use super::data::Data;
use crate::id::OptionWord;
use crate::{Atom, Error, Inst, Type};

/// The instances of values. Columns of one instance domain share them as long as they don't change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ids {
    /// The words of the instances, `PM_IN_NULL` for the one of a singular metric.
    pub(crate) list: Vec<u32>,
    /// Whether each is larger than the one before.
    pub(crate) ascending: bool,
}

static NONE: LazyLock<Arc<Ids>> = LazyLock::new(|| Ids::new(Vec::new()));
static SINGULAR: LazyLock<Arc<Ids>> = LazyLock::new(|| Ids::new(vec![u32::MAX]));

impl Ids {
    /// No instances.
    pub(crate) fn none() -> &'static Arc<Ids> {
        &NONE
    }

    /// What a singular metric has.
    pub(crate) fn singular() -> &'static Arc<Ids> {
        &SINGULAR
    }

    pub(crate) fn new(list: Vec<u32>) -> Arc<Ids> {
        let ascending = list.is_sorted_by(|a, b| a < b);
        Arc::new(Ids { list, ascending })
    }
}

/// The values of a metric in a sample: a column of instances and a column of numbers or of texts.
#[derive(Debug)]
pub struct Values {
    pub(crate) ids: Arc<Ids>,
    pub(crate) data: Data,
    pub(crate) ty: Type,
    pub(crate) status: Result<(), Error>,
}

/// No values.
impl Default for Values {
    fn default() -> Values {
        Values::new(Type::U32)
    }
}

/// [`Clone::clone_from`] uses the memory of values of the same type again.
impl Clone for Values {
    fn clone(&self) -> Values {
        Values { ids: Arc::clone(&self.ids), data: self.data.clone(), ty: self.ty, status: self.status }
    }

    fn clone_from(&mut self, from: &Values) {
        (self.ty, self.status) = (from.ty, from.status);
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

impl Values {
    /// No values, of a type that is to come.
    pub(crate) fn new(ty: Type) -> Values {
        Values { ids: Arc::clone(Ids::none()), data: Data::new(ty), ty, status: Ok(()) }
    }

    /// The number of values; 0 when there is an error.
    pub fn len(&self) -> usize {
        self.ids.list.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.ids.list.is_empty()
    }

    /// Whether other values are for the same instances, in the same order.
    pub fn same_instances(&self, other: &Values) -> bool {
        Arc::ptr_eq(&self.ids, &other.ids) || self.ids.list == other.ids.list
    }

    /// The type of the values.
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// The error that stands in place of values.
    pub fn status(&self) -> Result<(), Error> {
        self.status
    }

    /// Each value with its instance, which is `None` for a singular metric.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Option<Inst>, Atom<'_>)> {
        let ids = self.ids.list.iter().enumerate();
        ids.map(|(at, id)| (Inst::from_word(*id), self.data.atom(at, self.ty)))
    }

    /// No values, and an error or none.
    pub(crate) fn fail(&mut self, status: Result<(), Error>) {
        self.status = status;
        self.data.clear();
        self.ids = Arc::clone(Ids::none());
    }

    /// Begins a new set of values for known instances.
    pub(crate) fn begin(&mut self, ids: &Arc<Ids>) {
        self.data.clear();
        self.set_ids(ids);
    }

    /// Begins the one value of a singular metric.
    pub(crate) fn begin_singular(&mut self) {
        self.begin(Ids::singular());
    }

    /// The instances of values that are there already.
    pub(crate) fn set_ids(&mut self, ids: &Arc<Ids>) {
        self.status = Ok(());
        if !Arc::ptr_eq(&self.ids, ids) {
            self.ids = Arc::clone(ids);
        }
    }

    /// The same from a list, which allocates only when the instances are others than before.
    pub(crate) fn set_list(&mut self, list: &[u32]) {
        self.status = Ok(());
        if self.ids.list != list {
            self.ids = Ids::new(list.to_vec());
        }
    }
}

/// Takes the values of an operand from a [`Source`](super::Source).
#[derive(Debug)]
pub struct Load<'a> {
    values: &'a mut Values,
    /// How many instances are those of the sample before.
    same: usize,
    /// All instances, from the first that is not.
    fresh: Vec<u32>,
}

/// The instances of the sample before, and what there is now from the first that is another.
struct Instances<'a> {
    /// Those that are still to be compared.
    next: std::slice::Iter<'a, u32>,
    known: &'a [u32],
    fresh: &'a mut Vec<u32>,
}

impl Instances<'_> {
    #[inline]
    fn push(&mut self, id: u32) {
        if self.next.as_slice().first() == Some(&id) {
            self.next.next();
        } else {
            self.differ(id);
        }
    }

    #[cold]
    fn differ(&mut self, id: u32) {
        if self.fresh.is_empty() {
            let same = self.known.len() - self.next.len();
            self.fresh.extend_from_slice(self.known.get(..same).unwrap_or_default());
            self.next = [].iter();
        }
        self.fresh.push(id);
    }
}

impl<'a> Load<'a> {
    pub(crate) fn new(values: &'a mut Values) -> Load<'a> {
        values.status = Ok(());
        values.data.clear();
        Load { values, same: 0, fresh: Vec::new() }
    }

    /// The type that values must have: that of the descriptor which the operand was bound with.
    pub fn ty(&self) -> Type {
        self.values.ty
    }

    /// Adds a value; no instance for the one of a singular metric. A value of another type makes the operand
    /// `PM_ERR_CONV`.
    #[inline]
    pub fn push(&mut self, inst: Option<Inst>, value: Atom<'_>) {
        self.extend([(inst, value)]);
    }

    /// Adds values as [`Load::push`] does, which is faster for many: a loop over values of one kind.
    #[inline]
    pub fn extend<'v>(&mut self, values: impl IntoIterator<Item = (Option<Inst>, Atom<'v>)>) {
        let Load { values: Values { ids, data, status, .. }, same, fresh } = self;
        let next = if fresh.is_empty() { ids.list.get(*same..).unwrap_or_default() } else { &[] };
        let mut instances = Instances { next: next.iter(), known: &ids.list, fresh };
        let mut wrong = false;
        let values = values.into_iter();
        macro_rules! take {
            ($column:expr, $kind:ident) => {
                $column.extend(values.map(|(inst, value)| {
                    instances.push(inst.word());
                    match value {
                        Atom::$kind(value) => value,
                        _ => {
                            wrong = true;
                            Default::default()
                        }
                    }
                }))
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
                    instances.push(inst.word());
                    wrong |= !bytes.push_atom(value);
                }
            }
        }
        if instances.fresh.is_empty() {
            *same = ids.list.len() - instances.next.len();
        }
        if wrong {
            *status = Err(Error::CONV);
        }
    }

    /// Whether the instances are others than in the sample before.
    pub(crate) fn finish(self, result: Result<(), Error>) -> bool {
        let Load { values, same, fresh } = self;
        if let Err(error) = result.and(values.status) {
            values.fail(Err(error));
        } else if !fresh.is_empty() {
            values.ids = Ids::new(fresh);
        } else if same < values.ids.list.len() {
            let list = values.ids.list.get(..same).unwrap_or_default().to_vec();
            values.ids = Ids::new(list);
        } else {
            return false;
        }
        true
    }
}
