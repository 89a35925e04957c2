//! Applications that trace and fork at any time: threads record trace events, with new tags and new handles, through
//! the layers of `tracing` and the recorder of `metrics`, while other threads start processes in every way. No process
//! may hang, and the agent must count each trace event once.
#![allow(unsafe_code, reason = "fork(2) and vfork(2)")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use metrics::{Key, Label, Level, Metadata, Recorder as _};
use mmv::Registry;
use mmv::recorder::Recorder;
use nix::sched::{CloneFlags, clone};
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, fork};
use pmapi::Type;
use trace::{Options, State, Tag, Trace, Transport};
use tracing_subscriber::layer::SubscriberExt as _;

use super::end_round;
use super::forks::ends;
use crate::Outcome;
use crate::honest::instance_of;
use crate::host::{Host, Kind, Scene};
use crate::job::Job;
use crate::pdus::start;
use crate::probe::{Answer, Probe};
use crate::procs::{Guarded, tail};
use crate::rng::Rng;
use crate::spec::Spec;

/// Time after which a process counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time until the agent has counted all trace events.
const LATEST: Duration = Duration::from_secs(20);
/// Number of children that each of the forking threads starts.
const CHILDREN: u32 = 20;
/// Number of trace events of a child with each handle.
const MARKS: u64 = 5;
/// Tags of parents and of children, whose counts must be exact.
const TAGS: [&str; 2] = ["parent", "child"];

const ABOUT: Metadata<'static> = Metadata::new("campaign", Level::INFO, None);

/// Options of the application that traces and forks.
#[derive(Args, Debug)]
pub(crate) struct Tracer {
    /// Directory of the memory mapped values
    #[arg(long)]
    mmv: PathBuf,
    /// Directory of agent trace
    #[arg(long)]
    trace: PathBuf,
    #[arg(long)]
    port: u16,
    #[arg(long)]
    seed: u64,
}

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let spec = Spec::of("trace").ok_or("no agent trace")?;
    let mut agent = start(job, spec, Kind::Pipe, &scene, None)?;
    let errors = scene.dir().join("tracer.err");
    let mut expected = [0; TAGS.len()];
    while let Some((_, mut rng)) = job.next_round() {
        let begin = Instant::now();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["tracer", "--seed", &rng.next().to_string(), "--port", &scene.trace_port.to_string()]);
        command.arg("--trace").arg(scene.trace()).arg("--mmv").arg(scene.mmv());
        let counts = scene.dir().join("tracer.out");
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&counts)?).stderr(std::fs::File::create(&errors)?);
        let mut child = Guarded::spawn(&mut command)?;
        let ended = child.ends_within(2 * PATIENCE);
        if !ended.is_some_and(|status| status.success()) {
            let how = ended.map_or("hangs".to_owned(), |status| status.to_string());
            job.fail(format_args!("an application that traces: {how}: {}", tail(&errors, 3)));
            // The number of events that it has traced is unknown, and so is the number that the agent must have
            // counted.
            break;
        }
        job.took(begin.elapsed());
        let text = std::fs::read_to_string(&counts)?;
        for (sum, count) in expected.iter_mut().zip(text.split_whitespace()) {
            *sum += count.parse::<u64>()?;
        }
        let outcome = counted(spec, &mut *agent, expected);
        job.expect("the trace events of an application that forks", outcome);
        end_round(job, &scene)?;
    }
    job.check_memory(agent.pid(), spec.memory);
    job.check_log(&scene.logs());
    Ok(())
}

