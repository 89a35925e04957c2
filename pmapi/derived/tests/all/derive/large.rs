//! Very large expressions, as deeply nested as is allowed. The time to bind them is proportional to their length.

use pcp_derived::{Definitions, Evaluator, Scope, UnknownNames};
use pmapi::{Semantics, Type, Units};

use crate::derive::table::Table;

/// Binds definitions, and returns how many of them have a descriptor.
fn count_bound(definitions: &[(&str, &str)]) -> usize {
    let table = Table::default().metric("a", Type::U32, Semantics::Instant, Units::NONE, 0);
    let mut set = Definitions::new(Scope::Global);
    for (name, expr) in definitions {
        set.register(name, expr).unwrap();
    }
    let evaluator = Evaluator::bind(&set, &mut &table, UnknownNames::Refused);
    evaluator.ids().filter(|id| evaluator.desc(*id).is_ok()).count()
}

#[test]
fn nested_ternaries_whose_inner_ones_are_never_chosen() {
    let nested = "0 ? ".repeat(9_999) + "1" + &" : 2".repeat(9_999);
    assert_eq!(count_bound(&[("nested", &nested)]), 1);
}

#[test]
fn nested_ternaries_with_unknown_metrics_that_are_never_chosen() {
    let nested = "a ? 1 ? ".repeat(4_990) + "3" + &" : no.such.metric : 3".repeat(4_990);
    assert_eq!(count_bound(&[("nested", &nested)]), 1);
    let chosen = format!("a ? {nested} : no.such.metric");
    assert_eq!(count_bound(&[("nested", &chosen)]), 0);
}

#[test]
fn ternaries_are_nested_up_to_the_same_depth_as_other_constructs() {
    let arms = |levels: usize| "0 ? ".repeat(levels) + "1" + &" : 2".repeat(levels);
    let parentheses = |levels: usize| "(a ? ".repeat(levels) + "a" + &" : a)".repeat(levels);
    for deep in [arms(10_001), arms(1_000_000), parentheses(5_001)] {
        let refused = Definitions::new(Scope::Global).register("nested", &deep).err();
        assert!(refused.is_some_and(|e| e.to_string().contains("nested too deeply")));
    }
    // A ternary behind the colon of another one is not nested.
    let chain = "a ? a : ".repeat(100_000) + "a";
    assert_eq!(count_bound(&[("parentheses", &parentheses(4_999)), ("chain", &chain)]), 2);
}

#[test]
// Slow: it takes that many definitions to see that the time is linear.
fn a_definition_that_refers_to_very_many_later_ones() {
    let names: Vec<String> = (0..200_000).map(|n| format!("later.m{n}")).collect();
    let sum = names.join(" + ");
    let later = names.iter().map(|name| (&**name, "a"));
    let definitions: Vec<(&str, &str)> = std::iter::once(("sum", &*sum)).chain(later).collect();
    assert_eq!(count_bound(&definitions), 200_001);
}
