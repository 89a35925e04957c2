//! Applications that start in a directory where strangers occupy file names with FIFOs, links and directories. One of
//! them changes to a user who does not own its file.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mmv::Registry;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pmapi::Type;

use crate::Outcome;
use crate::host::{self, Host, Kind, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;
use crate::users::{As, USERS};

/// Longest duration of a start.
const PROMPT: Duration = Duration::from_secs(1);
const CLUSTER: u16 = 13;

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let spec = Spec::of("mmv").ok_or("no agent mmv")?;
    let mut agent = host::start(spec, Kind::Pipe, job, &scene)?;
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = thread::spawn({
        let (dir, stop, seed) = (scene.mmv(), Arc::clone(&stop), job.order.seed);
        move || swap(&dir, &stop, seed)
    });
    while let Some((_, mut rng)) = job.next_round() {
        let begin = Instant::now();
        let outcome = start(&mut rng, &scene);
        job.took(begin.elapsed());
        job.expect("a start among strangers", outcome);
        if begin.elapsed() > scaled(PROMPT) {
            job.fail(format_args!("a start takes {:?}", begin.elapsed()));
        }
        let outcome = become_another(&mut rng, &scene, spec, &mut *agent);
        job.expect("an application that has become another user", outcome);
        job.tried(2);
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().map_err(|_| "the thread of the strangers has ended")?;
    Ok(())
}

/// Starts and ends an application whose file name strangers may also occupy. The start may fail with an error.
fn start(rng: &mut Rng, scene: &Scene) -> Outcome {
    let registry = Registry::builder(&format!("wanted{}", rng.below(4))).directory(scene.mmv()).build()?;
    registry.counter("count").register()?.inc();
    let _ = registry.try_start();
    registry.counter("more").register()?.inc();
    registry.stop();
    Ok(())
}

/// Exports metrics, changes the user, and exports more. In a directory with a sticky bit the process can no longer
/// replace its file. The earlier metrics must stay exported.
fn become_another(rng: &mut Rng, scene: &Scene, spec: &Spec, agent: &mut dyn Host) -> Outcome {
    let registry = Registry::builder("dropped").directory(scene.mmv()).cluster(CLUSTER).build()?;
    let count = registry.counter("count").item(1).register()?;
    registry.try_start()?;
    count.add(5);
    {
        let _as = As::user(rng.below(USERS));
        for n in 0..1 + rng.below(100) {
            // If the library cannot export a metric, it returns an error or writes to the log.
            if let Ok(counter) = registry.counter(&format!("late{n}")).register() {
                counter.inc();
            }
        }
        registry.flush();
    }
    count.add(6);
    Probe::default().fetch(spec.pmid(CLUSTER, 1), Answer::Number(Type::U64, 11.0))?.ask(agent)?;
    registry.stop();
    // After the change of user, the application could not remove its file.
    let _ = fs::remove_file(scene.mmv().join("dropped"));
    Ok(())
}

/// Keeps replacing names in the directory by files of other types, until `stop`.
fn swap(dir: &std::path::Path, stop: &AtomicBool, seed: u64) {
    let mut rng = Rng::of(seed, u64::MAX);
    while !stop.load(Ordering::Relaxed) {
        let _as = As::user(rng.below(USERS));
        let path: PathBuf = dir.join(format!("{}{}", rng.pick(&["wanted", "other"]), rng.below(4)));
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        let _ = match rng.below(6) {
            0 | 1 => mkfifo(&path, Mode::from_bits_truncate(0o666)).map_err(Into::into),
            2 => symlink("/dev/zero", &path),
            3 => fs::create_dir(&path),
            4 => File::create(&path).and_then(|file| file.set_len(1 << 20)),
            _ => Ok(()),
        };
        thread::sleep(Duration::from_micros(rng.below(100) as u64));
    }
}
