//! Agent `openmetrics` exports what Prometheus exporters publish, and what scripts print in the same format: the
//! counterpart of pmdaopenmetrics(1).
//!
//! The sources are the files of a directory (`config_dir`): `NAME.url` has a URL and rules (`url_file`), and an
//! executable file is a script. The tasks of one thread read them (`runtime`, `reader`), and convert their documents to
//! samples (`model`). A request waits for a source for 1.5 times its usual time (`source`), so a source that hangs does
//! not delay other clients for long.
//!
//! Numbers and names are those of PCP's agent: cluster = source, item = metric, instance = set of labels. They are kept
//! in files of the same format (`table`).

mod access;
mod budget;
mod check;
mod config_dir;
mod control;
mod document;
mod http;
mod metadata;
mod metric;
mod model;
mod naming;
mod options;
mod pickle;
mod reader;
mod runtime;
mod script;
mod source;
mod sources;
mod store;
mod table;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod url_file;

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmda::clap::{Command, FromArgMatches as _};
use pmda::pcp_pdu::metadata::{Subject, TextKind};
use pmda::prelude::*;
use pmda::{Changes, CommandLine, Features, LabelSubject, PollSet, Wake};
use tracing::{info, warn};

use metric::Likeness;
use options::Options;
use source::Source;
use sources::Sources;

/// Agent `openmetrics`: serves the samples that tasks have read from the sources of a configuration directory.
#[derive(Debug)]
pub struct Openmetrics {
    sources: Sources,
    names: Names,
    debug: u32,
    host: String,
    likeness: Likeness,
    was_ready: Cell<bool>,
    /// End of the time for the labels of instances in this request; `None` once it is over and the log says so.
    labelling: Cell<Option<Instant>>,
}

/// Longest time for the labels of instances in a request. pmcd drops an agent that does not answer for 5 s, and a server may
/// send very many labels.
const LABELLING: Duration = Duration::from_secs(2);

/// The sources as instances of the control metrics.
#[derive(Debug, Default)]
struct Names(Vec<Arc<str>>);

impl Instances for Names {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        (0..).zip(&self.0).for_each(|(number, name)| f(Inst::new(number), name));
    }

    fn name(&self, inst: Inst) -> Option<&str> {
        self.0.get(inst.word() as usize).map(|name| &**name)
    }
}

/// Text of the file that is created in a new configuration directory.
const SOURCES: &str = "Sources of agent openmetrics: files NAME.url, whose first line is a URL, and executable files,\n\
    whose standard output is a document. Their metrics are below openmetrics.NAME. pmdaopenmetrics --check FILE\n\
    shows what a source becomes.\n";

/// Key of the tasks' reports.
const REPORTS: usize = 0;

impl Agent for Openmetrics {
    const NAME: &'static str = "openmetrics";
    const DOMAIN: u16 = 144;
    const WANTS: Features = Features::AUTHORIZE;

    fn options(command: Command) -> Command {
        options::augment(command)
    }

