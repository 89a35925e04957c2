//! Reads a source: its configuration and its document, which becomes a sample. Runs in tasks of the runtime.

use std::fs::Metadata;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcp_base::file;
use pmda::limits::processor_time;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::access::{Access, Owners};
use crate::budget::{Budget, Share};
use crate::document::{Coding, Document, Unreadable, decoded};
use crate::http::{Client, Failure, LATE, Means};
use crate::metric::{Likeness, Sample};
use crate::model::Model;
use crate::runtime::{PANICKED, Permits, Slow};
use crate::script::{self, Bounds};
use crate::store::Store;
use crate::url_file::{Limits, Rules, UrlFile, presentable};

/// Longest `.url` file, in bytes.
const LONGEST: u64 = 1 << 20;
/// Time between two checks of the directories above a source's file.
const PLACED: Duration = Duration::from_secs(5);
/// Longest document without encoding that is parsed on the runtime's thread, in bytes. That takes less than 2 ms.
const SHORT: usize = 32 << 10;
/// Time for a check whether a script's file has changed.
const CHECK: Duration = Duration::from_secs(1);
/// Mode bit of a file that its owner may execute.
const EXECUTABLE: u32 = 0o100;

/// How a source is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A program, whose output is the document.
    Script,
    /// A file that names a URL.
    Url,
}

/// Limits that apply unless a source's file has its own.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    /// Time for the document of a URL.
    pub(crate) timeout: Duration,
    /// Time for the document of a script.
    pub(crate) script_timeout: Duration,
    pub(crate) bytes: u64,
    pub(crate) instances: usize,
    pub(crate) owners: Owners,
    pub(crate) likeness: Likeness,
    pub(crate) store: Arc<Store>,
    /// Memory of all sources.
    pub(crate) budget: Arc<Budget>,
    pub(crate) permits: Permits,
}

/// Configuration and model of a source. It is in the task of a reading, or with the agent between two readings.
#[derive(Debug)]
pub(crate) struct Reader {
    name: Arc<str>,
    path: Arc<Path>,
    kind: Kind,
    defaults: Arc<Defaults>,
    model: Model,
    /// The `.url` file, or the `.conf` file beside a script.
    file: Option<Loaded>,
    client: Option<Connected>,
    slow: Slow,
    /// Whether the last document was refused. The refusal is logged once.
    refused: bool,
    /// Length of the last document, in bytes.
    length: usize,
    /// Time of the last successful check of the directories above the source's file.
    placed: Option<Instant>,
}

/// A source's file, and its state when it was read.
#[derive(Debug)]
struct Loaded {
    state: State,
    file: Result<UrlFile, String>,
}

/// The client for an HTTP server.
#[derive(Debug)]
struct Connected {
    /// State of the files with certificates when they were read.
    certificates: Box<[State]>,
    client: Client,
}

/// Inode number and time of the last change of a file. `None` for a file that does not exist.
type State = Option<(u64, i64, i64)>;

