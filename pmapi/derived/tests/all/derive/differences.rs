//! Differences from libpcp: each entry of the list in the documentation of `pcp_derived`.

use std::time::Duration;

use pcp_derived::{BindError, DefinitionId, Definitions, Evaluator, Presence, Scope, UnknownNames};
use pmapi::{Error, Semantics, Type, Units};

use crate::derive::table::{One, Table};

use Semantics::{Counter, Discrete, Instant};

fn table() -> Table {
    Table::default()
        .metric("gauge", Type::U32, Instant, Units::NONE, 1)
        .metric("other", Type::U32, Instant, Units::NONE, 1)
        .metric("flag", Type::I32, Instant, Units::NONE, 1)
        .metric("counter", Type::U64, Counter, Units::MILLISECONDS, 0)
        .metric("wraps", Type::I32, Counter, Units::NONE, 0)
        .metric("ncpu", Type::U32, Discrete, Units::NONE, 0)
        .metric("kbytes", Type::U32, Instant, Units::KBYTES, 0)
        .metric("tbytes", Type::U32, Instant, Units::TBYTES, 0)
        .metric("bytes", Type::U32, Instant, Units::BYTES, 0)
        .metric("per_msec", Type::Double, Instant, Units::COUNT.per(Units::MILLISECONDS), 0)
        .metric("seconds", Type::Double, Instant, Units::SECONDS, 0)
        .metric("text", Type::String, Instant, Units::NONE, 0)
}

#[test]
fn a_comparison_with_a_counter_is_no_counter() {
    assert_eq!(One::new("counter > 5 && ncpu", &table()).desc().semantics, Instant);
    assert_eq!(One::new("ncpu > 5", &table()).desc().semantics, Discrete);
}

#[test]
fn a_product_with_a_counter_is_a_counter() {
    let desc = One::new("ncpu * counter", &table()).desc();
    assert_eq!((desc.semantics, desc.ty, desc.units), (Counter, Type::U64, Units::MILLISECONDS));
}

/// Accepts definitions that libpcp accepts because its products have the semantics of the left operand.
#[test]
fn what_follows_a_product_with_a_counter() {
    let of = |expr: &str| {
        let desc = One::new(expr, &table()).desc();
        (desc.semantics, desc.units)
    };
    let time = Units::MILLISECONDS;
    assert_eq!(of("ncpu * counter * mkconst(3, units=\"Kbyte\")").1, Units::KBYTES.times(time));
    assert_eq!(of("ncpu * wraps * wraps"), (Counter, Units::NONE));
    assert_eq!(of("ncpu * wraps + ncpu"), (Discrete, Units::NONE));
    assert_eq!(of("ncpu * wraps + wraps"), (Counter, Units::NONE));
    assert_eq!(of("ncpu ? ncpu * wraps : mkconst(1, type=u32)"), (Discrete, Units::NONE));
    let mut definitions = Definitions::new(Scope::Global);
    definitions.register("x", "counter * ncpu * mkconst(3, units=\"Kbyte\")").unwrap();
    assert!(Evaluator::bind(&definitions, &mut &table(), UnknownNames::Refused).desc(DefinitionId::new(0)).is_err());
}

#[test]
fn negation_gives_a_number_without_units() {
    let mut table = table();
    let desc = One::new("!counter", &table).desc();
    assert_eq!((desc.ty, desc.semantics, desc.units), (Type::U32, Instant, Units::NONE));
    table.set("counter", &[(0, 0.0)]);
    assert_eq!(One::new("!counter", &table).at(1.0, &table), Ok(vec![(0, 1.0)]));
    let mut definitions = Definitions::new(Scope::Global);
    definitions.register("x", "!text").unwrap();
    assert!(Evaluator::bind(&definitions, &mut &table, UnknownNames::Refused).desc(DefinitionId::new(0)).is_err());
}

#[test]
fn the_larger_scale_wins_on_either_side() {
    let mut table = table();
    let mut sum = One::new("mkconst(1, units=\"Mbyte\") + kbytes", &table);
    assert_eq!((sum.desc().units, sum.desc().ty), (Units::MBYTES, Type::Double));
    table.set("kbytes", &[(0, 512.0)]);
    assert_eq!(sum.at(1.0, &table), Ok(vec![(0, 1.5)]));
}

