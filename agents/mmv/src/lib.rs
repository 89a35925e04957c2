//! An agent that exports memory mapped values files (mmv(5)) of applications, like pmdammv(1).
//!
//! A file in `$PCP_TMP_DIR/NAME` becomes metrics `NAME.FILE.…`. `NAME` is the agent's name: `mmv`, or `pmproxy` for the
//! files of that program. A thread watches the directory and reads changed files. The agent checks the files before every
//! fetch, and waits for the thread for up to 100 ms, so clients see new metrics at once. pmcd reports changes of names to
//! connected clients.

mod control;
mod domain;
mod limits;
mod names;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::{Args as _, FromArgMatches as _};
use domain::Domain;
use limits::Options;
use mmv_reader::collection::{Collection, LabelSubject as Owner};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pmda::prelude::*;
use pmda::{
    Catalog, Features, LabelSubject, Subject, TextKind,
    limits::{Accounts, processor_time},
    pmapi,
};
use pmns::Tree;

/// Cluster of the control metrics.
const CONTROL_CLUSTER: u16 = 0;

/// The agent for the files in `$PCP_TMP_DIR/mmv`.
pub type Mmv = Files<70>;
/// The agent for the files in `$PCP_TMP_DIR/pmproxy`, in the same program and shared object.
pub type PmProxy = Files<4>;

/// An agent that exports files, with the PMDA domain number `DOMAIN`.
#[derive(Debug)]
pub struct Files<const DOMAIN: u16> {
    domain: pmapi::Domain,
    files: Collection,
    /// The agent's name, which is the first component of all metric names.
    prefix: String,
    controls: Dynamic,
    /// Names of the limits' metrics, until they are added to the controls.
    hidden: Option<Tree>,
    /// Number of changes of the files so far.
    version: u64,
    /// Instance domains that requests have used since the last change.
    domains: HashMap<Serial, Domain>,
    debug: i32,
    /// Whether the control metrics are those of PCP 7.
    newer: bool,
    /// Time of the next check of all files. A client that asks everything about many metrics sends thousands of
    /// requests. Checks therefore take at most a tenth of the time, but are never more than a second apart. Other requests
    /// check only the directory, and a fetch also the files of its metrics.
    due: Option<Instant>,
}

impl<const DOMAIN: u16> Agent for Files<DOMAIN> {
    const NAME: &'static str = if DOMAIN == 4 { "pmproxy" } else { "mmv" };
    const DOMAIN: u16 = DOMAIN;
    const WANTS: Features = Features::AUTHORIZE;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let options = Options::from_arg_matches(setup.options())?;
        let prefix = setup.name().to_owned();
        let mut files = Collection::new(&prefix, setup.config().tmp_dir().join(&prefix));
        files.keep_open(OPEN_FILES.load(Relaxed));
        files.set_limits(options.limits());
        let mut accounts = Accounts::new();
        files.charge(move |uid| accounts.charged(uid));
        files.refresh();
        let mut agent = Files {
            domain: setup.domain(),
            files,
            controls: setup.dynamic([Self::NAME]),
            hidden: Some(Self::hidden(&prefix, setup.domain())),
            prefix,
            version: 0,
            domains: HashMap::new(),
            debug: 0,
            newer: control::is_newer(setup.config()),
            due: None,
        };
        agent.add_controls();
        agent.take_note(false);
        Ok(agent)
    }

    fn open(&mut self) -> Result<(), BoxError> {
        if let Err(e) = self.files.watch() {
            tracing::warn!("{}: no thread watches the files, requests read them: {e}", self.prefix);
        }
        Ok(())
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        let start = processor_time();
        let is_due = request == Request::Store || self.due.is_none_or(|due| Instant::now() >= due);
        let changed = match request {
            Request::Fetch(items) if is_due => self.files.refresh_all(&mut items.iter()),
            Request::Fetch(items) => self.files.refresh_for(&mut items.iter()),
            _ if is_due => self.files.refresh(),
            // A new table of the thread, at least.
            _ => self.files.refresh_for(&mut std::iter::empty()),
        };
        if is_due {
            // The time that a request waits for the thread, or for a processor, is not work.
            let work = processor_time().saturating_sub(start);
            self.due = Some(Instant::now() + (9 * work).min(Duration::from_secs(1)));
        }
        self.take_note(changed);
        if let Request::Instance(serial) | Request::InstanceLabels(serial) = request {
            if let Ok(instances) = self.files.instances(serial) {
                self.domains.entry(serial).or_insert_with(|| Domain::new(instances));
            }
        }
        Ok(())
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [self as &dyn Catalog, &self.controls]
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        self.domains.get(&indom).map(|domain| domain as &dyn Instances)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        if item.cluster() == CONTROL_CLUSTER {
            return self.control(item, out);
        }
        let selection = out.selection();
        let mut done = Ok(());
        self.files.fetch(
            item,
            |inst| selection.includes(inst),
            |inst, value| {
                let put = match (inst, value) {
                    (Some(inst), Ok(value)) => out.put_inst(inst, value),
                    (None, Ok(value)) => out.put(value),
                    (Some(inst), Err(e)) => {
                        out.fail_inst(inst, e);
                        Ok(())
                    }
                    (None, Err(e)) => Err(e),
                };
                done = done.and(put);
            },
        )?;
        done
    }

    fn store(&mut self, item: Item, _: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        self.store_control(item, value)
    }

    fn text(&self, of: Subject, kind: TextKind) -> Result<Option<&[u8]>> {
        match of {
            Subject::Metric(pmid) if pmid.item().cluster() == CONTROL_CLUSTER => {
                Ok(limits::text(pmid.item()).map(str::as_bytes))
            }
            Subject::Metric(pmid) => self.files.help(pmid.item(), kind).map(Some),
            Subject::InDom(indom) => self.files.indom_help(indom.serial(), kind).map(Some),
        }
    }

    fn labels(&self, of: LabelSubject) -> Result<Option<LabelSet>> {
        let owner = match of {
            LabelSubject::InDom(serial) => Owner::InDom(serial),
            LabelSubject::Cluster(cluster) => Owner::Cluster(cluster),
            LabelSubject::Item(item) => Owner::Item(item),
            _ => return Ok(None),
        };
        Ok(self.files.labels(owner).cloned())
    }

    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        Ok(self.files.labels(Owner::Instance(indom, inst)).cloned().unwrap_or_default())
    }
}

/// Number of files that stay open between requests.
static OPEN_FILES: AtomicUsize = AtomicUsize::new(Collection::OPEN_FILES);

/// Lets the agent keep half as many files open as the system allows the process.
///
/// Only the agent's own process may call this: pmcd, which loads the shared object, needs its descriptors for clients.
pub fn allow_many_files() {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        // The other half remains for other purposes.
        OPEN_FILES.fetch_max(usize::try_from(hard / 2).unwrap_or(usize::MAX), Relaxed);
    }
}

pmda::dso!(mmv_init, Mmv);
pmda::dso!(pmproxy_init, PmProxy);
