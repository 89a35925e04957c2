//! The interface for declarations.

use std::path::{Path, PathBuf};

use pmapi::{Config, Domain, InDom, Item, LabelSet, Serial, Type};
use serde::Serialize;

use crate::cache::Cache;
use crate::client::Clients;
use crate::config_file::ConfigFile;
use crate::dynamic::{Dynamic, Scope};
use crate::event::{EventQueue, Types};
use crate::schema::{self, ArgumentDef, Declarations, InDomDef, MetricDef, Mistakes, Schema};
use crate::values::{Erased, TypedValue};

#[cfg(feature = "daemon")]
pub(crate) use clap::ArgMatches as OwnOptions;

/// Values of the agent's own options, which only a program has.
#[cfg(not(feature = "daemon"))]
#[derive(Debug)]
pub(crate) struct OwnOptions;

/// The interface for declarations in [`Agent::new`](crate::Agent::new).
///
/// Mistakes, such as a name that is declared twice, are reported together when the agent starts.
#[derive(Debug)]
pub struct Setup {
    pub(crate) declared: Declarations,
    config: Config,
    options: OwnOptions,
}

impl Setup {
    pub(crate) fn new(declared: Declarations, config: Config, options: OwnOptions) -> Setup {
        Setup { declared, config, options }
    }

    /// Checks the declarations.
    pub(crate) fn finish(self) -> Result<Schema, Mistakes> {
        self.declared.finish()
    }

    /// Declares a metric by its full name, for instance `simple.color`. [`Agent::fetch`](crate::Agent::fetch) puts its
    /// values, unless it gets a [getter](MetricDef::getter).
    pub fn metric(&mut self, name: impl Into<String>, item: Item, ty: Type) -> &mut MetricDef {
        self.add(MetricDef::new(name, item, ty))
    }