/// Waits until the agent has counted all points. It reads the files of processes at its own time.
fn counted(spec: &Spec, host: &mut dyn Host, expected: [u64; 2]) -> Outcome {
    let begin = Instant::now();
    let indom = spec.indom(1);
    loop {
        let outcome = TAGS.iter().zip(expected).try_for_each(|(tag, count)| {
            let inst = instance_of(indom, host, tag)?;
            let answer = Answer::Number(Type::U64, count as f64);
            Probe::default().fetch_one(spec.pmid(0, POINTS), indom, inst, answer)?.ask(host)
        });
        match outcome {
            Err(_) if begin.elapsed() < LATEST => thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

/// Item of `trace.point.count`.
const POINTS: u16 = 6;

/// State that the application's threads and forked children share.
struct Shared {
    options: Options,
    /// Handles for shared memory, and for synchronous and asynchronous TCP.
    traces: [Trace; 3],
    recorder: Recorder,
    tags: [Tag; 2],
    counts: [AtomicU64; 2],
    ended: AtomicBool,
}

/// Traces in four threads while two others start processes.
pub(crate) fn run_tracer(tracer: &Tracer) -> Outcome {
    let options = Options::default().host("127.0.0.1").port(tracer.port).directory(tracer.trace.clone()).ring_len(4096);
    // On a busy host, a slow connection must not look like a hang.
    let options = options.connect_timeout(PATIENCE / 6).request_timeout(PATIENCE / 6);
    let recorder = Recorder::of(Registry::builder("tracer").directory(&tracer.mmv))?;
    let shared = Shared {
        traces: handles(&options),
        options,
        recorder,
        tags: [Tag::new(TAGS[0])?, Tag::new(TAGS[1])?],
        counts: Default::default(),
        ended: false.into(),
    };
    let layers = tracing_subscriber::registry()
        .with(trace::layer::TraceLayer::new(shared.traces[0].clone()))
        .with(mmv::layer::MmvLayer::new(shared.recorder.registry())?);
    tracing::subscriber::set_global_default(layers)?;
    // The list of callsites of `tracing` has a lock, which the first use of a callsite acquires.
    span();
    shared.recorder.registry().try_start()?;
    thread::scope(|scope| {
        let shared = &shared;
        let rng = |n| Rng::of(tracer.seed, n);
        let marks: Vec<_> = (0..4).map(|n| scope.spawn(move || mark_all(shared, rng(n)))).collect();
        let forks: Vec<_> = (4..6).map(|n| scope.spawn(move || start_processes(shared, rng(n)))).collect();
        let forks: Vec<_> = forks.into_iter().map(thread::ScopedJoinHandle::join).collect();
        shared.ended.store(true, Relaxed);
        for outcome in forks.into_iter().chain(marks.into_iter().map(thread::ScopedJoinHandle::join)) {
            outcome.map_err(|_| "a panic of a thread")??;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    shared.traces.iter().try_for_each(delivered)?;
    let [parent, child] = &shared.counts;
    println!("{} {}", parent.load(Relaxed), child.load(Relaxed));
    Ok(())
}

fn handles(options: &Options) -> [Trace; 3] {
    let tcp = |state: State| Trace::new(options.clone().transport(Transport::Tcp).state(state));
    [Trace::new(options.clone().transport(Transport::SharedMemory)), tcp(State::empty()), tcp(State::ASYNC)]
}

/// Waits until all trace events of a handle are on their way to the agent.
fn delivered(trace: &Trace) -> Outcome {
    let flushed = trace.flush(PATIENCE / 2);
    let status = trace.status();
    if flushed && status.missed == 0 { Ok(()) } else { Err(format!("trace events are missed: {status:?}").into()) }
}

fn span() {
    let _span = tracing::info_span!("work", number = 1).entered();
    tracing::info!("an event");
}

/// Records trace events until the end, also with its own handles and tags.
fn mark_all(shared: &Shared, mut rng: Rng) -> Outcome {
    for n in 0_u64.. {
        if shared.ended.load(Relaxed) {
            break;
        }
        if n % 16 == 0 {
            let own = handles(&shared.options);
            mark(shared, &own, 0)?;
            own.iter().try_for_each(delivered)?;
        }
        mark(shared, &shared.traces, 0)?;
        measure(shared, n % 50);
        thread::sleep(Duration::from_micros(rng.below(200) as u64));
    }
    Ok(())
}

/// Records a point with each handle, and one with another tag.
fn mark(shared: &Shared, traces: &[Trace], tag: usize) -> Outcome {
    for (n, trace) in traces.iter().enumerate() {
        trace.point(&shared.tags[tag]);
        trace.transact(&Tag::new(&format!("tag{n}{tag}"))?, Duration::from_micros(1));
    }
    shared.counts[tag].fetch_add(traces.len() as u64, Relaxed);
    span();
    Ok(())
}

/// Counts with the recorder, as one of 50 label sets.
fn measure(shared: &Shared, n: u64) {
    let labels = vec![Label::new("path", n.to_string())];
    shared.recorder.register_counter(&Key::from_parts("requests", labels.clone()), &ABOUT).increment(1);
    shared.recorder.register_histogram(&Key::from_parts("times", labels), &ABOUT).record(0.5);
}

fn start_processes(shared: &Shared, mut rng: Rng) -> Outcome {
    // The first span of a thread acquires a lock of `tracing-subscriber`, which a child might find held.
    span();
    for _ in 0..CHILDREN {
        match rng.below(6) {
            0 => {
                // This uses posix_spawn(3).
                Command::new("/bin/true").status()?;
            }
            1 => {
                let mut child = Command::new("/bin/true");
                // SAFETY: the function does nothing. Because of it, the standard library forks.
                unsafe { std::os::unix::process::CommandExt::pre_exec(&mut child, || Ok(())) };
                child.status()?;
            }
            2 => {
                let mut stack = vec![0; 1 << 20];
                let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
                // The child shares the parent's memory, but has a copy of its descriptors, so it must not open or close
                // any.
                let opened = &shared.traces[..1];
                mark(shared, opened, 0)?;
                let marks = Box::new(|| isize::from(mark(shared, opened, 0).is_err()));
                // SAFETY: this thread, whose memory the child uses, is suspended until the child has ended.
                ends(unsafe { clone(marks, &mut stack, flags, Some(Signal::SIGCHLD as i32)) }?)?;
            }
            way => forked(&|| child(shared, way)).map(|()| _ = shared.counts[1].fetch_add(points(way), Relaxed))?,
        }
        thread::sleep(Duration::from_micros(rng.below(500) as u64));
    }
    Ok(())
}

/// Runs `work` in a forked child.
fn forked(work: &dyn Fn() -> Outcome) -> Outcome {
    // SAFETY: the child does the same as children of applications. It uses no locks of other threads except those of
    // the libraries and of the allocator.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let outcome = work();
            if let Err(e) = &outcome {
                // Written without the lock of standard error, which another thread of the parent may have held.
                let _ = nix::unistd::write(std::io::stderr(), format!("a child: {e}\n").as_bytes());
            }
            // SAFETY: the call is always safe, and skips the destructors of the parent.
            unsafe { nix::libc::_exit(i32::from(outcome.is_err())) }
        }
        ForkResult::Parent { child } => ends(child),
    }
}

/// Records points as a child: with its parent's handles, with its own, or with both after its own child.
fn child(shared: &Shared, way: usize) -> Outcome {
    let own = handles(&shared.options);
    if way == LAST {
        forked(&|| child(shared, way - 1))?;
    }
    let traces: &[&[Trace]] = match way {
        3 => &[&shared.traces],
        4 => &[&own],
        _ => &[&own, &shared.traces],
    };
    for traces in traces {
        (0..MARKS).try_for_each(|_| mark(shared, traces, 1))?;
        traces.iter().try_for_each(delivered)?;
    }
    (0..MARKS).for_each(|n| measure(shared, 100 + n));
    shared.recorder.registry().flush();
    Ok(())
}

/// Largest number of a way to start a child.
const LAST: usize = 5;

/// Returns the number of points that a child and its children record.
fn points(way: usize) -> u64 {
    let of_handles = MARKS * 3;
    if way == LAST { 2 * of_handles + points(way - 1) } else { of_handles }
}
