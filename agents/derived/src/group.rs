//! Groups as the agent's own thread sees them. [`crate::sampler`] describes both threads.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pcp_derived::Column;
use pmapi::{Domain, Error, InDom, Inst, Result};
use pmda::{Background, BoxError, Instances, PollSet};
use tracing::warn;

use crate::config::{GroupConfig, Operands};
use crate::control::Status;
use crate::metrics::{Labels, Metrics};
use crate::operands::Source;
use crate::operands::agents::{Agents, Pool};
use crate::operands::pmcd::Pmcd;
use crate::sampler::{BINDING, Figures, Orders, Published, SENDING, Sampler, lock};
use crate::show::Show;
use crate::snapshot::{Known, LASTING, Slot};

/// Group of definitions that the agent runs.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Configuration of the group.
    config: GroupConfig,
    /// Instance of the group in `derived.control`.
    inst: Inst,
    pub(crate) running: Sampled,
    /// Metrics that are in the name space.
    shown: Option<Arc<Metrics>>,
    /// Metrics that could not be added to the name space: pairs of a name and a reason.
    hidden: Vec<(String, String)>,
    /// Places that the current request fetches.
    pub(crate) asked: Vec<usize>,
}

impl Group {
    /// Starts a group. `patience` is the longest time that a sample may wait for the group's agents.
    pub(crate) fn start(
        group: GroupConfig,
        inst: Inst,
        own: Domain,
        interval: Duration,
        patience: Duration,
        pool: &mut Pool,
    ) -> Result<Group, BoxError> {
        let config = group.clone();
        let interval = group.interval.unwrap_or(interval);
        let source: Box<dyn Source> = match &config.operands {
            Operands::Host(host) => Box::new(Pmcd::new(host.clone(), own)),
            Operands::Agents(specs) => Box::new(Agents::new(pool.fleet(specs), patience)),
        };
        let running = Sampled::start(group, source, interval)?;
        let name = config.name.clone();
        Ok(Group { name, config, inst, running, shown: None, hidden: Vec::new(), asked: Vec::new() })
    }

    /// Returns whether the operands come from agents that are started for the group.
    pub(crate) fn has_agents(&self) -> bool {
        matches!(self.config.operands, Operands::Agents(_))
    }

    /// Returns whether a configuration has this group's name and operands.
    pub(crate) fn is(&self, group: &GroupConfig) -> bool {
        (&self.name, &self.config.operands) == (&group.name, &group.operands)
    }

    /// Returns whether a configuration changes nothing but the interval.
    pub(crate) fn is_unchanged(&self, group: &GroupConfig) -> bool {
        // Messages contain line numbers.
        self.config.means_the_same(group) && (self.unbound() == 0 || self.config.stands_the_same(group))
    }

    /// Adopts a configuration for this group. The group keeps its history unless definitions have changed.
    pub(crate) fn adopt(&mut self, group: GroupConfig) {
        if let Some(interval) = group.interval {
            self.running.set_interval(interval);
        }
        if !self.is_unchanged(&group) {
            self.running.reload(group.clone());
        }
        self.config = group;
    }

    /// Replaces the configuration and the instance. The caller must publish the group's metrics again.
    pub(crate) fn with(mut self, group: GroupConfig, inst: Inst) -> Group {
        self.adopt(group);
        Group { inst, shown: None, ..self }
    }

