//! Values at a time.

use pcp_pdu::event::Stamp;
use pcp_pdu::result::RawValue;
use pmapi::{Error, Inst, PmId};

use super::datum::Datum;
use super::table::{Metric, Table};

/// Values of metrics at a time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Interpolated<'i> {
    /// The requested time.
    pub time: Stamp,
    pub(super) table: &'i Table,
    pub(super) order: &'i [usize],
    pub(super) values: &'i [(u32, Datum)],
}

/// Values of one metric at a time.
#[derive(Clone, Copy, Debug)]
pub struct InterpolatedSet<'i> {
    metric: &'i Metric,
    table: &'i Table,
    values: &'i [(u32, Datum)],
}

impl<'i> Interpolated<'i> {
    /// Iterates over the metrics in the order of the request.
    pub fn sets(&self) -> impl ExactSizeIterator<Item = InterpolatedSet<'i>> + use<'i> {
        let (table, values) = (self.table, self.values);
        self.order.iter().map(move |metric| InterpolatedSet { metric: &table.metrics[*metric], table, values })
    }
}

impl<'i> InterpolatedSet<'i> {
    /// Returns the metric.
    pub fn pmid(&self) -> PmId {
        self.metric.pmid
    }

    /// Returns the error in place of values: `PM_ERR_PMID_LOG` for a metric that the archive does not have,
    /// `PM_ERR_TYPE` for a counter that is not numeric.
    pub fn error(&self) -> Option<Error> {
        self.metric.failure
    }

    /// Iterates over the instances, in the order of their identifiers, and their values. The instance is `None` for a
    /// singular metric.
    pub fn values(&self) -> impl ExactSizeIterator<Item = (Option<Inst>, RawValue<'i>)> + use<'i> {
        let range = if self.metric.failure.is_some() { 0..0 } else { self.metric.values.clone() };
        let (table, ty) = (self.table, self.metric.ty);
        let values = self.values.get(range).unwrap_or_default();
        values
            .iter()
            .map(move |(nth, datum)| (table.series.get(*nth as usize).and_then(|series| series.inst), datum.raw(ty)))
    }
}
