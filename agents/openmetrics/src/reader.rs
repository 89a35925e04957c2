//! Reads a source: its configuration and its document, which becomes a sample. Runs in workers.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmapi::file;
use pmda::limits::processor_time;
use tracing::{info, warn};

use crate::body::Limit;
use crate::budget::{Budget, Share};
use crate::compact::{Rare, Sparse as _};
use crate::document::Document;
use crate::http::{Client, Failure};
use crate::local::Files;
use crate::metric::{Likeness, Metric, Sample};
use crate::model::Model;
use crate::script::{self, Bounds};
use crate::store::Store;
use crate::trust::Owners;
use crate::url_file::{Limits, Rules, UrlFile, presentable};

/// Longest `.url` file, in bytes.
const LONGEST: u64 = 1 << 20;
/// Time between two checks of the directories above a source's file.
const PLACED: Duration = Duration::from_secs(5);
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
}

/// State that a worker needs to read a source.
#[derive(Debug)]
pub(crate) struct Reader {
    name: Arc<str>,
    path: Arc<Path>,
    kind: Kind,
    defaults: Arc<Defaults>,
    model: Model,
    /// The `.url` file, or the `.conf` file beside a script.
    file: Option<Loaded>,
    files: Files,
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
    client: Option<Connected>,
}

/// The client for an HTTP server.
#[derive(Debug)]
struct Connected {
    /// State of the files with certificates when they were read.
    certificates: Box<[State]>,
    /// The client, or the reason why the certificates cannot be used.
    client: Result<Client, String>,
}

impl Loaded {
    /// Returns the source's file.
    fn file(&self) -> Result<&UrlFile, String> {
        self.file.as_ref().map_err(String::clone)
    }

    /// Returns the client for an HTTP server. Certificates that have changed are read again.
    fn client(&mut self) -> Result<(&UrlFile, &Client), String> {
        let file = self.file.as_ref().map_err(String::clone)?;
        let status = |path: &Path| path.metadata().ok();
        let certificates = file.access.certificates().map(|path| state(&status(path)?)).collect();
        let known = self.client.take().filter(|known| known.certificates == certificates);
        let new = || Connected { certificates, client: Client::new(file) };
        let Connected { client, .. } = self.client.insert(known.unwrap_or_else(new));
        client.as_ref().map(|client| (file, client)).map_err(String::clone)
    }
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

/// Outcome of a reading.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) cluster: u16,
    pub(crate) outcome: Result<Arc<Sample>, Failure>,
    /// Status code of the HTTP server, 0 for another source.
    pub(crate) code: u16,
    /// Time for the document.
    pub(crate) took: Duration,
    /// Processor time of the reading.
    pub(crate) busy: Duration,
    /// The source's URL without secrets, once it is known.
    pub(crate) url: Option<String>,
    pub(crate) limits: Rare<Limits>,
    /// The metrics that are left, if the source has given memory back.
    pub(crate) left: Option<Arc<[Arc<Metric>]>>,
    /// Memory of the source's metrics, instances and samples, in bytes.
    pub(crate) memory: usize,
}

impl Reader {
    pub(crate) fn new(name: Arc<str>, cluster: u16, path: Arc<Path>, kind: Kind, defaults: Arc<Defaults>) -> Reader {
        let mut model = Model::new(Arc::clone(&name), cluster, &defaults.store, defaults.instances);
        model.likeness = defaults.likeness;
        model.share = Share::new(&defaults.budget);
        Reader {
            name,
            path,
            kind,
            defaults,
            model,
            file: None,
            files: Files::default(),
            refused: false,
            length: 0,
            placed: None,
        }
    }

    /// Reads the source. The document may take no longer than `most`, if that is shorter than its own limit.
    pub(crate) fn read(&mut self, cluster: u16, most: Option<Duration>) -> Report {
        let busy = processor_time();
        let left = self.model.give_back();
        let begin = Instant::now();
        let document = self.document(begin, most);
        let took = begin.elapsed();
        let file = self.file.as_ref().and_then(|loaded| loaded.file.as_ref().ok());
        let url = file.filter(|_| self.kind == Kind::Url).map(|file| presentable(&file.url));
        let limits = file.map_or_else(Rare::default, |file| file.limits.clone());
        let (code, outcome) = match document {
            Ok((code, document)) => {
                self.length = document.len();
                let thawed = self.model.thaw();
                let text = thawed.and_then(|()| document.into_text().map_err(|e| e.to_string()));
                (code, text.map(|text| Arc::new(self.parse(&text))).map_err(Failure::from))
            }
            Err(failure) => (failure.code, Err(failure)),
        };
        let busy = processor_time().saturating_sub(busy);
        Report { cluster, outcome, code, took, busy, url, limits, left, memory: self.model.share.used() }
    }

    /// Returns the number of the source in the budget.
    pub(crate) fn account(&self) -> Option<u32> {
        self.model.share.id()
    }

    /// Schedules the writing of the tables of numbers that have changed.
    pub(crate) fn save(&mut self) {
        self.model.save();
    }

    fn parse(&mut self, text: &str) -> Sample {
        let rules =
            self.file.as_ref().and_then(|loaded| loaded.file.as_ref().ok()).map_or(Rules::NONE, |file| &file.rules);
        let sample = self.model.read(text, rules);
        let (name, was_refused) = (&self.name, std::mem::replace(&mut self.refused, sample.refused.is_some()));
        if let (Some((line, reason)), false) = (&sample.refused, was_refused) {
            warn!(source = %name, "source {name}: line {line}: {reason}; this line and those after it are left out");
        }
        if was_refused && sample.refused.is_none() {
            info!(source = %name, "source {name}: all lines are valid again");
        }
        sample
    }

