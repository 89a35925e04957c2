//! CPU time of the agent's two threads for 10,000 definitions over 100 operands: to bind them, to take a sample, and to
//! answer a client that fetches all of them. Run it with `cargo bench -p pmda-derived`.

#![allow(clippy::expect_used)]

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use pcp_client::{Context, Settings};
use pmda::prelude::*;
use testkit::{Agent as Line, Pcp, Pmcd};

const DEFINITIONS: u32 = 10_000;
const OPERANDS: u16 = 100;
const INSTANCES: u32 = 10;
const ROUNDS: u64 = 20;

/// First argument of this program when it runs as the agent of the operands.
const AS_OPERANDS: &str = "operands";

/// Agent of the operands.
#[derive(Debug)]
struct Operands(u32);

impl Agent for Operands {
    const NAME: &'static str = "many";
    const DOMAIN: u16 = 405;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.indom(Serial::new(0)).instances((0..INSTANCES).map(|number| (number, format!("i{number}"))));
        for number in 0..OPERANDS {
            setup.metric(format!("many.m{number}"), Item::new(0, number), Type::U32).indom(Serial::new(0));
        }
        Ok(Operands(0))
    }

    fn refresh(&mut self, _: Request<'_>, _: Client) -> Result {
        self.0 += 1;
        Ok(())
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        (0..INSTANCES).try_for_each(|number| out.put_inst(Inst::new(number), self.0 + number * u32::from(item.item())))
    }
}

/// Writes definitions with the expressions of pmapi's bench `derive`.
fn configuration() -> String {
    let mut text = String::new();
    for number in 0..DEFINITIONS {
        let [a, b, c] = [number, number / 7, number / 77].map(|n| format!("many.m{}", n % u32::from(OPERANDS)));
        let expr = match number % 4 {
            0 => format!("{a} + {b} * {c}"),
            1 => format!("{a} > 5 ? {b} : {c}"),
            2 => format!("100 * ({a} - {b}) / ({a} + {c})"),
            _ => format!("rate({a}) * sum({b})"),
        };
        let _ = writeln!(text, "d.n{number} = {expr}");
    }
    text
}

/// Returns the CPU time of the agent's own thread, and of the sampler, whose thread has the name of its group.
fn cpu(pmcd: &Pmcd) -> [Duration; 2] {
    let pid = pmcd.agent_pid("derived").expect("the agent");
    let mut times = [Duration::ZERO; 2];
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let time = read("schedstat").split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or_default();
        times[usize::from(read("comm").trim() == "derived")] += Duration::from_nanos(time);
    }
    times
}

fn number(pmcd: &Pmcd, metric: &str) -> f64 {
    let text = pmcd.run("pminfo", ["-f", metric]).text;
    text.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// Returns the CPU time of a PCP tool: the shortest of several runs.
fn tool(pmcd: &Pmcd, tool: &str, metric: &str, definitions: &str) -> Duration {
    let run = || {
        let before = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the time of children");
        let mut command = Pcp::required().command(tool);
        command.args(["-h", &pmcd.host(), "-v", metric]).env("PCP_DERIVED_CONFIG", definitions);
        Pcp::required().run_command(command, "").ok();
        let after = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the time of children");
        let time = |usage: &nix::sys::resource::Usage| usage.user_time() + usage.system_time();
        Duration::from_micros((time(&after) - time(&before)).num_microseconds() as u64)
    };
    (0..5).map(|_| run()).min().unwrap_or_default()
}

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let program = args.next().expect("a program");
    if args.next().is_some_and(|first| first == AS_OPERANDS) {
        return pmda::host::run::<Operands>([program].into_iter().chain(args));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("conf");
    fs::write(&config, configuration()).expect("a configuration");
    let names = |mut command: Command, name: &str| {
        let pmda = dir.path().join(name);
        assert!(command.arg("--write-pmda").arg(&pmda).status().expect("an agent").success());
        pmda.join("pmns")
    };
    let operands = std::env::current_exe().expect("this program");
    let mut command = Command::new(&operands);
    command.arg(AS_OPERANDS);
    let names_of_operands = names(command, "many");
    let script = dir.path().join("pmdamany");
    fs::write(&script, format!("#!/bin/sh\nexec {} {AS_OPERANDS} \"$@\"\n", operands.display())).expect("a script");
    let run = |path: &std::path::Path| Command::new("chmod").arg("+x").arg(path).status();
    run(&script).expect("chmod");
    let derived = env!("CARGO_BIN_EXE_pmdaderived");
    let names_of_derived = names(Command::new(derived), "derived");
    let agent = Line::new("derived", 404, derived).pmns(&names_of_derived).not_ready();
    let agent = agent.args(["-c", config.to_str().expect("a path"), "-t", "200msec", "-U", "root", "--notready"]);
    let pmcd = Pcp::required().pmcd().env("PMCD_SOCKET", "../../pmcd.socket");
    let pmcd = pmcd.agent(Line::new("many", 405, script).pmns(&names_of_operands).args(["-U", "root"])).agent(agent);
    let pmcd = pmcd.start();

    while number(&pmcd, "derived.control.definitions.good") < f64::from(DEFINITIONS) {
        sleep(Duration::from_millis(50));
    }
    let [parse, bind] = cpu(&pmcd);
    println!("{DEFINITIONS} definitions over {OPERANDS} operands of {INSTANCES} instances, CPU time of the agent");
    println!("  load the configuration, show the metrics {parse:?}");
    println!("  look up operands and bind                {bind:?} (goal 50 ms)");

    let mut client = Context::new(pmcd.host().parse().expect("a host"), Settings::default()).expect("a connection");
    let names: Vec<String> = (0..DEFINITIONS).map(|number| format!("derived.d.n{number}")).collect();
    let mut pmids = Vec::new();
    for names in names.chunks(500) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        pmids.extend(client.lookup_names(&names).expect("names").into_iter().map(|pmid| pmid.expect("a metric")));
    }
    while client.fetch(&pmids).expect("values").sets().filter(|set| set.values().count() > 0).count() < pmids.len() {
        sleep(Duration::from_millis(100));
    }
    let samples = || number(&pmcd, "derived.control.samples") as u64;
    let (first, before) = (samples(), cpu(&pmcd));
    while samples() < first + ROUNDS {
        sleep(Duration::from_millis(500));
    }
    let (last, after) = (samples(), cpu(&pmcd));
    let rounds = u32::try_from(last - first).expect("some rounds");
    println!("  a sample of all                          {:?} (goal 10 ms)", (after[1] - before[1]) / rounds);
    println!(
        "    of that to evaluate                    {:?}",
        Duration::from_secs_f64(number(&pmcd, "derived.control.evaluation"))
    );
    let before = cpu(&pmcd);
    (0..ROUNDS).for_each(|_| _ = client.fetch(&pmids).expect("values"));
    println!("  answer a client that asks for all        {:?}", (cpu(&pmcd)[0] - before[0]) / ROUNDS as u32);

    // Each client of libpcp binds all definitions itself.
    let config = config.to_str().expect("a path");
    let [with, without] = [config, ""].map(|definitions| tool(&pmcd, "pmprobe", "many.m0", definitions));
    println!("a client of libpcp with these definitions in its own configuration, CPU time");
    println!("  load the configuration and bind          {:?}", with.saturating_sub(without));
    let all = tool(&pmcd, "pmprobe", "d", config);
    println!("  and look up, fetch and print all         {:?}", all.saturating_sub(without));
    let all = tool(&pmcd, "pmprobe", "derived.d", "");
    println!("  look up, fetch and print the agent's     {:?}", all.saturating_sub(without));
    ExitCode::SUCCESS
}
