//! The jobs of a campaign and their shares of time or inputs. Runs the jobs, and sums their results.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::host::{self, Kind};
use crate::job::{Job, Order, Pace};
use crate::patience::{self, scaled};
use crate::procs::{Group, Guarded};
use crate::rng::seed_of;
use crate::spec::{SPECS, Spec};
use crate::{Outcome, applications, archives, clients, endurance, faults, files, hosted, openmetrics, pdus, texts};

/// Options of `qa/hostile`.
#[derive(Args, Debug)]
pub(crate) struct Hostile {
    /// Minutes for all jobs together
    #[arg(default_value_t = 1.0)]
    minutes: f64,
    /// Total inputs of each kind, instead of minutes: PDUS,FILES,FAULTS, for instance 1e8,1e7,1e5
    #[arg(long, value_delimiter = ',')]
    counts: Vec<f64>,
    /// Seed of the campaign, from which the seeds of the jobs follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only jobs whose names begin with this, for instance pdus, pdus:mmv, pdus:mmv:dso
    #[arg(long, default_value = "")]
    stage: String,
    /// Repeat one round of a failed job, with --job-seed
    #[arg(long, requires = "job_seed")]
    round: Option<u64>,
    /// Seed of the job, from the failure message
    #[arg(long)]
    job_seed: Option<u64>,
    /// Directory of the agents' binaries
    #[arg(long)]
    bin: PathBuf,
    /// Number of jobs that run at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Factor of all time limits
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..1000))]
    patience: u32,
}

/// Kind of the inputs of a job. The order is that of `Hostile::counts`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kinds {
    Pdus,
    Files,
    Faults,
    Fetches,
}

/// A job of the plan, and its share of the time or of the inputs of its kind.
struct Planned {
    name: String,
    kind: Kinds,
    share: f64,
}

fn planned() -> Vec<Planned> {
    let mut all = Vec::new();
    for spec in &SPECS {
        for (how, kind) in Kind::ALL.into_iter().filter(|(_, kind)| *kind != Kind::Object || !spec.init.is_empty()) {
            // Within this process, a PDU takes only a small part of the time that it takes over a socket.
            let share = match kind {
                Kind::Pipe => 4.0,
                Kind::Object | Kind::Local => 3.0,
                _ => 1.0,
            };
            all.push(Planned { name: format!("pdus:{}:{how}", spec.name), kind: Kinds::Pdus, share });
        }
    }
    for agent in ["mmv", "trace"] {
        for (how, share) in [("pipe", 8.0), ("dso", 4.0), ("local", 4.0)] {
            all.push(Planned { name: format!("files:{agent}:{how}"), kind: Kinds::Files, share });
        }
    }
    for style in ["components", "domains", "flux"] {
        all.push(Planned { name: format!("files:mmv:pipe:{style}"), kind: Kinds::Files, share: 2.0 });
    }
    for (what, share) in [("thousands", 2.0), ("quota", 0.5)] {
        all.push(Planned { name: format!("files:{what}"), kind: Kinds::Files, share });
    }
    let texts =
        [("config", 3.0), ("cache", 3.0), ("expressions", 3.0), ("help", 1.0), ("names", 2.0), ("settings", 0.2)];
    for (what, share) in texts {
        all.push(Planned { name: format!("texts:{what}"), kind: Kinds::Files, share });
    }
    for (what, share) in [("tables", 0.2), ("sources", 9.0)] {
        all.push(Planned { name: format!("openmetrics:{what}"), kind: Kinds::Files, share });
    }
    all.push(Planned { name: "archives:damage".to_owned(), kind: Kinds::Files, share: 1.0 });
    for spec in &SPECS {
        all.push(Planned { name: format!("faults:restart:{}", spec.name), kind: Kinds::Faults, share: 2.0 });
    }
    let faults = [
        ("apps", 4.0),
        ("limits:mmv", 2.0),
        ("limits:trace", 1.0),
        ("limits:simple", 1.0),
        ("limits:derived", 1.0),
        ("limits:openmetrics", 0.5),
        ("directories", 1.0),
    ];
    for (what, share) in
        faults.into_iter().chain([("disk", 2.0), ("disk:btrfs", 1.0), ("links", 2.0), ("clock", 2.0), ("pmcd", 4.0)])
    {
        all.push(Planned { name: format!("faults:{what}"), kind: Kinds::Faults, share });
    }
    for what in ["labels", "start", "forks", "traces"] {
        all.push(Planned { name: format!("applications:{what}"), kind: Kinds::Faults, share: 2.0 });
    }
    for what in hosted::jobs() {
        all.push(Planned { name: format!("hosted:{what}"), kind: Kinds::Faults, share: 2.0 });
    }
    all.push(Planned { name: "clients:trace".to_owned(), kind: Kinds::Pdus, share: 10.0 });
    all.push(Planned { name: "clients:trace:tags".to_owned(), kind: Kinds::Pdus, share: 2.0 });
    all
}

