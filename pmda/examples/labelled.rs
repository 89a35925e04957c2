//! An agent with labels at each level, for the tests with PCP. Its counterpart in C is `tests/pcp/labelled.c`.

use pmda::prelude::*;
use pmda::{Changes, LabelSubject};

struct Mine {
    bare: bool,
    changed: bool,
    changes: Changes,
}

impl Agent for Mine {
    const NAME: &'static str = "labelled";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        #[derive(serde::Serialize)]
        struct Own {
            agent: &'static str,
            version: [u8; 2],
        }
        let bare = setup.config().var("BARE").is_some();
        if !bare {
            setup.labels(Own { agent: "labelled", version: [1, 2] });
            setup.notes(r#"{"note":"by the way"}"#);
            setup.cluster_labels(1, json!({"cluster": "of one", "agent": "overruled"}));
        }
        let indom = Serial::new(0);
        let domain = setup.indom(indom).instances([(3, "one instance"), (5, "another")]);
        if !bare {
            domain.labels(json!({"indom": null}));
        }
        let single = setup.metric("labelled.single", Item::new(0, 0), Type::U32).storable();
        if !bare {
            single.labels(r#"{"unit":"m","scale":1.5}"#);
        }
        setup.metric("labelled.a", Item::new(1, 0), Type::U32).indom(indom);
        setup.metric("labelled.b", Item::new(1, 1), Type::U32).indom(indom);
        Ok(Mine { bare, changed: false, changes: Changes::default() })
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        if item.cluster() == 0 {
            return out.put(u32::MAX);
        }
        [3, 5].into_iter().try_for_each(|inst| out.put_inst(Inst::new(inst), inst))
    }

    fn store(&mut self, _: Item, _: Option<Inst>, _: Atom<'_>, _: Client) -> Result {
        self.changed = true;
        self.changes = Changes::LABELS;
        Ok(())
    }

    fn changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    fn labels(&self, of: LabelSubject) -> Result<Option<LabelSet>> {
        let changed = self.changed && of == LabelSubject::Item(Item::new(0, 0));
        Ok(if changed { Some(LabelSet::from_serialize(json!({"changed": true}))?) } else { None })
    }

    fn instance_labels(&self, _: Serial, inst: Inst) -> Result<LabelSet> {
        if self.bare || inst.word() != 3 {
            return Ok(LabelSet::new());
        }
        Ok(LabelSet::from_serialize(r#"{"n":3,"name":"one \"instance\""}"#)?)
    }
}

fn main() -> std::process::ExitCode {
    pmda::main::<Mine>()
}
