//! Agent `derived` evaluates derived metrics once, on the collector host, and exports them as ordinary metrics.
//! libpcp evaluates them in each client instead (pmRegisterDerived(3)). The metrics are below `derived`, or where the
//! configuration puts them.
//!
//! A configuration (`config`) consists of groups of definitions. Each group (`group`) has a thread (`sampler`), which
//! evaluates them once a tick. Operands come from a pmcd, or from agents that are started for the group (`operands`). `show`
//! keeps the metrics in the name space. `control` exports metrics about the agent itself.

mod check;
pub mod config;
mod control;
mod group;
mod limits;
pub mod metrics;
mod operands;
mod options;
pub mod report;
mod sampler;
mod show;
mod snapshot;

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use pmda::prelude::*;
use pmda::{Changes, CommandLine, Features, LabelSubject, PollSet, Sighup, Wake, clap::Command};
use tracing::{error, info, warn};

use config::{Config, NameSpace, Problem};
use control::{Control, Effect};
use group::{Group, Refused};
use metrics::Labels;
use operands::agents::Pool;
use options::Options;
use sampler::PATIENCE;
use show::{At, Show};

/// SIGHUP of the process. Unset in a shared object, where the signal is pmcd's.
static HANGUPS: OnceLock<Sighup> = OnceLock::new();

/// Makes SIGHUP of a daemon reload the configuration. Logs a warning if it fails.
fn catch_hangups() {
    match Sighup::catch() {
        Ok(hangups) => _ = HANGUPS.set(hangups),
        Err(e) => warn!("SIGHUP will not reload the configuration: {e}"),
    }
}

/// Agent `derived`, as a daemon or as a shared object in pmcd.
#[derive(Debug)]
pub struct Derived {
    options: Options,
    domain: pmapi::Domain,
    groups: Vec<Group>,
    /// Groups whose definitions were all refused. They are not started.
    refused: Vec<Refused>,
    pool: Pool,
    show: Show,
    control: Control,
    /// Problems of the configuration, apart from definitions that cannot be bound.
    problems: Vec<Problem>,
    /// Configuration that [`Agent::open`] starts.
    config: Option<Config>,
    /// Whether all groups have been ready at the same time.
    ready: Cell<bool>,
    /// Sum of the versions of the groups' problem lists when `control` was last updated.
    problems_version: u64,
    /// Number of label changes of all groups when clients were last notified.
    labels: u64,
    loading: Loading,
}

impl Agent for Derived {
    const NAME: &'static str = "derived";
    const DOMAIN: u16 = options::DOMAIN;
    const WANTS: Features = Features::AUTHORIZE;

    fn options(command: Command) -> Command {
        options::augment(command)
    }