    fn document(&mut self, begin: Instant, most: Option<Duration>) -> Result<(u16, Document), Failure> {
        self.model.load()?;
        let metadata = self.path.metadata().map_err(|e| e.to_string())?;
        self.defaults.owners.check(&self.path, &metadata)?;
        if self.placed.is_none_or(|placed| begin.duration_since(placed) >= PLACED) {
            self.defaults.owners.check_place(&self.path)?;
            self.placed = Some(begin);
        }
        match self.kind {
            Kind::Script => self.run(&metadata, begin, most),
            Kind::Url => self.get(&metadata, begin, most),
        }
    }

    fn run(&mut self, metadata: &Metadata, begin: Instant, most: Option<Duration>) -> Result<(u16, Document), Failure> {
        if metadata.mode() & EXECUTABLE == 0 {
            return Err("not executable any more".to_owned().into());
        }
        let conf = self.path.with_extension("conf");
        let beside = self.beside(&conf, begin).map_err(|reason| format!("{}: {reason}", conf.display()))?;
        let limits = self.update(beside)?.file()?.limits.clone();
        let is_wanted = || (known(&self.path), known(&conf)) == (state(metadata), beside);
        let time = limits.timeout.unwrap_or(self.defaults.script_timeout);
        let deadline = begin + most.map_or(time, |most| most.min(time));
        let bytes = limits.bytes.unwrap_or(self.defaults.bytes);
        let output = script::run(&self.path, &Bounds { deadline, bytes, is_wanted: &is_wanted });
        let output = output.map_err(|reason| {
            let is_late = Instant::now() >= deadline;
            Failure { code: 0, reason, is_late }
        })?;
        let name = &self.name;
        for line in String::from_utf8_lossy(&output.errors).lines() {
            info!(source = %name, "source {name} has written to standard error: {line}");
        }
        Ok((0, output.document))
    }

    fn get(&mut self, metadata: &Metadata, begin: Instant, most: Option<Duration>) -> Result<(u16, Document), Failure> {
        let (owners, places) = (self.defaults.owners, self.placed == Some(begin));
        let (default_limit, default_time) = (self.defaults.bytes, self.defaults.timeout);
        let usual = self.length;
        let loaded = self.update(state(metadata))?;
        let file = loaded.file()?;
        let limit = file.limits.bytes.unwrap_or(default_limit);
        let time = file.limits.timeout.unwrap_or(default_time);
        let deadline = begin + most.map_or(time, |most| most.min(time));
        if let Some(path) = file.url.strip_prefix("file://") {
            let path = path.into();
            return Ok((0, self.files.read(path, limit, deadline)?));
        }
        if let Err(reason) = file.access.check(owners, places || loaded.client.is_none()) {
            // The next reading checks the directories again.
            self.placed = None;
            return Err(reason.into());
        }
        let (file, client) = loaded.client()?;
        client.get(file, deadline, Limit { most: limit, usual }).map(|answer| (answer.code, answer.document))
    }

    /// Returns the state of the file beside a script, which only trusted users can have written.
    fn beside(&mut self, conf: &Path, begin: Instant) -> Result<State, String> {
        let metadata = match conf.metadata() {
            Ok(metadata) => metadata,
            // A link that leads nowhere is a mistake.
            Err(e) if e.kind() == ErrorKind::NotFound && conf.symlink_metadata().is_err() => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        self.defaults.owners.check(conf, &metadata)?;
        // It is in the same directory, but may be a link.
        if self.placed == Some(begin) {
            let placed = self.defaults.owners.check_place(conf);
            self.placed = self.placed.filter(|_| placed.is_ok());
            placed?;
        }
        Ok(state(&metadata))
    }

    /// Reads the source's file again if it has changed.
    fn update(&mut self, state: State) -> Result<&mut Loaded, String> {
        if self.file.as_ref().is_none_or(|loaded| loaded.state != state) {
            let file = self.load(state);
            self.file = Some(Loaded { state, file, client: None });
        }
        self.file.as_mut().ok_or_else(|| "not read".to_owned())
    }

    fn load(&mut self, state: State) -> Result<UrlFile, String> {
        let path = if self.kind == Kind::Url { self.path.to_path_buf() } else { self.path.with_extension("conf") };
        // The path of the source itself is part of its status.
        let of_conf = |reason: String| match self.kind {
            Kind::Url => reason,
            Kind::Script => format!("{}: {reason}", path.display()),
        };
        let read = |path| file::read(path, LONGEST).map_err(|e| of_conf(e.to_string()));
        let text = if state.is_some() { read(&path)? } else { Vec::new() };
        let text = String::from_utf8_lossy(&text);
        let parsed = if self.kind == Kind::Url { UrlFile::parse(&text) } else { UrlFile::parse_script(&text) };
        let file = parsed.map_err(|(line, reason)| of_conf(format!("line {line}: {reason}")))?;
        let path = path.display();
        for (line, warning) in &file.warnings {
            warn!(source = %self.name, "{path}: line {line}: {warning}");
        }
        self.model.limit = file.limits.instances.unwrap_or(self.defaults.instances);
        self.model.reconsider();
        Ok(file)
    }
}
