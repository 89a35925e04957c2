//! `pmdumplog`: prints the contents of an archive (pmdumplog(1)).

mod check;
mod describe;
mod header;
mod names;
mod out;
mod raw;
mod usage;
mod values;
mod zone;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Parser};
use pcp_archive::{Archive, ArchiveError, Direction, Label, Part, Record};
use pcp_base::escape;
use pcp_context::{WindowOptions, Zone};
use pcp_pdu::event::Stamp;
use pcp_tools::{Debug, Operands, PmIds, Program};
use pmapi::spec::SpecError;
use pmapi::{Error, PmId};

use header::Detail;
use names::Names;
use out::{Out, put};
use usage::USAGE;
use values::{Sets, Size, Values};

use zone::Stamps;

#[derive(Parser)]
#[command(disable_help_flag = true, disable_version_flag = true, args_override_self = true, infer_long_args = true)]
struct Args {
    #[arg(short = 'D', value_parser = pcp_tools::debug)]
    debug: Option<Debug>,
    #[arg(short, long)]
    all: bool,
    #[arg(short, long)]
    descs: bool,
    #[arg(short = 'e', long)]
    labelsets: bool,
    #[arg(short = 'h', long)]
    helptext: bool,
    #[arg(short = 'I', long)]
    on_disk_insts: bool,
    #[arg(short, long)]
    insts: bool,
    #[arg(short = 'L')]
    verbose_label: bool,
    #[arg(short, long)]
    label: bool,
    #[arg(short = 'M', long)]
    markrecs: bool,
    #[arg(short, long)]
    metrics: bool,
    #[arg(short, long, value_parser = pcp_tools::path())]
    namespace: Option<PathBuf>,
    #[arg(short, long)]
    reverse: bool,
    #[arg(short = 'S', long)]
    start: Option<String>,
    #[arg(short, long)]
    sizes: bool,
    #[arg(short = 'T', long)]
    finish: Option<String>,
    #[arg(short = 't')]
    index: bool,
    #[arg(short = 'v', value_parser = pcp_tools::path())]
    raw: Option<PathBuf>,
    #[arg(short = 'x', action = ArgAction::Count)]
    extended: u8,
    #[arg(short = 'Z', long, conflicts_with = "hostzone")]
    timezone: Option<String>,
    #[arg(short = 'z', long)]
    hostzone: bool,
    #[arg(long)]
    check: bool,
    #[arg(long = "metadataonly", requires = "check")]
    metadata_only: bool,
    #[arg(long = "nowrap", requires = "check")]
    no_wrap: bool,
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(short = '?', long, action = ArgAction::Help)]
    help: Option<bool>,
    archive: Option<PathBuf>,
    names: Vec<String>,
}

impl Args {
    /// Sets options that other options imply.
    fn completed(mut self) -> Args {
        if self.all {
            self.descs = true;
            (self.insts, self.verbose_label, self.metrics, self.sizes, self.index) = (true, true, true, true, true);
        }
        self.label |= self.verbose_label;
        let any = self.descs || self.labelsets || self.helptext || self.on_disk_insts || self.insts || self.label;
        self.metrics |= !(any || self.index);
        self
    }

    fn direction(&self) -> Direction {
        if self.reverse { Direction::Backward } else { Direction::Forward }
    }
}

/// Times between which values are shown.
struct Range {
    start: Stamp,
    finish: Stamp,
}

/// Largest `time_t`. It stands for the end of an archive whose end cannot be found.
const FOREVER: Stamp = Stamp { seconds: i64::MAX, nanoseconds: 0 };

fn main() -> ExitCode {
    let program = Program::new(USAGE, 1);
    run(&program).err().unwrap_or(ExitCode::SUCCESS)
}

fn run(program: &Program) -> Result<(), ExitCode> {
    let args: Args = program.parse_args::<Args>(Operands::Anywhere)?.completed();
    if args.version {
        // As pmgetopt_r(3) prints it.
        let version = pcp_base::build::version(env!("CARGO_PKG_VERSION"));
        escape::eprint(format_args!("{} version {version}\n", program.name()));
        return Ok(());
    }
    let mut out = Out::new();
    if let Some(file) = args.raw.as_deref() {
        return if args.archive.is_some() { Err(program.usage()) } else { dump_raw(program, &mut out, file) };
    }
    let Some(path) = args.archive.as_deref() else { return Err(program.usage()) };
    if args.check {
        return check::run(program, &args, path);
    }
    let archive = Archive::open(path).map_err(|e| {
        let code = program.fail(format_args!("Cannot open archive \"{}\": {}", path.display(), e.code()));
        if args.debug.is_some() {
            program.say(&e);
        }
        code
    })?;
    // PCP skips a volume of a single archive without a word.
    let is_list = path.as_os_str().as_encoded_bytes().contains(&b',') || path.is_dir();
    let warn = || {
        if is_list {
            archive.take_skipped().iter().for_each(|skipped| program.say(format_args!("Warning: {skipped}")));
        }
    };
    warn();
    if archive.parts().any(|part| header::unknown(part.label().features) != 0) {
        program.say("Warning: unsupported feature bits, other errors may follow ...");
    }
    let dumped = dump(program, &args, &archive, &mut out);
    let finished = finish(program, &mut out, dumped);
    warn();
    // The process ends: to free the tables piece by piece would only take time.
    std::mem::forget(archive);
    finished
}

