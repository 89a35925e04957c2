//! An agent that has its own options, for which Install asks, and that must run as root. One of its metrics has a name
//! that is not below the agent's.
//!
//! `own_options --write-pmda DIR` writes its directory. `DIR/Install` asks for the number of processes on a terminal,
//! accepts `-- -N 5` elsewhere, keeps the answer in `arguments.conf`, and restarts pmcd, which starts the agent as
//! root.

use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;

#[derive(clap::Args)]
struct Options {
    /// Number of processes to show
    #[arg(short = 'N', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    number: u32,
}

struct Own(Options);

const NUMBER: Item = Item::new(0, 0);
const UID: Item = Item::new(0, 1);
const FILE: Item = Item::new(0, 2);

impl Agent for Own {
    const NAME: &'static str = "own_options";
    const DOMAIN: u16 = 456;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let number = setup.argument("-N").prompt("Number of processes to show").default("10");
        number.help("The processes with the highest CPU time are shown, from 1 to 1000.");
        setup.run_as("root");
        setup.metric("own_options.number", NUMBER, Type::U32).help("Processes shown", "Set by -N.");
        setup.metric("users.own_options", UID, Type::U32).help("User of the agent", "The number of its user.");
        setup
            .metric("own_options.file", FILE, Type::U64)
            .help("Length of /run/own_options", "An error without the file.");
        Ok(Own(Options::from_arg_matches(setup.options())?))
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            NUMBER => out.put(self.0.number),
            UID => out.put(nix::unistd::geteuid().as_raw()),
            FILE => out.put(std::fs::metadata("/run/own_options")?.len()),
            _ => Err(Error::PMID),
        }
    }
}

pmda::main!(Own);