    fn command_line(line: &mut CommandLine<'_>) -> Option<ExitCode> {
        match options::command_line(line) {
            Ok(options) => options.check().map(|subject| check::check(subject, &options)),
            Err(code) => Some(code),
        }
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.not_ready();
        setup.file("config.d/README", SOURCES);
        let options = Options::from_arg_matches(setup.options())?;
        let mut dynamic = setup.dynamic([Self::NAME]);
        control::show(&mut dynamic, Self::NAME, options.likeness())?;
        let (dir, defaults) = (options.dir(setup), options.defaults(setup)?);
        let mut sources = Sources::new(dir, defaults, options.wait(), Self::NAME, dynamic)?;
        sources.refresh_after = options.refresh();
        let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Openmetrics {
            sources,
            names: Names::default(),
            debug: 0,
            host,
            likeness: options.likeness(),
            was_ready: Cell::new(false),
            labelling: Cell::default(),
        })
    }

    fn open(&mut self) -> Result<(), BoxError> {
        info!("Initializing ... currently in notready state.");
        self.sources.start()?;
        self.update_names();
        Ok(())
    }

    /// Stays true once it is true: later readings do not stop requests.
    fn is_ready(&self) -> bool {
        if !self.was_ready.get() && self.sources.is_started() {
            self.was_ready.set(true);
            info!("Ready to process requests");
        }
        self.was_ready.get()
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        set.readable(REPORTS, self.sources.reports());
        if let Some(due) = self.sources.due() {
            set.at(due);
        }
    }

    fn wake(&mut self, _: Wake) {
        self.sources.wake();
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        self.sources.refresh();
        match request {
            Request::Fetch(items) => {
                let clusters = items.iter().map(Item::cluster).filter(|cluster| *cluster != control::CLUSTER);
                self.sources.read(clusters);
            }
            Request::Names(_) => self.sources.refresh_old(),
            Request::InstanceLabels(_) => self.labelling.set(Instant::now().checked_add(LABELLING)),
            _ => {}
        }
        self.update_names();
        Ok(())
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.sources.dynamic as &dyn Catalog]
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        if indom == control::SOURCES {
            return Some(&self.names);
        }
        let (_, metric) = self.metric(metric::item_of(indom)?)?;
        metric.instances().map(|instances| instances as &dyn Instances)
    }

    fn text(&self, of: Subject, kind: TextKind) -> Result<Option<&[u8]>> {
        let text = match of {
            Subject::Metric(pmid) => self.metric(pmid.item()).map(|(_, metric)| match kind {
                TextKind::OneLine => metric.oneline.as_bytes(),
                TextKind::Help => metric.text.as_bytes(),
            }),
            Subject::InDom(indom) => self.instances(indom.serial()).map(|_| match (self.likeness, kind) {
                (Likeness::Better, TextKind::OneLine) if indom.serial() == control::SOURCES => &b"Sources"[..],
                (Likeness::Better, TextKind::OneLine) => b"Label sets of a metric",
                _ => b"",
            }),
        };
        Ok(text)
    }

    fn labels(&self, of: LabelSubject) -> Result<Option<LabelSet>> {
        Ok(match of {
            LabelSubject::Cluster(cluster) => self.sources.get(cluster).and_then(|source| source.labels(&self.host)),
            LabelSubject::Item(item) => self.metric(item).map(|(_, metric)| {
                let mut set = metric::label_set(metric.labels.iter(), self.likeness).unwrap_or_default();
                for (name, value) in metric.notes.iter() {
                    // Labels that PCP does not allow are left out.
                    let _ = set.add_notes(json!({ name: value }));
                }
                set
            }),
            LabelSubject::InDom(serial) => {
                metric::item_of(serial).and_then(|item| self.metric(item)).map(|(source, _)| {
                    let mut set = LabelSet::new();
                    let _ = set.add(json!({ "source": &*source.found.name }));
                    set
                })
            }
            _ => None,
        })
    }

    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        let metric = metric::item_of(indom).and_then(|item| self.metric(item));
        if self.labelling.get().is_none_or(|end| Instant::now() >= end) {
            if let Some((source, metric)) = metric.filter(|_| self.labelling.take().is_some()) {
                let (source, name) = (&source.found.name, &metric.name);
                warn!(source = %source, "source {source}: labels of further instances of {name} are left out of a reply");
            }
            return Ok(LabelSet::new());
        }
        let instances = metric.and_then(|(_, metric)| metric.instances());
        Ok(instances.map(|instances| instances.labels_of(inst, self.likeness)).unwrap_or_default())
    }

    fn changes(&mut self) -> Changes {
        if self.sources.take_relabelled() { Changes::LABELS } else { Changes::default() }
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        if item.cluster() == control::CLUSTER {
            return control::fetch(item, &self.sources, self.debug, out);
        }
        self.sources.get(item.cluster()).ok_or(Error::PMID)?.fetch(item.item(), out)
    }

    fn store(&mut self, item: Item, _: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        self.debug = control::store(item, value)?;
        Ok(())
    }
}

impl Openmetrics {
    fn metric(&self, item: Item) -> Option<(&Source, &metric::Metric)> {
        let source = self.sources.get(item.cluster())?;
        Some((source, source.metric(item.item())?))
    }

    fn update_names(&mut self) {
        self.names.0.extend(self.sources.names(self.names.0.len()).cloned());
    }
}