fn state(metadata: &Metadata) -> State {
    Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

/// Returns the state of a file now.
fn known(path: &Path) -> State {
    state(&path.metadata().ok()?)
}

/// A look at the files of a source, by another thread.
struct Look {
    path: Arc<Path>,
    kind: Kind,
    owners: Owners,
    /// Whether to check the directories above the files.
    places: bool,
    /// State of the source's file when it was read, and the files that it names.
    known: Option<(State, Access)>,
}

/// What a reading needs to know about the files of a source.
#[derive(Debug, Default)]
struct Looked {
    /// The source's file, if it has changed.
    loaded: Option<Loaded>,
    script: State,
    conf: State,
    certificates: Box<[State]>,
    authorization: Option<String>,
}

impl Look {
    /// Looks at all files. Also returns the file that has been read before an error.
    ///
    /// # Errors
    /// The reason why the source must not be read.
    fn all(&self) -> (Looked, Result<(), String>) {
        let mut looked = Looked::default();
        let outcome = self.look(&mut looked);
        (looked, outcome)
    }

    fn look(&self, looked: &mut Looked) -> Result<(), String> {
        let metadata = self.path.metadata().map_err(|e| e.to_string())?;
        self.owners.check(&metadata)?;
        if self.places {
            self.owners.check_place(&self.path)?;
        }
        if self.kind == Kind::Url {
            let access = self.load(&self.path, state(&metadata), looked)?;
            let is_new = looked.loaded.is_some();
            access.check(self.owners, self.places || is_new)?;
            looked.certificates = access.certificates().map(known).collect();
            looked.authorization = access.authorization()?;
            return Ok(());
        }
        if metadata.mode() & EXECUTABLE == 0 {
            return Err("not executable any more".to_owned());
        }
        let conf = self.path.with_extension("conf");
        // The path of the source itself is part of its status.
        let of_conf = |reason: String| format!("{}: {reason}", conf.display());
        (looked.script, looked.conf) = (state(&metadata), self.beside(&conf).map_err(of_conf)?);
        self.load(&conf, looked.conf, looked).map(drop)
    }

    /// Returns the state of the file beside a script, which only trusted users can have written.
    fn beside(&self, conf: &Path) -> Result<State, String> {
        let metadata = match conf.metadata() {
            Ok(metadata) => metadata,
            // A link that leads nowhere is a mistake.
            Err(e) if e.kind() == ErrorKind::NotFound && conf.symlink_metadata().is_err() => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        self.owners.check(&metadata)?;
        // It is in the same directory, but may be a link.
        if self.places {
            self.owners.check_place(conf)?;
        }
        Ok(state(&metadata))
    }

    /// Reads the source's file if it has changed. Returns the files that it names.
    fn load(&self, path: &Path, state: State, looked: &mut Looked) -> Result<Access, String> {
        if let Some((_, access)) = self.known.as_ref().filter(|(known, _)| *known == state) {
            return Ok(access.clone());
        }
        let file = read_file(path, self.kind, state);
        let access = file.as_ref().map(|file| file.access.clone()).unwrap_or_default();
        looked.loaded = Some(Loaded { state, file });
        Ok(access)
    }
}

/// Reads the `.url` file of a source, or the `.conf` file beside a script.
fn read_file(path: &Path, kind: Kind, state: State) -> Result<UrlFile, String> {
    let of_conf = |reason: String| match kind {
        Kind::Url => reason,
        Kind::Script => format!("{}: {reason}", path.display()),
    };
    let text = match state {
        Some(_) => file::read(path, LONGEST).map_err(|e| of_conf(e.to_string()))?,
        None => Vec::new(),
    };
    let text = String::from_utf8_lossy(&text);
    let parsed = if kind == Kind::Url { UrlFile::parse(&text) } else { UrlFile::parse_script(&text) };
    parsed.map_err(|(line, reason)| of_conf(format!("line {line}: {reason}")))
}

/// Reads the document of a file of this host (`file://`).
///
/// # Errors
/// Errors of [`file::open`] and of read(2), with the path; a document that is too long.
pub(crate) fn local(path: &Path, mut document: Document) -> Result<Document, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = file::open(path).map_err(failed)?;
    // Files of /proc claim a length of 0, and a file may grow.
    let mut piece = [0; SHORT];
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => return Ok(document),
            len => {
                let extended = document.extend(piece.get(..len).unwrap_or_default());
                extended.map_err(|full| full.of(&format!("{}: ", path.display())))?;
            }
        }
    }
}

/// Outcome of a reading.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) cluster: u16,
    /// Number of the reading.
    pub(crate) call: u64,
    /// The reader, unless it panicked.
    pub(crate) reader: Option<Box<Reader>>,
    pub(crate) outcome: Result<Arc<Sample>, Failure>,
    /// Status code of the HTTP server, 0 for another source.
    pub(crate) code: u16,
    /// Time for the document.
    pub(crate) took: Duration,
    /// Processor time of the reading.
    pub(crate) busy: Duration,
    /// The source's URL without secrets, once it is known.
    pub(crate) url: Option<String>,
    pub(crate) limits: Limits,
    /// Memory of the source's metrics, instances and samples, in bytes.
    pub(crate) memory: usize,
}