#[test]
fn scales_of_dimensions_with_different_signs() {
    let mut table = table();
    table.set("per_msec", &[(0, 2.0)]);
    table.set("seconds", &[(0, 3.0)]);
    // 2 per millisecond are 2000 per second.
    let mut product = One::new("per_msec * seconds", &table);
    assert_eq!(product.desc().units, Units::COUNT);
    assert_eq!(product.at(1.0, &table), Ok(vec![(0, 6000.0)]));
}

#[test]
fn scales_far_apart() {
    let mut table = table();
    table.set("bytes", &[(0, 0.0)]);
    table.set("tbytes", &[(0, 3.0)]);
    assert_eq!(One::new("bytes + tbytes", &table).at(1.0, &table), Ok(vec![(0, 3.0)]));
}

#[test]
fn the_rate_of_a_falling_gauge_is_negative() {
    let mut table = table();
    let mut rate = One::new("rate(gauge)", &table);
    table.set("gauge", &[(0, 10.0), (1, 10.0)]);
    assert_eq!(rate.at(1.0, &table), Ok(vec![]));
    table.set("gauge", &[(0, 4.0), (1, 12.0)]);
    assert_eq!(rate.at(3.0, &table), Ok(vec![(0, -3.0), (1, 1.0)]));
}

#[test]
fn a_rate_needs_time() {
    let mut table = table();
    let mut rate = One::new("rate(gauge)", &table);
    table.set("gauge", &[(0, 10.0)]);
    assert_eq!(rate.at(1.0, &table), Ok(vec![]));
    assert_eq!(rate.at(1.0, &table), Ok(vec![]));
    assert_eq!(rate.at(2.0, &table), Ok(vec![(0, 0.0)]));
}

#[test]
fn the_rate_of_counters() {
    let mut table = table();
    let (mut counter, mut wraps) = (One::new("rate(counter)", &table), One::new("rate(wraps)", &table));
    table.set("counter", &[(0, 5000.0)]);
    table.set("wraps", &[(0, f64::from(i32::MAX))]);
    assert_eq!((counter.at(1.0, &table), wraps.at(1.0, &table)), (Ok(vec![]), Ok(vec![])));
    table.set("counter", &[(0, 4000.0)]);
    table.set("wraps", &[(0, f64::from(i32::MIN))]);
    // A counter that decreases has no rate, unless it has type `32`, as in libpcp.
    assert_eq!((counter.at(2.0, &table), wraps.at(2.0, &table)), (Ok(vec![]), Ok(vec![(0, 1.0)])));
    table.set("counter", &[(0, 4500.0)]);
    assert_eq!(counter.at(3.0, &table), Ok(vec![(0, 0.5)]));
}

/// A record of an archive that lacks an operand has no effect on its difference. A value that is kept has no difference.
#[test]
fn without_its_operand_a_difference_is_left_alone() {
    use Presence::{Absent, Kept, Sampled};
    let mut table = table();
    let expressions =
        [("change", "delta(bytes)"), ("step", "delta(ncpu)"), ("both", "step + 10 * ncpu + delta(other)")];
    let mut definitions = Definitions::new(Scope::Global);
    expressions.iter().for_each(|(name, expression)| _ = definitions.register(name, expression).unwrap());
    let mut evaluator = Evaluator::bind(&definitions, &mut &table, UnknownNames::Refused);
    let plan = evaluator.plan(evaluator.ids());
    let mut sample = |second: u32, presence: [Presence; 2]| -> Vec<Option<String>> {
        let number = f64::from(second);
        for (name, presence) in ["bytes", "ncpu"].into_iter().zip(presence) {
            table.presence(name, presence);
            if presence == Sampled {
                table.set(name, &[(0, number)]);
            }
        }
        table.set("other", &[(1, number)]);
        evaluator.evaluate(&plan, Duration::from_secs(second.into()), &mut &table);
        let values = |id| {
            let values = evaluator.values(id).unwrap().iter();
            evaluator.is_current(id).then(|| values.map(|(_, value)| value.to_string()).collect())
        };
        evaluator.ids().map(values).collect()
    };
    let found = |values: [Option<&str>; 3]| values.map(|value| value.map(str::to_owned));
    assert_eq!(sample(1, [Sampled, Sampled]), found([Some(""), Some(""), Some("")]));
    assert_eq!(sample(2, [Absent, Kept]), found([None, None, Some("11")]));
    assert_eq!(sample(4, [Sampled, Absent]), found([Some("3"), None, None]));
    assert_eq!(sample(7, [Absent, Sampled]), found([None, Some("6"), Some("79")]));
}