    fn command_line(line: &mut CommandLine<'_>) -> Option<ExitCode> {
        let domain = line.domain().or(pmapi::Domain::new(Self::DOMAIN));
        let done = domain.and_then(|domain| check::check(line.options(), domain));
        if done.is_none() {
            catch_hangups();
        }
        done
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.not_ready();
        options::ask(setup);
        for (name, text) in config::READY {
            setup.configuration(name, text);
        }
        setup.pmlogconf("summary", include_str!("../templates/summary.pmlogconf"));
        setup.pmieconf("cpu_util", include_str!("../templates/cpu_util.pmieconf"));
        let options = Options::new(setup)?;
        let domain = setup.indom_id(control::GROUPS).domain();
        let config = Config::load(&options.path, &options.host, &NameSpace::installed(domain));
        let mut show = Show::new(setup, config.roots());
        Control::show(&mut show.dynamic)?;
        let control = Control::new(setup);
        let (groups, refused, problems) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Derived {
            options,
            domain,
            groups,
            refused,
            pool: Pool::default(),
            show,
            control,
            problems,
            config: Some(config),
            ready: Cell::new(false),
            problems_version: 0,
            labels: 0,
            loading: Loading::default(),
        })
    }

    fn open(&mut self) -> Result<(), BoxError> {
        if let Some(config) = self.config.take() {
            self.run(config);
        }
        Ok(())
    }

    /// Stays true once all groups have been ready: a group that a reload adds does not delay the others.
    fn is_ready(&self) -> bool {
        if !self.ready.get() {
            self.ready.set(self.groups.iter().all(|group| group.running.is_ready()));
        }
        self.ready.get()
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        for group in &self.groups {
            group.running.sources(set);
        }
        if let Some(hangups) = HANGUPS.get() {
            set.readable(0, hangups);
        }
        if let Some(due) = self.loading.due(Instant::now()) {
            set.at(due);
        }
    }

    fn wake(&mut self, _: Wake) {
        if HANGUPS.get().is_some_and(Sighup::take) {
            info!("SIGHUP: reloading the configuration");
            self.loading.ask();
        }
        self.load_if_due();
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        let until = Instant::now() + PATIENCE;
        if let Request::Names(_) = request {
            for group in &mut self.groups {
                group.running.wait_until_bound(until);
            }
        }
        self.load_if_due();
        self.begin(until);
        match request {
            Request::Desc(item) => {
                if let Some(At { group, place }) = self.show.find(item) {
                    self.groups.get(group).ok_or(Error::PMID)?.running.expect(&[place]);
                }
            }
            Request::Instance(serial) | Request::InDomLabels(serial) | Request::InstanceLabels(serial) => {
                if let Some((group, indom)) = self.show.find_indom(serial) {
                    let running = &mut self.groups.get_mut(group).ok_or(Error::INDOM)?.running;
                    let labels = !matches!(request, Request::Instance(_));
                    running.expect_instances(indom, labels);
                    // Missing labels are no error: `changes` notifies clients when they arrive.
                    if !labels {
                        let _ = running.instances(indom).ok_or(Error::AGAIN)?;
                    }
                }
            }
            Request::Names(Some(name)) => self.expect_below(name),
            Request::Fetch(items) => {
                for At { group, place } in items.iter().filter_map(|item| self.show.find(item)) {
                    if let Some(group) = self.groups.get_mut(group) {
                        group.asked.push(place);
                    }
                }
                for group in &mut self.groups {
                    group.prepare();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.show.dynamic as &dyn Catalog]
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        match self.show.find_indom(indom) {
            Some((group, indom)) => self.groups.get(group)?.running.instances(indom),
            None => self.control.instances(indom),
        }
    }

    fn labels(&self, of: LabelSubject) -> Result<Option<LabelSet>> {
        match of {
            LabelSubject::InDom(serial) => Ok(self.labels_of(serial).map(|labels| labels.indom.clone())),
            _ => Ok(None),
        }
    }

    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        let labels = self.labels_of(indom).and_then(|labels| labels.instances.get(&inst));
        Ok(labels.cloned().unwrap_or_default())
    }

    fn changes(&mut self) -> Changes {
        let labels = self.groups.iter().map(|group| group.running.label_changes()).sum();
        let before = std::mem::replace(&mut self.labels, labels);
        if before == labels { Changes::default() } else { Changes::LABELS }
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        if item.cluster() == control::CLUSTER {
            let refused = self.refused.iter().filter_map(|group| group.status(self.options.interval));
            return self.control.fetch(item, self.groups.iter().map(Group::status).chain(refused), out);
        }
        let At { group, place } = self.show.find(item).ok_or(Error::PMID)?;
        let values = self.groups.get(group).ok_or(Error::PMID)?.running.values(place).map_err(presentable)?;
        values.try_each(|inst, value| match inst {
            None => out.put(value),
            Some(inst) => out.put_inst(inst, value),
        })
    }

    fn store(&mut self, item: Item, inst: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        // Loads before the reply is sent, because the client usually asks for the new names next.
        match Control::store(item, inst, value)? {
            Effect::Reload => {
                self.loading.ask();
                self.load_if_due();
            }
            Effect::Interval(inst, interval) => {
                let group = self.groups.iter_mut().find(|group| group.inst() == inst);
                group.ok_or(Error::INST)?.running.set_interval(interval);
            }
        }
        Ok(())
    }

    fn done(&mut self, _: Client) {
        for group in &mut self.groups {
            group.running.done();
        }
    }
}

impl Drop for Derived {
    fn drop(&mut self) {
        // The threads end at their next step.
        self.pool.end();
    }
}

/// Replaces error codes that pmcd would take for failures of this agent. They come from the operands' pmcd.
fn presentable(e: Error) -> Error {
    match e {
        Error::IPC | Error::TIMEOUT | Error::PMDANOTREADY | Error::PMDAREADY => Error::AGAIN,
        e => e,
    }
}

impl Derived {
    /// Returns the labels of the operands' instance domain that the agent's domain `serial` stands for.
    fn labels_of(&self, serial: Serial) -> Option<&Labels> {
        let (group, indom) = self.show.find_indom(serial)?;
        self.groups.get(group)?.running.labels(indom)
    }

    /// Notes that a client has looked up the metrics at or below a name.
    fn expect_below(&self, name: &str) {
        let mut looked_up: Vec<Vec<usize>> = vec![Vec::new(); self.groups.len()];
        for At { group, place } in self.show.dynamic.items_below(name).filter_map(|item| self.show.find(item)) {
            if let Some(places) = looked_up.get_mut(group) {
                places.push(place);
            }
        }
        for (group, places) in self.groups.iter().zip(looked_up) {
            group.running.expect(&places);
        }
    }

    /// Returns the metrics in the name space.
    pub fn metrics(&self) -> &Dynamic {
        &self.show.dynamic
    }

    /// Reloads the configuration if a reload has been requested and is due.
    fn load_if_due(&mut self) {
        let start = Instant::now();
        if self.loading.due(start).is_none_or(|due| due > start) {
            return;
        }
        let names = NameSpace::installed(self.domain);
        self.run(Config::load(&self.options.path, &self.options.host, &names));
        self.loading.done(start);
    }

