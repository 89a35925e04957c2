//! An agent that exports what applications have put into memory mapped files (mmv(5)): the counterpart
//! of pmdammv(1).
//!
//! Files in `$PCP_TMP_DIR/NAME` are metrics `NAME.FILE.…`, where the name is the agent's: `mmv`, or
//! `pmproxy` for the files of that program. They are looked at before every fetch, so that what an
//! application registers is there at once, and clients that are connected are told.

mod control;
mod domain;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use domain::Domain;
use mmv::collection::{Collection, Help, Labelled as Owner};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pmda::pmapi::Semantics;
use pmda::prelude::*;
use tracing::{debug, error};

/// The agent of the files in `$PCP_TMP_DIR/mmv`.
pub type Mmv = Files<70>;
/// The agent of the files in `$PCP_TMP_DIR/pmproxy`, which the same program and shared object serve.
pub type PmProxy = Files<4>;

/// An agent that exports files, for a domain.
#[derive(Debug)]
pub struct Files<const DOMAIN: u16> {
    files: Collection,
    /// The agent's name, with which all names begin.
    prefix: String,
    names: Dynamic,
    domains: HashMap<Serial, Domain>,
    debug: i32,
    /// When the files are to be looked at again for a request that wants no values. Those come by the thousand when
    /// somebody asks for everything about many metrics: looking at many files for them takes a tenth of the time, but
    /// after a second they see what is new.
    due: Option<Instant>,
}

impl<const DOMAIN: u16> Agent for Files<DOMAIN> {
    const NAME: &'static str = if DOMAIN == 4 { "pmproxy" } else { "mmv" };
    const DOMAIN: u16 = DOMAIN;

    fn new(setup: &mut Setup) -> Start<Self> {
        let prefix = setup.name().to_owned();
        let mut files = Collection::new(&prefix, setup.config().tmp_dir().join(&prefix));
        files.keep_open(OPEN_FILES.load(Relaxed));
        let names = setup.dynamic([Self::NAME]);
        let mut agent = Files { files, prefix, names, domains: HashMap::new(), debug: 0, due: None };
        agent.files.refresh();
        agent.rebuild();
        Ok(agent)
    }

    fn refresh(&mut self, request: Request, _: Client) -> Result {
        let start = Instant::now();
        let wants_now = matches!(request, Request::Fetch | Request::Store);
        if wants_now || self.due.is_none_or(|due| start >= due) {
            if self.files.refresh() {
                self.rebuild();
            }
            self.due = Some(Instant::now() + (9 * start.elapsed()).min(Duration::from_secs(1)));
        }
        Ok(())
    }

    fn dynamic(&self) -> Option<&Dynamic> {
        Some(&self.names)
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        self.domains.get(&indom).map(|domain| domain as &dyn Instances)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        if item.cluster() == control::CLUSTER {
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
        let which = match kind {
            TextKind::OneLine => Help::Short,
            TextKind::Help => Help::Long,
        };
        match of {
            Subject::Metric(pmid) if pmid.item().cluster() == control::CLUSTER => Ok(None),
            Subject::Metric(pmid) => self.files.help(pmid.item(), which).map(Some),
            Subject::InDom(indom) => self.files.indom_help(indom.serial(), which).map(Some),
        }
    }

    fn labels(&self, of: Labelled) -> Result<Option<LabelSet>> {
        let owner = match of {
            Labelled::InDom(serial) => Owner::InDom(serial),
            Labelled::Cluster(cluster) => Owner::Cluster(cluster),
            Labelled::Item(item) => Owner::Item(item),
            _ => return Ok(None),
        };
        Ok(self.files.labels(owner).cloned())
    }

    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        Ok(self.files.labels(Owner::Instance(indom, inst)).cloned().unwrap_or_default())
    }
}

impl<const DOMAIN: u16> Files<DOMAIN> {
    /// Brings names and instances up to what is in the files.
    fn rebuild(&mut self) {
        self.names.clear();
        self.add_controls();
        for (name, desc) in self.files.metrics() {
            let mut metric = Metric::new(name, desc.item, desc.ty.exported());
            metric.units(desc.units);
            match desc.semantics {
                Semantics::Counter => _ = metric.counter(),
                Semantics::Discrete => _ = metric.discrete(),
                Semantics::Instant => {}
            }
            if let Some(indom) = desc.indom {
                metric.indom(indom);
            }
            if let Err(e) = self.names.insert(&metric) {
                error!("{}: {e}", self.prefix);
            }
        }
        let domain = |serial| Some((serial, Domain::new(self.files.instances(serial).ok()?)));
        self.domains = self.files.indoms().filter_map(domain).collect();
        let (files, metrics) = (self.files.file_count(), self.names.len());
        debug!("{}: {metrics} metrics of {files} files", self.prefix);
    }
}

/// How many files stay open between requests.
static OPEN_FILES: AtomicUsize = AtomicUsize::new(Collection::OPEN_FILES);

/// Lets the agent keep as many files open as the system allows the process. For a process that is
/// nothing but the agent: pmcd, which loads the shared object, needs its descriptors for clients.
pub fn allow_many_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok()
    {
        // Some are needed for other things.
        OPEN_FILES.fetch_max(usize::try_from(hard / 2).unwrap_or(usize::MAX), Relaxed);
    }
}

pmda::dso!(mmv_init, Mmv);
pmda::dso!(pmproxy_init, PmProxy);