    /// Begins a request, which may wait for a sampler until `until`. Shows changed metrics in the name space, and
    /// returns whether there were any. `number` is the index of the group.
    pub(crate) fn begin(&mut self, number: usize, show: &mut Show, until: Instant) -> bool {
        let Some(metrics) = self.running.begin(until) else { return false };
        if self.shown.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, metrics)) {
            return false;
        }
        let failures = show.replace((number, &self.name), self.shown.as_ref(), metrics);
        self.hidden.clear();
        for (place, e) in failures {
            let name = metrics.good.get(place).map_or_else(String::new, |metric| metric.name.clone());
            warn!(source = self.name, "metric {name} is not shown: {e}");
            self.hidden.push((name, e.to_string()));
        }
        self.shown = Some(Arc::clone(metrics));
        true
    }

    /// Prepares the values of the places in `asked`, and clears the list.
    pub(crate) fn prepare(&mut self) {
        if !self.asked.is_empty() {
            self.running.prepare(&mut self.asked.iter().copied());
            self.asked.clear();
        }
    }

    /// Returns the instance of the group in `derived.control`.
    pub(crate) fn inst(&self) -> Inst {
        self.inst
    }

    /// Returns the number of definitions that are not metrics.
    fn bad(&self) -> usize {
        self.unbound() + self.config.refused
    }

    /// Returns the number of accepted definitions that have no metric at present.
    fn unbound(&self) -> usize {
        self.shown.as_ref().map_or(0, |shown| shown.bad.len()) + self.hidden.len()
    }

    /// Returns what `derived.control` exports about the group.
    pub(crate) fn status(&self) -> Status {
        Status {
            inst: self.inst,
            figures: self.running.figures(),
            interval: self.running.interval(),
            good: self.shown.as_ref().map_or(0, |shown| shown.good.len()) - self.hidden.len(),
            bad: self.bad(),
        }
    }

    /// Returns the problems of operands and definitions: pairs of a subject and a message.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (String, String)> {
        let bad = self.shown.iter().flat_map(|shown| &shown.bad);
        let bad = bad.map(|bad| (bad.name.clone(), bad.message.clone())).chain(self.hidden.iter().cloned());
        self.running.problems().iter().cloned().chain(bad)
    }
}

/// Group whose definitions were all refused. `derived.control` exports the number of these definitions.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) name: String,
    /// Number of definitions.
    pub(crate) count: usize,
    interval: Option<Duration>,
    /// Instance of the group in `derived.control`.
    pub(crate) inst: Option<Inst>,
}

impl Refused {
    /// Returns the group of a configuration without a valid definition; `None` if it has no definition at all.
    pub(crate) fn new(group: GroupConfig) -> Option<Refused> {
        let GroupConfig { name, refused: count, interval, .. } = group;
        (count > 0).then_some(Refused { name, count, interval, inst: None })
    }

    /// Returns what `derived.control` exports about the group, which is never sampled.
    pub(crate) fn status(&self, interval: Duration) -> Option<Status> {
        let interval = self.interval.unwrap_or(interval);
        Some(Status { inst: self.inst?, figures: Figures::default(), interval, good: 0, bad: self.count })
    }
}

/// Values expire when they are older than the interval by more than this, or than the longest time that agents may take.
const LATE: Duration = Duration::from_secs(1);

/// Number of intervals for which a group is sampled after a fetch: at least [`LINGER`], and longer for clients that
/// fetch at long intervals.
const SAMPLES: u32 = 10;
const LINGER: Duration = Duration::from_secs(60);

/// Number of intervals for which a group is sampled after a client has looked up a metric or requested instances: at
/// least [`LOOK`].
const LOOKS: u32 = 2;
const LOOK: Duration = Duration::from_secs(5);

/// Longest time between two fetches that counts as a client's interval.
const RARELY: Duration = Duration::from_secs(2 * 3600);

/// Returns how long a group is sampled after a fetch. `between` is the time since the fetch before: a client that
/// fetches regularly, even at long intervals, must find the group sampled.
fn lasting(interval: Duration, between: Option<Duration>) -> Duration {
    let regular = between.filter(|between| *between <= RARELY).unwrap_or_default();
    (interval * SAMPLES).max(LINGER).max(regular * 2)
}