fn dump_raw(program: &Program, out: &mut Out, path: &Path) -> Result<(), ExitCode> {
    let file = pcp_base::file::open(path)
        .map_err(|e| program.fail(format_args!("Cannot open \"{}\": {}", path.display(), Error::from(e))))?;
    put!(out.text, "Raw dump of physical archive file \"{}\" ...\n", path.display());
    let dumped = raw::dump(out, file).map(|()| Ok(()));
    finish(program, out, dumped)
}

/// Writes the rest of the output, and passes on the failure, if any.
fn finish(program: &Program, out: &mut Out, dumped: io::Result<Result<(), ExitCode>>) -> Result<(), ExitCode> {
    match dumped.and_then(|dumped| out.flush().map(|()| dumped)) {
        Ok(dumped) => dumped,
        // The program that reads the output, such as a pager, has ended.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(program.failure()),
        Err(e) => Err(program.fail(format_args!("cannot write the output: {e}"))),
    }
}

type Dumped = io::Result<Result<(), ExitCode>>;

fn dump(program: &Program, args: &Args, archive: &Archive, out: &mut Out) -> Dumped {
    let label = archive.label();
    let zone = match zone_of(args, label) {
        Ok(zone) => zone,
        Err(reason) => {
            program.say(format_args!("{reason}"));
            return Ok(Err(program.failure()));
        }
    };
    if args.hostzone {
        put!(out.text, "Note: timezone set to local timezone of host \"");
        out.text.extend_from_slice(&label.host);
        put!(out.text, "\" from archive\n\n");
    } else if let Some(zone) = &args.timezone {
        put!(out.text, "Note: timezone set to \"TZ={zone}\"\n\n");
    }
    let end = archive.end();
    if let Err(e) = &end {
        out.flush()?;
        end_missing(program, args, e);
    }
    let range = match window(args, label.start, end.clone().unwrap_or(FOREVER), &zone) {
        Ok(range) => range,
        Err(message) => {
            program.say(format_args!("invalid time window.\n{message}\n"));
            return Ok(Err(program.failure()));
        }
    };
    let tree = match args.namespace.as_deref().map(|path| program.load(Some(path), PmIds::Shared)) {
        Some(Err(code)) => return Ok(Err(code)),
        Some(Ok(tree)) => Some(tree),
        None => None,
    };
    let names = tree.as_ref().map_or(Names::Archive(archive.metadata()), Names::File);
    let wanted = match wanted(program, &args.names, &names) {
        Ok(wanted) => wanted,
        Err(code) => return Ok(Err(code)),
    };
    let stamps = Stamps::new(zone, label, args.extended);
    if archive.parts().len() > 1 {
        put!(out.text, "Note: multi-archive context with {} archives\n", archive.parts().len());
    }
    describe(args, archive, out, &names, &stamps)?;
    if !args.metrics {
        return Ok(Ok(()));
    }
    dump_values(program, args, out, Values::new(archive.metadata(), &names, &stamps), archive, &wanted, &range, &stamps)
}

/// Returns the zone of times. The user's must be valid. An invalid one of the archive's label gives UTC.
fn zone_of(args: &Args, label: &Label) -> Result<Zone, String> {
    Ok(match &args.timezone {
        Some(zone) => Zone::named(zone).map_err(|e| format!("Cannot set timezone to \"{zone}\": {e}"))?,
        None if args.hostzone => zone::named(&String::from_utf8_lossy(&label.timezone)),
        None => Zone::system(),
    })
}

fn end_missing(program: &Program, args: &Args, e: &ArchiveError) {
    let path = args.archive.as_deref().unwrap_or(Path::new(""));
    program.say(format_args!("Cannot locate end of archive {}: {}", path.display(), e.code()));
    escape::eprint(
        "\nWARNING: This archive is sufficiently damaged that it may not be possible to\n         \
         produce complete information.  Continuing and hoping for the best.\n\n",
    );
}

fn window(args: &Args, start: Stamp, end: Stamp, zone: &Zone) -> Result<Range, SpecError> {
    let options =
        WindowOptions { start: args.start.as_deref(), end: args.finish.as_deref(), ..WindowOptions::default() };
    let window = options.parse(start, Some(end), zone)?;
    Ok(Range { start: window.start, finish: window.end.unwrap_or(end) })
}

fn wanted(program: &Program, texts: &[String], names: &Names<'_>) -> Result<Vec<PmId>, ExitCode> {
    let mut wanted = Vec::new();
    for name in texts {
        match names.pmid(name) {
            Ok(pmid) => wanted.push(pmid),
            Err(Error::NONLEAF) => match names.below(name) {
                Ok(below) => wanted.extend(below),
                Err(e) => program.say(format_args!("pmTraversePMNS({name}): {e}")),
            },
            Err(e) => program.say(format_args!("pmLookupName({name}): {e}")),
        }
    }
    if wanted.is_empty() && !texts.is_empty() {
        escape::eprint("No metric names can be translated, dump abandoned\n");
        return Err(program.failure());
    }
    Ok(wanted)
}