#[test]
fn after_an_error_a_difference_begins_anew() {
    let mut table = table();
    let mut delta = One::new("delta(gauge + other)", &table);
    for (name, value) in [("gauge", 1.0), ("other", 2.0)] {
        table.set(name, &[(0, value)]);
    }
    assert_eq!(delta.at(1.0, &table), Ok(vec![]));
    table.fail("gauge", Error::AGAIN);
    assert_eq!(delta.at(2.0, &table), Err(Error::AGAIN));
    table.set("gauge", &[(0, 5.0)]);
    assert_eq!(delta.at(3.0, &table), Ok(vec![]));
    table.set("gauge", &[(0, 6.0)]);
    assert_eq!(delta.at(4.0, &table), Ok(vec![(0, 1.0)]));
}

#[test]
fn the_largest_of_nothing_is_nothing() {
    let mut table = table();
    for (expr, empty) in [
        ("max(gauge)", vec![]),
        ("min(gauge)", vec![]),
        ("sum(gauge)", vec![(0, 0.0)]),
        ("avg(gauge)", vec![(0, 0.0)]),
        ("count(gauge)", vec![(0, 0.0)]),
    ] {
        table.set("gauge", &[]);
        let mut one = One::new(expr, &table);
        assert_eq!(one.at(1.0, &table), Ok(empty), "{expr}");
        table.fail("gauge", Error::AGAIN);
        let failed = if expr.starts_with("count") { Ok(vec![(0, 0.0)]) } else { Err(Error::AGAIN) };
        assert_eq!(one.at(2.0, &table), failed, "{expr}");
    }
}

#[test]
fn a_ternary_goes_by_instances() {
    let mut table = table();
    let mut choice = One::new("flag > 0 ? gauge : other", &table);
    table.set("flag", &[(3, 1.0), (1, 0.0), (2, 1.0), (5, 1.0)]);
    table.set("gauge", &[(1, 11.0), (2, 12.0), (3, 13.0)]);
    table.set("other", &[(4, 24.0), (1, 21.0)]);
    // Instance 4 has no guard, and instance 5 has no value.
    assert_eq!(choice.at(1.0, &table), Ok(vec![(1, 21.0), (2, 12.0), (3, 13.0)]));
    let mut some = One::new("flag > 0 ? gauge : novalue()", &table);
    assert_eq!(some.at(1.0, &table), Ok(vec![(2, 12.0), (3, 13.0)]));
    let mut none = One::new("scalar(flag) > 0 ? novalue() : novalue()", &table);
    assert_eq!(none.at(1.0, &table), Ok(vec![]));
    let mut none = One::new("flag ? novalue() : novalue()", &table);
    assert_eq!(none.at(1.0, &table), Ok(vec![]));
    let mut one = One::new("scalar(flag) > 0 ? mkconst(7, semantics=instant) : gauge", &table);
    assert_eq!(one.at(1.0, &table), Ok(vec![(1, 7.0), (2, 7.0), (3, 7.0)]));
}

#[test]
fn operands_are_joined_by_instance() {
    let mut table = table();
    let mut sum = One::new("gauge + other", &table);
    table.set("gauge", &[(3, 1.0), (1, 2.0), (2, 3.0)]);
    table.set("other", &[(1, 10.0), (2, 20.0), (9, 90.0)]);
    assert_eq!(sum.at(1.0, &table), Ok(vec![(1, 12.0), (2, 23.0)]));
    table.set("other", &[(3, 30.0)]);
    assert_eq!(sum.at(2.0, &table), Ok(vec![(3, 31.0)]));
    table.set("other", &[]);
    assert_eq!(sum.at(3.0, &table), Ok(vec![]));
}

