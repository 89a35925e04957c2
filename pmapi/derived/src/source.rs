//! Sources of descriptors and values.

use super::presence::Presence;
use super::program::Operand;
use super::values::Load;
use pmapi::{Desc, Error, InDom, Inst};

/// Reason why a metric has no descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// No metric has this name.
    Name,
    /// The metric exists, but its descriptor is not available.
    Desc,
}

/// Source of names and descriptors for binding.
///
/// Binding looks each name up once. To fetch all descriptors in one request, take the names from
/// [`Definition::names`](super::Definition::names) beforehand.
pub trait Metadata {
    /// Returns the descriptor of a metric (pmLookupName(3) and pmLookupDesc(3)).
    ///
    /// # Errors
    /// [`Missing::Name`] if the metric does not exist, [`Missing::Desc`] if only its descriptor is not available.
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing>;

    /// Returns whether two instance domains always have the same instances. A file of PCP lists such domains. By
    /// default only equal domains do.
    fn equivalent(&self, left: InDom, right: InDom) -> bool {
        left == right
    }

    /// Returns whether a metric that is not derived has this name. Binding then refuses the definition.
    fn hides(&mut self, _name: &str) -> bool {
        false
    }
}

/// Source of values for evaluation.
pub trait Source {
    /// Returns whether the current sample has an operand. Evaluation calls [`Source::values`] only for operands that are
    /// [`Sampled`](Presence::Sampled), as all operands are by default.
    fn presence(&mut self, _operand: &Operand) -> Presence {
        Presence::Sampled
    }

    /// Adds the values of an operand in the current sample: its value set in the result of pmFetch(3).
    ///
    /// # Errors
    /// The error that stands in place of the operand's values.
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error>;

    /// Appends the instances of a domain to `list` (pmGetInDom(3)). Evaluation needs them for a constant with an
    /// instance domain.
    ///
    /// # Errors
    /// An error such as `PM_ERR_INDOM` if the instances are not available. It stands in place of the constant's values.
    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<(), Error>;

    /// Appends the external name of an instance to `name` (pmNameInDom(3)). Evaluation needs it for `matchinst`.
    ///
    /// # Errors
    /// An error such as `PM_ERR_INST` if the instance has no name. `matchinst` then omits the instance.
    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error>;

    /// Returns the instance with an external name (pmLookupInDom(3)). Evaluation needs it for `[instance]`.
    ///
    /// # Errors
    /// An error such as `PM_ERR_INST` if no instance has the name. `[instance]` then has no value.
    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst, Error>;
}
