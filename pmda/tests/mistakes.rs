//! What is wrong with an agent's declarations is said at the start, all of it.

#![allow(clippy::unwrap_used)]

use pmda::Schema;
use pmda::prelude::*;

struct Careless;

impl Agent for Careless {
    const NAME: &'static str = "careless";
    const DOMAIN: u16 = 401;

    fn new(setup: &mut Setup) -> Start<Self> {
        setup.metric("careless.2nd", Item::new(0, 0), Type::U32);
        setup.metric("careless.a", Item::new(0, 1), Type::U32);
        setup.metric("careless.a", Item::new(0, 2), Type::U32);
        setup.metric("careless.b", Item::new(0, 2), Type::U32);
        setup.metric("careless.a.below", Item::new(0, 3), Type::U32).indom(Serial::new(9));
        setup.metric("careless.c", Item::new(0, 4), Type::U32).help("two\nlines", "").labels(json!(["none"]));
        setup.indom(Serial::new(1)).instances([(1, "x y"), (1, "z"), (2, "x")]);
        setup.indom(Serial::new(1)).instances([(0, "")]);
        setup.labels(json!({"1st": 1}));
        Ok(Careless)
    }

    fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
        Ok(())
    }
}

#[test]
fn every_mistake_is_named() {
    let text = Schema::of::<Careless>().unwrap_err().to_string();
    for mistake in [
        "metric \"careless.2nd\": names are components",
        "metric careless.a: declared twice",
        "metrics careless.a and careless.b: both are item 0.2",
        "metric careless.a: there are metrics below it",
        "metric careless.a.below: instance domain 9 is not declared",
        "careless.c: the help in one line has several",
        "labels of metric careless.c: not an object",
        "instance domain 1: instance 1 (\"z\") is there twice",
        "instance domain 1: instance 2 (\"x\") is there twice",
        "instance domain 1: declared twice",
        "instance domain 1: instance 0 has no name",
        "labels: ",
    ] {
        assert!(text.contains(mistake), "{mistake:?} is not in {text}");
    }
}