/// Runs the stage whose name begins the job's name.
pub(crate) fn run_stage(job: &mut Job) -> Outcome {
    let name = job.order.name.clone();
    let mut parts = name.split(':');
    let (stage, what, how) = (parts.next(), parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let agent = || Spec::of(what).ok_or("no such agent");
    match stage {
        Some("pdus") => pdus::run(job, agent()?, Kind::of(how).ok_or("no such host")?),
        Some("applications") => applications::run(job, what),
        Some("endurance") => endurance::run(job, agent()?),
        Some("faults") => faults::run(job, what, how),
        Some("texts") => texts::run(job, what),
        Some("archives") => archives::run(job, what),
        Some("openmetrics") => openmetrics::run(job, what),
        Some("clients") => clients::run(job, agent()?, how),
        Some("files") => files::run(job, what, how),
        Some("hosted") => hosted::run(job, what),
        _ => Err(format!("no stage {name}").into()),
    }
}

/// Sum of the results of jobs.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    jobs: u64,
    inputs: u64,
    failures: u64,
    /// Jobs with failures.
    bad: u64,
    /// Running time of the jobs, in seconds.
    seconds: f64,
    /// Largest memory of any job's agent, in KiB.
    memory: u64,
    /// Longest request of any job, in microseconds.
    longest_us: u64,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        self.jobs += other.jobs;
        self.bad += other.bad;
        self.inputs += other.inputs;
        self.failures += other.failures;
        self.seconds += other.seconds;
        self.memory = self.memory.max(other.memory);
        self.longest_us = self.longest_us.max(other.longest_us);
    }

    /// Parses the line `done name=value …`, the last line of a job's output.
    fn parse(line: &str) -> Sum {
        let words: BTreeMap<&str, &str> = line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let number = |name: &str| words.get(name).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        Sum {
            jobs: 1,
            inputs: number("inputs") as u64,
            failures: number("failures") as u64,
            bad: 0,
            seconds: number("seconds"),
            memory: number("memory") as u64,
            longest_us: number("longest_us") as u64,
        }
    }
}

/// Runs the campaign.
pub(crate) fn run(options: &Hostile) -> Outcome<ExitCode> {
    let mut jobs: Vec<Planned> = planned().into_iter().filter(|job| job.name.starts_with(&options.stage)).collect();
    let wanted = jobs.len();
    jobs.retain(|job| {
        let hosted = job.name.strip_prefix("hosted:").and_then(|_| hosted::impossible());
        let why_not = job.name.strip_prefix("faults:").and_then(faults::impossible).or(hosted);
        if let Some(why) = why_not {
            println!("NOT RUN: {}: {why}", job.name);
        }
        why_not.is_none()
    });
    if jobs.is_empty() {
        return Err(format!("no job's name begins with {:?}", options.stage).into());
    }
    println!("campaign seed {}, {} jobs", options.seed, jobs.len());
    all(&jobs, options, wanted - jobs.len())
}

/// Options of `qa/endurance`.
#[derive(Args, Debug)]
pub(crate) struct Endurance {
    /// Names of agents, by default all
    agents: Vec<String>,
    /// Fetches from each agent
    #[arg(long, default_value_t = 1e8)]
    fetches: f64,
    /// Seed of the changes around the agents
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory of the agents' binaries
    #[arg(long)]
    bin: PathBuf,
    /// Number of agents that run at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

/// Runs the endurance of agents.
pub(crate) fn endurance(options: &Endurance) -> Outcome<ExitCode> {
    if let Some(name) = options.agents.iter().find(|name| Spec::enduring().all(|spec| spec.name != **name)) {
        return Err(format!("no agent {name:?}").into());
    }
    let jobs: Vec<Planned> = Spec::enduring()
        .filter(|spec| options.agents.is_empty() || options.agents.iter().any(|agent| agent == spec.name))
        .map(|spec| Planned { name: format!("endurance:{}", spec.name), kind: Kinds::Fetches, share: 1.0 })
        .collect();
    let fetches = options.fetches * jobs.len() as f64;
    let options = Hostile {
        minutes: 0.0,
        counts: vec![0.0, 0.0, 0.0, fetches],
        seed: options.seed,
        stage: String::new(),
        round: None,
        job_seed: None,
        bin: options.bin.clone(),
        jobs: options.jobs,
        patience: 1,
    };
    all(&jobs, &options, 0)
}

/// Runs jobs, several at a time, and prints their results.
fn all(jobs: &[Planned], options: &Hostile, skipped: usize) -> Outcome<ExitCode> {
    patience::set(options.patience);
    let total: f64 = jobs.iter().map(|job| job.share).sum();
    let root = std::env::temp_dir().join(format!("campaign-{}", std::process::id()));
    let (next, sums) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<String, Sum>::new()));
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let pace = match (options.round, options.counts.as_slice()) {
                        (Some(_), _) => Pace::Once,
                        (None, []) => {
                            let seconds = options.minutes * 60.0 * options.jobs as f64 * job.share / total;
                            Pace::Time(Duration::from_secs_f64(seconds))
                        }
                        (None, counts) => {
                            let of_kind: f64 = jobs.iter().filter(|j| j.kind == job.kind).map(|j| j.share).sum();
                            let count = counts.get(job.kind as usize).copied().unwrap_or(0.0);
                            Pace::Inputs((count * job.share / of_kind).ceil() as u64)
                        }
                    };
                    let seed = options.job_seed.unwrap_or_else(|| seed_of(options.seed, &job.name));
                    let order = Order {
                        name: job.name.clone(),
                        seed,
                        from: options.round.unwrap_or(0),
                        pace,
                        dir: root.join(job.name.replace(':', "-")),
                        port: 21_000 + 10 * index as u16,
                        bin: options.bin.clone(),
                    };
                    let mut sum = run_job(&order);
                    sum.bad = u64::from(sum.failures > 0);
                    if let Ok(mut sums) = sums.lock() {
                        println!("{:<24} {}", job.name, line(&sum));
                        sums.entry(job.name.split(':').next().unwrap_or("").to_owned()).or_default().add(&sum);
                    }
                }
            });
        }
    });
    let sums = sums.into_inner()?;
    let _ = fs::remove_dir_all(&root);
    Ok(show(&sums, begin.elapsed(), skipped))
}

