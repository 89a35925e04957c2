//! dbpmda(1): sends an agent the requests of pmcd, from a prompt or a script.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use dbpmda::{Console, Input, Options, Session, Source, Terminal, USAGE};
use pcp_tools::{Operands, Program};
use pmda::host::{self, UserError};

#[derive(Parser)]
#[command(disable_help_flag = true, infer_long_args = true)]
struct Args {
    #[arg(short = 'D', long)]
    debug: Vec<String>,
    #[arg(short, long, value_name = "FILE", value_parser = pcp_tools::path())]
    namespace: Vec<PathBuf>,
    #[arg(short, long, action = clap::ArgAction::Count)]
    echo_input: u8,
    #[arg(short = 'f', long, action = clap::ArgAction::Count)]
    norc: u8,
    #[arg(short, long, action = clap::ArgAction::Count)]
    interactive: u8,
    #[arg(short = 'q', long, value_name = "N")]
    creds_timeout: Vec<String>,
    #[arg(short = 'U', long, value_name = "USER")]
    username: Vec<String>,
    #[arg(short, long, action = clap::ArgAction::Count)]
    valgrind: u8,
    #[arg(short = '?', long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[arg(value_parser = pcp_tools::text())]
    words: Vec<String>,
}

fn main() -> ExitCode {
    // PCP's dbpmda accepts no words, so `check` is free.
    if std::env::args_os().nth(1).is_some_and(|word| word == "check") {
        return dbpmda::check::cli::run(std::env::args_os().skip(1));
    }
    run().err().unwrap_or(ExitCode::SUCCESS)
}

fn run() -> Result<(), ExitCode> {
    let program = Program::new(USAGE, 1);
    let args: Args = program.args(Operands::Last)?;
    let console = Console::standard();
    let mut is_wrong = !args.words.is_empty();
    if let Some(word) = args.words.first() {
        program.say(format_args!("\"{word}\" is not an option, and not the command \"check\""));
    }
    let mut options = console.options();
    for spec in &args.debug {
        match spec.parse() {
            Ok(named) => options.set(named),
            Err(_) => {
                program.say(format_args!("unrecognized debug flag specification ({spec})"));
                is_wrong = true;
            }
        }
    }
    console.set_options(options);
    let creds_timeout = creds_timeout(&program, &args.creds_timeout);
    is_wrong |= creds_timeout.is_none();
    for name in &args.username {
        host::change_user(name).map_err(|e| {
            match e {
                UserError::Unknown(name) => {
                    console.notify("Critical", format_args!("cannot find the {name} user to switch to"));
                }
                e => console.notify("Critical", format_args!("{e}")),
            }
            program.failure()
        })?;
    }
    if is_wrong {
        return Err(program.usage());
    }
    let is_terminal = io::stdin().is_terminal();
    let terminal = if is_terminal { Terminal::new() } else { None };
    let input = terminal.map_or_else(|| Input::stream(io::stdin()), |t| Input::Terminal(Box::new(t)));
    let mut source = Source::new(console.clone(), input);
    if args.echo_input > 0 {
        source = source.with_echo();
    }
    if args.interactive > 0 || is_terminal {
        source = source.with_prompts();
    }
    let options = Options {
        names: args.namespace.into_iter().next_back(),
        creds_timeout: creds_timeout.unwrap_or(SECONDS),
        keep_objects: args.valgrind > 0,
    };
    if args.norc == 0 {
        source = source.with_rc();
    }
    let session = Session::new(source, console, options).map_err(|_| program.failure())?;
    session.run().map_err(|_| program.failure())
}

/// Seconds to wait for an agent's version exchange, by default.
const SECONDS: u32 = 3;

/// Returns the last argument of `-q`; `None` after messages about wrong ones.
fn creds_timeout(program: &Program, arguments: &[String]) -> Option<u32> {
    let mut seconds = Some(SECONDS);
    for text in arguments {
        match pcp_tools::integer(text) {
            (number @ 1.., true) => seconds = seconds.and(Some(number.unsigned_abs())),
            _ => {
                program.say("-q requires a positive numeric argument");
                seconds = None;
            }
        }
    }
    seconds
}
