//! Reports the load of a host, live or from an archive, like PCP's sample client pmclient(1).
//!
//! ```console
//! $ cargo run -p pcp-context --example pmapi-client                                  # this host, every 5 s
//! $ cargo run -p pcp-context --example pmapi-client -- -h host -t 1 -s 10
//! $ cargo run -p pcp-context --example pmapi-client -- -a ARCHIVE -t 10min -S @10:00 -z
//! ```

use std::error::Error;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use pcp_archive::{Interpolation, Rule};
use pcp_base::escape::{self, Output};
use pcp_client::Sample;
use pcp_context::{Context, Mode, WindowOptions, Zone};
use pmapi::{Atom, Converted, Desc, Inst, PmId, Type, Units};

/// Options of pmclient.
#[derive(Parser)]
#[command(disable_help_flag = true, name = "pmapi-client", version)]
#[command(group = clap::ArgGroup::new("source").args(["host", "archive"]))]
struct Options {
    /// Host of a pmcd; this host by default
    #[arg(short, long)]
    host: Option<String>,
    /// Archive in place of a host; a list with commas, or a directory, is one recording
    #[arg(short, long)]
    archive: Option<PathBuf>,
    /// Pause between the samples of an archive, too
    #[arg(short = 'P', long = "pause", visible_short_alias = 'p')]
    pause: bool,
    /// Interval between samples
    #[arg(short = 't', long, default_value = "5", value_parser = pmapi::interval::parse)]
    interval: Duration,
    /// Number of samples; 0 means no end
    #[arg(short, long)]
    samples: Option<usize>,
    /// Start of the time window
    #[arg(short = 'S', long, allow_hyphen_values = true, requires = "archive")]
    start: Option<String>,
    /// End of the time window: it only limits the origin, as in pmclient
    #[arg(short = 'T', long, allow_hyphen_values = true, requires = "archive")]
    finish: Option<String>,
    /// Alignment of the first sample
    #[arg(short = 'A', long, requires = "archive")]
    align: Option<String>,
    /// Origin in the time window: it is only checked, as in pmclient
    #[arg(short = 'O', long, allow_hyphen_values = true, requires = "archive")]
    origin: Option<String>,
    /// Times in the zone of the host
    #[arg(short = 'z', long, conflicts_with = "timezone", requires = "source")]
    hostzone: bool,
    /// Times in this zone
    #[arg(short = 'Z', long)]
    timezone: Option<String>,
    /// Values between two records are those of the first, as in PCP before 6.3.2
    #[arg(long)]
    earlier: bool,
    /// Print this text
    #[arg(short = '?', long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Metrics of the report, in the order in which they are fetched.
const METRICS: [&str; 5] =
    ["kernel.all.load", "kernel.percpu.cpu.user", "kernel.percpu.cpu.sys", "mem.freemem", "disk.all.total"];
const LOAD: usize = 0;
const USER: usize = 1;
const SYS: usize = 2;
const FREE: usize = 3;
const DISK: usize = 4;

/// Interval between samples, if none is requested.
const INTERVAL: Duration = Duration::from_secs(5);

/// Number of lines under each heading.
const LINES: usize = 15;

/// Values of a line. `None` for unknown values.
#[derive(Default)]
struct Info {
    /// Seconds since the epoch.
    time: i64,
    utilization: Option<f32>,
    /// The busiest processor, and the fraction of time for which it is busy.
    peak: Option<(usize, f32)>,
    /// Free memory in megabytes.
    free: Option<f32>,
    /// Operations of all disks per second.
    operations: Option<i32>,
    load: [Option<f32>; 2],
}

struct Report {
    context: Context,
    pmids: Vec<PmId>,
    descs: Vec<Desc>,
    /// Instances of the load of 1 and of 15 minutes.
    loads: Option<[Inst; 2]>,
    processors: usize,
    before: Option<Sample>,
}

fn number(atom: Result<Converted<'_>, pmapi::Error>) -> Option<f32> {
    match atom.ok()?.as_atom() {
        Atom::Float(value) => Some(value),
        _ => None,
    }
}

impl Report {
    fn new(mut context: Context) -> Result<Report, Box<dyn Error>> {
        let of_metric = |e: pmapi::Error, name: &str| format!("metric \"{name}\": {e}");
        let ncpu = context.lookup_name("hinv.ncpu").map_err(|e| of_metric(e, "hinv.ncpu"))?;
        let sample = context.fetch(&[ncpu])?;
        let first = sample.set(0).and_then(|set| set.values().next());
        let processors = match first.map(|(_, value)| value.extract(Type::U32, Type::U32)) {
            Some(Ok(Converted::Atom(Atom::U32(count)))) => (count as usize).max(1),
            _ => 1,
        };
        let (mut pmids, mut descs) = (Vec::new(), Vec::new());
        for name in METRICS {
            let pmid = context.lookup_name(name).map_err(|e| of_metric(e, name))?;
            pmids.push(pmid);
            descs.push(context.lookup_desc(pmid).map_err(|e| of_metric(e, name))?);
        }
        Ok(Report { context, pmids, descs, loads: None, processors, before: None })
    }