/// Group that a separate thread samples. Dropping it ends the thread without joining it, because the thread may be waiting
/// for pmcd.
///
/// Methods identify a metric by its place: the index in [`Metrics::good`] of the metrics that [`Sampled::begin`] returned
/// last. None waits for pmcd, because pmcd waits for the agent.
#[derive(Debug)]
pub(crate) struct Sampled {
    orders: Arc<Mutex<Orders>>,
    /// What the sampler publishes, from its first sample or some failures on.
    source: Background<Published>,
    /// Number of reloads so far.
    reload: u64,
    /// Deadline for waiting for the last reload.
    bound_by: Instant,
    interval: Duration,
    /// Time after the interval after which values expire.
    late: Duration,
    /// Time of the last fetch.
    fetched: Option<Instant>,
    /// Data that the sampler had published when the current request began or stopped waiting.
    now: Published,
    /// Deadline for waiting in the current request.
    until: Instant,
}

impl Sampled {
    /// Starts the thread of a group.
    pub(crate) fn start(group: GroupConfig, source: Box<dyn Source>, interval: Duration) -> io::Result<Sampled> {
        let late = LATE.max(source.patience());
        let (publisher, published) = Background::channel()?;
        let published = published.named(format!("group {}", group.name));
        let started = Instant::now();
        // Clients that have waited for the agent to be ready will look at all metrics.
        let orders = Arc::new(Mutex::new(Orders::new(interval, started + (interval * LOOKS).max(LOOK))));
        Sampler::new(group, source, Arc::clone(&orders), publisher).spawn()?;
        Ok(Sampled {
            orders,
            source: published,
            reload: 0,
            bound_by: started,
            interval,
            late,
            fetched: None,
            now: Published::default(),
            until: started,
        })
    }

    /// Returns what the sampler has published last.
    fn published(&self) -> Published {
        self.source.latest().map(|published| Published::clone(&published)).unwrap_or_default()
    }

    /// Waits until the sampler has published something, at most until a time.
    fn wait_for(&self, until: Instant, is_done: impl Fn(&Published) -> bool) {
        _ = self.source.wait(until, |published| published.as_ref().is_ok_and(|published| is_done(published)));
    }

    fn is_recent(&self, taken: Option<Instant>) -> bool {
        taken.is_some_and(|taken| taken.elapsed() <= self.interval + self.late)
    }

    fn slot(&self, place: usize) -> Option<&Slot> {
        let slot = self.now.snapshot.as_ref()?.slots.get(place);
        slot.filter(|slot| self.is_recent(slot.taken))
    }

    /// Returns the list of a domain. A busy pmcd may delay a new list for longer than values last. Until then the old one
    /// still names the instances of values that clients have received.
    fn known(&self, indom: InDom) -> Option<&Known> {
        let lasting = LASTING.max(self.interval + self.late);
        self.now.snapshot.as_ref()?.list(indom).filter(|known| known.taken.elapsed() <= lasting)
    }

    /// Requests samples for `time` from now on. Returns whether sampling had stopped.
    fn ask(&self, time: Duration) -> bool {
        let mut orders = lock(&self.orders);
        let now = Instant::now();
        let had_stopped = orders.until < now;
        orders.until = orders.until.max(now + time);
        drop(orders);
        if had_stopped {
            self.source.request_snapshot();
        }
        had_stopped
    }

    /// Requests samples because a client may fetch next. Returns whether sampling had stopped.
    fn look_up(&self) -> bool {
        self.ask((self.interval * LOOKS).max(LOOK))
    }

    /// Returns the number of requests that the sampler has sent. `None` while it is taking a sample or has no connection.
    fn sent(&self) -> Option<u64> {
        let published = self.published();
        (!published.is_sampling() && published.outcome.is_ok()).then_some(published.sent)
    }

    /// Waits until the sampler is about to send its next request after `sent`, so that pmcd handles that request before
    /// it sends the next one to this agent. Waits at most until `until`.
    fn wait_until_sent(&self, sent: Option<u64>, until: Instant) {
        if let Some(sent) = sent {
            let until = until.min(Instant::now() + SENDING);
            self.wait_for(until, |published| published.sent != sent);
        }
    }

