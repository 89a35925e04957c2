//! pmnsadd(1): adds an agent's names to a name space.

use clap::Parser;
use nix::unistd::{AccessFlags, access};
use pcp_base::escape::{self, Escaped};
use pcp_base::file;
use pcp_tools::{Operands, Order, PmIds, Program, Update, usage};
use pmns::Tree;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(disable_help_flag = true, args_override_self = true)]
struct Args {
    #[arg(short)]
    dupok: bool,
    #[arg(short, value_parser = pcp_tools::path())]
    namespace: Option<PathBuf>,
    #[arg(short = '?', action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[arg(value_parser = pcp_tools::path())]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    run(&Program::new("", 1)).err().unwrap_or(ExitCode::SUCCESS)
}

/// Prints `NAME: message` to stdout, as PCP's pmnsadd does, and returns the exit code of a failure.
fn tell(program: &Program, message: impl Display) -> ExitCode {
    escape::print(format_args!("{}: {message}\n", program.name()));
    program.failure()
}

fn print_usage() {
    escape::print(usage::PMNSADD);
}

fn run(program: &Program) -> Result<(), ExitCode> {
    let args: Args = program.args(Operands::Last).map_err(|_| {
        // PCP's pmnsadd exits with 0 after an invalid option.
        print_usage();
        ExitCode::SUCCESS
    })?;
    if args.dupok {
        tell(program, pcp_tools::DUPOK_WARNING);
    }
    let [file] = args.files.as_slice() else {
        print_usage();
        return Err(program.failure());
    };
    let name_space = args.namespace.unwrap_or_else(pcp_tools::default_name_space);
    let name = name_space.display();
    if !name_space.is_file() {
        return Err(tell(program, format_args!("cannot find PMNS file \"{name}\"")));
    }
    if access(&name_space, AccessFlags::W_OK).is_err() {
        return Err(tell(program, format_args!("cannot open PMNS file \"{name}\" for writing")));
    }
    if !file.is_file() {
        return Err(tell(program, format_args!("cannot find input file \"{}\"", file.display())));
    }
    let update = Update::begin(program, &name_space)?;
    add(program, update, &name_space, file).inspect_err(|_| {
        tell(program, format_args!("No changes have been made to the PMNS file \"{name}\""));
    })
}

fn add(program: &Program, mut update: Update<'_>, name_space: &Path, file: &Path) -> Result<(), ExitCode> {
    let mut files = vec![name_space.to_path_buf(), file.to_path_buf()];
    Order::Stamp.apply(program, &mut files, 0)?;
    let merged = pcp_tools::merge(program, &files, |input| {
        if input == file { load_subtree(program, input) } else { program.load(Some(input), PmIds::Shared) }
    })?;
    update.write(&pmns::write::root(&merged))?;
    program.load(Some(&update.path()), PmIds::Shared)?;
    update.commit()
}

/// Loads the names of the input file, which has one of three forms:
///
/// - a complete name space with a block `root`,
/// - blocks without `root`, of which this function connects the first one with the root,
/// - metrics without any block, which belong to the root.
fn load_subtree(program: &Program, path: &Path) -> Result<Tree, ExitCode> {
    let content = file::read(path, file::TEXT_LIMIT)
        .map_err(|e| tell(program, format_args!("cannot read input file \"{}\": {e}", path.display())))?;
    let mut lines = content.split(|b| *b == b'\n');
    if lines.clone().any(|line| line.starts_with(b"root {")) {
        return program.parse(content, path);
    }
    let first_block = lines.find_map(|line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let path = words.next()?;
        (words.next()? == b"{").then_some(path)
    });
    // Messages should have the line numbers of the file. A quote or a line end in its name would begin other text.
    let name = Escaped(path.display()).to_string().replace('"', "'");
    let start = format!("# 1 \"{name}\"\n");
    let before = match first_block {
        Some(path) => upper_levels(&String::from_utf8_lossy(path)),
        None => "root {\n".into(),
    };
    program.parse([before.as_bytes(), start.as_bytes(), &content].concat(), path)
}

/// Returns the blocks that connect the root with `path`.
fn upper_levels(path: &str) -> String {
    let mut text = String::new();
    let mut block = "root";
    let mut end = 0;
    for name in path.split('.') {
        text += &format!("{block} {{\n{name}\n}}\n");
        end += name.len();
        block = path.get(..end).unwrap_or_default();
        end += 1;
    }
    text
}
