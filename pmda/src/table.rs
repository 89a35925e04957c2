//! Tables: instance domains whose instances are rows, and whose metrics are columns.

use std::fmt;
use std::ops::{Deref, DerefMut};

use pmapi::{Inst, Item, Result, Serial, Type};
use serde::Serialize;

use crate::cache::{Cache, CacheError};
use crate::indom::Instances;
use crate::request::Request;
use crate::schema::{InDomDef, MetricDef};
use crate::setup::Setup;
use crate::values::{Erased, TypedValue, Value, Values};

/// The rows of an instance domain, each an instance with a name, a number and a value of type `R`. Its columns are
/// metrics, each with the function that returns a row's value.
///
/// [`Setup::table`] begins the declaration of domain and columns, and [`TableDef::finish`] returns the table, which the
/// agent owns. The engine answers requests for its instances and values; neither
/// [`Agent::instances`](crate::Agent::instances) nor [`Agent::fetch`](crate::Agent::fetch) is needed.
/// [`Table::refresh`] reads the rows when a request needs them. All methods of [`Cache`] work on the rows, too.
///
/// An agent whose rows are the files of a directory:
///
/// ```
/// use pmda::prelude::*;
///
/// struct Files {
///     files: Table<std::fs::Metadata>,
/// }
///
/// impl Agent for Files {
///     const NAME: &'static str = "files";
///     const DOMAIN: u16 = 400;
///
///     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
///         let mut files = setup.table(Serial::new(0), |agent: &Files| &agent.files).whole_names();
///         files.help("Files", "The files of the agent's directory.");
///         files.gauge("files.size", Item::new(0, 0), |file| file.len()).units(Units::BYTES);
///         let age = files.gauge("files.age", Item::new(0, 1), |file| file.modified().ok()?.elapsed().ok());
///         age.units(Units::SECONDS).help("Time since the last change", "A file of the future has no value.");
///         files.total("files.count", Item::new(1, 0), |files| files.active_len()).help("Number of files", "Now.");
///         Ok(Files { files: files.finish(setup) })
///     }
///
///     fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
///         self.files.refresh(request, |rows| {
///             for file in std::fs::read_dir(".")?.flatten() {
///                 rows.add(&file.file_name().to_string_lossy(), file.metadata()?);
///             }
///             Ok(())
///         });
///         Ok(())
///     }
/// }
///
/// let mut files = pcp_collector::Local::<Files>::collector()?;
/// let [size, count] = [files.metric("files.size")?, files.metric("files.count")?];
/// let sizes = files.values(size)?.iter().count();
/// assert!(sizes > 1);
/// assert_eq!(files.value(count)?, Atom::U64(sizes as u64));
/// # Ok::<(), pmda::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Table<R> {
    rows: Cache<R>,
    serial: Serial,
    /// Items of the columns and totals.
    items: Vec<Item>,
    /// Whether the rows have been read once.
    is_read: bool,
    is_persistent: bool,
    /// Outcome of the last refresh.
    outcome: Result,
}

/// Declaration of a [`Table`], which [`Setup::table`] begins and [`TableDef::finish`] ends.
#[must_use = "finish declares the metrics, and returns the table"]
pub struct TableDef<A, R> {
    indom: InDomDef,
    metrics: Vec<MetricDef>,
    find: fn(&A) -> &Table<R>,
    table: Table<R>,
}

/// The rows of a table while [`Table::refresh`] reads them: all earlier rows are hidden. It is the [`Cache`] of the
/// table, with one more method.
#[derive(Debug)]
pub struct Rows<'t, R>(&'t mut Cache<R>);

