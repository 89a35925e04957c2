//! Very large expressions. The time to bind them is proportional to their length: with one that grew with its square,
//! each of these tests took more than 40 s.

use pcp_derive::{Definitions, Evaluator, Scope, UnknownNames};
use pmapi::{Semantics, Type, Units};

use crate::table::Table;

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
    let nested = "0 ? ".repeat(1_000_000) + "1" + &" : 2".repeat(1_000_000);
    assert_eq!(count_bound(&[("nested", &nested)]), 1);
}

#[test]
fn nested_ternaries_with_unknown_metrics_that_are_never_chosen() {
    let nested = "a ? 1 ? ".repeat(300_000) + "3" + &" : no.such.metric : 3".repeat(300_000);
    assert_eq!(count_bound(&[("nested", &nested)]), 1);
    let chosen = format!("a ? {nested} : no.such.metric");
    assert_eq!(count_bound(&[("nested", &chosen)]), 0);
}

#[test]
fn a_definition_that_refers_to_very_many_later_ones() {
    let names: Vec<String> = (0..200_000).map(|n| format!("later.m{n}")).collect();
    let sum = names.join(" + ");
    let later = names.iter().map(|name| (&**name, "a"));
    let definitions: Vec<(&str, &str)> = std::iter::once(("sum", &*sum)).chain(later).collect();
    assert_eq!(count_bound(&definitions), 200_001);
}