/// Formats a line of the table.
fn line(sum: &Sum) -> String {
    format!(
        "{:>11} {:>8.0} {:>6} {:>10.1} {:>10.1}",
        sum.inputs,
        sum.seconds,
        sum.failures,
        sum.memory as f64 / 1024.0,
        sum.longest_us as f64 / 1000.0,
    )
}

/// Prints the final table, and lines `#sum` for scripts.
fn show(sums: &BTreeMap<String, Sum>, took: Duration, skipped: usize) -> ExitCode {
    println!(
        "\n{:<24} {:>11} {:>8} {:>6} {:>10} {:>10}",
        "stage", "inputs", "seconds", "failed", "MiB, most", "ms, longest"
    );
    let mut all = Sum::default();
    for (stage, sum) in sums {
        println!("{stage:<24} {}", line(sum));
        println!(
            "#sum stage={stage} inputs={} seconds={:.1} failures={} memory_kib={} longest_us={}",
            sum.inputs, sum.seconds, sum.failures, sum.memory, sum.longest_us
        );
        all.add(sum);
    }
    println!("{:<24} {}  in {:.0} s", "all", line(&all), took.as_secs_f64());
    println!("{} passed, {} failed, {skipped} skipped", all.jobs - all.bad, all.bad);
    if all.bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Time beyond its share after which a job is killed.
const GRACE: Duration = Duration::from_secs(60);

/// Limit of the memory of a job with its agents, in bytes: of each address space, and of the cgroup.
pub(crate) const MEMORY: u64 = 2 << 30;

/// Runs a job as a separate process. A job that cannot run counts as one failure.
fn run_job(order: &Order) -> Sum {
    try_job(order).unwrap_or_else(|e| {
        println!("fail {}: {e}", order.name);
        Sum { jobs: 1, failures: 1, ..Sum::default() }
    })
}

fn try_job(order: &Order) -> Outcome<Sum> {
    fs::create_dir_all(&order.dir)?;
    let errors = order.dir.join("job.log");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["job", &order.name, "--seed", &order.seed.to_string(), "--round", &order.from.to_string()]);
    match order.pace {
        Pace::Time(time) => _ = command.args(["--seconds", &time.as_secs_f64().to_string()]),
        Pace::Inputs(inputs) => _ = command.args(["--inputs", &inputs.to_string()]),
        Pace::Once => {}
    }
    command.args(["--patience", &patience::factor().to_string()]);
    command.arg("--dir").arg(&order.dir).args(["--port", &order.port.to_string()]).arg("--bin").arg(&order.bin);
    command.envs(host::environment(order)).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(fs::File::create(&errors)?).env_remove("RUST_BACKTRACE");
    let group = Group::new(&order.name.replace(':', "-"), MEMORY);
    if let Some(group) = &group {
        command.arg("--group").arg(group.path());
    }
    let mut child = Guarded::spawn(&mut command)?;
    let output = child.0.stdout.take().ok_or("no output")?;
    let pid = child.pid();
    // Killing a job that hangs also ends the thread that reads its output.
    let limit = match order.pace {
        Pace::Time(time) => time + scaled(GRACE),
        _ => Duration::from_secs(6 * 3600),
    };
    let reader = thread::spawn(move || {
        let mut sum = None;
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with("done ") { sum = Some(Sum::parse(&line)) } else { println!("{line}") }
        }
        sum
    });
    let status = child.ends_within(limit);
    let left: Vec<u32> = crate::procs::descendants(pid);
    drop((child, group));
    let sum = reader.join().map_err(|_| "reading a job's output")?;
    let said = || crate::procs::tail(&errors, 4);
    let mut sum = match (status, sum) {
        (Some(status), Some(sum)) if status.success() => sum,
        (Some(status), _) => return Err(format!("the job {status}: {}", said()).into()),
        (None, _) => return Err(format!("hangs for {limit:?}: {}", said()).into()),
    };
    if !left.is_empty() {
        println!("fail {}: processes {left:?} are left behind", order.name);
        sum.failures += 1;
    }
    if sum.failures == 0 {
        let _ = fs::remove_dir_all(&order.dir);
    }
    Ok(sum)
}