    /// Waits for a sample that has been requested or has begun, and adopts it if it is complete before the deadline.
    fn wait(&mut self) {
        let finished = self.now.finished;
        if self.now.outcome.is_ok() {
            self.wait_for(self.until, |published| published.finished != finished);
        }
        let published = self.published();
        let metrics =
            |published: &Published| published.snapshot.as_ref().map(|snapshot| Arc::as_ptr(&snapshot.metrics));
        // The request uses places in the metrics that it began with.
        if metrics(&published) == metrics(&self.now) {
            self.now = published;
        }
    }

    /// Changes what the sampler is to do.
    fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut lock(&self.orders));
        self.source.request_snapshot();
    }
}

/// What requests call.
impl Sampled {
    /// Begins a request and returns the metrics: the same ones until something about them changes, `None` before the
    /// definitions are first bound. Values and instances stay the same until [`Sampled::done`]. The request may wait for the
    /// thread until `until`.
    pub(crate) fn begin(&mut self, until: Instant) -> Option<&Arc<Metrics>> {
        self.now = self.published();
        self.until = until;
        self.now.snapshot.as_ref().map(|snapshot| &snapshot.metrics)
    }

    /// Waits until definitions that [`Sampled::reload`] has replaced are bound, at most until `until`. Called before
    /// [`Sampled::begin`] in requests about names.
    pub(crate) fn wait_until_bound(&mut self, until: Instant) {
        self.wait_for(until.min(self.bound_by), |published| published.bound == self.reload);
    }

    /// Prepares the values of `places`, which the current request fetches.
    pub(crate) fn prepare(&mut self, places: &mut dyn Iterator<Item = usize>) {
        if self.now.snapshot.is_none() {
            return;
        }
        let now = Instant::now();
        let between = self.fetched.replace(now).map(|before| now.duration_since(before));
        let had_stopped = self.ask(lasting(self.interval, between));
        let mut is_missing = false;
        for place in places {
            is_missing |= self.slot(place).is_none();
        }
        if is_missing && (had_stopped || self.now.is_sampling()) {
            self.wait();
        }
    }

    /// Notes that a client has looked up metrics and may fetch them next.
    pub(crate) fn expect(&self, places: &[usize]) {
        let is_missing = places.iter().any(|place| self.slot(*place).is_none());
        if self.now.snapshot.is_none() || places.is_empty() {
            return;
        }
        let sent = self.sent();
        if self.look_up() && is_missing {
            self.wait_until_sent(sent, self.until);
        }
    }

    /// Prepares the instances of a domain for the current request, with labels if `labels` is true.
    pub(crate) fn expect_instances(&mut self, indom: InDom, labels: bool) {
        if self.now.snapshot.is_none() {
            return;
        }
        let recent = self.known(indom).filter(|known| self.is_recent(Some(known.taken)));
        let is_missing = recent.is_none_or(|known| labels && known.list.labels().is_none());
        if is_missing {
            self.order(|orders| *orders.indoms.entry(indom).or_default() |= labels);
        }
        self.look_up();
        if is_missing {
            self.wait();
        }
    }

    /// Returns the values of a metric, or the error that stands in their place.
    pub(crate) fn values(&self, place: usize) -> Result<&Column> {
        // As long as an error lasts, it replaces older values.
        self.now.outcome?;
        self.slot(place).ok_or(Error::AGAIN)?.values.as_ref().map_err(|e| *e)
    }

    /// Returns the instances of an operand's domain, if they are known.
    pub(crate) fn instances(&self, indom: InDom) -> Option<&dyn Instances> {
        self.known(indom).map(|known| &*known.list as &dyn Instances)
    }

    /// Returns the labels of an operand's domain, if they are known.
    pub(crate) fn labels(&self, indom: InDom) -> Option<&Labels> {
        self.known(indom)?.list.labels()
    }

    /// Returns how often labels have changed.
    pub(crate) fn label_changes(&self) -> u64 {
        self.now.snapshot.as_ref().map_or(0, |snapshot| snapshot.label_changes)
    }