impl Report {
    /// Returns the report of a reading that panicked.
    pub(crate) fn panicked(cluster: u16, call: u64) -> Report {
        Report {
            cluster,
            call,
            reader: None,
            outcome: Err(PANICKED.into()),
            code: 0,
            took: Duration::ZERO,
            busy: Duration::ZERO,
            url: None,
            limits: Limits::default(),
            memory: 0,
        }
    }
}

/// A document that may be encoded.
struct Fetched {
    code: u16,
    coding: Coding,
    document: Document,
    deadline: Instant,
}

impl Reader {
    pub(crate) fn new(name: Arc<str>, cluster: u16, path: Arc<Path>, kind: Kind, defaults: Arc<Defaults>) -> Reader {
        let mut model = Model::new(Arc::clone(&name), cluster, &defaults.store, defaults.instances);
        model.likeness = defaults.likeness;
        model.share = Share::new(&defaults.budget, &name);
        Reader {
            name,
            path,
            kind,
            defaults,
            model,
            file: None,
            client: None,
            slow: Slow::default(),
            refused: false,
            length: 0,
            placed: None,
        }
    }

    /// Reads the source.
    pub(crate) async fn read(mut self: Box<Self>, cluster: u16, call: u64) -> Report {
        let begin = Instant::now();
        let fetched = self.document(begin).await;
        let file = self.file.as_ref().and_then(|loaded| loaded.file.as_ref().ok());
        let mut report = Report {
            url: file.filter(|_| self.kind == Kind::Url).map(|file| presentable(&file.url)),
            limits: file.map_or_else(Limits::default, |file| file.limits),
            took: begin.elapsed(),
            memory: self.model.share.used(),
            ..Report::panicked(cluster, call)
        };
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(failure) => {
                report.code = failure.code;
                report.outcome = Err(failure);
                report.reader = Some(self);
                return report;
            }
        };
        report.code = fetched.code;
        let is_long = fetched.document.len() > SHORT || fetched.coding.is_encoded();
        // The first reading loads tables.
        if !is_long && self.length > 0 {
            return self.convert(fetched, report);
        }
        let permits = self.defaults.permits.clone();
        match permits.convert(is_long, move || self.convert(fetched, report)).await {
            Ok(report) => report,
            Err(_) => Report::panicked(cluster, call),
        }
    }

    /// Converts a document to a sample.
    fn convert(mut self: Box<Self>, fetched: Fetched, mut report: Report) -> Report {
        let (begin, busy) = (Instant::now(), processor_time());
        let text = decoded(fetched.document, &fetched.coding, fetched.deadline).and_then(|document| {
            self.length = document.len();
            document.into_text(fetched.coding.charset).map_err(Unreadable::from)
        });
        report.took += begin.elapsed();
        let text = text.map_err(|e| match e {
            Unreadable::Late => Failure { code: fetched.code, ..Failure::late(LATE) },
            Unreadable::Other(reason) => Failure { code: fetched.code, ..Failure::from(reason) },
        });
        report.outcome = text.and_then(|text| {
            self.model.load()?;
            Ok(Arc::new(self.parse(&text)))
        });
        self.model.save();
        report.busy = processor_time().saturating_sub(busy);
        report.memory = self.model.share.used();
        report.reader = Some(self);
        report
    }

    fn parse(&mut self, text: &str) -> Sample {
        let none = Rules::default();
        let file = self.file.as_ref().and_then(|loaded| loaded.file.as_ref().ok());
        let sample = self.model.read(text, file.map_or(&none, |file| &file.rules));
        let is_refused = sample.refused.count > 0;
        let (name, was_refused) = (&self.name, std::mem::replace(&mut self.refused, is_refused));
        match (was_refused, is_refused) {
            (false, true) => warn!(source = %name, "source {name}: {}", sample.refusal()),
            (true, false) => info!(source = %name, "source {name}: all lines are valid again"),
            _ => {}
        }
        sample
    }

    async fn document(&mut self, begin: Instant) -> Result<Fetched, Failure> {
        let looked = self.look(begin).await?;
        let Some(Loaded { file, .. }) = &self.file else { return Err(PANICKED.into()) };
        let (file, permits) = (file.as_ref().map_err(String::clone)?, &self.defaults.permits);
        let bytes = file.limits.bytes.unwrap_or(self.defaults.bytes);
        let time = file.limits.timeout.unwrap_or(match self.kind {
            Kind::Script => self.defaults.script_timeout,
            Kind::Url => self.defaults.timeout,
        });
        let deadline = begin + time;
        let local_document = |document| Fetched { code: 0, coding: Coding::default(), document, deadline };
        if self.kind == Kind::Script {
            let bounds = Bounds { permits, time, bytes };
            return run(&self.path, &self.name, &bounds, &looked).await.map(local_document);
        }
        if let Some(path) = file.url.strip_prefix("file://") {
            let (path, document) = (Path::new(path).to_owned(), Document::new(permits, bytes, self.length));
            let late = || Failure::late(&format!("{}: reading it has not ended in time", path.display()));
            let of = path.clone();
            let read = self.slow.run(permits, deadline, move || local(&of, document)).await;
            return Ok(local_document(read.ok_or_else(late)??));
        }
        if self.client.as_ref().is_none_or(|known| known.certificates != looked.certificates) {
            let client = Client::new(file)?;
            self.client = Some(Connected { certificates: looked.certificates, client });
        }
        let Some(Connected { client, .. }) = &mut self.client else { return Err(PANICKED.into()) };
        let mut means = Means { permits, slow: &mut self.slow, deadline, bytes, usual: self.length };
        let answer = client.get(file, looked.authorization, &mut means).await?;
        Ok(Fetched { code: answer.code, coding: answer.coding, document: answer.document, deadline })
    }

    /// Looks at the files of the source, and adopts the source's own one if it has changed.
    async fn look(&mut self, begin: Instant) -> Result<Looked, Failure> {
        let places = self.placed.is_none_or(|placed| begin.duration_since(placed) >= PLACED);
        let access = |loaded: &Loaded| loaded.file.as_ref().map(|file| file.access.clone()).unwrap_or_default();
        let look = Look {
            path: Arc::clone(&self.path),
            kind: self.kind,
            owners: self.defaults.owners,
            places,
            known: self.file.as_ref().map(|loaded| (loaded.state, access(loaded))),
        };
        let deadline = begin + self.defaults.timeout.max(self.defaults.script_timeout);
        let looked = self.slow.run(&self.defaults.permits, deadline, move || look.all()).await;
        let (mut looked, outcome) = looked.ok_or_else(|| Failure::late("its file was not read in time"))?;
        if let Some(loaded) = looked.loaded.take() {
            self.adopt(loaded);
        }
        if places || outcome.is_err() {
            // After an error, the next reading checks the directories again.
            self.placed = outcome.is_ok().then_some(begin);
        }
        outcome?;
        Ok(looked)
    }

    fn adopt(&mut self, loaded: Loaded) {
        if let Ok(file) = &loaded.file {
            for (line, warning) in &file.warnings {
                let path = self.path.with_extension(if self.kind == Kind::Url { "url" } else { "conf" });
                warn!(source = %self.name, "{}: line {line}: {warning}", path.display());
            }
            self.model.limit = file.limits.instances.unwrap_or(self.defaults.instances);
            self.model.reconsider();
        }
        self.client = None;
        self.file = Some(loaded);
    }
}

/// Runs a script, and logs what it writes to standard error.
async fn run(path: &Arc<Path>, name: &str, bounds: &Bounds<'_>, looked: &Looked) -> Result<Document, Failure> {
    let conf = path.with_extension("conf");
    let expected = (looked.script, looked.conf);
    let is_wanted = || {
        let (path, conf) = (Arc::clone(path), conf.clone());
        let check = spawn_blocking(move || (known(&path), known(&conf)) == expected);
        async { timeout(CHECK, check).await.ok().and_then(Result::ok).unwrap_or(true) }
    };
    let output = script::run(path, bounds, is_wanted).await?;
    for line in String::from_utf8_lossy(&output.errors).lines() {
        info!(source = %name, "source {name} has written to standard error: {line}");
    }
    Ok(output.document)
}
