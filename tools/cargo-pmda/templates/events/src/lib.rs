//! Agent `template`: events. Each new line of a log is an event, which a client reads once. A client
//! chooses the lines that it gets: `pmval -x error template.records`.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;
use pmda::{EventFlags, EventQueue, EventSender, Stamp};

/// The metric whose values are the events, and the metric that describes their parameter.
const RECORDS: Item = Item::new(0, 0);
const LINE: Item = Item::new(0, 1);

/// Memory of the events that clients have not read, in bytes. When it is full, the oldest are
/// dropped, and clients get the number of events that they have missed.
const MEMORY: usize = 1 << 20;
/// Longest line, in bytes. A longer one becomes several events.
const LONGEST: usize = 4096;
/// Time between two looks at the log.
const PERIOD: Duration = Duration::from_millis(200);
/// Bytes of the log after which the thread looks whether the agent has ended, or the log is another.
const READ: usize = 256 << 10;

/// Options of this agent, besides those of every agent: `cargo pmda run -- --file /var/log/messages`,
/// and `cargo pmda install -- --file /var/log/messages`, which the next installation keeps.
#[derive(clap::Args, Debug)]
struct Options {
    /// Log whose new lines are events; it may be rotated
    #[arg(long, default_value = "/var/log/syslog")]
    file: PathBuf,
}

/// The agent, with its queue of events.
#[derive(Debug)]
pub struct Template {
    file: PathBuf,
    queue: EventQueue,
}

impl Agent for Template {
    const NAME: &'static str = "template";
    // From 1 to 510. Each agent of a host has its own.
    const DOMAIN: u16 = 510;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let Options { file } = Options::from_arg_matches(setup.options())?;
        // Install adds the domain to `stdpmid`, the host's list of domains.
        setup.reserve_domain();
        // Archives refer to metrics by number, so do not reuse or change a number (cluster and item)
        // when you add or remove metrics.
        let records = setup.metric("template.records", RECORDS, Type::Event);
        records.storable().help(
            "Lines as they are written",
            "A client that stores a text gets only the lines that contain it.",
        );
        // A parameter has a value in events only. Its metric gives it a name, a type and units.
        let line = setup.metric("template.line", LINE, Type::String);
        line.parameter().help("A line", "Without the line feed.");
        let lines = setup.counter("template.lines", Item::new(0, 2), |agent: &Self| {
            agent.queue.count()
        });
        lines
            .units(Units::COUNT)
            .help("Lines that were read", "Since the agent started.");
        let queue = setup.event_queue(MEMORY);
        Ok(Template { file, queue })
    }

    /// Starts the thread, which does not run while `cargo pmda install` writes the agent's files.
    fn open(&mut self) -> Result<(), BoxError> {
        let (file, lines) = (self.file.clone(), self.queue.sender());
        thread::Builder::new().spawn(move || follow(&file, &lines))?;
        Ok(())
    }

    /// Supplies the events that the client has not read. Other metrics have their functions in `new`.
    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        out.put_events(&self.queue)
    }

    /// Applies the filter that a client stores. It is dropped with the client.
    fn store(&mut self, _: Item, _: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        let wanted = <&str>::try_from(value)?.to_owned();
        self.queue.set_filter(client, move |event| {
            event.text(LINE).is_some_and(|line| line.contains(&wanted))
        });
        Ok(())
    }
}

/// Sends the new lines of a log until the agent ends. The first log is read from its end on.
fn follow(path: &Path, lines: &EventSender) {
    let mut log = Log::open(path).and_then(|mut log| {
        log.file.seek(io::SeekFrom::End(0))?;
        Ok(log)
    });
    if let Err(e) = &log {
        pmda::tracing::warn!("{}: {e}; it will be opened when it exists", path.display());
    }
    while !lines.is_closed() {
        // A log that was rotated is read to its end before the new one.
        let is_old = log.as_mut().map_or(true, |log| log.is_old(path));
        let read = log.as_mut().map_or(Ok(true), |log| log.read(lines));
        match read {
            Ok(true) if is_old => log = Log::open(path),
            Ok(true) => {}
            Ok(false) => continue,
            Err(e) => {
                pmda::tracing::warn!("{}: {e}; it is opened again", path.display());
                log = Log::open(path);
            }
        }
        thread::sleep(PERIOD);
    }
}

/// A log that is open, and its last line, which may be incomplete.
struct Log {
    file: BufReader<File>,
    line: Vec<u8>,
}

