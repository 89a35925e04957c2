//! Reads a source: its configuration and its document, which becomes a sample. Runs in workers.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmapi::file;
use tracing::{info, warn};

use crate::body::Limit;
use crate::budget::{Budget, Share};
use crate::compact::{Rare, Sparse as _};
use crate::document::Document;
use crate::http::{Client, Failure};
use crate::local::Files;
use crate::metric::{Likeness, Metric, Sample};
use crate::model::Model;
use crate::script;
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
    file: Result<(UrlFile, Option<Client>), String>,
}

/// Inode number and time of the last change of a file. `None` for a file that does not exist.
type State = Option<(u64, i64, i64)>;

fn state(metadata: &Metadata) -> State {
    Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
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
        let left = self.model.give_back();
        let begin = Instant::now();
        let document = self.document(begin, most);
        let took = begin.elapsed();
        let (url, limits) = match self.file.as_ref().map(|loaded| &loaded.file) {
            Some(Ok((file, _))) if self.kind == Kind::Url => (Some(presentable(&file.url)), file.limits.clone()),
            Some(Ok((file, _))) => (None, file.limits.clone()),
            _ => (None, Rare::default()),
        };
        let (code, outcome) = match document {
            Ok((code, document)) => {
                self.length = document.len();
                let thawed = self.model.thaw();
                let text = thawed.and_then(|()| document.into_text().map_err(|e| e.to_string()));
                (code, text.map(|text| Arc::new(self.parse(&text))).map_err(Failure::from))
            }
            Err(failure) => (failure.code, Err(failure)),
        };
        Report { cluster, outcome, code, took, url, limits, left, memory: self.model.share.used() }
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
        let rules = self
            .file
            .as_ref()
            .and_then(|loaded| loaded.file.as_ref().ok())
            .map_or(Rules::NONE, |(file, _)| &file.rules);
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
        let beside = conf.metadata().ok();
        if let Some(metadata) = &beside {
            let of_conf = |reason: String| format!("its .conf file is {reason}");
            self.defaults.owners.check(&conf, metadata).map_err(of_conf)?;
            // It is in the same directory, but may be a link.
            if self.placed == Some(begin) {
                let placed = self.defaults.owners.check_place(&conf);
                self.placed = self.placed.filter(|_| placed.is_ok());
                placed.map_err(of_conf)?;
            }
        }
        self.update(beside.as_ref().and_then(state));
        let limits = self.loaded()?.0.limits.clone();
        let time = limits.timeout.unwrap_or(self.defaults.script_timeout);
        let deadline = begin + most.map_or(time, |most| most.min(time));
        let output = script::run(&self.path, deadline, limits.bytes.unwrap_or(self.defaults.bytes));
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
        self.update(state(metadata));
        let (file, client) = self.loaded()?;
        let limit = file.limits.bytes.unwrap_or(self.defaults.bytes);
        let time = file.limits.timeout.unwrap_or(self.defaults.timeout);
        let deadline = begin + most.map_or(time, |most| most.min(time));
        if let Some(path) = file.url.strip_prefix("file://") {
            return Ok((0, self.files.read(path.into(), limit, deadline)?));
        }
        let client = client.as_ref().ok_or_else(|| "no client".to_owned())?;
        let limit = Limit { most: limit, usual: self.length };
        client.get(file, deadline, limit).map(|answer| (answer.code, answer.document))
    }

    /// Reads the source's file again if it has changed.
    fn update(&mut self, state: State) {
        if self.file.as_ref().is_none_or(|loaded| loaded.state != state) {
            let file = self.load(state);
            self.file = Some(Loaded { state, file });
        }
    }

    fn loaded(&self) -> Result<&(UrlFile, Option<Client>), String> {
        match self.file.as_ref().map(|loaded| &loaded.file) {
            Some(Ok(loaded)) => Ok(loaded),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err("not read".to_owned()),
        }
    }

    fn load(&mut self, state: State) -> Result<(UrlFile, Option<Client>), String> {
        let path = if self.kind == Kind::Url { self.path.to_path_buf() } else { self.path.with_extension("conf") };
        let text = if state.is_some() { file::read(&path, LONGEST).map_err(|e| e.to_string())? } else { Vec::new() };
        let text = String::from_utf8_lossy(&text);
        let parsed = if self.kind == Kind::Url { UrlFile::parse(&text) } else { UrlFile::parse_script(&text) };
        let path = path.display();
        let file = parsed.map_err(|(line, reason)| match self.kind {
            Kind::Url => format!("line {line}: {reason}"),
            Kind::Script => format!("{path}: line {line}: {reason}"),
        })?;
        for (line, warning) in &file.warnings {
            warn!(source = %self.name, "{path}: line {line}: {warning}");
        }
        let is_http = self.kind == Kind::Url && !file.url.starts_with("file://");
        let client = if is_http { Some(Client::new(&file)?) } else { None };
        self.model.limit = file.limits.instances.unwrap_or(self.defaults.instances);
        self.model.reconsider();
        Ok((file, client))
    }
}
