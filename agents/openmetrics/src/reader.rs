//! Reading of a source: its configuration, its document, and what the document becomes. Workers do this.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmapi::{Domain, file};
use tracing::{info, warn};

use crate::http::{Client, Failure, Limit};
use crate::metric::Sample;
use crate::model::Model;
use crate::script;
use crate::trust::Owners;
use crate::url_file::{Limits, Rules, UrlFile, presentable};

/// Longest `.url` file, in bytes.
const LONGEST: u64 = 1 << 20;
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
    /// Time for an answer of a URL.
    pub(crate) timeout: Duration,
    /// Time for a script.
    pub(crate) script_timeout: Duration,
    pub(crate) bytes: u64,
    pub(crate) instances: usize,
    pub(crate) owners: Owners,
    /// Directory of the tables.
    pub(crate) tables: PathBuf,
    pub(crate) domain: Domain,
}

/// What a worker needs to read a source.
#[derive(Debug)]
pub(crate) struct Reader {
    name: String,
    path: PathBuf,
    kind: Kind,
    defaults: Arc<Defaults>,
    model: Model,
    /// The `.url` file, or the `.conf` file beside a script.
    file: Option<Loaded>,
    rules: Rules,
    /// Why the last document was refused, which is logged once.
    refused: bool,
    /// Length of the last document, in bytes.
    length: usize,
}

/// A source's file, and its state when it was read.
#[derive(Debug)]
struct Loaded {
    state: State,
    file: Result<(UrlFile, Option<Client>), String>,
}

/// Number and time of the last change of a file, `None` for a file that does not exist.
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
    /// The source's URL without secrets, as soon as it is known.
    pub(crate) url: Option<String>,
    pub(crate) limits: Limits,
}

impl Reader {
    pub(crate) fn new(name: &str, cluster: u16, path: PathBuf, kind: Kind, defaults: Arc<Defaults>) -> Reader {
        let model = Model::new(name, defaults.domain, cluster, defaults.tables.clone(), defaults.instances);
        let (file, rules) = (None, Rules::default());
        Reader { name: name.to_owned(), path, kind, defaults, model, file, rules, refused: false, length: 0 }
    }

    /// Reads the source.
    pub(crate) fn read(&mut self, cluster: u16) -> Report {
        let begin = Instant::now();
        let document = self.document(begin);
        let took = begin.elapsed();
        let (url, limits) = match self.file.as_ref().map(|loaded| &loaded.file) {
            Some(Ok((file, _))) if self.kind == Kind::Url => (Some(presentable(&file.url)), file.limits),
            Some(Ok((file, _))) => (None, file.limits),
            _ => (None, Limits::default()),
        };
        let (code, outcome) = match document {
            Ok((code, document)) => {
                self.length = document.len();
                (code, Ok(Arc::new(self.parse(&document))))
            }
            Err(failure) => (failure.code, Err(failure)),
        };
        Report { cluster, outcome, code, took, url, limits }
    }

    /// Writes the tables of numbers that have changed. Values need not wait for the disk.
    pub(crate) fn save(&mut self) {
        self.model.save();
    }

    fn parse(&mut self, document: &[u8]) -> Sample {
        let text = String::from_utf8_lossy(document);
        let sample = self.model.read(&text, &self.rules);
        let (name, was_refused) = (&self.name, std::mem::replace(&mut self.refused, sample.refused.is_some()));
        if let (Some((line, reason)), false) = (&sample.refused, was_refused) {
            warn!(source = %name, "source {name}: line {line}: {reason}; this line and those after it are left out");
        }
        if was_refused && sample.refused.is_none() {
            info!(source = %name, "source {name}: all lines are good again");
        }
        sample
    }

    fn document(&mut self, begin: Instant) -> Result<(u16, Vec<u8>), Failure> {
        let metadata = self.path.metadata().map_err(|e| e.to_string())?;
        self.defaults.owners.check(&metadata)?;
        match self.kind {
            Kind::Script => self.run(&metadata, begin),
            Kind::Url => self.get(&metadata, begin),
        }
    }

    fn run(&mut self, metadata: &Metadata, begin: Instant) -> Result<(u16, Vec<u8>), Failure> {
        if metadata.mode() & EXECUTABLE == 0 {
            return Err("not executable any more".to_owned().into());
        }
        let beside = self.path.with_extension("conf").metadata().ok();
        if let Some(metadata) = &beside {
            self.defaults.owners.check(metadata).map_err(|reason| format!("its .conf file is {reason}"))?;
        }
        self.update(beside.as_ref().and_then(state));
        let limits = self.loaded()?.0.limits;
        let deadline = begin + limits.timeout.unwrap_or(self.defaults.script_timeout);
        let output = script::run(&self.path, deadline, limits.bytes.unwrap_or(self.defaults.bytes));
        let output = output.map_err(|reason| {
            let is_late = Instant::now() >= deadline;
            Failure { code: 0, reason, is_late }
        })?;
        let name = &self.name;
        for line in String::from_utf8_lossy(&output.errors).lines() {
            info!(source = %name, "source {name} says: {line}");
        }
        Ok((0, output.document))
    }

    fn get(&mut self, metadata: &Metadata, begin: Instant) -> Result<(u16, Vec<u8>), Failure> {
        self.update(state(metadata));
        let (file, client) = self.loaded()?;
        let limit = file.limits.bytes.unwrap_or(self.defaults.bytes);
        if let Some(path) = file.url.strip_prefix("file://") {
            let document = file::read(path.as_ref(), limit).map_err(|e| format!("{path}: {e}"))?;
            return Ok((0, document));
        }
        let client = client.as_ref().ok_or_else(|| "no client".to_owned())?;
        let deadline = begin + file.limits.timeout.unwrap_or(self.defaults.timeout);
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
        let path = if self.kind == Kind::Url { self.path.clone() } else { self.path.with_extension("conf") };
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
        let client = if is_http { Some(Client::new(&file.url, &file.access)?) } else { None };
        self.model.limit = file.limits.instances.unwrap_or(self.defaults.instances);
        self.rules = file.rules.clone();
        Ok((file, client))
    }
}