    /// Adopts a configuration. A group whose name and operands are unchanged keeps running.
    fn run(&mut self, config: Config) {
        let patience = self.options.agent_timeout;
        for problem in &config.problems {
            config::warn_lines(&problem.place, &problem.to_string());
        }
        let roots = config.roots();
        // A group without definitions would only wait for its operands.
        let (groups, empty): (Vec<_>, Vec<_>) =
            config.groups.into_iter().partition(|group| !group.definitions.is_empty());
        let mut refused: Vec<_> = empty.into_iter().filter_map(Refused::new).collect();
        self.problems = config.problems;
        // Unchanged groups are kept, so that clients need not look up their names again.
        if groups.len() == self.groups.len()
            && self.groups.iter().zip(&groups).all(|(old, new)| old.is_unchanged(new))
            && refused.iter().map(|group| &group.name).eq(self.refused.iter().map(|group| &group.name))
        {
            for (old, new) in self.refused.iter_mut().zip(refused) {
                old.count = new.count;
            }
            for (old, new) in self.groups.iter_mut().zip(groups) {
                old.adopt(new);
            }
            self.list_problems();
            return;
        }
        self.show.add_roots(roots);
        self.control.forget_groups();
        self.show.clear();
        let mut old = std::mem::take(&mut self.groups);
        for group in groups {
            let name = group.name.clone();
            let same = old.iter().position(|old| old.is(&group));
            let started = match (self.control.number(&group.name), same) {
                (Ok(inst), Some(at)) => Ok(old.swap_remove(at).with(group, inst)),
                (Ok(inst), None) => {
                    Group::start(group, inst, self.domain, self.options.interval, patience, &mut self.pool)
                }
                (Err(e), _) => Err(e),
            };
            match started {
                Ok(group) => self.groups.push(group),
                Err(e) => error!("group {name} is not started, its metrics have no values: {e}"),
            }
        }
        for group in &mut refused {
            group.inst = self.control.number(&group.name).ok();
        }
        self.refused = refused;
        self.control.save_groups();
        // Agents that are asked through a pipe are at hand: the first request finds their metrics.
        let until = Instant::now() + patience;
        for group in self.groups.iter().filter(|group| group.has_agents()) {
            group.running.wait_until_ready(until);
        }
        self.begin(Instant::now() + PATIENCE);
        self.list_problems();
    }

    /// Begins a request in all groups, and applies their changes to the name space and to the list of problems. The
    /// request may wait for samplers until `until`.
    fn begin(&mut self, until: Instant) {
        let mut changed = false;
        for (number, group) in self.groups.iter_mut().enumerate() {
            changed |= group.begin(number, &mut self.show, until);
        }
        let version = self.groups.iter().map(|group| group.running.problems_version()).sum();
        changed |= std::mem::replace(&mut self.problems_version, version) != version;
        if changed {
            self.list_problems();
        }
    }

    fn list_problems(&mut self) {
        let problems = self.problems.iter().map(|problem| (problem.subject(), problem.to_string()));
        self.control.set_problems(problems.chain(self.groups.iter().flat_map(Group::problems)));
    }
}

/// Limits reloads to a fraction of the agent's time. In a shared object that time is pmcd's.
///
/// Occasional requests, by a store or a signal, are served at once. Requests in a loop are merged: each load begins as
/// soon as the limit admits it, and the last request is always served.
#[derive(Debug, Default)]
struct Loading {
    asked: bool,
    /// Time until which the agent pauses between loads, by the time that all loads so far have taken.
    busy: Option<Instant>,
}

/// Rest after a load, as a multiple of the time that the load took.
const REST: u32 = 5;
/// Rest that may be outstanding when a load begins.
const OWED: Duration = Duration::from_secs(20);

impl Loading {
    /// Requests a load.
    fn ask(&mut self) {
        self.asked = true;
    }

    /// Returns when the requested load may begin. `None` if no load is requested.
    fn due(&self, now: Instant) -> Option<Instant> {
        self.asked.then(|| self.busy.and_then(|busy| busy.checked_sub(OWED)).map_or(now, |due| due.max(now)))
    }

    /// Records the end of a load that began at `start`.
    fn done(&mut self, start: Instant) {
        let now = Instant::now();
        self.asked = false;
        self.busy = Some(self.busy.map_or(now, |busy| busy.max(now)) + now.duration_since(start) * REST);
    }
}

pmda::dso!(derived_init, Derived);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_loads_all_the_time_has_a_part_of_it() {
        let mut loading = Loading::default();
        assert!(loading.due(Instant::now()).is_none());
        let start = Instant::now();
        // Pretends that each load takes a second.
        let mut at_once = 0;
        loop {
            loading.ask();
            let now = Instant::now();
            if loading.due(now).unwrap() > now {
                break;
            }
            loading.done(Instant::now().checked_sub(Duration::from_secs(1)).unwrap());
            assert!(loading.due(now).is_none());
            at_once += 1;
        }
        assert!((4..=6).contains(&at_once), "{at_once}");
        let due = loading.due(start).unwrap();
        assert!(due > start && due < start + Duration::from_secs(60));
    }
}
