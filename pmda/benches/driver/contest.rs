//! Measures agents in alternating rounds.

use std::fs;
use std::time::{Duration, Instant};

use super::figures::{self, Figures};
use super::home::Home;
use super::process::{Agent, Program, values};
use super::{calls, echo};

/// Size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Number of rounds over all agents.
    pub(crate) blocks: usize,
    /// Requests to each agent in a round.
    pub(crate) rounds: usize,
}

/// Largest allowed ratio of our figure to that of the C agent.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Ratio of the median round trips.
    Time(f64),
    /// Ratio of the CPU times.
    Cpu(f64),
}

/// Our agent, and the C agent if there is one.
pub(crate) struct Contest<'a> {
    home: &'a Home,
    programs: Vec<Program>,
    agents: Vec<Agent>,
    /// The first request to a new agent.
    first: Vec<u8>,
    profile: Option<Vec<u8>>,
}

impl<'a> Contest<'a> {
    /// Starts the C agent, if there is one, with the label `C`, and ours with the label `Rust`.
    pub(crate) fn new(home: &'a Home, c: Option<Program>, ours: Program, first: Vec<u8>) -> Contest<'a> {
        let programs: Vec<Program> = c.into_iter().chain([ours]).collect();
        let agents = programs.iter().map(Program::start).collect();
        Contest { home, programs, agents, first, profile: None }
    }

    /// Measures the time from start to first answer: the process, the version exchange, a fetch. The floor is a process
    /// with a recorded answer.
    pub(crate) fn starts(&mut self, rounds: usize, goal: Goal) {
        let first = self.first.clone();
        let mut programs = self.programs.clone();
        programs.push(self.floor(&first));
        let mut figures: Vec<Figures> = programs.iter().map(|_| Figures::default()).collect();
        let mut order: Vec<usize> = (0..programs.len()).collect();
        // The first round reads files that are not cached yet.
        for round in 0..=rounds {
            for &at in &order {
                let begin = Instant::now();
                let mut agent = programs[at].start();
                agent.ask(&first);
                let (taken, cpu) = (begin.elapsed(), agent.cpu());
                agent.stop();
                if round > 0 {
                    figures[at].add(vec![taken], cpu);
                }
            }
            order.reverse();
        }
        let labels = programs.iter().map(|program| program.label);
        figures::show("start to first answer", Some(goal), &labels.zip(figures).collect::<Vec<_>>());
    }

    /// Measures one request after each of `rounds` changes of the agents' data.
    pub(crate) fn after(&mut self, title: &str, mut change: impl FnMut(), request: &[u8], rounds: usize, goal: Goal) {
        let mut figures: Vec<Figures> = self.agents.iter().map(|_| Figures::default()).collect();
        for round in 0..=rounds {
            change();
            for (agent, figures) in self.agents.iter_mut().zip(&mut figures) {
                let (times, cpu) = turn(agent, &[request.to_vec()], 1);
                if round > 0 {
                    figures.add(times, cpu);
                }
            }
        }
        let labels = self.programs.iter().map(|program| program.label);
        figures::show(title, Some(goal), &labels.zip(figures).collect::<Vec<_>>());
    }

    /// Starts the floor for a request, with our agent's reply.
    fn floor(&mut self, request: &[u8]) -> Program {
        let record = self.home.path("reply");
        let reply = self.agents.last_mut().expect("our agent").ask(request);
        fs::write(&record, reply).expect("a record of the reply");
        echo::program(&record)
    }

    /// Sends a profile to the agents, for all later requests.
    pub(crate) fn profile(&mut self, profile: Vec<u8>) {
        self.agents.iter_mut().for_each(|agent| agent.tell(&profile).expect("an agent that reads"));
        self.profile = Some(profile);
    }

    /// Checks that both agents answer with the same bytes, so that they do the same work.
    pub(crate) fn agree(&mut self, requests: &[Vec<u8>]) {
        for request in requests {
            let replies: Vec<Vec<u8>> = self.agents.iter_mut().map(|agent| agent.ask(request).to_owned()).collect();
            assert!(replies.windows(2).all(|two| two[0] == two[1]), "the replies to {request:02x?} differ");
        }
    }

    /// Measures requests, one after the other in a cycle.
    pub(crate) fn run(&mut self, title: &str, requests: &[Vec<u8>], shape: Shape, goal: Option<Goal>) {
        let floor = self.floor(requests.first().expect("a request"));
        self.agents.push(floor.start());
        self.measure(title, requests, shape, goal);
    }

    /// Measures requests with the driver on another CPU than the agents.
    pub(crate) fn run_apart(&mut self, title: &str, requests: &[Vec<u8>], shape: Shape, goal: Option<Goal>) {
        let floor = self.floor(requests.first().expect("a request"));
        self.agents.push(floor.start());
        if super::apart(|| self.measure(title, requests, shape, goal)).is_none() {
            println!("\n{title}: there is one CPU only");
            self.agents.drain(self.programs.len()..).for_each(Agent::stop);
        }
    }

    /// Measures the agents and the floor, which is the last of the agents. The floor is stopped afterwards.
    fn measure(&mut self, title: &str, requests: &[Vec<u8>], shape: Shape, goal: Option<Goal>) {
        let first = requests.first().expect("a request");
        let agents = self.programs.len();
        let sizes: Vec<usize> = self.agents[..agents].iter_mut().map(|agent| values(agent.ask(first))).collect();
        if let [c, ours] = &sizes[..] {
            assert_eq!(c, ours, "{title}: both agents answer with the same number of values");
        }
        let mut figures: Vec<Figures> = self.agents.iter().map(|_| Figures::default()).collect();
        figures.iter_mut().zip(sizes.iter().chain(sizes.last())).for_each(|(f, &size)| f.values = size);
        let mut order: Vec<usize> = (0..self.agents.len()).collect();
        // The first block warms up caches and buffers.
        for block in 0..=shape.blocks {
            for &at in &order {
                let (times, cpu) = turn(&mut self.agents[at], requests, shape.rounds);
                if block > 0 {
                    figures[at].add(times, cpu);
                }
            }
            order.reverse();
        }
        self.agents.drain(agents..).for_each(Agent::stop);
        let labels = self.programs.iter().map(|program| program.label).chain(["floor"]);
        figures::show(title, goal, &labels.zip(figures).collect::<Vec<_>>());
    }

    /// Prints the memory of the agents for each of `instances`.
    pub(crate) fn memory(&self, instances: usize) {
        println!("\nprivate memory, bytes an instance");
        for (program, agent) in self.programs.iter().zip(&self.agents) {
            println!("  {:<36} {:>9.1}", program.label, agent.private_memory() as f64 / instances as f64);
        }
    }

    /// Prints the system calls of a request, counted by strace.
    pub(crate) fn calls(&self, title: &str, requests: &[Vec<u8>]) {
        println!("\n{:<38} {:>9} {:>9}", format!("system calls, {title}"), "framing", "total");
        for program in &self.programs {
            match calls::count(program, self.profile.as_deref(), requests, &self.home.path("strace")) {
                Ok(calls) => println!("  {:<36} {calls}", program.label),
                Err(e) => return println!("  not counted: {e}"),
            }
        }
    }
}

impl Drop for Contest<'_> {
    fn drop(&mut self) {
        self.agents.drain(..).for_each(Agent::stop);
    }
}

fn turn(agent: &mut Agent, requests: &[Vec<u8>], rounds: usize) -> (Vec<Duration>, Duration) {
    let mut times = Vec::with_capacity(rounds);
    let before = agent.cpu();
    for request in requests.iter().cycle().take(rounds) {
        let begin = Instant::now();
        agent.ask(request);
        times.push(begin.elapsed());
    }
    (times, agent.cpu() - before)
}
