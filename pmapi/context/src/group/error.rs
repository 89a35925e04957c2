//! Errors of fetch groups.

use pmapi::{Error, ParseUnitsError, Type, Units};

use super::convert::Refusal;

/// Why a metric cannot be added to a fetch group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// Unknown metric, or one without a descriptor.
    #[error("metric {metric:?}: {error}")]
    Metric {
        /// Name of the metric.
        metric: String,
        /// Error of the source.
        error: Error,
    },
    /// Unknown instance.
    #[error("instance {instance:?} of metric {metric:?}: {error}")]
    Instance {
        /// Name of the metric.
        metric: String,
        /// Name of the instance.
        instance: String,
        /// Error of the source.
        error: Error,
    },
    /// The metric has instances, but the request names none of them.
    #[error("metric {metric:?} has instances: one of them must be named")]
    NoInstance {
        /// Name of the metric.
        metric: String,
    },
    /// Instance of a singular metric.
    #[error("metric {metric:?} has no instances, so there is no instance {instance:?}")]
    Singular {
        /// Name of the metric.
        metric: String,
        /// Name of the instance.
        instance: String,
    },
    /// Field of an event that is a metric with instances.
    #[error("field {field:?} has instances, which a field of an event cannot have")]
    FieldInstances {
        /// Name of the field.
        field: String,
    },
    /// Metric whose values are neither numbers nor text.
    #[error("values of metric {metric:?} have type {}, which has no conversion", ty.name())]
    Type {
        /// Name of the metric.
        metric: String,
        /// Type of the metric.
        ty: Type,
    },
    /// Requested type that is neither a number nor text.
    #[error("values of metric {metric:?} cannot be converted to type {}", ty.name())]
    Target {
        /// Name of the metric.
        metric: String,
        /// Requested type.
        ty: Type,
    },
    /// Syntax error in a scale.
    #[error("scale {scale:?} of metric {metric:?}: {reason}")]
    Scale {
        /// Name of the metric.
        metric: String,
        /// Scale as it was requested.
        scale: String,
        /// Reason why the units are invalid.
        reason: ParseUnitsError,
    },
    /// Scale whose dimension is neither that of the metric nor that of its rate.
    #[error("scale {scale:?} of metric {metric:?}: its units \"{units}\" have another dimension")]
    Dimension {
        /// Name of the metric.
        metric: String,
        /// Scale as it was requested.
        scale: String,
        /// Units of the metric.
        units: Units,
    },
    /// Metric that has no events.
    #[error("metric {metric:?} has values of type {}, not events", ty.name())]
    NoEvents {
        /// Name of the metric.
        metric: String,
        /// Type of the metric.
        ty: Type,
    },
    /// Rate of a field of events.
    #[error("field {field:?} of an event has no rate: use another scale, or \"instant\"")]
    EventRate {
        /// Name of the field.
        field: String,
    },
}

impl GroupError {
    pub(super) fn of(refusal: Refusal, metric: &str, scale: Option<&str>) -> GroupError {
        let (metric, scale) = (metric.to_owned(), scale.unwrap_or_default().to_owned());
        match refusal {
            Refusal::From(ty) => GroupError::Type { metric, ty },
            Refusal::To(ty) => GroupError::Target { metric, ty },
            Refusal::Scale(reason) => GroupError::Scale { metric, scale, reason },
            Refusal::Units(units) => GroupError::Dimension { metric, scale, units },
        }
    }

    /// Returns the code that libpcp returns in the same case.
    pub fn code(&self) -> Error {
        match self {
            GroupError::Metric { error, .. } | GroupError::Instance { error, .. } => *error,
            GroupError::NoInstance { .. } | GroupError::Singular { .. } | GroupError::FieldInstances { .. } => {
                Error::INDOM
            }
            GroupError::Type { .. } | GroupError::Target { .. } | GroupError::NoEvents { .. } => Error::TYPE,
            GroupError::Scale { .. } | GroupError::Dimension { .. } | GroupError::EventRate { .. } => Error::CONV,
        }
    }
}
