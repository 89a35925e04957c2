//! chkhelp(1): checks and shows compiled help text.

use clap::{ArgAction, Parser};
use pcp_base::escape::{self, Output};
use pcp_help::{Compiled, Error, Target};
use pcp_tools::{Debug, Operands, PmIds, Program, usage};
use pmns::Tree;
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(disable_help_flag = true, args_override_self = true)]
struct Args {
    #[arg(short = 'D', value_parser = pcp_tools::debug)]
    debug: Vec<Debug>,
    #[arg(short)]
    exists: bool,
    #[arg(short = 'H')]
    text: bool,
    #[arg(short)]
    indoms: bool,
    #[arg(short, value_parser = pcp_tools::path())]
    namespace: Option<PathBuf>,
    #[arg(short = 'O')]
    oneline: bool,
    #[arg(short)]
    pmids: bool,
    #[arg(short = 'v', value_parser = pcp_tools::version)]
    format: Option<()>,
    #[arg(short = '?', action = ArgAction::Help)]
    help: Option<bool>,
    /// The file, and names of metrics.
    operands: Vec<OsString>,
}

impl Args {
    /// Returns the names of metrics behind the file.
    fn metrics(&self) -> Vec<String> {
        self.operands.iter().skip(1).map(|name| name.to_string_lossy().into_owned()).collect()
    }

    fn check(&self, program: &Program) -> Result<(), ExitCode> {
        let all = self.pmids || self.indoms;
        let mut wrong = false;
        let mut complain = |when: bool, message: &str| {
            if when {
                program.say(format_args!("{message}\n"));
                wrong = true;
            }
        };
        complain(self.operands.is_empty(), "missing helpfile argument");
        complain(all && self.operands.len() > 1, "metricname arguments cannot be used with -i or -p");
        let shows = self.text || self.oneline;
        complain(!all && self.operands.len() == 1 && shows, "-O or -H require metricname arguments or -i or -p");
        complain(self.exists && all, "-e cannot be used with -i or -p");
        if wrong { Err(program.usage()) } else { Ok(()) }
    }
}

fn main() -> ExitCode {
    run(&Program::new(usage::CHKHELP, 1).load_prefix("")).err().unwrap_or(ExitCode::SUCCESS)
}

fn run(program: &Program) -> Result<(), ExitCode> {
    let args: Args = program.args(Operands::Anywhere)?;
    args.check(program)?;
    let help = open(args.operands.first().map_or(Path::new(""), Path::new), program)?;
    let names = program.load(args.namespace.as_deref(), PmIds::Shared)?;
    let mut out = BufWriter::new(Output::to(io::stdout().lock()));
    let shown =
        if args.exists { show_missing(&mut out, &args, &help, &names) } else { show(&mut out, &args, &help, &names) };
    // A closed pipe, such as that of `head`, is not an error.
    let _: io::Result<()> = shown.and_then(|()| out.flush());
    Ok(())
}

fn open(base: &Path, program: &Program) -> Result<Compiled, ExitCode> {
    Compiled::open(base).map_err(|e| {
        let reason = match e {
            Error::Version { .. } => "Bad format, not version 2 PCP help text".into(),
            Error::Io { source, .. } => pmapi::Error::from(source).to_string(),
            other => other.to_string(),
        };
        escape::eprint(format_args!("pmdaOpenHelp: failed to open \"{}\": {reason}\n", base.display()));
        program.failure()
    })
}

/// Prints the names of the metrics without help text that are at or below the requested names.
fn show_missing(out: &mut impl Write, args: &Args, help: &Compiled, names: &Tree) -> io::Result<()> {
    let everything = [String::new()];
    let metrics = args.metrics();
    let tops = if metrics.is_empty() { everything.as_slice() } else { &metrics };
    for top in tops {
        let Some(node) = names.node(top) else {
            escape::eprint(format_args!("Error: pmTraversePMNS(\"{top}\", ...): {}\n", pmapi::Error::NAME));
            continue;
        };
        for leaf in node.leaves() {
            if leaf.pmid().is_some_and(|pmid| help.oneline(pmid.into()).is_none()) {
                writeln!(out, "{}", leaf.path())?;
            }
        }
    }
    Ok(())
}

fn show(out: &mut impl Write, args: &Args, help: &Compiled, names: &Tree) -> io::Result<()> {
    let metrics = args.metrics();
    for name in &metrics {
        match names.lookup(name) {
            Err(e) => writeln!(out, "\n{name}: {e}")?,
            Ok(pmid) => {
                write!(out, "\nPMID {pmid} {name}:")?;
                show_texts(out, args, help, pmid.into())?;
            }
        }
    }
    if !metrics.is_empty() {
        return Ok(());
    }
    let traces = !args.pmids && !args.indoms && args.debug.iter().any(|debug| debug.has("appl0"));
    for target in help.targets() {
        match target {
            _ if traces => trace(target),
            Target::Metric(pmid) if args.pmids => {
                // pmNameAll(3) returns no names for the PMID of a root of dynamic names.
                let names: Vec<_> = names.names(pmid).filter(|_| pmid.dynamic_root().is_none()).collect();
                let space = if names.is_empty() { "" } else { " " };
                write!(out, "\nPMID {pmid}{space}{}:", names.join(" or "))?;
                show_texts(out, args, help, target)?;
            }
            Target::InDom(indom) if args.indoms => {
                write!(out, "\nInDom {indom}:")?;
                show_texts(out, args, help, target)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn trace(target: Target) {
    let (ty, word) = match target {
        Target::Metric(pmid) => (1, pmid.word()),
        Target::InDom(indom) => (2, indom.word()),
    };
    escape::eprint(format_args!("next_type={ty} id={word:#x}\n"));
}

fn show_texts(out: &mut impl Write, args: &Args, help: &Compiled, target: Target) -> io::Result<()> {
    if args.oneline || !args.text {
        out.write_all(b" ")?;
        out.write_all(or_note(help.oneline(target), b"<empty one line string>", b"<no one line available>"))?;
        out.write_all(b"\n")?;
    }
    if args.text {
        out.write_all(or_note(help.text(target), b"<empty full text string>", b"<no full text available>"))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn or_note<'t>(text: Option<&'t [u8]>, none: &'static [u8], empty: &'static [u8]) -> &'t [u8] {
    match text {
        None => none,
        Some([]) => empty,
        Some(text) => text,
    }
}