impl<R> Table<R> {
    /// Reads the rows with `read`, if the request needs it: if it is a fetch of one of the table's metrics, or about the
    /// instances of a table that has not been read yet. `read` adds the existing rows; others are hidden, but keep their
    /// numbers. The file of a persistent table is written if rows have been added.
    ///
    /// An error of `read` becomes the answer for the metrics of the table, until the next call. Other metrics are not
    /// affected. Call this in [`Agent::refresh`](crate::Agent::refresh), for each request.
    pub fn refresh(&mut self, request: Request<'_>, read: impl FnOnce(&mut Rows<'_, R>) -> Result) {
        let is_needed = match request {
            Request::Fetch(items) => items.iter().any(|item| self.items.contains(&item)),
            // A client that asks for names has numbers from an earlier answer, so the rows must stay as they are.
            Request::Instance(serial) | Request::InstanceLabels(serial) => serial == self.serial && !self.is_read,
            _ => false,
        };
        if !is_needed {
            return;
        }
        self.is_read = true;
        self.rows.hide_all();
        self.outcome = read(&mut Rows(&mut self.rows));
        if self.is_persistent {
            if let Err(e) = self.rows.save() {
                tracing::error!("rows of instance domain {} may get other numbers after a restart: {e}", self.serial);
            }
        }
    }
}

impl<R> Deref for Table<R> {
    type Target = Cache<R>;

    fn deref(&self) -> &Cache<R> {
        &self.rows
    }
}

impl<R> DerefMut for Table<R> {
    fn deref_mut(&mut self) -> &mut Cache<R> {
        &mut self.rows
    }
}

impl<R> Rows<'_, R> {
    /// Adds a row. A name that cannot be that of an instance is logged, and the row left out.
    pub fn add(&mut self, name: &str, row: R) -> Option<Inst> {
        let added = self.0.store(name, row);
        added.inspect_err(|e| tracing::warn!(source = "rows", "{e}; the row is left out")).ok()
    }
}

impl<R> Deref for Rows<'_, R> {
    type Target = Cache<R>;

    fn deref(&self) -> &Cache<R> {
        self.0
    }
}

impl<R> DerefMut for Rows<'_, R> {
    fn deref_mut(&mut self) -> &mut Cache<R> {
        self.0
    }
}

impl Setup {
    /// Begins the declaration of a table: an instance domain, with the metrics that have its instances. `table` finds
    /// the table in the agent. See [`Table`].
    pub fn table<A: 'static, R: 'static>(&self, serial: Serial, table: fn(&A) -> &Table<R>) -> TableDef<A, R> {
        let (rows, find) = (self.cache(serial), table);
        let table = Table { rows, serial, items: Vec::new(), is_read: false, is_persistent: false, outcome: Ok(()) };
        TableDef { indom: InDomDef::new(serial), metrics: Vec::new(), find, table }
    }
}

impl<A: 'static, R: 'static> TableDef<A, R> {
    /// Keeps the numbers of the rows over restarts, in a file ([`Cache::persistent`]).
    pub fn persistent(mut self) -> Self {
        self.table.is_persistent = true;
        self.table.rows = self.table.rows.persistent();
        self
    }

    /// Makes whole names identify rows, and not only their part before the first space ([`Cache::whole_names`]).
    pub fn whole_names(mut self) -> Self {
        self.table.rows = self.table.rows.whole_names();
        self
    }

    /// Returns the declaration of the instance domain, for its labels.
    pub fn indom(&mut self) -> &mut InDomDef {
        &mut self.indom
    }

    /// Sets the help of the instance domain: one line, and a text of any length.
    pub fn help(&mut self, oneline: impl Into<String>, text: impl Into<String>) {
        self.indom().help(oneline, text);
    }

    /// Adds labels of the instance domain; see [`MetricDef::labels`].
    pub fn labels(&mut self, labels: impl Serialize) {
        self.indom().labels(labels);
    }

