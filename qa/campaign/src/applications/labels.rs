//! Label values that strangers choose, for example by HTTP requests: long values, values with long common prefixes, and
//! characters that names cannot have.

use std::time::{Duration, Instant};

use metrics::{Key, Label, Level, Metadata, Recorder as _};
use mmv::Registry;
use mmv::recorder::Recorder;

use crate::Outcome;
use crate::host::Scene;
use crate::job::Job;
use crate::patience::scaled;
use crate::procs;
use crate::rng::Rng;

/// Label sets of a round.
const ROUND: usize = 64;
/// Number of rounds until a recorder is replaced.
const ROUNDS: u64 = 40;
/// Longest duration of one call, which may have to write the whole file again.
const PROMPT: Duration = Duration::from_secs(1);
/// Limit of the application's memory, in KiB.
const MEMORY: u64 = 512 << 10;

const ABOUT: Metadata<'static> = Metadata::new("campaign", Level::INFO, None);

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let recorder = || -> Outcome<Recorder> {
        let recorder = Recorder::of(Registry::builder("labels").directory(scene.mmv()))?;
        recorder.registry().try_start()?;
        Ok(recorder)
    };
    let mut one = recorder()?;
    while let Some((round, mut rng)) = job.next_round() {
        if round % ROUNDS == ROUNDS - 1 {
            one.registry().stop();
            drop(one);
            one = recorder()?;
        }
        for _ in 0..ROUND {
            let key = Key::from_parts("requests", labels(&mut rng));
            let begin = Instant::now();
            match rng.below(8) {
                0 => one.register_gauge(&key, &ABOUT).set(0.5),
                1 => one.register_histogram(&Key::from_parts("times", labels(&mut rng)), &ABOUT).record(0.5),
                _ => one.register_counter(&key, &ABOUT).increment(1),
            }
            job.took(begin.elapsed());
            if begin.elapsed() > scaled(PROMPT) {
                job.fail(format_args!("a label set takes {:?}", begin.elapsed()));
            }
        }
        job.tried(1);
        if procs::resident(std::process::id()).is_some_and(|resident| resident > MEMORY) {
            job.fail("the application has too much memory");
        }
        job.check_memory(std::process::id(), MEMORY);
    }
    Ok(())
}

fn labels(rng: &mut Rng) -> Vec<Label> {
    let count = 1 + rng.below(3);
    (0..count).map(|n| Label::new(["path", "agent", "query"].get(n).copied().unwrap_or("x"), value(rng))).collect()
}

fn value(rng: &mut Rng) -> String {
    let n = rng.below(1000);
    match rng.below(6) {
        0 => format!("/{}/{n}", "x".repeat(300)),
        1 => format!("{}{n}", "y".repeat(240 + rng.below(20))),
        // In names, each of these characters is replaced by the same character.
        2 => (0..1 + rng.below(9)).map(|_| rng.pick(&[' ', ',', '\t', '\n', '_', '/'])).collect(),
        3 => format!("{}{n}", "\u{1b}[2J~".repeat(rng.below(60))),
        4 => "ä\u{1f600}".repeat(rng.below(100)),
        _ => format!("/item/{n}"),
    }
}