impl Log {
    fn open(path: &Path) -> io::Result<Log> {
        let file = BufReader::new(File::open(path)?);
        let line = Vec::new();
        Ok(Log { file, line })
    }

    /// Sends lines. Returns whether it has reached the end of the file.
    fn read(&mut self, lines: &EventSender) -> io::Result<bool> {
        let mut bytes = 0;
        while bytes < READ {
            let mut rest = (&mut self.file).take((LONGEST - self.line.len()) as u64);
            match rest.read_until(b'\n', &mut self.line)? {
                0 => return Ok(true),
                read => bytes += read,
            }
            let line = self.line.strip_suffix(b"\n");
            if line.is_none() && self.line.len() < LONGEST {
                continue;
            }
            let line = Atom::String(line.unwrap_or(&self.line));
            let now = Stamp::now();
            let sent = lines.send(now, EventFlags::POINT, [(LINE, line)]);
            // A line with a NUL byte is refused.
            sent.unwrap_or_else(|_| lines.lost(now, 1));
            self.line.clear();
        }
        Ok(false)
    }

    /// Returns whether the log is another file now, or was truncated.
    fn is_old(&mut self, path: &Path) -> bool {
        let (Ok(now), Ok(open)) = (path.metadata(), self.file.get_ref().metadata()) else {
            return false;
        };
        let place = self.file.stream_position().unwrap_or(0);
        now.ino() != open.ino() || now.dev() != open.dev() || now.len() < place
    }
}

// Lets pmcd load the agent as a shared object: cargo pmda install --dso.
pmda::dso!(template_init, Template);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use pcp_collector::{Collector, Local};

    use super::*;

    /// Starts the agent with a log that does not exist.
    fn start() -> Collector<Local<Template>> {
        Local::with_options(["--file", "/nonexistent"]).unwrap()
    }

    /// Returns the lines that a client gets.
    fn read(agent: &mut Collector<Local<Template>>, client: i32) -> Vec<String> {
        let records = agent.metric("template.records").unwrap();
        let values = agent.as_client(client).values(records).unwrap();
        let records = values.records().unwrap();
        let lines = records.iter().filter_map(|record| record.text(LINE));
        lines.map(Into::into).collect()
    }

    #[test]
    fn each_client_gets_the_lines_that_it_has_chosen() {
        let mut agent = start();
        let records = agent.metric("template.records").unwrap();
        let filtered = agent.as_client(2).store(records, None, "disk".into());
        filtered.unwrap();
        // Clients read events from their first fetch on.
        assert!(read(&mut agent, 1).is_empty() && read(&mut agent, 2).is_empty());
        let sender = agent.agent().queue.sender();
        for line in ["disk full", "all is well"] {
            let sent = sender.send(Stamp::now(), EventFlags::POINT, [(LINE, line.into())]);
            sent.unwrap();
        }
        assert_eq!(read(&mut agent, 1), ["disk full", "all is well"]);
        assert_eq!(read(&mut agent, 2), ["disk full"]);
        assert!(read(&mut agent, 1).is_empty());
    }

    #[test]
    fn lines_are_sent_when_they_are_complete() {
        let dir = std::env::temp_dir().join(format!("template-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("log");
        let mut file = File::create(&path).unwrap();
        let mut agent = start();
        assert!(read(&mut agent, 1).is_empty());
        let sender = agent.agent().queue.sender();
        let mut log = Log::open(&path).unwrap();
        let long = "x".repeat(LONGEST);
        for (text, lines) in [
            ("one\ntw", &["one"][..]),
            ("", &[]),
            ("o\n\n", &["two", ""]),
            (&format!("{long}y"), &[&long]),
        ] {
            write!(file, "{text}").unwrap();
            assert!(log.read(&sender).unwrap());
            assert_eq!(read(&mut agent, 1), lines);
        }
        // A writer that is always ahead does not keep the thread from its other work.
        let line = format!("{}\n", "x".repeat(LONGEST - 1));
        write!(file, "{}", line.repeat(READ / LONGEST)).unwrap();
        assert!(!log.read(&sender).unwrap());
        assert!(log.read(&sender).unwrap());
        assert!(!log.is_old(&path));
        fs::rename(&path, dir.join("log.1")).unwrap();
        assert!(!log.is_old(&path));
        File::create(&path).unwrap();
        assert!(log.is_old(&path));
        fs::remove_dir_all(&dir).unwrap();
    }
}
