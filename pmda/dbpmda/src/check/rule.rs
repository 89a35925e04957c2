//! What an agent has to keep.

use std::fmt;

macro_rules! rules {
    ($($rule:ident $name:literal $about:literal,)*) => {
        /// A rule of the protocol or of PCP.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Rule {
            $(#[doc = $about] $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Rule] = &[$(Rule::$rule),*];

            /// A word for it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Rule::$rule => $name,)*
                }
            }

            /// What it demands.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Rule::$rule => $about,)*
                }
            }
        }
    };
}

rules! {
    Malformed "malformed" "What the agent sends are PDUs that hold what their type says.",
    WrongAnswer "wrong-answer" "The answer has the type and the subject that were asked for.",
    Ended "ended" "The agent does not end while it is asked.",
    Slow "slow" "An answer comes within the limit.",
    NoDescriptor "no-descriptor" "A metric that has a name has a descriptor.",
    NoName "no-name" "A metric that has a descriptor has a name.",
    DynamicName "dynamic-name" "Names that the agent keeps itself lead to a metric and back.",
    ForeignInDom "foreign-indom" "A metric's instance domain belongs to the metric's agent.",
    NoInDom "no-indom" "An instance domain that a metric has can be asked for its instances.",
    NoHelp "no-help" "Metrics and instance domains have help texts, or at least one line.",
    DuplicateInstance "duplicate-instance" "An instance domain has each number and each name once.",
    NegativeInstance "negative-instance" "The numbers of instances are not negative.",
    AmbiguousName "ambiguous-name" "Names of instances differ before their first space.",
    Lookup "lookup" "A single instance has the number and the name that the list of all gives it.",
    ValueType "value-type" "Values are of the type that the descriptor announces.",
    ValueInstance "value-instance" "Values belong to instances of the metric's domain, each once; a singular metric has one value.",
    NoValue "no-value" "A metric that has a descriptor can be fetched.",
    CounterFalls "counter-falls" "Counters do not fall.",
    Events "events" "The records of events are whole, and their parameters are metrics, with values of their types.",
    Labels "labels" "Labels are where their index says in an object of JSON, and those of instances belong to the domain.",
    Store "store" "Values are refused that are of another type, or of metrics and instances that are not there.",
    Profile "profile" "A profile lets through the instances that it names and no other.",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// That an agent breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// What breaks it: a metric, an instance domain, a request.
    pub subject: String,
    /// How.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule, self.subject, self.detail)
    }
}
