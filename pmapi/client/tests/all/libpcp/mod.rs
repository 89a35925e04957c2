//! Functions of the PMAPI against the installed libpcp, on generated inputs. `data/libpcp_cases.c` asks libpcp.

#![allow(clippy::unwrap_used, clippy::panic)]

mod labels;
mod print;
mod texts;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Returns libpcp's answers to questions, each of which is a line of the program's input.
fn ask(questions: &[String], env: &[(&str, &str)]) -> Vec<Vec<u8>> {
    static PROGRAM: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = PROGRAM.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/libpcp_cases.c");
        testkit::compile(source, &dir, &["-lpcp"]);
        dir
    });
    let mut input = tempfile::tempfile().unwrap();
    input.write_all((questions.join("\n") + "\n").as_bytes()).unwrap();
    std::io::Seek::rewind(&mut input).unwrap();
    let mut command = Command::new(dir.path().join("libpcp_cases"));
    let output = command.envs(env.iter().copied()).stdin(input).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{:?} after {} bytes", output.status, output.stdout.len());
    let answers: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(from_hex).collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

/// Compares the library's answer for each case with libpcp's.
fn compare<T: std::fmt::Debug>(
    cases: &[T],
    env: &[(&str, &str)],
    question: impl Fn(&T) -> String,
    ours: impl Fn(&T, &[u8]) -> Vec<u8>,
) {
    let answers = ask(&cases.iter().map(question).collect::<Vec<_>>(), env);
    let mut wrong = Vec::new();
    for (case, theirs) in cases.iter().zip(&answers) {
        let ours = ours(case, theirs);
        if ours != *theirs {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            wrong.push(format!("{case:?}\n  ours   {:?}\n  theirs {:?}", text(&ours), text(theirs)));
        }
    }
    let some = wrong.iter().take(15).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {} differ\n{some}", wrong.len(), cases.len());
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    match bytes.as_ref() {
        [] => "-".to_owned(),
        bytes => bytes.iter().map(|b| format!("{b:02x}")).collect(),
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Generator of random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn text(&mut self, pieces: &[&str], most: usize) -> String {
        let count = self.below(most + 1);
        (0..count).map(|_| self.pick(pieces)).collect()
    }
}
