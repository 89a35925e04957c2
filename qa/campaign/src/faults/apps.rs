//! Applications that are killed at any time, beside the honest application, with agents mmv and trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use mmv::Registry;
use trace::{Options, Tag, Trace, Transport};

use crate::Outcome;
use crate::honest::Honest;
use crate::host::Scene;
use crate::job::Job;
use crate::patience::scaled;
use crate::procs::Guarded;
use crate::spec::Spec;

use super::Bench;

/// Longest time until the files of killed applications are removed.
const SOON: Duration = Duration::from_secs(20);

/// Options of the application that is killed.
#[derive(Args, Debug)]
pub(crate) struct App {
    /// Directory of the memory mapped values
    #[arg(long)]
    mmv: PathBuf,
    /// Directory of agent trace
    #[arg(long)]
    trace: PathBuf,
    /// Number of metrics after which it ends
    #[arg(long, default_value_t = 1000)]
    metrics: u32,
}

/// Registers metrics, counts and records points without a pause.
pub(crate) fn run_app(app: &App) -> Outcome {
    let registry = Registry::builder("victim").directory(&app.mmv).build()?;
    let rows = registry.indom("rows").register()?;
    let family = registry.counter("rows").over(&rows)?;
    registry.try_start()?;
    let options = Options::default().directory(app.trace.clone()).ring_len(4096);
    let trace = Trace::new(options.transport(Transport::SharedMemory));
    for n in 0..app.metrics {
        registry.counter(&format!("metric{n}")).register()?.add(n.into());
        family.instance(&format!("row {n}"))?.inc();
        let tag = Tag::new(&format!("victim{}", n % 10))?;
        (0..20).for_each(|_| trace.point(&tag));
    }
    Ok(())
}

fn command(scene: &Scene) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("app").arg("--mmv").arg(scene.mmv()).arg("--trace").arg(scene.trace());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let mut honest = Honest::new(&scene)?;
    let mut benches = Vec::new();
    for name in ["mmv", "trace"] {
        let spec = Spec::of(name).ok_or("no such agent")?;
        benches.push(Bench::start(job, spec, &scene, Some(&honest))?);
    }
    honest.go_on()?;
    while let Some((round, mut rng)) = job.next_round() {
        let victim = Guarded::spawn(&mut command(&scene)?)?;
        sleep(Duration::from_micros(300 + rng.below(6000) as u64));
        if let Some(bench) = benches.get_mut(rng.below(2)) {
            let outcome = bench.timed(job, &honest);
            job.expect("while an application runs", outcome);
        }
        drop(victim);
        job.tried(1);
        for bench in &mut benches {
            let outcome = bench.timed(job, &honest);
            job.expect("after an application was killed", outcome);
            if round % 64 == 0 {
                job.check_memory(bench.host.pid(), bench.spec.memory);
            }
        }
        if round % 64 == 0 {
            job.check_log(&scene.logs());
        }
    }
    // A later application of the same name must end normally, and remove the files of the killed ones.
    let mut last = Guarded::spawn(command(&scene)?.args(["--metrics", "3"]))?;
    let status = last.ends_within(scaled(Duration::from_secs(5))).ok_or("an application hangs")?;
    if !status.success() {
        job.fail(format_args!("an application after others: {status}"));
    }
    let begin = Instant::now();
    loop {
        let outcome = benches.iter_mut().try_for_each(|bench| bench.check(&honest)).and_then(|()| removed(&scene));
        if outcome.is_ok() || begin.elapsed() > SOON {
            job.expect("at the end", outcome);
            break;
        }
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Checks that only the honest application's files are left.
fn removed(scene: &Scene) -> Outcome {
    let marks = scene.marks()?;
    for dir in [scene.mmv(), marks.clone()] {
        let mut left = names(&dir);
        if dir == marks {
            // For a minute the agent treats a hidden file as one that is being created.
            left.retain(|name| !name.starts_with('.'));
        }
        if left.len() > 1 {
            let shown = left.get(..left.len().min(5)).unwrap_or_default();
            return Err(format!("{} files are left in {}: {shown:?} …", left.len(), dir.display()).into());
        }
    }
    Ok(())
}

fn names(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}