    /// Declares a counter with a value for each row. The type of the metric is that of the value ([`TypedValue`]).
    pub fn counter<V: TypedValue>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&R) -> V + Send + Sync + 'static,
    ) -> &mut MetricDef {
        self.column(name, item, V::TYPE, getter).counter()
    }

    /// Declares a metric with a value for each row, whose values rise and fall, as [`TableDef::counter`] does.
    pub fn gauge<V: TypedValue>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&R) -> V + Send + Sync + 'static,
    ) -> &mut MetricDef {
        self.column(name, item, V::TYPE, getter)
    }

    /// Declares a metric with a value for each row, whose values change seldom or in steps, as [`TableDef::counter`]
    /// does. A text that is borrowed from the row is a metric of [`TableDef::string`].
    pub fn discrete<V: TypedValue>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&R) -> V + Send + Sync + 'static,
    ) -> &mut MetricDef {
        self.column(name, item, V::TYPE, getter).discrete()
    }

    /// Declares a discrete metric of type [`Type::String`] with a text for each row, borrowed from it.
    pub fn string(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&R) -> &str + Send + Sync + 'static,
    ) -> &mut MetricDef {
        let find = self.find;
        self.put_by(name, item, Type::String, move |agent, out| out.put_each(&find(agent).rows, &getter)).discrete()
    }

    /// Declares a metric of a type with a value for each row. The value is converted to the type.
    pub fn column<V: Value>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        ty: Type,
        getter: impl Fn(&R) -> V + Send + Sync + 'static,
    ) -> &mut MetricDef {
        let find = self.find;
        self.put_by(name, item, ty, move |agent, out| out.put_each(&find(agent).rows, &getter))
    }

    /// Declares a metric whose values [`Agent::fetch`](crate::Agent::fetch) puts, for instance with
    /// [`Values::put_each`], because they depend on more than the row.
    pub fn metric(&mut self, name: impl Into<String>, item: Item, ty: Type) -> &mut MetricDef {
        self.table.items.push(item);
        let last = self.metrics.len();
        self.metrics.push(MetricDef::new(name, item, ty));
        self.metrics[last].indom(self.table.serial)
    }

    /// Declares a metric without instances, with the function that computes it from the table, such as the number of its
    /// rows.
    pub fn total<V: TypedValue>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&Table<R>) -> V + Send + Sync + 'static,
    ) -> &mut MetricDef {
        let find = self.find;
        let metric = self.put_by(name, item, V::TYPE, move |agent, out| out.put(getter(find(agent))));
        metric.singular()
    }

    fn put_by(
        &mut self,
        name: impl Into<String>,
        item: Item,
        ty: Type,
        put: impl Fn(&A, &mut Values<'_>) -> Result + Send + Sync + 'static,
    ) -> &mut MetricDef {
        let find = self.find;
        self.metric(name, item, ty).put_by(Erased::put(move |agent: &A, out| {
            find(agent).outcome?;
            put(agent, out)
        }))
    }

    /// Declares the domain and its metrics, and returns the table, without rows. The agent must have it where the
    /// function of [`Setup::table`] finds it.
    #[must_use = "the agent has the table"]
    pub fn finish(self, setup: &mut Setup) -> Table<R> {
        let TableDef { indom, metrics, find, table } = self;
        let declared = &mut setup.declared;
        declared.indoms.push(indom);
        declared.tables.push((table.serial, Erased::find(move |agent: &A| &find(agent).rows as &dyn Instances)));
        setup.extend(metrics);
        table
    }

    /// Returns the table with rows that exist from the start. They get the numbers 0, 1 and so on.
    ///
    /// # Errors
    /// The errors of [`Cache::store`].
    pub fn finish_with<N: AsRef<str>>(
        self,
        setup: &mut Setup,
        rows: impl IntoIterator<Item = (N, R)>,
    ) -> Result<Table<R>, CacheError> {
        let mut table = self.finish(setup);
        rows.into_iter().try_for_each(|(name, row)| table.store(name.as_ref(), row).map(drop))?;
        Ok(table)
    }
}

impl<A, R> fmt::Debug for TableDef<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableDef").field("serial", &self.table.serial).field("items", &self.table.items).finish()
    }
}
