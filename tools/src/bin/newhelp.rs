//! newhelp(1): compiles help text.

use clap::{ArgAction, Parser};
use pcp_base::escape;
use pcp_help::source::{self, Raw, Resolver};
use pcp_help::{Entry, Target};
use pcp_tools::{Debug, Operands, PmIds, Program, usage};
use pmapi::{Domain, PmId};
use pmns::Tree;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(disable_help_flag = true, infer_long_args = true, args_override_self = true)]
struct Args {
    #[arg(short = 'D', long, value_parser = pcp_tools::debug)]
    debug: Option<Debug>,
    #[arg(short, long, value_name = "FILE", value_parser = pcp_tools::path())]
    namespace: Option<PathBuf>,
    #[arg(short, long, value_name = "FILE", value_parser = pcp_tools::path())]
    output: Option<PathBuf>,
    #[arg(short = 'V', long, action = ArgAction::SetTrue)]
    verbose: bool,
    #[arg(short = 'v', long = "version", value_name = "N", value_parser = pcp_tools::version)]
    format: Option<()>,
    #[arg(short = '?', long, action = ArgAction::Help)]
    help: Option<bool>,
    #[arg(value_parser = pcp_tools::path())]
    files: Vec<PathBuf>,
}

/// Resolver for the names of metrics in a name space.
struct Names(Tree);

impl Resolver for Names {
    fn metric(&self, name: &str) -> Option<PmId> {
        self.0.lookup(name).ok()
    }

    /// Resolves no symbols: `Install` scripts replace the symbol by the number.
    fn domain(&self, _: &str) -> Option<Domain> {
        None
    }
}

/// The state of a compilation.
struct Compiler<'a> {
    program: &'a Program,
    names: Names,
    verbose: bool,
    entries: Vec<Entry>,
    seen: HashSet<Target>,
    /// Exit code: 0 for success, 1 after a warning, 2 after an error.
    status: u8,
}

fn main() -> ExitCode {
    let program = Program::new(usage::NEWHELP, 2);
    let prefix = format!("{}: ", program.name());
    run(&program.load_prefix(prefix)).unwrap_or_else(|failure| failure)
}

fn run(program: &Program) -> Result<ExitCode, ExitCode> {
    let args: Args = program.args(Operands::Anywhere)?;
    let names = Names(program.load(args.namespace.as_deref(), PmIds::Shared)?);
    let Some(base) = args.output.as_ref().or(args.files.first()) else {
        let message = "need either a -o option or a filename argument to name the output file";
        return Err(program.fail(message));
    };
    let verbose = args.verbose;
    let mut compiler = Compiler { program, names, verbose, entries: Vec::new(), seen: HashSet::new(), status: 0 };
    for file in &args.files {
        let text = pcp_tools::input(Some(file)).map_err(|e| {
            let reason = e.raw_os_error().map_or_else(|| e.to_string(), |e| pmapi::Error::from_errno(e).to_string());
            escape::eprint(format_args!("{}: {reason}\n", file.display()));
            program.failure()
        })?;
        compiler.compile(&text, file);
    }
    if args.files.is_empty() {
        let text = pcp_tools::input(None).map_err(|e| program.fail(format_args!("<stdin>: {e}")))?;
        compiler.compile(&text, Path::new("<stdin>"));
    }
    let written = pcp_help::compile(&compiler.entries).and_then(|files| files.write(base));
    written.map_err(|e| match e {
        pcp_help::Error::Io { path, source } => {
            let reason = pmapi::Error::from(source);
            program.fail(format_args!("fopen(\"{}\", ...) failed: {reason}", path.display()))
        }
        other => program.fail(other),
    })?;
    Ok(compiler.status.into())
}

impl Compiler<'_> {
    fn compile(&mut self, text: &[u8], path: &Path) {
        for raw in source::raw_entries(text) {
            let name = raw.name().into_owned();
            // PCP's newhelp reports the line after the entry, or the entry's own line when it has no name.
            let at = format!("[{}:{}]", path.display(), if name.is_empty() { raw.line } else { raw.end });
            if name.is_empty() {
                self.status = self.status.max(1);
                if self.verbose {
                    self.program.say(format_args!("{at} null entry?"));
                }
                continue;
            }
            let head = String::from_utf8_lossy(raw.head).into_owned();
            match self.entry(raw) {
                Ok(entry) => self.add(entry, &head, &at),
                Err(reason) => self.abandon(format_args!("{at} {name}: {reason},")),
            }
        }
    }

    fn entry(&self, raw: Raw<'_>) -> Result<Entry, String> {
        if raw.has_nul() {
            return Err("NUL byte".into());
        }
        let target = source::target(&raw.name(), &self.names).map_err(|e| match self.names.0.lookup(&raw.name()) {
            // Like PCP's newhelp, reports why the lookup failed, unless the name looks like an identifier.
            Err(no_metric) if !raw.name.first().is_some_and(u8::is_ascii_digit) => no_metric.to_string(),
            _ => e.to_string(),
        })?;
        Ok(raw.into_entry(target))
    }

    fn add(&mut self, entry: Entry, head: &str, at: &str) {
        if !self.seen.insert(entry.target) {
            return self.abandon(format_args!("{at} duplicate key ({})", entry.target));
        }
        if self.verbose {
            for (what, text) in [("oneline", &entry.oneline), ("help", &entry.text)] {
                if text.is_empty() {
                    self.program.say(format_args!("{at} {head}: warning, null {what}"));
                    self.status = self.status.max(1);
                }
            }
            if !entry.oneline.is_empty() && !entry.text.is_empty() {
                escape::eprint(format_args!("{}\n", String::from_utf8_lossy(&entry.name)));
            }
        }
        self.entries.push(entry);
    }

    fn abandon(&mut self, why: std::fmt::Arguments<'_>) {
        self.program.say(format_args!("{why} entry abandoned"));
        self.status = 2;
    }
}