    /// Declares a counter, with the function that returns its value. The type of the metric is that of the value
    /// ([`TypedValue`]). The closure names the agent's
    /// type, in [`Agent::new`](crate::Agent::new) also `Self`:
    ///
    /// ```
    /// use pmda::prelude::*;
    ///
    /// struct Door {
    ///     opened: u64,
    ///     since: std::time::Instant,
    ///     width: Option<f64>,
    ///     name: String,
    /// }
    ///
    /// impl Agent for Door {
    ///     const NAME: &'static str = "door";
    ///     const DOMAIN: u16 = 400;
    ///
    ///     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
    ///         setup.counter("door.opened", Item::new(0, 0), |door: &Self| door.opened).units(Units::COUNT);
    ///         setup.gauge("door.since", Item::new(0, 1), |door: &Self| door.since.elapsed()).units(Units::SECONDS);
    ///         setup.discrete("door.width", Item::new(0, 2), |door: &Self| door.width);
    ///         setup.string("door.name", Item::new(0, 3), |door: &Self| &door.name);
    ///         Ok(Door { opened: 3, since: std::time::Instant::now(), width: None, name: "front".into() })
    ///     }
    /// }
    ///
    /// let mut door = pcp_collector::Local::<Door>::collector()?;
    /// let opened = door.metric("door.opened")?;
    /// assert_eq!(door.value(opened)?, Atom::U64(3));
    /// # let name = door.metric("door.name")?;
    /// # assert_eq!(door.value(name)?, Atom::from("front"));
    /// # let width = door.metric("door.width")?;
    /// # assert_eq!(door.values(width)?.iter().count(), 0);
    /// # Ok::<(), pmda::BoxError>(())
    /// ```
    pub fn counter<A: 'static, V: TypedValue>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&A) -> V + Send + Sync + 'static,
    ) -> &mut MetricDef {
        self.metric(name, item, V::TYPE).counter().getter(getter)
    }

    /// Declares a metric whose values rise and fall, with the function that returns its value, as
    /// [`Setup::counter`] does. The value is the function's own: a text that it borrows from the agent is a metric of
    /// [`Setup::string`], and the compiler says of it here "lifetime may not live long enough".
    pub fn gauge<A: 'static, V: TypedValue>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&A) -> V + Send + Sync + 'static,
    ) -> &mut MetricDef {
        self.metric(name, item, V::TYPE).getter(getter)
    }

    /// Declares a metric whose values change seldom or in steps, with the function that returns its value, as
    /// [`Setup::counter`] does. The value is the function's own: a text that it borrows from the agent is a metric of
    /// [`Setup::string`], and the compiler says of it here "lifetime may not live long enough".
    pub fn discrete<A: 'static, V: TypedValue>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&A) -> V + Send + Sync + 'static,
    ) -> &mut MetricDef {
        self.metric(name, item, V::TYPE).discrete().getter(getter)
    }

    /// Declares a discrete metric of type [`Type::String`], with the function that returns its value, borrowed from the
    /// agent. For a text that may be missing, use [`Setup::discrete`] with an `Option<String>`.
    pub fn string<A: 'static>(
        &mut self,
        name: impl Into<String>,
        item: Item,
        getter: impl Fn(&A) -> &str + Send + Sync + 'static,
    ) -> &mut MetricDef {
        let put = Erased::put(move |agent: &A, out| out.put(getter(agent)));
        self.metric(name, item, Type::String).discrete().put_by(put)
    }

    /// Declares a metric.
    pub fn add(&mut self, metric: impl Into<MetricDef>) -> &mut MetricDef {
        self.declared.add(metric.into())
    }

    /// Declares metrics.
    pub fn extend(&mut self, metrics: impl IntoIterator<Item: Into<MetricDef>>) {
        self.declared.metrics.extend(metrics.into_iter().map(Into::into));
    }

    /// Declares an instance domain.
    pub fn indom(&mut self, serial: Serial) -> &mut InDomDef {
        self.declared.add_indom(serial)
    }

    /// Creates the cache of an instance domain, which is kept in memory only. Unlike a [`Setup::table`], the cache needs
    /// a declaration of the domain, and [`Agent::instances`](crate::Agent::instances):
    ///
    /// ```
    /// # use pmda::prelude::*;
    /// # fn declare(setup: &mut Setup) {
    /// const FILE: Serial = Serial::new(0);
    /// setup.indom(FILE).help("Files", "By their paths.");
    /// let files: Cache<u64> = setup.cache(FILE).whole_names().persistent();
    /// # }
    /// ```
    #[must_use]
    pub fn cache<T>(&self, serial: Serial) -> Cache<T> {
        Cache::new(self.indom_id(serial), &self.config)
    }

    /// Declares names below which the agent adds and removes metrics while it runs, and returns the object that holds
    /// these metrics. In the name space each is `NAME DOMAIN:*:*` (PMNS(5)).
    pub fn dynamic(&mut self, names: impl IntoIterator<Item: Into<String>>) -> Dynamic {
        let roots: Vec<String> = names.into_iter().map(Into::into).collect();
        self.declared.dynamic.extend_from_slice(&roots);
        Dynamic::new(Scope {
            own_name: self.declared.own_name,
            wants: self.declared.wants,
            name: self.declared.name.clone(),
            domain: self.declared.domain,
            roots,
            declared: self.declared.items.clone(),
        })
    }

    /// Adds labels of the agent; see [`MetricDef::labels`]. Without any, the agent has its name as a label:
    /// `{"agent":"simple"}`.
    pub fn labels(&mut self, labels: impl Serialize) {
        schema::add(&mut self.declared.labels, |set| set.add(labels));
    }

    /// Adds labels that do not identify the agent; see [`MetricDef::notes`].
    pub fn notes(&mut self, notes: impl Serialize) {
        schema::add(&mut self.declared.labels, |set| set.add_notes(notes));
    }

    /// Adds labels of the metrics of a cluster; see [`MetricDef::labels`].
    pub fn cluster_labels(&mut self, cluster: u16, labels: impl Serialize) {
        schema::add(self.cluster(cluster), |set| set.add(labels));
    }

    /// Adds labels that do not identify the metrics of a cluster; see [`MetricDef::notes`].
    pub fn cluster_notes(&mut self, cluster: u16, notes: impl Serialize) {
        schema::add(self.cluster(cluster), |set| set.add_notes(notes));
    }

    fn cluster(&mut self, cluster: u16) -> &mut Result<LabelSet, String> {
        self.declared.cluster_labels.entry(cluster).or_insert_with(|| Ok(LabelSet::new()))
    }

    /// Adds a file to the agent's directory, beside the files that are generated from the declarations. `path` is
    /// relative to the directory.
    pub fn file(&mut self, path: impl Into<PathBuf>, content: impl Into<String>) {
        self.declared.files.push((path.into(), content.into()));
    }

    /// Adds a configuration file, and returns it to be read. Install copies it to `$PCP_SYSCONF_DIR/pmdaNAME`, usually
    /// below `/etc/pcp`, unless a file of this name exists there. Remove deletes it if it is unchanged.
    ///
    /// While the file does not exist, as in a test and under `cargo pmda run`, its content is the declared text. The
    /// [cookbook](crate::cookbook#a-configuration-file) has an example.
    pub fn configuration(&mut self, name: &str, content: impl Into<String>) -> ConfigFile {
        let content = content.into();
        let dir = self.config.sysconf_dir().join(format!("pmda{}", self.declared.name));
        let file = ConfigFile::new(dir.join(name)).with_default(content.as_str());
        self.file(Path::new("etc").join(name), content);
        file
    }

    /// Adds a template of pmlogconf(1), which begins with `#pmlogconf-setup`. Install copies it to
    /// `$PCP_VAR_DIR/config/pmlogconf/NAME`, where pmlogconf finds it, unless a file of this name exists there. Remove
    /// deletes it if it is unchanged. The metrics in it begin with [`Setup::name`].
    ///
    /// ```
    /// # use pmda::prelude::*;
    /// # fn declare(setup: &mut Setup) {
    /// setup.pmlogconf("summary", "#pmlogconf-setup 2.0\n\
    ///     ident\tAll metrics of agent hello\n\
    ///     probe\thello.opened exists ? include : exclude\n\
    ///     \thello\n");
    /// # }
    /// ```
    pub fn pmlogconf(&mut self, name: &str, template: impl Into<String>) {
        self.file(format!("pmlogconf/{name}"), template);
    }

    /// Adds a file of rules for pmieconf(1), which begins with `#pmieconf-rules` (pmieconf(5)). Install copies it to
    /// `$PCP_VAR_DIR/config/pmieconf/NAME`, where pmieconf finds it, unless a file of this name exists there. Remove
    /// deletes it if it is unchanged.
    pub fn pmieconf(&mut self, name: &str, rules: impl Into<String>) {
        self.file(format!("pmieconf/{name}"), rules);
    }

    /// Declares that Install enters the agent's domain into the host's list of domains, `stdpmid`, so that no other
    /// agent takes it. Remove takes it out.
    pub fn reserve_domain(&mut self) {
        self.declared.reserves_domain = true;
    }

    /// Declares that the agent is not ready when it starts ([`Agent::is_ready`](crate::Agent::is_ready)). Install then
    /// adds `notready` to its line in `pmcd.conf`.
    pub fn not_ready(&mut self) {
        self.declared.not_ready = true;
    }

    /// Declares an option of the agent that Install asks for on a terminal. Elsewhere, Install accepts the agent's
    /// options after `--`. It keeps them in `arguments.conf` in the agent's directory, and writes them to the agent's
    /// line in `pmcd.conf`. The options themselves are those of [`Agent::options`](crate::Agent::options), or of the
    /// framework.
    pub fn argument(&mut self, option: impl Into<String>) -> &mut ArgumentDef {
        self.declared.arguments.push(ArgumentDef::new(option));
        let last = self.declared.arguments.len() - 1;
        &mut self.declared.arguments[last]
    }

    /// Declares that the agent must run as a user other than PCP's, such as root. Install adds `--username` to its line
    /// in `pmcd.conf`, and [restarts](Setup::restart_pmcd) pmcd.
    pub fn run_as(&mut self, user: impl Into<String>) {
        self.declared.running.user = Some(user.into());
        self.declared.running.restart = true;
    }

    /// Declares that Install must restart pmcd instead of sending it a signal (`forced_restart` of PCP's pmdaproc.sh).
    /// pmcd drops the privileges of root after its start, so it can start a process of another user only before that.
    pub fn restart_pmcd(&mut self) {
        self.declared.running.restart = true;
    }

    /// Creates state that the agent keeps for each client. The state of a client is dropped when the client
    /// disconnects.
    pub fn clients<T: 'static>(&mut self) -> Clients<T> {
        Clients::new(&mut self.declared.ends)
    }

    /// Returns the domain that the agent runs under.
    pub fn domain(&self) -> Domain {
        self.declared.domain
    }

    /// Returns the agent's name in PCP, which may differ from [`Agent::NAME`](crate::Agent::NAME).
    pub fn name(&self) -> &str {
        &self.declared.name
    }

    /// Creates an event queue that holds up to `bytes` of unread events.
    pub fn event_queue(&mut self, bytes: usize) -> EventQueue {
        EventQueue::new(self.declared.domain, bytes, Types::clone(&self.declared.types), &mut self.declared.ends)
    }

    /// Returns the values of the agent's own options ([`Agent::options`](crate::Agent::options)).
    #[cfg(feature = "daemon")]
    pub fn options(&self) -> &clap::ArgMatches {
        &self.options
    }

    /// Returns PCP's configuration: `pcp.conf` and the environment.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the agent's directory, `$PCP_PMDAS_DIR/NAME`.
    pub fn dir(&self) -> PathBuf {
        self.config.pmdas_dir().join(&self.declared.name)
    }

    /// Returns the full identifier of an instance domain.
    pub fn indom_id(&self, serial: Serial) -> InDom {
        InDom::new(self.declared.domain, serial)
    }
}
