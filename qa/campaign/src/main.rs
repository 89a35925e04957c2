//! A campaign against the agents of this repository: hostile input, faults and endurance, repeatable by seeds.
//!
//! `qa/hostile` and `qa/endurance` start it on a throw-away copy of the machine. A campaign consists of jobs. Each job
//! is a separate process. Its limits are descriptors, the address space of each process and, where the machine has
//! memory cgroups, the memory of all its processes with the kernel's memory for them:
//!
//! | stage | jobs | inputs |
//! |---|---|---|
//! | `pdus` | each agent in each of its hosts (`pipe`, `inet`, `ipv6`, `unix`, `dso`, `local`) | damaged PDUs, valid PDUs in any order, broken streams |
//! | `files` | mmv and trace, over a pipe, as shared object, in the process | files of four other users: damaged, sparse, truncated and renamed during reading, FIFOs, links |
//! | `files` | `mmv:pipe:components`, `domains`, `flux`; `thousands`; `quota` | valid files: names of very many components, the honest instance domain, never complete, 3,000 beside 1,000 honest ones, full quotas of 40 users and 100,000 names |
//! | `clients` | `trace` | TCP clients of four other users and sixteen addresses: damaged PDUs, silence, ever new names |
//! | `clients` | `trace:tags` | extreme values of tags that an honest client uses, too |
//! | `texts` | `config`, `cache`, `expressions`, `help`, `names`, `settings` | damaged configurations, caches, help, name spaces |
//! | `openmetrics` | `tables`, `sources` | damaged documents, configurations and tables of names, hostile scripts and HTTP servers |
//! | `archives` | `damage` | damaged archives of both versions, plain and compressed |
//! | `faults` | `restart`, `apps`, `limits`, `disk`, `disk:btrfs`, `links`, `clock`, `pmcd` | `kill -9`, SIGSTOP, no descriptors, no memory, a full disk, removed directories, links in place of caches and logs, jumping clocks |
//! | `applications` | `labels`, `start`, `forks`, `traces` | label sets of hostile clients, file names that other users occupy, forks at any time |
//! | `hosted` | `ends`, `hangs`, `writes`, `leaks`, `forks`, `nonsense` | a C agent behind `pmda-host` that ends or hangs, overwrites memory, descriptors and the connection, leaks, forks, answers nonsense |
//! | `endurance` | each agent | fetches, while instances, clients, files and configurations change |
//!
//! After each round the job sends requests whose answers it knows. Values that come from the campaign itself must be
//! exact, answers prompt, and memory and logs within their limits. The random numbers of a round depend only on the
//! job's seed and the round's number, so that a failure message can say how to repeat it. The timing of threads and
//! processes is not repeatable.
//!
//! A *stranger* is a user of the machine, or a host, that is hostile: neither root, nor the agents' user, nor the
//! *honest* application, whose values the campaign checks.

mod applications;
mod archives;
mod clients;
mod endurance;
mod faults;
mod files;
mod honest;
mod host;
mod hosted;
mod job;
mod openmetrics;
mod patience;
mod pdus;
mod plan;
mod probe;
mod procs;
mod rng;
mod spec;
mod texts;
mod users;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use job::{Job, Order, Pace};

/// Result of the campaign's functions. Errors are only printed.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(version = pcp_base::build::version(env!("CARGO_PKG_VERSION")))]
#[command(about = "Hostile input, faults and endurance for the agents of this repository")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs the stages of a campaign, two jobs at a time by default, and prints a table
    Hostile(plan::Hostile),
    /// Fetches from agents, and checks that memory, descriptors and logs do not grow
    Endurance(plan::Endurance),
    /// Counts and traces until it is killed; started by the campaign
    App(faults::App),
    /// Counts and forks; started by the campaign
    Forker(applications::Forker),
    /// Traces and forks; started by the campaign
    Tracer(applications::Tracer),
    /// Runs one job of a campaign; started by the campaign
    Job {
        name: String,
        #[arg(long)]
        seed: u64,
        #[arg(long, default_value_t = 0)]
        round: u64,
        #[arg(long)]
        seconds: Option<f64>,
        #[arg(long)]
        inputs: Option<u64>,
        #[arg(long, default_value_t = 1)]
        patience: u32,
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        port: u16,
        #[arg(long)]
        bin: PathBuf,
        /// Directory of the memory cgroup to run in
        #[arg(long)]
        group: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().what {
        What::Hostile(options) => plan::run(&options),
        What::Endurance(options) => plan::endurance(&options),
        What::Forker(forker) => applications::run_forker(&forker).map(|()| ExitCode::SUCCESS),
        What::Tracer(tracer) => applications::run_tracer(&tracer).map(|()| ExitCode::SUCCESS),
        What::App(app) => faults::run_app(&app).map(|()| ExitCode::SUCCESS),
        What::Job { name, seed, round, seconds, inputs, patience, dir, port, bin, group } => {
            patience::set(patience);
            let joined = group.map_or(Ok(()), |group| procs::join_group(&group));
            let pace = match (seconds, inputs) {
                (Some(seconds), _) => Pace::Time(Duration::from_secs_f64(seconds)),
                (None, Some(inputs)) => Pace::Inputs(inputs),
                (None, None) => Pace::Once,
            };
            joined.and_then(|()| run_job(Order { name, seed, from: round, pace, dir, port, bin }))
        }
    };
    match outcome {
        Ok(code) => code,
        Err(e) => {
            eprintln!("campaign: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run_job(order: Order) -> Outcome<ExitCode> {
    // The limits apply to the job and to the agents that it starts.
    procs::limit_self(plan::MEMORY, 2048)?;
    let mut job = Job::new(order);
    job.watch();
    let outcome = plan::run_stage(&mut job);
    if let Err(e) = outcome {
        job.fail(e);
    }
    job.report();
    Ok(ExitCode::SUCCESS)
}
