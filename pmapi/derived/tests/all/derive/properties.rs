//! Properties that hold for every text and every set of values.

use std::collections::BTreeMap;

use pcp_derived::{Controls, Definition, DefinitionId, Definitions, Evaluator, RegisterError, Scope, UnknownNames};
use pmapi::{PmId, Semantics, Type, Units};
use proptest::prelude::*;

use crate::derive::table::{One, Table};
use crate::derive::tokens;

fn table() -> Table {
    Table::default()
        .metric("a", Type::I32, Semantics::Instant, Units::NONE, 1)
        .metric("b", Type::U32, Semantics::Instant, Units::NONE, 1)
        .metric("c", Type::U64, Semantics::Counter, Units::BYTES, 1)
        .metric("d", Type::Double, Semantics::Instant, Units::NONE, 0)
}

/// Returns words of the language in any order.
fn soup() -> impl Strategy<Value = String> {
    const OPERANDS: &[&str] =
        &["a", "b", "c", "d", "no.such", "1", "0.5", "[i1]", "/i1/", "\"byte\"", "type=u64", "meta=a", "indom=7.1"];
    let words = [OPERANDS, tokens::OPERATORS, tokens::FUNCTIONS].concat();
    proptest::collection::vec(proptest::sample::select(words), 0..30).prop_map(|words| words.join(" "))
}

/// Parses, binds and evaluates an expression in two samples.
fn whole_way(expr: &str) {
    let Ok(definition) = Definition::new("x", expr, PmId::from_word(1).unwrap()) else { return };
    let mut table = table();
    let mut evaluator = Evaluator::bind([&definition], &mut &table, UnknownNames::Refused);
    let plan = evaluator.plan([DefinitionId::new(0)]);
    for tick in 1..3 {
        table.set("a", &[(0, -1.0), (1, f64::from(tick))]);
        table.set("b", &[(1, 2.0), (0, f64::from(u32::MAX))]);
        table.set("c", &[(2, 1e10)]);
        table.set("d", &[(0, 0.0)]);
        evaluator.evaluate(&plan, std::time::Duration::from_secs(tick as u64), &mut &table);
        let Ok(desc) = evaluator.desc(DefinitionId::new(0)) else { return };
        if let Ok(values) = evaluator.values(DefinitionId::new(0)) {
            assert!(values.iter().all(|(_, atom)| atom.ty() == desc.ty));
            assert_eq!(values.iter().len(), values.len());
        }
    }
}

