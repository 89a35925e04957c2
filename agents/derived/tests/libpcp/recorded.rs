//! The 844 definitions of PCP's own tests, compared with the answers of libpcp 7.2.1.

use crate::cases::{TWO_NOVALUES, comparable, expected, expressions};
use crate::stage::Stage;

#[test]
#[ignore = "needs PCP"]
fn the_844_definitions_of_pcps_tests() {
    let expressions = expressions();
    let config: String = expressions.iter().map(|(name, expr)| format!("{name} ={expr}\n")).collect();
    let stage = Stage::new(&config);
    let (checked, said) = (stage.check(&["--samples", "1"]), stage.agent());
    let (mut wrong, mut metas, mut values, mut errors) = (Vec::new(), 0, 0, 0);
    for ((name, expr), theirs) in expressions.iter().zip(expected()).filter(|((name, _), _)| name != TWO_NOVALUES) {
        assert_eq!(theirs[0], name);
        let ours = checked.get(name).unwrap_or_else(|| panic!("{name}"));
        let same = match theirs[1] {
            "OK" => {
                metas += 1;
                // The first sample has no rates, but clients of the agent may get a later one.
                let has_values = comparable(expr, theirs[3]) && !expr.contains("rate(") && !expr.contains("delta(");
                values += usize::from(has_values);
                let answer = said.get(name);
                ours[..2] == theirs[1..3]
                    && (ours[2] == theirs[3] || !comparable(expr, theirs[3]))
                    && answer.is_some_and(|said| {
                        (said.meta == theirs[2] || is_newer(theirs[2])) && (!has_values || said.values == theirs[3])
                    })
            }
            _ => {
                errors += 1;
                ours[..2] == theirs[1..3]
                    && ours.get(2).map(String::as_str) == theirs.get(3).copied()
                    && !said.contains_key(name)
            }
        };
        if !same {
            wrong
                .push(format!("{name} ={expr}\n  check  {ours:?}\n  agent  {:?}\n  theirs {theirs:?}", said.get(name)));
        }
    }
    assert!(wrong.is_empty(), "{} of 844 differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((metas, errors), (667, 176));
    assert!(values > 450, "{values}");
}

/// Returns whether the installed pminfo does not know the units.
fn is_newer(meta: &str) -> bool {
    meta.contains("temperature")
}
