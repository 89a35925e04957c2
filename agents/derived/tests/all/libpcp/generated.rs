//! Ten thousand generated definitions, valid and invalid, compared with the answers of the installed libpcp.

use std::collections::HashMap;

use super::generator::{OPERANDS, expressions, in_groups, is_newer_reason, listed};
use super::stage::{Answer, Stage};

const COUNT: usize = 10_000;

/// libpcp's answer about a definition.
#[derive(Clone, PartialEq, Debug)]
enum Said {
    Error { kind: String, text: String },
    Metric(Answer),
}

/// Returns libpcp's answers, apart from definitions that crash it. Asks one by one where libpcp may mix definitions up.
fn ask(stage: &Stage, definitions: &[(String, String)]) -> HashMap<String, Said> {
    let mut said = HashMap::new();
    in_groups(definitions, |group| {
        let answers = ask_at_once(stage, group);
        let has_survived = answers.is_some();
        said.extend(answers.unwrap_or_default());
        has_survived
    });
    said
}

fn ask_at_once(stage: &Stage, batch: &[&(String, String)]) -> Option<HashMap<String, Said>> {
    let config: String = batch.iter().map(|(name, expr)| format!("{name} = {expr}\n")).collect();
    let names: Vec<&str> = batch.iter().map(|(name, _)| name.as_str()).collect();
    let (metrics, errors) = stage.client(&config, &names)?;
    let mut said: HashMap<String, Said> =
        metrics.into_iter().map(|(name, answer)| (name, Said::Metric(answer))).collect();
    // libpcp does not always give the reason.
    let unknown = errors.lines().filter_map(|line| line.strip_prefix("Error: ")?.strip_suffix(": Unknown metric name"));
    said.extend(unknown.map(|name| (name.to_owned(), Said::Error { kind: "unbound".to_owned(), text: String::new() })));
    let mut lines = errors.lines();
    while let Some(line) = lines.next() {
        let between = |start, end| line.split_once(start)?.1.split_once(end);
        if let Some((name, _)) = between("Error: pmRegisterDerived(", ", ...) syntax error") {
            let column = lines.nth(1).and_then(|line| line.find('^')).map_or(-1, |at| at as i64);
            let mut rest = lines.clone();
            // There may be no reason.
            let reason = rest.next().filter(|line| !line.starts_with(['[', 'E', 'S']) || line.ends_with("STRING"));
            let text = format!("col {column}: {}", reason.unwrap_or_default());
            let text = text.trim_end().to_owned();
            said.insert(name.to_owned(), Said::Error { kind: "syntax".to_owned(), text });
        } else if let Some((name, text)) = between("Semantic error: derived metric ", ": ") {
            let (kind, text) = ("semantic".to_owned(), text.to_owned());
            said.insert(name.to_owned(), Said::Error { kind, text });
        }
    }
    Some(said)
}

#[test]
#[ignore = "needs PCP"]
fn generated_definitions() {
    let expressions = expressions(COUNT);
    let config: String = expressions.iter().map(|(name, expr)| format!("{name} = {expr}\n")).collect();
    let stage = Stage::new(&config);
    let checked = stage.check(&[]);
    // Values are compared if they are the same before and after, and if no operand changes in all that time.
    let operands = |_| stage.client("", OPERANDS).unwrap().0;
    let mut readings: Vec<_> = (0..5).map(operands).collect();
    let before = ask(&stage, &expressions);
    let ours = stage.agent();
    let after = ask(&stage, &expressions);
    readings.extend((0..5).map(operands));
    let moves = |name: &&&str| readings.iter().any(|one| one.get(**name) != readings[0].get(**name));
    let moving: Vec<&str> = OPERANDS.iter().filter(moves).copied().collect();
    let is_counter = |name: &str| readings[0].get(name).is_some_and(|said| said.meta.contains("sem=counter"));

    let (mut wrong, mut counts) = (Vec::new(), HashMap::new());
    for (name, expr) in &expressions {
        let (check, ours) = (&checked[name], ours.get(name));
        let same = match (before.get(name), after.get(name)) {
            (Some(Said::Error { kind, text }), _) => {
                *counts.entry(kind.as_str()).or_insert(0) += 1;
                let same = *check == ["ERR", kind, text];
                let newer = check[1] == "syntax" && is_newer_reason(&check[2]);
                ours.is_none() && (same || newer || kind == "unbound" && check[1] == "semantic")
            }
            (Some(Said::Metric(theirs)), Some(Said::Metric(later))) => {
                *counts.entry("metric").or_insert(0) += 1;
                let moves = ["rate(", "delta("].iter().chain(&moving).any(|word| expr.contains(word));
                let stands_still = theirs == later && !moves;
                *counts.entry("values").or_insert(0) += usize::from(stands_still && theirs.values.contains('='));
                check[..2] == ["OK", &theirs.meta]
                    && ours
                        .is_some_and(|ours| ours.meta == theirs.meta && (!stands_still || ours.values == theirs.values))
            }
            _ => {
                *counts.entry("libpcp did not survive").or_insert(0) += 1;
                true
            }
        };
        if same {
            continue;
        }
        match listed(expr, is_counter) {
            Some(why) => *counts.entry(why).or_insert(0) += 1,
            None => wrong.push(format!(
                "{name} = {expr}\n  check  {check:?}\n  agent  {ours:?}\n  theirs {:?}\n         {:?}",
                before.get(name),
                after.get(name)
            )),
        }
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{} of {COUNT} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(counts["metric"] > 4000 && counts["values"] > 3000 && counts["syntax"] > 2000, "{counts:?}");
}
