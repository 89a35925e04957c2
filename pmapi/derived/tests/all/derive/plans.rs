//! Plans: the definitions that a sample computes, and the history that it keeps.

use std::time::Duration;

use pcp_derived::{Column, DefinitionId, Definitions, Evaluator, Plan, Scope, UnknownNames};
use pmapi::{Atom, Semantics, Type, Units};

use crate::derive::table::Table;

fn table() -> Table {
    Table::default().metric("a", Type::U32, Semantics::Counter, Units::COUNT, 0).metric(
        "b",
        Type::U32,
        Semantics::Counter,
        Units::COUNT,
        1,
    )
}

const STEP: DefinitionId = DefinitionId::new(0);
const FAR: DefinitionId = DefinitionId::new(1);
const OTHER: DefinitionId = DefinitionId::new(2);

/// Binds three definitions: `far` refers to `step`, and `other` to none of them.
fn evaluator(table: &mut &Table) -> Evaluator {
    let mut definitions = Definitions::new(Scope::Global);
    for (name, expr) in [("step", "delta(a)"), ("far", "step * 10"), ("other", "delta(b)")] {
        definitions.register(name, expr).unwrap();
    }
    Evaluator::bind(&definitions, table, UnknownNames::Refused)
}

fn operands(evaluator: &Evaluator, plan: &Plan) -> Vec<String> {
    evaluator.operands_of(plan).map(|operand| operand.name.to_string()).collect()
}

fn first(evaluator: &Evaluator, id: DefinitionId) -> Option<i64> {
    match evaluator.values(id).unwrap().iter().next()?.1 {
        Atom::I64(value) => Some(value),
        other => panic!("{other}"),
    }
}

#[test]
fn a_plan_beyond_another_has_the_rest() {
    let table = table();
    let evaluator = evaluator(&mut &table);
    let step = evaluator.plan([STEP]);
    assert_eq!(operands(&evaluator, &step), ["a"]);
    assert_eq!(operands(&evaluator, &evaluator.plan([FAR])), ["a"]);
    // The other plan computes `step`, so no operand is left.
    assert_eq!(operands(&evaluator, &evaluator.plan_beyond(&step, [FAR])), [""; 0]);
    assert_eq!(operands(&evaluator, &evaluator.plan_beyond(&step, [STEP, FAR, OTHER])), ["b"]);
    assert_eq!(operands(&evaluator, &evaluator.plan_beyond(&evaluator.plan([STEP, FAR, OTHER]), [OTHER])), [""; 0]);
}

#[test]
fn a_sample_in_between_disturbs_nothing() {
    let mut table = table();
    let mut evaluator = evaluator(&mut &table);
    let (step, rest) = (evaluator.plan([STEP]), evaluator.plan_beyond(&evaluator.plan([STEP]), [FAR, OTHER]));
    let mut at = |seconds, plan: &Plan, a: f64, b: f64, evaluator: &mut Evaluator| {
        table.set("a", &[(0, a)]);
        table.set("b", &[(4, b)]);
        evaluator.evaluate(plan, Duration::from_secs(seconds), &mut &table);
        [first(evaluator, STEP), first(evaluator, OTHER)]
    };
    at(1, &step, 100.0, 0.0, &mut evaluator);
    assert_eq!(at(2, &step, 110.0, 0.0, &mut evaluator), [Some(10), None]);
    // The plan contains only the rest, so the sample does not read the operand of `step`.
    assert_eq!(at(3, &rest, 5000.0, 7.0, &mut evaluator), [Some(10), None]);
    assert_eq!(first(&evaluator, FAR), Some(100));
    assert_eq!(at(4, &step, 130.0, 7.0, &mut evaluator), [Some(20), None]);
    assert_eq!(at(5, &rest, 0.0, 10.0, &mut evaluator), [Some(20), Some(3)]);
    evaluator.forget(&rest);
    assert_eq!(at(6, &rest, 0.0, 20.0, &mut evaluator), [Some(20), None]);
    assert_eq!(at(7, &step, 131.0, 20.0, &mut evaluator), [Some(1), None]);
}

#[test]
fn values_are_copied_into_the_memory_of_others() {
    let mut table = table();
    table.set("b", &[(1, 1.0), (2, 2.0)]);
    let mut evaluator = evaluator(&mut &table);
    let plan = evaluator.plan([OTHER]);
    let mut copy = Column::default();
    assert!(copy.is_empty() && copy.status().is_ok());
    for second in 1..9 {
        evaluator.evaluate(&plan, Duration::from_secs(second), &mut &table);
        let values = evaluator.values(OTHER).unwrap();
        let copied = allocation_counter::measure(|| copy.clone_from(values));
        // The first sample differs in type, and the second has more values.
        assert!(second < 3 || copied.count_total == 0, "{second}: {copied:?}");
        assert!(copy.iter().eq(values.iter()) && copy.ty() == values.ty());
        assert!(copy.same_instances(values));
    }
    assert_eq!(copy.len(), 2);
    assert!(!copy.same_instances(&Column::default()));
}
