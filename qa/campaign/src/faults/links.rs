//! Links and other files that user pcp puts in place of an agent's instance cache and log repeatedly, while root starts
//! the agent. Nothing that the links lead to may change.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{User, mkfifo, setfsgid, setfsuid};
use pcp_pdu::instance::InstanceReq;
use pmapi::{Atom, Type};

use crate::Outcome;
use crate::host::{self, Kind, Scene};
use crate::job::Job;
use crate::probe::{Answer, Probe};
use crate::procs;
use crate::rng::Rng;
use crate::spec::Spec;

/// Content of the file that the links lead to.
const CONTENT: &str = "not to be touched\n";

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let spec = Spec::of("simple").ok_or("no agent simple")?;
    let target = scene.dir().join("target");
    fs::write(&target, CONTENT)?;
    fs::set_permissions(&target, Permissions::from_mode(0o600))?;
    let caches = scene.dir().join("var/config/pmda");
    let paths: Vec<PathBuf> = ["253.1", "253.1.new", ".253.1.new", "253.1.bad"]
        .iter()
        .map(|name| caches.join(name))
        .chain([scene.log("simple"), scene.logs().join("simple.log.prev")])
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let attacker = thread::spawn({
        let (stop, target, seed) = (Arc::clone(&stop), target.clone(), job.order.seed);
        move || swap(&paths, &target, &stop, seed)
    });
    while let Some((round, mut rng)) = job.next_round() {
        let outcome = start(&mut rng, job, spec, &scene);
        job.expect("an agent among links", outcome);
        job.expect("the file that links lead to", untouched(&target));
        job.tried(1);
        if round % 64 == 0 {
            job.check_log(&scene.logs());
        }
    }
    stop.store(true, Ordering::Relaxed);
    attacker.join().map_err(|_| "the thread of user pcp has ended")??;
    Ok(())
}

/// Starts the agent, which opens its log and loads its cache, and makes it save the cache.
fn start(rng: &mut Rng, job: &mut Job, spec: &'static Spec, scene: &Scene) -> Outcome {
    let conf = rng.pick(&["sec\n", "sec,min\n", "hour,min,sec\n"]);
    fs::write(scene.dir().join("pmdas/simple/simple.conf"), conf)?;
    let mut agent = host::start(spec, Kind::Pipe, job, scene)?;
    let mut request = Vec::new();
    InstanceReq { indom: Some(spec.indom(1)), inst: None, name: None }.encode(&mut request, 1)?;
    agent.exchange(&request, 1, &mut |_, _| Ok(()))?;
    let number = rng.word() % 1000;
    let probe = Probe::default().store(spec.pmid(0, 0), Atom::U32(number))?;
    probe.fetch(spec.pmid(0, 0), Answer::Number(Type::U32, f64::from(number) + 1.0))?.ask(&mut *agent)?;
    job.check_memory(agent.pid(), spec.memory);
    if procs::runs(agent.pid()) { Ok(()) } else { Err("the agent has ended".into()) }
}

fn untouched(target: &Path) -> Outcome {
    let about = fs::metadata(target)?;
    if fs::read_to_string(target)? != CONTENT || about.uid() != 0 || about.mode() & 0o7777 != 0o600 {
        return Err(format!("it belongs to {}, has mode {:o}", about.uid(), about.mode()).into());
    }
    Ok(())
}

/// As user pcp, replaces the names by links and other kinds of files, until `stop`.
fn swap(paths: &[PathBuf], target: &Path, stop: &AtomicBool, seed: u64) -> Outcome {
    let pcp = User::from_name("pcp")?.ok_or("no user pcp")?;
    // This thread performs no operation as root.
    setfsgid(pcp.gid);
    setfsuid(pcp.uid);
    let mut rng = Rng::of(seed, u64::MAX);
    while !stop.load(Ordering::Relaxed) {
        let Some(path) = paths.get(rng.below(paths.len())) else { break };
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        let _ = match rng.below(8) {
            0..=3 => symlink(target, path),
            4 => symlink(path, path),
            5 => mkfifo(path, Mode::from_bits_truncate(0o666)).map_err(Into::into),
            6 => fs::create_dir(path),
            // Does not wait: the agent may have given a FIFO this name, for instance that of the previous log.
            _ => {
                let mut options = File::options();
                options.write(true).create(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map(drop)
            }
        };
        thread::sleep(Duration::from_micros(rng.below(200) as u64));
    }
    Ok(())
}