#[test]
fn filters_follow_instances_that_come_and_go() {
    let mut table = table();
    let (mut one, mut some) = (One::new("gauge[i2]", &table), One::new("matchinst(!/^i[01]$/, gauge)", &table));
    for (values, only, others) in [
        (&[(0, 1.0), (1, 2.0)][..], vec![], vec![]),
        (&[(2, 5.0), (0, 1.0)], vec![(2, 5.0)], vec![(2, 5.0)]),
        (&[(3, 6.0), (2, 7.0)], vec![(2, 7.0)], vec![(3, 6.0), (2, 7.0)]),
        (&[(3, 8.0)], vec![], vec![(3, 8.0)]),
    ] {
        table.set("gauge", values);
        assert_eq!(one.at(1.0, &table), Ok(only));
        assert_eq!(some.at(1.0, &table), Ok(others));
    }
}

#[test]
fn definitions_refer_to_one_another() {
    let mut table = table();
    table.set("gauge", &[(0, 1.0), (1, 4.0)]);
    let mut definitions = Definitions::new(Scope::Global);
    for (name, expr) in [
        ("twice", "2 * sum.of"),
        ("sum.of", "sum(gauge) + none.such.guard"),
        ("none.such.guard", "defined(none.such) ? none.such : 1"),
        ("loop.a", "gauge + loop.b"),
        ("loop.b", "defined(loop.c) ? 1 : 2"),
        ("loop.c", "loop.a"),
        ("loop.user", "loop.a + 1"),
        ("self", "self"),
        ("gauge", "gauge + 1"),
    ] {
        definitions.register(name, expr).unwrap();
    }
    definitions.register("by.alias", "shown.sum + 1").unwrap();
    definitions.get_mut("sum.of").unwrap().set_alias("shown.sum");
    let mut evaluator = Evaluator::bind(&definitions, &mut &table, UnknownNames::Refused);
    let error = |name: &str| evaluator.desc(evaluator.find(name).unwrap()).unwrap_err().cloned().unwrap();
    let path = |names: &[&str]| BindError::Cycle { path: names.iter().map(|name| name.to_string()).collect() };
    assert_eq!(error("loop.a"), path(&["loop.a", "loop.b", "loop.c", "loop.a"]));
    assert_eq!(error("loop.c"), path(&["loop.c", "loop.a", "loop.b", "loop.c"]));
    assert_eq!(error("self").to_string(), "definition refers to itself: self -> self");
    assert_eq!(error("loop.user").to_string(), "operand loop.a: Metadata for operand metric not available");
    let twice = evaluator.find("twice").unwrap();
    let plan = evaluator.plan([twice]);
    assert_eq!(evaluator.operands_of(&plan).map(|operand| &*operand.name).collect::<Vec<_>>(), ["gauge"]);
    evaluator.evaluate(&plan, std::time::Duration::from_secs(1), &mut &table);
    let values: Vec<_> = evaluator.values(twice).unwrap().iter().collect();
    assert_eq!(values, [(None, pmapi::Atom::U32(12))]);
    let by_alias = evaluator.find("by.alias").unwrap();
    evaluator.evaluate(&evaluator.plan([by_alias]), std::time::Duration::from_secs(2), &mut &table);
    assert_eq!(evaluator.values(by_alias).unwrap().iter().next(), Some((None, pmapi::Atom::U32(7))));
}

#[test]
fn unknown_metrics_may_have_no_values() {
    let table = table();
    let mut definitions = Definitions::new(Scope::Global);
    definitions.register("x", "none.such + 1").unwrap();
    definitions.register("y", "defined(none.such)").unwrap();
    definitions.register("z", "counter + none.such").unwrap();
    let mut evaluator = Evaluator::bind(&definitions, &mut &table, UnknownNames::NoValue);
    let error = evaluator.desc(DefinitionId::new(2)).unwrap_err().unwrap();
    assert_eq!(error.to_string(), "counter + <expr>: Illegal operator for counter and non-counter");
    let plan = evaluator.plan([DefinitionId::new(0), DefinitionId::new(1)]);
    evaluator.evaluate(&plan, std::time::Duration::from_secs(1), &mut &table);
    assert_eq!(evaluator.values(DefinitionId::new(0)).unwrap().len(), 0);
    assert_eq!(evaluator.values(DefinitionId::new(1)).unwrap().iter().next(), Some((None, pmapi::Atom::U32(0))));
}