proptest! {
    #[test]
    fn no_text_is_too_much(text in any::<String>()) {
        whole_way(&text);
        Definitions::new(Scope::Global).load_text("f", &text, &mut Controls::default());
    }

    #[test]
    fn no_words_are_too_much(text in soup()) {
        whole_way(&text);
    }

    /// The offset of an error lies within the text.
    #[test]
    fn errors_have_a_place(text in soup()) {
        if let Err(RegisterError::Syntax(error)) = Definition::new("x", &text, PmId::from_word(1).unwrap()) {
            prop_assert!(error.offset < text.len().max(1));
            prop_assert_eq!(error.caret(&text).contains('^'), !text.is_empty());
        }
    }

    /// Operands with instances in any order are joined as maps are.
    #[test]
    fn joins_are_those_of_maps(
        left in proptest::collection::btree_map(0..50_u32, -1000..1000_i32, 0..40),
        right in proptest::collection::btree_map(0..50_u32, 0..1000_u32, 0..40),
        reverse in any::<[bool; 2]>(),
    ) {
        let mut table = table();
        let mut list: Vec<_> = left.iter().map(|(id, v)| (*id, f64::from(*v))).collect();
        if reverse[0] { list.reverse() }
        table.set("a", &list);
        let mut list: Vec<_> = right.iter().map(|(id, v)| (*id, f64::from(*v))).collect();
        if reverse[1] { list.reverse() }
        table.set("b", &list);
        let map = |values: Vec<(u32, f64)>| values.into_iter().collect::<BTreeMap<_, _>>();
        let both = |of: fn(i32, u32) -> Option<f64>| -> BTreeMap<u32, f64> {
            let pairs = left.iter().filter_map(|(id, l)| Some((*id, of(*l, *right.get(id)?)?)));
            pairs.collect()
        };
        let sum = map(One::new("a + b", &table).at(1.0, &table).unwrap());
        prop_assert_eq!(sum, both(|l, r| Some((l as u32).wrapping_add(r).into())));
        let quotient = map(One::new("a / b", &table).at(1.0, &table).unwrap());
        let expected = both(|l, r| Some(if l == 0 { 0.0 } else { f64::from(l) / f64::from(r) }));
        prop_assert_eq!(quotient, expected);
        let choice = map(One::new("a > 0 ? b : novalue()", &table).at(1.0, &table).unwrap());
        // An integer constant is unsigned, and so is the comparison.
        prop_assert_eq!(choice, both(|l, r| (l != 0).then(|| r.into())));
    }

    /// `delta` and `rate` give the differences over two samples.
    #[test]
    fn deltas_are_differences(
        before in proptest::collection::btree_map(0..30_u32, any::<u32>(), 1..20),
        now in proptest::collection::btree_map(0..30_u32, any::<u32>(), 1..20),
    ) {
        let mut table = table();
        let (mut delta, mut rate) = (One::new("delta(b)", &table), One::new("rate(b)", &table));
        for (stamp, sample) in [(1.0, &before), (5.0, &now)] {
            let list: Vec<_> = sample.iter().map(|(id, v)| (*id, f64::from(*v))).collect();
            table.set("b", &list);
            let difference = |id: &u32| Some(f64::from(*now.get(id)?) - f64::from(*before.get(id)?));
            let expected: Vec<_> = if stamp == 5.0 { now.keys().filter_map(|id| Some((*id, difference(id)?))).collect() } else { Vec::new() };
            let per_second: Vec<_> = expected.iter().map(|(id, difference)| (*id, difference / 4.0)).collect();
            prop_assert_eq!(delta.at(stamp, &table).unwrap(), expected);
            prop_assert_eq!(rate.at(stamp, &table).unwrap(), per_second);
        }
    }
}

/// Deep and long expressions need bounded time and memory.
#[test]
fn depth_is_bounded() {
    for (open, middle, close) in
        [("(", "a", ")"), ("-", "a", ""), ("!", "a", ""), ("scalar(", "a", ")"), ("1 + (", "a", ")")]
    {
        for depth in [1000, 9_000, 200_000] {
            whole_way(&(open.repeat(depth) + middle + &close.repeat(depth)));
        }
    }
    whole_way(&("a ".to_owned() + &"+ a ".repeat(200_000)));
    whole_way(&("(d > 0 ? d : ".repeat(3000) + "d" + &")".repeat(3000)));
    whole_way(&format!("matchinst(/{}/, a)", "(a*)*".repeat(5000)));
    whole_way(&format!("matchinst(/a{}/, a)", "{1000}".repeat(40)));
    whole_way(&format!("matchinst(/{}/, a)", "(".repeat(5000) + &")".repeat(5000)));
}

/// Each definition of a large cycle has a path, and all paths together are short.
#[test]
fn large_circles() {
    let mut definitions = Definitions::new(Scope::Global);
    for number in 0..20_000 {
        definitions.register(&format!("d{number}"), &format!("1 + d{}", (number + 1) % 20_000)).unwrap();
    }
    let evaluator = Evaluator::bind(&definitions, &mut &table(), UnknownNames::Refused);
    let path = |number: usize| evaluator.desc(DefinitionId::new(number)).unwrap_err().unwrap().to_string();
    assert!(path(7).starts_with("definition refers to itself: d7 -> d8 -> "), "{}", path(7));
    assert!(path(7).ends_with(" -> d5 -> d6 -> d7"), "{}", path(7));
    assert!((0..20_000).map(|number| path(number).len()).sum::<usize>() < 20_000 * 300);
}
