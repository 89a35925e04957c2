//! Tables of names in the format of PCP's agent, with damage. The agent starts in this process, and reads them.

use std::fs;
use std::time::Instant;

use pmapi::Type;

use super::damage::damage;
use crate::Outcome;
use crate::host::{self, Kind, Scene};
use crate::job::Job;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;

/// Value of the metric that stands before all damage.
const HONEST: f64 = 12_345.0;

/// Number of starts in a round.
const ROUND: u64 = 16;
/// Limit of the job's own memory, in KiB.
const MEMORY: u64 = 256 << 10;
/// Largest number of files in the directory of tables. The job itself has five.
const FILES: usize = 16;

/// Pickles of Python that are not tables. The first one would run a command.
const PICKLES: [&[u8]; 4] =
    [b"cos\nsystem\n(S'touch /tmp/owned'\ntR.", b"\x80\x03]q\x00X\x01\x00\x00\x00aq\x01a.", b"(dp0\n.", b"I01\n."];

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?.with_openmetrics()?;
    let spec = Spec::of("openmetrics").ok_or("no agent openmetrics")?;
    while let Some((_, mut rng)) = job.next_round() {
        for _ in 0..ROUND {
            write(&mut rng, &scene)?;
            let start = Instant::now();
            let outcome = ask(job, spec, &scene);
            job.took(start.elapsed());
            job.expect("agent with damaged tables", outcome);
        }
        job.tried(3 * ROUND);
        job.check_memory(std::process::id(), MEMORY);
    }
    let left = fs::read_dir(scene.tables())?.flatten().count();
    if left > FILES {
        job.fail(format_args!("{left} files beside the tables"));
    }
    if std::path::Path::new("/tmp/owned").exists() {
        job.fail("a command in a table was executed");
    }
    Ok(())
}

/// Writes the tables of the sources, of the honest source's metrics, and of the instances of a metric.
fn write(rng: &mut Rng, scene: &Scene) -> Outcome {
    let dir = scene.tables();
    for file in fs::read_dir(&dir)?.flatten().filter(|file| file.file_name().to_string_lossy().ends_with(".py")) {
        fs::remove_file(file.path())?;
    }
    let tables: [(&str, &[u8]); 3] = [
        ("144.0.py", b"(lp0\nVcontrol\np1\naVhonest\np2\naVother\np3\na.I00\n."),
        ("144.1.py", b"(lp0\nVcount\np1\naVrows\np2\na.I00\n."),
        ("144.5121.py", b"(lp0\nVn:1\np1\naVn:2 \\u00e9\np2\na.I01\n."),
    ];
    for (name, text) in tables {
        let mut text = if rng.one_in(8) { PICKLES.get(rng.below(4)).copied().unwrap_or(text) } else { text }.to_vec();
        if !rng.one_in(3) {
            damage(rng, &mut text);
        }
        fs::write(dir.join(name), text)?;
    }
    Ok(())
}

/// Starts the agent, and requests the honest value by its name.
fn ask(job: &Job, spec: &'static Spec, scene: &Scene) -> Outcome {
    let mut agent = host::start(spec, Kind::Local, job, scene)?;
    let count = Probe::lookup_when_bound(&mut *agent, "openmetrics.honest.count")?;
    Probe::default().fetch(count, Answer::Number(Type::Double, HONEST))?.ask(&mut *agent)?;
    let rows = Probe::lookup(&mut *agent, "openmetrics.honest.rows")?;
    Probe::default().fetch(rows, Answer::Any)?.ask(&mut *agent)
}
