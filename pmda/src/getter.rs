//! Functions that return the values of metrics, at the metrics' declarations.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use pmapi::{Result, Serial};

use crate::indom::Instances;
use crate::values::Values;

/// A function that puts the values of a metric of agent `A`.
type Put<A> = dyn Fn(&A, &mut Values<'_>) -> Result + Send + Sync;

/// A function that finds the instances of a domain in agent `A`.
type Find<A> = dyn Fn(&A) -> &(dyn Instances + 'static) + Send + Sync;

/// A function of an agent, in a declaration that does not name the agent's type.
#[derive(Clone)]
pub(crate) struct Erased {
    /// Name of the agent's type.
    agent: &'static str,
    /// An `Arc<Put<A>>` or `Arc<Find<A>>`.
    function: Arc<dyn Any + Send + Sync>,
}

impl Erased {
    pub(crate) fn put<A: 'static>(put: impl Fn(&A, &mut Values<'_>) -> Result + Send + Sync + 'static) -> Erased {
        let put: Arc<Put<A>> = Arc::new(put);
        Erased { agent: type_name::<A>(), function: Arc::new(put) }
    }

    pub(crate) fn find<A: 'static>(find: impl Fn(&A) -> &(dyn Instances + 'static) + Send + Sync + 'static) -> Erased {
        let find: Arc<Find<A>> = Arc::new(find);
        Erased { agent: type_name::<A>(), function: Arc::new(find) }
    }
}

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a function of {}", self.agent)
    }
}

/// A getter of another type than that of the agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrongAgent {
    /// Name of the type that the getter has.
    pub(crate) getter: &'static str,
    /// Name of the agent's type.
    pub(crate) agent: &'static str,
}

/// The getters of an agent. A call needs no conversion and no allocation.
pub(crate) struct Getters<A> {
    values: Vec<Arc<Put<A>>>,
    instances: Vec<(Serial, Arc<Find<A>>)>,
}

impl<A: 'static> Getters<A> {
    pub(crate) fn new() -> Getters<A> {
        Getters { values: Vec::new(), instances: Vec::new() }
    }

    /// Adds the getter of a metric. It gets the next number.
    pub(crate) fn add(&mut self, getter: &Erased) -> std::result::Result<(), WrongAgent> {
        self.values.push(function::<A, Put<A>>(getter)?);
        Ok(())
    }

    /// Adds the function that finds the instances of a domain.
    pub(crate) fn add_instances(&mut self, of: Serial, find: &Erased) -> std::result::Result<(), WrongAgent> {
        self.instances.push((of, function::<A, Find<A>>(find)?));
        Ok(())
    }

    /// Returns a getter by its number.
    #[inline]
    pub(crate) fn value(&self, number: u32) -> Option<&Put<A>> {
        self.values.get(number as usize).map(|put| &**put)
    }

    /// Returns the instances of a domain, if the domain belongs to a table.
    pub(crate) fn instances<'a>(&self, agent: &'a A, of: Serial) -> Option<&'a dyn Instances> {
        self.instances.iter().find(|(serial, _)| *serial == of).map(|(_, find)| find(agent))
    }
}

impl<A> fmt::Debug for Getters<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} getters of {}", self.values.len(), type_name::<A>())
    }
}

fn function<A, F: ?Sized + 'static>(erased: &Erased) -> std::result::Result<Arc<F>, WrongAgent>
where
    Arc<F>: Send + Sync,
{
    let wrong = WrongAgent { getter: erased.agent, agent: type_name::<A>() };
    erased.function.downcast_ref::<Arc<F>>().cloned().ok_or(wrong)
}
