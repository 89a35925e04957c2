//! A disk that is full while applications register metrics and agents save instance caches.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mmv::Registry;
use pcp_pdu::Pdu;
use pcp_pdu::instance::InstanceReq;
use pmapi::Type;

use crate::Outcome;
use crate::host::{self, Host, Kind, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;

/// Cluster of the application's metrics; their items follow.
const CLUSTER: u16 = 9;
const FIRST: u16 = 1001;
const LAST: u16 = 1002;

/// A small file system, which is unmounted on drop.
struct Small(PathBuf, System);

/// Longest time to register a metric.
const PROMPT: Duration = Duration::from_secs(1);

/// Kind of a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    Memory,
    CopyOnWrite,
}

/// Smallest file system btrfs, in bytes.
const BTRFS: u64 = 110 << 20;

/// Returns whether the machine can create and mount a file system btrfs.
pub(super) fn is_possible() -> bool {
    let version = Command::new("mkfs.btrfs").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    version.is_ok_and(|status| status.success()) && systems.contains("btrfs")
}

fn succeeds(command: &mut Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}: {said}", output.status).into()) }
}

impl Small {
    /// Mounts a file system in memory.
    fn mount(dir: PathBuf) -> Outcome<Small> {
        succeeds(Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k,mode=1777", "small"]).arg(&dir))?;
        Ok(Small(dir, System::Memory))
    }

    /// Mounts a copy-on-write file system, in a file.
    fn copy_on_write(dir: PathBuf, image: &Path) -> Outcome<Small> {
        File::create(image)?.set_len(BTRFS)?;
        succeeds(Command::new("mkfs.btrfs").arg("-q").arg(image))?;
        succeeds(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&dir))?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777))?;
        Ok(Small(dir, System::CopyOnWrite))
    }

    /// Fills the file system, except for `left` bytes.
    fn fill(&self, left: usize) -> Outcome {
        let path = self.0.join(".filler");
        let mut file = File::create(&path)?;
        // Large blocks first, which is faster, then as many small ones as fit.
        for block in [vec![1; 1 << 20], vec![1; 4096]] {
            while file.write_all(&block).is_ok() {}
        }
        let len = file.metadata()?.len();
        file.set_len(len.saturating_sub(left as u64))?;
        Ok(())
    }

    fn free(&self) -> Outcome {
        Ok(fs::remove_file(self.0.join(".filler"))?)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Runs with the files of applications in memory, or on `btrfs`, where mapped pages need new blocks.
pub(super) fn run(job: &mut Job, system: &str) -> Outcome {
    let scene = Scene::new(job)?;
    let files = match system {
        "btrfs" => Small::copy_on_write(scene.mmv(), &scene.dir().join("image"))?,
        _ => Small::mount(scene.mmv())?,
    };
    let caches = Small::mount(scene.dir().join("var/config/pmda"))?;
    let spec = Spec::of("simple").ok_or("no agent simple")?;
    let mmv = Spec::of("mmv").ok_or("no agent mmv")?;
    let mut agent = host::start(mmv, Kind::Pipe, job, &scene)?;
    while let Some((_, mut rng)) = job.next_round() {
        let outcome = application(job, &mut rng, &files, &mut *agent);
        job.tried(1);
        job.expect("an application on a full disk", outcome);
        let outcome = cache(job, &mut rng, spec, &scene, &caches);
        job.tried(1);
        job.expect("an agent's cache on a full disk", outcome);
        for small in [&files, &caches] {
            for file in fs::read_dir(&small.0)?.flatten() {
                let _ = fs::remove_file(file.path());
            }
        }
    }
    Ok(())
}

/// Exports metrics before, while and after the disk is full. Metrics from before must keep changing, and later ones
/// must appear as soon as there is space.
fn application(job: &mut Job, rng: &mut Rng, disk: &Small, agent: &mut dyn Host) -> Outcome {
    let full_at_once = rng.one_in(3);
    if full_at_once {
        disk.fill(rng.below(40_000))?;
    }
    let registry = Registry::builder("full").directory(&disk.0).cluster(CLUSTER).build()?;
    let first = registry.counter("first").item(FIRST).register()?;
    first.add(1);
    let started = registry.try_start();
    if !full_at_once {
        started.map_err(|e| format!("with free space: {e}"))?;
        disk.fill(rng.below(20_000))?;
    }
    let names: Vec<String> = (0..1 + rng.below(60)).map(|n| format!("metric{n}")).collect();
    for name in &names {
        let begin = Instant::now();
        // The file may be unable to grow. Then the metric is exported later.
        if let Ok(counter) = registry.counter(name).register() {
            counter.inc();
        }
        job.took(begin.elapsed());
        if begin.elapsed() > scaled(PROMPT) {
            return Err(format!("registering takes {:?}", begin.elapsed()).into());
        }
    }
    first.add(1);
    // On a copy-on-write file system, an update needs space, too.
    if !full_at_once && disk.1 == System::Memory {
        value(agent, FIRST, 2).map_err(|e| format!("while the disk is full: {e}"))?;
    }
    disk.free()?;
    first.add(1);
    registry.counter("last").item(LAST).register()?.add(7);
    if full_at_once {
        registry.try_start()?;
    }
    registry.flush();
    value(agent, FIRST, 3).and_then(|()| value(agent, LAST, 7)).map_err(|e| format!("with free space again: {e}"))?;
    drop((first, registry));
    let left: Vec<_> = fs::read_dir(&disk.0)?.flatten().map(|file| file.file_name()).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are left behind").into()) }
}

/// Compares a value of the application in the agent.
fn value(agent: &mut dyn Host, item: u16, expected: u64) -> Outcome {
    let spec = Spec::of("mmv").ok_or("no agent mmv")?;
    let answer = Answer::Number(Type::U64, expected as f64);
    Ok(Probe::default().fetch(spec.pmid(CLUSTER, item), answer)?.ask(agent).map_err(|e| format!("item {item}: {e}"))?)
}

/// Lets agent simple save its instance cache on a full disk. The file must be the old one or the complete new one.
fn cache(job: &mut Job, rng: &mut Rng, spec: &'static Spec, scene: &Scene, disk: &Small) -> Outcome {
    let path = disk.0.join("253.1");
    fs::write(&path, "2 0 2147483647\n5 1700000000 sec\n6 1700000000 min\n7 1700000000 hour\n")?;
    disk.fill(rng.below(300))?;
    let conf = if rng.one_in(2) { "hour,sec\n" } else { "min\n" };
    fs::write(scene.dir().join("pmdas/simple/simple.conf"), conf)?;
    let mut request = Vec::new();
    InstanceReq { indom: Some(spec.indom(1)), inst: None, name: None }.encode(&mut request, 1)?;
    let mut agent = host::start(spec, Kind::Local, job, scene)?;
    agent.exchange(&request, 1, &mut |header, bytes| match Pdu::decode(header, bytes)? {
        Pdu::Instance(instances)
            if instances.iter().all(|(inst, _)| inst.is_some_and(|i| (5..8).contains(&i.word()))) =>
        {
            Ok(())
        }
        other => Err(format!("{other:?} in place of the instances of the cache").into()),
    })?;
    drop(agent);
    let text = fs::read_to_string(&path)?;
    for line in [" sec", " min", " hour"] {
        if !text.contains(line) {
            return Err(format!("the cache has lost{line}: {text:?}").into());
        }
    }
    disk.free()
}