fn describe(args: &Args, archive: &Archive, out: &mut Out, names: &Names<'_>, stamps: &Stamps) -> io::Result<()> {
    if args.label {
        let detail = if args.verbose_label { Detail::Verbose } else { Detail::Brief };
        for part in archive.parts() {
            head(out, archive, part, "");
            header::label(&mut out.text, part, stamps, part.end().ok(), detail);
        }
    }
    if args.descs {
        describe::descs(out, archive, names)?;
    }
    if args.labelsets {
        describe::labels(out, archive, stamps)?;
    }
    if args.helptext {
        describe::texts(&mut out.text, archive);
    }
    if args.on_disk_insts {
        for part in archive.parts() {
            head(out, archive, part, "\n");
            describe::disk_indoms(out, part, stamps)?;
        }
    }
    if args.insts {
        describe::indoms(out, archive, stamps)?;
    }
    if args.index {
        for part in archive.parts() {
            head(out, archive, part, "\n");
            header::index(&mut out.text, part, stamps);
        }
    }
    out.pass()
}

/// Appends what stands above one of several archives, after `above`.
fn head(out: &mut Out, archive: &Archive, part: Part<'_>, above: &str) {
    out.text.extend_from_slice(above.as_bytes());
    if archive.parts().len() > 1 {
        out.text.extend_from_slice(b"--- archive ");
        out.text.extend_from_slice(part.name().as_os_str().as_encoded_bytes());
        out.text.extend_from_slice(b" ---\n");
    }
}

/// Returns the value sets of a record to show, or `None` to skip the record.
fn picked<'r>(record: Record<'r>, wanted: &[PmId], marks: bool) -> Option<Sets<'r>> {
    if wanted.is_empty() || (record.is_mark() && marks) {
        return Some(Sets::All(record));
    }
    let mut picked = vec![None; wanted.len()];
    for set in record.values.iter() {
        if let Some(at) = set.pmid.and_then(|pmid| wanted.iter().position(|wanted| *wanted == pmid)) {
            picked[at] = Some(set);
        }
    }
    let picked: Vec<_> = picked.into_iter().flatten().collect();
    (!picked.is_empty()).then_some(Sets::Some(picked))
}

/// Returns whether options show something of each archive.
fn is_of_each(args: &Args) -> bool {
    args.label || args.on_disk_insts || args.index
}

/// Returns the time at which the values begin, or end if they are shown backward.
fn first_time(program: &Program, args: &Args, out: &mut Out, archive: &Archive, range: &Range) -> io::Result<Stamp> {
    if args.direction() == Direction::Backward {
        return Ok(range.finish);
    }
    match archive.parts().last() {
        // After what is shown of each archive, PCP is at the start of the last one.
        Some(last) if archive.parts().len() > 1 && is_of_each(args) => {
            out.flush()?;
            program.say(
                "Warning: as in PCP, -l, -L, -I and -t show the values of the last archive only; -m alone shows all",
            );
            Ok(range.start.max(last.label().start))
        }
        _ => Ok(range.start),
    }
}

#[allow(clippy::too_many_arguments)]
fn dump_values(
    program: &Program,
    args: &Args,
    out: &mut Out,
    mut values: Values<'_>,
    archive: &Archive,
    wanted: &[PmId],
    range: &Range,
    stamps: &Stamps,
) -> Dumped {
    let direction = args.direction();
    let has_window = args.start.is_some() || args.finish.is_some();
    let last = match direction {
        _ if has_window && direction == Direction::Forward => range.finish,
        Direction::Forward => Stamp { seconds: i32::MAX.into(), nanoseconds: 0 },
        _ if has_window => range.start,
        Direction::Backward => Stamp::default(),
    };
    let size = if args.sizes { Size::Shown } else { Size::Hidden };
    let mut cursor = archive.cursor();
    cursor.seek(first_time(program, args, out, archive, range)?);
    let mut is_first = true;
    loop {
        let record = match cursor.next(direction) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Ok(())),
            Err(e) => {
                out.flush()?;
                let code = program.fail(format_args!("pmFetch: {}", e.code()));
                if args.debug.is_some() {
                    program.say(&e);
                }
                return Ok(Err(code));
            }
        };
        if args.debug.is_some_and(|debug| debug.has("pdu")) {
            values.debug(record);
        }
        let Some(sets) = picked(record, wanted, args.markrecs) else { continue };
        if std::mem::take(&mut is_first) && direction == Direction::Backward {
            let local = stamps.zone.local(record.time.seconds);
            put!(out.text, "\nLog finished at {} - dump in reverse order\n", local);
        }
        let is_beyond = if direction == Direction::Forward { record.time > last } else { record.time < last };
        if is_beyond {
            return Ok(Ok(()));
        }
        out.text.push(b'\n');
        values.record(out, record.time, &sets, size)?;
    }
}
