//! Rules for agents.

use std::fmt;

macro_rules! rules {
    ($($rule:ident $name:literal $about:literal,)*) => {
        /// Rule of the protocol or of PCP.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $about] $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Rule] = &[$(Rule::$rule),*];

            /// Returns the name of the rule, as reported in a [`Finding`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(Rule::$rule => $name,)*
                }
            }

            /// Returns a sentence that states the rule.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Rule::$rule => $about,)*
                }
            }
        }
    };
}

rules! {
    Malformed "malformed" "Each PDU from the agent is well-formed for its type.",
    WrongAnswer "wrong-answer" "An answer has the type and the subject that were requested.",
    Ended "ended" "The agent does not end during the check.",
    Slow "slow" "An answer arrives within the limit.",
    NoDescriptor "no-descriptor" "A metric with a name has a descriptor.",
    NoName "no-name" "A metric with a descriptor has a name.",
    DynamicName "dynamic-name" "A dynamic name leads to a metric, and the metric back to the name.",
    ForeignInDom "foreign-indom" "A metric's instance domain belongs to the metric's agent.",
    NoInDom "no-indom" "The instance domain of a metric has a list of instances.",
    NoHelp "no-help" "Metrics and instance domains have a one-line or a long help text.",
    DuplicateInstance "duplicate-instance" "The numbers and the names of instances are unique in their domain.",
    NegativeInstance "negative-instance" "The numbers of instances are not negative.",
    AmbiguousName "ambiguous-name" "The names of instances differ before their first space.",
    Lookup "lookup" "The lookup of one instance agrees with the list of all instances.",
    ValueType "value-type" "Values have the type that the descriptor gives.",
    Nul "nul-byte" "Texts have no NUL byte, at which clients end them: values, names of instances, help.",
    ValueInstance "value-instance" "Values have distinct instances of the domain; a singular metric has one value.",
    NoValue "no-value" "A metric with a descriptor can be fetched.",
    FailedValue "failed-value" "The fetch of a metric does not fail because of its type, a wrong instance or a panic.",
    CounterType "counter-type" "A counter is a number: clients compute its rate.",
    CounterFalls "counter-falls" "Counters do not decrease.",
    Events "events" "Event records are complete, and their parameters have the types of their metrics.",
    Labels "labels" "Labels are valid JSON with a correct index; labels of instances belong to the domain.",
    Store "store" "The agent refuses values of a wrong type, and values for unknown metrics or instances.",
    Panic "panic" "No thread of the agent panics (needs the agent's log).",
    Profile "profile" "A fetch returns the instances that the profile includes, and no others.",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Breach of a rule by an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Rule that is broken.
    pub rule: Rule,
    /// Metric, instance domain or request that breaks it.
    pub subject: String,
    /// Description of the breach.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule, self.subject, self.detail)
    }
}
