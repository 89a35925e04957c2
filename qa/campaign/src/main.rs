//! A campaign against the agents of this repository: hostile input, faults and endurance, with seeds that repeat it.
//!
//! `qa/hostile` and `qa/endurance` start it, in a throw-away copy of the machine. A campaign is made of jobs, each a
//! process of its own with limits of memory and descriptors:
//!
//! | stage | jobs | inputs |
//! |---|---|---|
//! | `pdus` | each agent in each host (`pipe`, `inet`, `ipv6`, `unix`, `dso`, `local`) | damaged PDUs, whole ones in any order, broken streams |
//! | `files` | mmv and trace, over a pipe, as shared object, in the process | files of four other users: damaged, sparse, cut and renamed while they are read, FIFOs, links |
//! | `clients` | trace | TCP clients of four other users and sixteen addresses: damaged PDUs, silence, names without end |
//! | `texts` | `config`, `cache`, `expressions`, `help`, `names`, `settings` | damaged configurations, caches, help, name spaces |
//! | `faults` | `restart`, `apps`, `limits`, `disk`, `clock`, `pmcd` | kill -9, SIGSTOP, no descriptors, no memory, a full disk, directories that vanish, clocks that jump |
//! | `applications` | `labels`, `start` | label sets that strangers choose, names that strangers take |
//! | `endurance` | each agent | fetches, while everything around the agent changes |
//!
//! After each round the job asks for what it knows: values that the campaign itself has put there have to be exact,
//! answers prompt, memory and logs within their limits. A round's random numbers follow from the job's seed and the
//! round's number alone, so that a failure says how it is repeated; what threads and processes do meanwhile is not the
//! same each time.

mod applications;
mod clients;
mod endurance;
mod faults;
mod files;
mod honest;
mod host;
mod job;
mod pdus;
mod plan;
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

/// What fails here is shown to a person.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(about = "Hostile input, faults and endurance for the agents of this repository")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs the stages of a campaign, two jobs at a time, and prints a table
    Hostile(plan::Hostile),
    /// Fetches by count, and says whether memory, descriptors and logs stay what they are
    Endurance(plan::Endurance),
    /// Is an application that counts and traces, to be killed
    App(faults::App),
    /// Runs one job of a campaign, as the campaign starts it
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
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        port: u16,
        #[arg(long)]
        bin: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().what {
        What::Hostile(options) => plan::run(&options),
        What::Endurance(options) => plan::endurance(&options),
        What::App(app) => faults::run_app(&app).map(|()| ExitCode::SUCCESS),
        What::Job { name, seed, round, seconds, inputs, dir, port, bin } => {
            let pace = match (seconds, inputs) {
                (Some(seconds), _) => Pace::Time(Duration::from_secs_f64(seconds)),
                (None, Some(inputs)) => Pace::Inputs(inputs),
                (None, None) => Pace::Once,
            };
            run_job(Order { name, seed, from: round, pace, dir, port, bin })
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
    // What an agent may have of the machine, and what the job may have.
    procs::limit_self(2 << 30, 2048)?;
    let mut job = Job::new(order);
    job.watch();
    let outcome = plan::run_stage(&mut job);
    if let Err(e) = outcome {
        job.fail(e);
    }
    job.report();
    Ok(ExitCode::SUCCESS)
}
