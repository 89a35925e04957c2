//! Agent `follow`: the lines of a log, as events. Each client sees each line once, and chooses which ones.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;
use pmda::{EventFlags, EventQueue, Stamp};

const RECORDS: Item = Item::new(0, 0);
/// The parameter of each event.
pub const LINE: Item = Item::new(0, 1);
/// Most bytes that a request reads. What is more is skipped, and counted as missed.
const MOST: u64 = 256 << 10;

#[derive(clap::Args, Debug)]
struct Options {
    /// Log to follow; it may be rotated
    #[arg(long, default_value = "/var/log/syslog")]
    file: PathBuf,
}

/// Agent follow.
#[derive(Debug)]
pub struct Follow {
    file: PathBuf,
    /// Inode number of the file, and the place up to which it was read.
    place: Option<(u64, u64)>,
    queue: EventQueue,
}

impl Agent for Follow {
    const NAME: &'static str = "follow";
    const DOMAIN: u16 = 492;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let Options { file } = Options::from_arg_matches(setup.options())?;
        setup.metric("follow.records", RECORDS, Type::Event).storable().help(
            "Lines as they are written",
            "A client that stores a text gets only the lines that contain it: pmval -x error follow.records",
        );
        setup.metric("follow.line", LINE, Type::String).parameter().help("A line", "Without the line feed.");
        let lines = setup.counter("follow.lines", Item::new(0, 2), |follow: &Follow| follow.queue.count());
        lines.units(Units::COUNT).help("Lines that were read", "Since the agent started.");
        Ok(Follow { file, place: None, queue: setup.event_queue(1 << 20) })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if let Request::Fetch(_) = request {
            self.read().unwrap_or_else(|e| pmda::tracing::warn!("{}: {e}", self.file.display()));
        }
        Ok(())
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        out.put_events(&self.queue)
    }

    fn store(&mut self, _: Item, _: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        let wanted = <&str>::try_from(value)?.to_owned();
        self.queue.set_filter(client, move |event| event.text(LINE).is_some_and(|line| line.contains(&wanted)));
        Ok(())
    }
}

impl Follow {
    /// Reads the lines that are new. The first look finds the end.
    fn read(&mut self) -> io::Result<()> {
        let mut file = File::open(&self.file)?;
        let (inode, len) = (file.metadata()?.ino(), file.metadata()?.len());
        let start = match self.place {
            Some((known, start)) if known == inode && start <= len => start,
            Some(_) => 0,
            None => len,
        };
        if len - start > MOST {
            self.queue.lost(Stamp::now(), 1);
        }
        file.seek(SeekFrom::Start(start.max(len.saturating_sub(MOST))))?;
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes)?;
        // A line that is not complete yet is read again.
        let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.place = Some((inode, len.saturating_sub((bytes.len() - end) as u64)));
        for line in bytes[..end].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let pushed = self.queue.push(Stamp::now(), EventFlags::POINT, [(LINE, Atom::String(line))]);
            pushed.unwrap_or_else(|e| pmda::tracing::warn!("a line is left out: {e}"));
        }
        Ok(())
    }
}