    /// Returns a value by its index in a set.
    fn value(&self, sample: &Sample, metric: usize, nth: usize) -> Option<f32> {
        let (_, value) = sample.set(metric)?.values().nth(nth)?;
        number(value.extract(self.descs.get(metric)?.ty, Type::Float))
    }

    /// Finds the instances of the load averages. Later fetches include only these.
    fn select(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(indom) = self.descs.first().and_then(|desc| desc.indom) else { return Ok(()) };
        let found = [b"1 minute".as_slice(), b"15 minute"].map(|name| match self.context.archive() {
            Some(_) => self.context.lookup_indom_ever(indom, name),
            None => self.context.lookup_indom(indom, name),
        });
        let [one, fifteen] = found;
        let loads = [one?, fifteen?];
        self.context.profile_mut().add(indom, &loads);
        self.loads = Some(loads);
        Ok(())
    }

    fn sample(&mut self) -> Result<Info, Box<dyn Error>> {
        let now = self.context.fetch(&self.pmids)?;
        if self.loads.is_none() {
            self.select()?;
        }
        let info = match &self.before {
            Some(before) => self.info(&now, before),
            None => Info::default(),
        };
        let time = now.time().seconds;
        self.before = Some(now);
        Ok(Info { time, ..info })
    }

    fn info(&self, now: &Sample, before: &Sample) -> Info {
        let nano =
            |sample: &Sample| i128::from(sample.time().seconds) * 1_000_000_000 + i128::from(sample.time().nanoseconds);
        let seconds = (nano(now) - nano(before)) as f64 / 1e9;
        let has_both =
            |metric| [now, before].iter().all(|sample| sample.set(metric).is_some_and(|set| !set.is_empty()));
        let mut info = Info::default();
        if has_both(USER) && has_both(SYS) {
            let mut sum = 0.0;
            for nth in 0..self.processors {
                let value = |sample, metric| self.value(sample, metric, nth).unwrap_or(0.0);
                let busy = value(now, USER) - value(before, USER) + value(now, SYS) - value(before, SYS);
                // The unit of these counters is the millisecond. Small errors are possible.
                let busy = ((f64::from(busy) / (1000.0 * seconds)) as f32).min(1.0);
                sum += busy;
                if info.peak.is_none_or(|(_, most)| busy > most) {
                    info.peak = Some((nth, busy));
                }
            }
            info.utilization = Some(sum / self.processors as f32);
        }
        if has_both(FREE) {
            let found = self.value(now, FREE, 0).zip(self.descs.get(FREE));
            let converted = found.map(|(value, desc)| desc.units.convert(Units::MBYTES, Atom::Float(value)));
            info.free = converted.and_then(|value| number(value.map(Converted::Atom)));
        }
        if has_both(DISK) {
            let count = |sample: &Sample| {
                let (_, value) = sample.set(DISK)?.values().next()?;
                match value.extract(self.descs.get(DISK)?.ty, Type::U32).ok()?.as_atom() {
                    Atom::U32(count) => Some(count),
                    _ => None,
                }
            };
            let change = count(now).zip(count(before)).map(|(now, before)| now.wrapping_sub(before) as i32);
            info.operations = change.map(|change| ((f64::from(change as f32) + 0.5) / seconds) as i32);
        }
        for (at, inst) in self.loads.into_iter().flatten().enumerate() {
            let mut values = now.set(LOAD).into_iter().flat_map(|set| set.values());
            let found = values.find(|(other, _)| *other == Some(inst)).zip(self.descs.first());
            let value = found.and_then(|((_, value), desc)| number(value.extract(desc.ty, Type::Float)));
            if let Some(slot) = info.load.get_mut(at) {
                *slot = value;
            }
        }
        info
    }

