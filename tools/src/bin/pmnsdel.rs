//! pmnsdel(1): removes subtrees from a name space.

use clap::Parser;
use pcp_tools::{Debug, Operands, PmIds, Program, Update, usage};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(disable_help_flag = true, infer_long_args = true, args_override_self = true)]
struct Args {
    #[arg(short)]
    dupok: bool,
    #[arg(short = 'D', long, value_parser = pcp_tools::debug)]
    debug: Option<Debug>,
    #[arg(short, long, value_name = "FILE", value_parser = pcp_tools::path())]
    namespace: Option<PathBuf>,
    #[arg(short = '?', long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[arg(value_parser = pcp_tools::text())]
    paths: Vec<String>,
}

fn main() -> ExitCode {
    run(&Program::new(usage::PMNSDEL, 1)).err().unwrap_or(ExitCode::SUCCESS)
}

fn run(program: &Program) -> Result<(), ExitCode> {
    let args: Args = program.args(Operands::Anywhere)?;
    if args.dupok {
        program.say(pcp_tools::DUPOK_WARNING);
    }
    if args.paths.is_empty() {
        return Err(program.usage());
    }
    let file = args.namespace.unwrap_or_else(pcp_tools::default_name_space);
    let mut update = Update::begin(program, &file)?;
    let mut tree = program.load(Some(&file), PmIds::Shared)?;
    for path in &args.paths {
        if !tree.remove(path) {
            return Err(program.fail(format_args!("Error: metricpath \"{path}\" not defined in the PMNS")));
        }
    }
    update.write(&pmns::write::root(&tree))?;
    update.commit()
}