    /// Ends a request. Called when the reply has been sent.
    pub(crate) fn done(&mut self) {
        self.now.snapshot = None;
    }

    /// Replaces the definitions. The operands come from the same source as before.
    pub(crate) fn reload(&mut self, group: GroupConfig) {
        self.bound_by = Instant::now() + BINDING;
        self.reload += 1;
        let sent = self.sent();
        self.order(|orders| (orders.group, orders.reload) = (Some(Box::new(group)), self.reload));
        self.wait_until_sent(sent, self.bound_by);
    }

    /// Returns whether this group lets the agent report that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.source.is_ready()
    }

    /// Adds the file descriptor that becomes readable when [`Sampled::is_ready`] becomes true.
    pub(crate) fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        set.first_snapshot(&self.source);
    }

    /// Returns the time between samples.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Changes the time between samples.
    pub(crate) fn set_interval(&mut self, interval: Duration) {
        if self.interval != interval {
            self.interval = interval;
            self.order(|orders| orders.interval = interval);
        }
    }

    /// Returns the group's statistics.
    pub(crate) fn figures(&self) -> Figures {
        self.now.figures
    }

    /// Waits until the group is ready, at most until `until`.
    pub(crate) fn wait_until_ready(&self, until: Instant) {
        _ = self.source.wait(until, Result::is_ok);
    }

    /// Returns problems of the operands' source as a whole: pairs of a subject and a message.
    pub(crate) fn problems(&self) -> &[(String, String)] {
        &self.now.problems
    }

    /// Returns the version of the list of problems, which changes with it.
    pub(crate) fn problems_version(&self) -> u64 {
        self.now.problems_version.map_or(0, |version| version + 1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fmt;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread::sleep;

    use pcp_derived::{Definition, Definitions, Descs, Evaluator, Load, Operand, Plan};
    use pcp_pdu::result::Changes;
    use pmapi::{Atom, Desc, Domain, Inst, Item, PmId, Semantics, Type, Units};

    use super::*;
    use crate::config::{Config, NameSpace};
    use crate::metrics::List;
    use crate::operands::Sizes;
    use crate::operands::{Connected, Taken};

    /// Longest time of a test that fails.
    const LONG: Duration = Duration::from_secs(60);

    /// Source whose metrics have the number of the fetch.
    #[derive(Debug)]
    struct Counted(Arc<AtomicU32>);

    impl fmt::Display for Counted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a test")
        }
    }

    impl Source for Counted {
        fn connect(&mut self) -> Result<Connected> {
            Ok(Connected::Still)
        }

        fn is_connected(&mut self) -> bool {
            true
        }

        fn own(&self) -> Option<Domain> {
            None
        }

        fn names(&mut self, _: Descs, definitions: &Definitions) -> Result<Descs> {
            let names = definitions.iter().flat_map(Definition::names).zip(0..);
            Ok(names
                .map(|(name, item)| {
                    let pmid = PmId::new(Domain::new(60).unwrap(), Item::new(0, item));
                    let (ty, semantics, units) = (Type::U32, Semantics::Instant, Units::NONE);
                    (name.to_owned(), Ok(Desc { pmid, ty, indom: None, semantics, units }))
                })
                .collect())
        }

        fn take(&mut self, _: &Evaluator, _: &Plan) -> Result<Taken> {
            self.0.fetch_add(1, SeqCst);
            self.check()
        }

        fn check(&mut self) -> Result<Taken> {
            Ok(Taken { at: Instant::now(), changes: Changes::default(), is_complete: true })
        }

        fn sizes(&self, _: &Evaluator, _: &Plan, _: &mut Sizes) {}

        fn values(&mut self) -> Result<&mut dyn pcp_derived::Source> {
            Ok(self)
        }

        fn list(&mut self, _: InDom, _: bool) -> Result<List> {
            Err(Error::INDOM)
        }

        fn forget_instances(&mut self) {}
    }

    impl pcp_derived::Source for Counted {
        fn values(&mut self, _: &Operand, load: &mut Load<'_>) -> Result<()> {
            load.push(None, Atom::U32(self.0.load(SeqCst)));
            Ok(())
        }

        fn instances(&mut self, _: InDom, _: &mut Vec<Inst>) -> Result<()> {
            Err(Error::INDOM)
        }

        fn instance_name(&mut self, _: InDom, _: Inst, _: &mut Vec<u8>) -> Result<()> {
            Err(Error::INDOM)
        }

        fn instance_id(&mut self, _: InDom, _: &str) -> Result<Inst> {
            Err(Error::INDOM)
        }
    }

    /// Starts a group over a source, and waits for its first sample. Returns the number of fetches so far, too.
    fn start(definitions: &str, interval: Duration) -> (Sampled, Arc<AtomicU32>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("conf"), definitions).unwrap();
        let names = NameSpace::new(pmns::Tree::new(), Domain::new(404).unwrap());
        let mut config = Config::load(dir.path().to_str().unwrap(), &"local:".parse().unwrap(), &names);
        let fetches = Arc::new(AtomicU32::new(0));
        let source = Box::new(Counted(Arc::clone(&fetches)));
        let sampled = Sampled::start(config.groups.remove(0), source, interval).unwrap();
        sampled.wait_until_ready(Instant::now() + LONG);
        (sampled, fetches)
    }

    /// Handles a fetch of the first `N` metrics.
    fn fetch<const N: usize>(sampled: &mut Sampled) -> [Result<u32>; N] {
        assert_eq!(sampled.begin(Instant::now() + LONG).unwrap().bad, []);
        sampled.prepare(&mut (0..N));
        let values = std::array::from_fn(|place| match sampled.values(place)?.iter().next() {
            Some((None, Atom::U32(value))) => Ok(value),
            _ => Err(Error::VALUE),
        });
        sampled.done();
        values
    }

    /// All definitions of a sample are evaluated from one fetch, and each sample from a fetch of its own.
    #[test]
    fn a_sample_is_of_one_fetch() {
        let (mut sampled, fetches) = start("a = x\nb = y\nsame = x == y\n", Duration::from_millis(5));
        let (mut before, end) = (0, Instant::now() + LONG);
        for _ in 0..50 {
            // A sample that begins after this is of a later fetch.
            let first = fetches.load(SeqCst);
            while sampled.published().finished < u64::from(first) + 1 {
                assert!(Instant::now() < end);
                sleep(Duration::from_millis(1));
            }
            let [a, b, same] = fetch(&mut sampled).map(Result::unwrap);
            assert_eq!((a, same), (b, 1));
            assert!(a > before && a > first && a <= fetches.load(SeqCst), "{before} {first} {a}");
            before = a;
        }
    }

    /// Without requests no fetches are made, and the first request after that has the values of a new one.
    #[test]
    fn the_clock_stops_and_starts_again() {
        let (mut sampled, fetches) = start("a = x\n", Duration::from_millis(500));
        sampled.late = Duration::ZERO;
        for _ in 0..2 {
            sampled.order(|orders| orders.until = Instant::now());
            let end = Instant::now() + LONG;
            let mut stopped = fetches.load(SeqCst);
            loop {
                sleep(Duration::from_millis(600));
                if std::mem::replace(&mut stopped, fetches.load(SeqCst)) == stopped {
                    break;
                }
                assert!(Instant::now() < end, "{stopped}");
            }
            let [a] = fetch(&mut sampled).map(Result::unwrap);
            assert!(a > stopped, "{stopped} {a}");
        }
    }

    #[test]
    fn groups_of_regular_clients_stay_sampled() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(lasting(second, None), minute);
        assert_eq!(lasting(minute, None), 10 * minute);
        assert_eq!(lasting(second, Some(5 * minute)), 10 * minute);
        // A fetch after a long pause is not taken for an interval.
        assert_eq!(lasting(second, Some(121 * minute)), minute);
    }
}
