//! Checks that the tests named in `qa/campaign/FINDINGS.md` and the paragraphs of docs/limits.md exist.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

#[test]
fn each_test_of_the_table_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let risks = read("docs/limits.md").replace('\n', " ");
    let (mut tests, mut rows) = (0, 0);
    let table = read("qa/campaign/FINDINGS.md");
    let answers = table.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit_once(" | "));
    for (what, answer) in answers.filter(|(what, _)| *what != "| what could go wrong") {
        rows += 1;
        for answer in answer.split("; ") {
            if let Some(paragraph) = answer.strip_prefix("docs/limits.md: ") {
                assert!(risks.contains(paragraph.trim_matches('"')), "{what}: {paragraph}");
                tests += 1;
                continue;
            }
            let (file, names) = answer.split_once(": ").unwrap_or((answer, ""));
            let text = read(file.trim_matches('`'));
            for name in names.split(", ").filter(|name| !name.is_empty()) {
                let name = name.trim_matches('`');
                let before = text.split_once(&format!("fn {name}(")).map(|(before, _)| before);
                let lines = before.unwrap_or_default().rsplit('\n').skip(1).map(str::trim);
                let mut attributes = lines.take_while(|line| line.starts_with(['#', '/']));
                assert!(attributes.any(|line| line == "#[test]"), "{what}: {file} has no test {name}");
            }
            tests += 1;
        }
    }
    assert!(rows > 50 && tests > rows, "{rows} rows, {tests} tests");
}