    fn heading(&self, archive: Option<&str>, host: &str, time: &str) -> io::Result<()> {
        let mut out = Output::to(io::stdout().lock());
        if let Some(archive) = archive {
            write!(out, "Archive: {archive}, ")?;
        }
        writeln!(out, "Host: {host}, {} cpu(s), {time}", self.processors)?;
        let (first, second) = if self.processors > 1 { ("  Busy    Busy", "   CPU    Util") } else { ("", "") };
        writeln!(out, "  CPU{first}  Free Mem   Disk     Load Average")?;
        writeln!(out, " Util{second}  (Mbytes)   IOPS    1 Min  15 Min")
    }

    fn line(&self, info: &Info) -> io::Result<()> {
        let mut out = Output::to(io::stdout().lock());
        let real = |value: Option<f32>, width, decimals| {
            let known = value.filter(|value| *value >= 0.0);
            known.map_or_else(|| format!("{:>width$}", "?"), |value| format!("{value:width$.decimals$}"))
        };
        write!(out, "{}", real(info.utilization, 5, 2))?;
        if self.processors > 1 {
            write!(out, "   {}", info.peak.map_or_else(|| "  ?".into(), |(processor, _)| format!("{processor:3}")))?;
            write!(out, "   {}", real(info.peak.map(|(_, busy)| busy), 5, 2))?;
        }
        let operations = info.operations.filter(|count| *count >= 0);
        let operations = operations.map_or_else(|| format!("{:>6}", "?"), |count| format!("{count:6}"));
        let [one, fifteen] = info.load.map(|load| real(load, 7, 2));
        writeln!(out, " {} {operations}  {one}  {fifteen}", real(info.free, 9, 3))
    }
}

/// Returns the zone of the times, and reports a zone that an option chose.
fn zone(options: &Options, context: &mut Context) -> Result<Zone, Box<dyn Error>> {
    let (zone, what) = match &options.timezone {
        Some(text) => {
            let zone = Zone::named(text).map_err(|e| format!("time zone {text:?}: {e}"))?;
            (zone, format!("\"TZ={text}\""))
        }
        None if options.hostzone => {
            let source = if options.archive.is_some() { " from archive" } else { "" };
            (context.zone()?, format!("local timezone of host \"{}\"{source}", context.host_name()?))
        }
        None => return Ok(Zone::system()),
    };
    writeln!(Output::to(io::stdout()), "Note: timezone set to {what}\n")?;
    Ok(zone)
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let archive = options.archive.as_ref().map(|path| path.display().to_string());
    if options.pause && archive.is_none() {
        return Err("pause can only be used with archives".into());
    }
    // The parser of the command line does not require an archive beside an option that excludes one.
    let window = [&options.start, &options.finish, &options.align, &options.origin];
    if archive.is_none() && window.iter().any(|option| option.is_some()) {
        return Err("only an archive has a time window".into());
    }
    let interval = if options.interval.is_zero() { INTERVAL } else { options.interval };
    let mut context = match &options.archive {
        Some(path) => Context::open_archive(path).map_err(|e| format!("archive \"{}\": {e}", path.display()))?,
        None => {
            let host = options.host.as_deref().unwrap_or("local:");
            Context::connect(host).map_err(|e| format!("pmcd on host \"{host}\": {e}"))?
        }
    };
    let zone = zone(options, &mut context)?;
    let (first, last) = context.bounds()?;
    let window = WindowOptions {
        start: options.start.as_deref(),
        end: options.finish.as_deref(),
        align: options.align.as_deref(),
        origin: options.origin.as_deref(),
    };
    let window = window.parse(first, last, &zone)?;
    let host = context.host_name()?;
    let mut report = Report::new(context)?;
    if archive.is_some() {
        let step = i64::try_from(interval.as_nanos()).map_err(|_| "the interval is too long")?;
        let rule = if options.earlier { Rule::Before632 } else { Rule::Since632 };
        report.context.set_interpolation(Interpolation::new().rule(rule))?;
        report.context.set_mode(Mode::Interpolated { step }, Some(window.start))?;
        report.sample()?;
    }
    let mut info = report.sample()?;
    for nth in 0..options.samples.filter(|count| *count > 0).unwrap_or(usize::MAX) {
        if nth % LINES == 0 {
            report.heading(archive.as_deref(), &host, &zone.ctime(info.time))?;
        }
        if archive.is_none() || options.pause {
            std::thread::sleep(interval);
        }
        info = report.sample()?;
        report.line(&info)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has seen enough.
        Err(e) if e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) => ExitCode::FAILURE,
        Err(e) => {
            escape::eprint(format_args!("pmapi-client: {e}\n"));
            ExitCode::FAILURE
        }
    }
}
