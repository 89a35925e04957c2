//! Agents measured in turns.

use std::fs;
use std::time::{Duration, Instant};

use super::figures::{self, Figures};
use super::home::Home;
use super::process::{Agent, Program, values};
use super::{calls, echo};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// How often it goes round the agents.
    pub(crate) blocks: usize,
    /// How many requests each agent gets in its turn.
    pub(crate) rounds: usize,
}

/// The most that our share of the C agent's figure may be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Of the median round trip.
    Time(f64),
    /// Of the CPU time.
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
    /// Starts the agents: the C one, labelled `C`, if there is one, and ours, labelled `Rust`.
    pub(crate) fn new(home: &'a Home, c: Option<Program>, ours: Program, first: Vec<u8>) -> Contest<'a> {
        let programs: Vec<Program> = c.into_iter().chain([ours]).collect();
        let agents = programs.iter().map(Program::start).collect();
        Contest { home, programs, agents, first, profile: None }
    }

    /// Start to first answer: the process, the version exchange, a fetch. The floor is a process that has its answer
    /// ready.
    pub(crate) fn starts(&mut self, rounds: usize, goal: Goal) {
        let first = self.first.clone();
        let mut programs = self.programs.clone();
        programs.push(self.floor(&first));
        let mut figures: Vec<Figures> = programs.iter().map(|_| Figures::default()).collect();
        let mut order: Vec<usize> = (0..programs.len()).collect();
        // The first round finds files that nobody has read yet.
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

    /// A request after each of so many changes of what the agents look at.
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

    /// The floor for a request, with our agent's reply.
    fn floor(&mut self, request: &[u8]) -> Program {
        let record = self.home.path("reply");
        let reply = self.agents.last_mut().expect("our agent").ask(request);
        fs::write(&record, reply).expect("a record of the reply");
        echo::program(&record)
    }

    /// Sends a profile to the agents, which holds from now on.
    pub(crate) fn profile(&mut self, profile: Vec<u8>) {
        self.agents.iter_mut().for_each(|agent| agent.tell(&profile).expect("an agent that reads"));
        self.profile = Some(profile);
    }

    /// That both agents answer with the same bytes: then they have the same work to do.
    pub(crate) fn agree(&mut self, requests: &[Vec<u8>]) {
        for request in requests {
            let replies: Vec<Vec<u8>> = self.agents.iter_mut().map(|agent| agent.ask(request).to_owned()).collect();
            assert!(replies.windows(2).all(|two| two[0] == two[1]), "the replies to {request:02x?} differ");
        }
    }

    /// Requests, one after the other and from the front again.
    pub(crate) fn run(&mut self, title: &str, requests: &[Vec<u8>], shape: Shape, goal: Option<Goal>) {
        let floor = self.floor(requests.first().expect("a request"));
        self.agents.push(floor.start());
        self.measure(title, requests, shape, goal);
    }

    /// The same with the driver on another CPU than the agents.
    pub(crate) fn run_apart(&mut self, title: &str, requests: &[Vec<u8>], shape: Shape, goal: Option<Goal>) {
        let floor = self.floor(requests.first().expect("a request"));
        self.agents.push(floor.start());
        if super::apart(|| self.measure(title, requests, shape, goal)).is_none() {
            println!("\n{title}: there is one CPU only");
            self.agents.drain(self.programs.len()..).for_each(Agent::stop);
        }
    }

    /// With a floor as the last of the agents, which is stopped then.
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
        // The first block warms caches and buffers up.
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

    /// Memory of the agents for each of so many instances.
    pub(crate) fn memory(&self, instances: usize) {
        println!("\nprivate memory, bytes an instance");
        for (program, agent) in self.programs.iter().zip(&self.agents) {
            println!("  {:<36} {:>9.1}", program.label, agent.private_memory() as f64 / instances as f64);
        }
    }

    /// System calls for a request, counted by strace.
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
