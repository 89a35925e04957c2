//! Where descriptors and values come from.

use super::program::Operand;
use super::values::Load;
use pmapi::{Desc, Error, InDom, Inst};

/// What there is of a metric that has no descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// There is no metric of this name.
    Name,
    /// There is a metric, but its descriptor is not to be had.
    Desc,
}

/// Names and descriptors, for binding. Each name is looked up once; [`Definition::names`](super::Definition::names)
/// has them all beforehand, for who wants to ask for all of them at once.
pub trait Metadata {
    /// The descriptor of a metric (pmLookupName(3) and pmLookupDesc(3)).
    ///
    /// # Errors
    /// What is missing.
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing>;

    /// Whether two instance domains have the same instances, which a file of PCP's says of some.
    fn equivalent(&self, left: InDom, right: InDom) -> bool {
        left == right
    }

    /// Whether a metric that is not derived has the name of a definition, which then is no metric.
    fn hides(&mut self, _name: &str) -> bool {
        false
    }
}

/// The values of one sample.
pub trait Source {
    /// Gives the values of an operand in the sample (its value set in pmFetch(3)'s result).
    ///
    /// # Errors
    /// The error in place of values.
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error>;

    /// Adds the instances of a domain to a list (pmGetInDom(3)), for a constant with an instance domain.
    ///
    /// # Errors
    /// When the instances are not to be had.
    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<(), Error>;

    /// Adds the name of an instance to a text (pmNameInDom(3)), for `matchinst`.
    ///
    /// # Errors
    /// When the instance has no name.
    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error>;

    /// The instance with a name (pmLookupInDom(3)), for `[instance]`.
    ///
    /// # Errors
    /// When there is none.
    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst, Error>;
}
