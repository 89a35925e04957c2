//! pmnsmerge(1): merges name space files into one.

use clap::{ArgAction, Parser};
use nix::sys::stat::{Mode, umask};
use pcp_base::escape;
use pcp_base::file::{Dir, NewFile};
use pcp_tools::{Debug, Operands, Order, PmIds, Program, usage};
use pmns::Tree;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(disable_help_flag = true, infer_long_args = true, args_override_self = true)]
struct Args {
    #[arg(short)]
    as_given: bool,
    #[arg(short = 'D', long, value_parser = pcp_tools::debug)]
    debug: Option<Debug>,
    /// Has no effect except a warning; it does not cancel an earlier `-x` either.
    #[arg(short, long)]
    dupok: bool,
    #[arg(short, long)]
    force: bool,
    #[arg(short = 'x', long)]
    nodups: bool,
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    #[arg(short = '?', long, action = ArgAction::Help)]
    help: Option<bool>,
    #[arg(value_parser = pcp_tools::path())]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    run(&Program::new(usage::PMNSMERGE, 1)).err().unwrap_or(ExitCode::SUCCESS)
}

fn run(program: &Program) -> Result<(), ExitCode> {
    let mut args: Args = program.args(Operands::Anywhere)?;
    if args.dupok {
        program.say(pcp_tools::DUPOK_WARNING);
    }
    let out = args.files.pop().filter(|_| !args.files.is_empty()).ok_or_else(|| program.usage())?;
    let name = out.display();
    let exists = out.exists();
    if exists && !args.force {
        return Err(program.fail(format_args!(
            "Error: output PMNS file \"{name}\" already exists!\n\
             You must either remove it first, or use -f"
        )));
    }
    pcp_tools::ignore_signals();
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let mut new = NewFile::create(&out).map_err(|e| cannot_create(program, &out, e))?;
    new.set_mode(0o644);
    let merged = merge(program, &mut args).inspect_err(|_| {
        // PCP's pmnsmerge creates the output file before it merges, so that an empty one remains.
        if !exists {
            let _ = Dir::of(&out).and_then(|(dir, name)| dir.new_file(name, 0o666));
        }
    })?;
    let written = new.write_all(pmns::write::root(&merged).as_bytes()).and_then(|()| new.commit());
    written.map_err(|e| cannot_create(program, &out, e))?;
    program.load(Some(&out), pmids(&args)).map(|_| ())
}

fn pmids(args: &Args) -> PmIds {
    if args.nodups { PmIds::Unique } else { PmIds::Shared }
}

fn merge(program: &Program, args: &mut Args) -> Result<Tree, ExitCode> {
    let order = if args.as_given { Order::Given } else { Order::Stamp };
    order.apply(program, &mut args.files, args.verbose)?;
    pcp_tools::merge(program, &args.files, |input| {
        if args.verbose > 0 {
            escape::print(format_args!("{}:\n", input.display()));
        }
        program.load(Some(input), pmids(args))
    })
}

fn cannot_create(program: &Program, out: &Path, e: io::Error) -> ExitCode {
    let e = pmapi::Error::from(e);
    program.fail(format_args!("Error: cannot create output PMNS file \"{}\": {e}", out.display()))
}
