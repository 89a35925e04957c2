//! Agents of this repository. Each agent is this program, started again with other arguments.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use pcp_view::Plan;
use pmapi::Config;
use pmda::host::{Engine, Schema, SetupError};
use pmda::{Agent, BoxError};

/// All agents, one line each.
pub(crate) const AGENTS: &[Builtin] = &[
    of::<pmda_trivial::Trivial>(),
    SIMPLE,
    of::<pmda_derived::Derived>().with(derive),
    of::<pmda_showcase::Showcase>(),
    of::<pmda_mmv::Mmv>(),
    // Only one process can have its port.
    #[cfg(feature = "trace")]
    of::<pmda_trace::Trace>().on_request(),
    // It has no sources by default.
    #[cfg(feature = "openmetrics")]
    of::<pmda_openmetrics::Openmetrics>().on_request(),
];

/// Agents that are compiled only with the feature of their name.
pub(crate) const OPTIONAL: &[&str] = &["trace", "openmetrics"];

/// Returns whether this program contains an agent.
pub(crate) fn contains(name: &str) -> bool {
    AGENTS.iter().any(|agent| agent.name == name)
}

const SIMPLE: Builtin = of::<pmda_simple::Simple>();

/// First argument of this program when it runs as an agent.
const AS_AGENT: &str = "agent";

/// Agent of this repository.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    /// Whether the agent is started if the command line names no agent.
    pub(crate) by_default: bool,
    run: fn(Vec<OsString>) -> ExitCode,
    schema: fn(Config) -> Result<Schema, SetupError>,
    arguments: fn(&Place<'_>) -> Result<Vec<OsString>, BoxError>,
}

/// Environment that an agent's own arguments depend on.
struct Place<'a> {
    /// Directory of the agent.
    dir: &'a Path,
    config: &'a Config,
    /// Returns the arguments with which this program runs as the agent of a given name.
    common: &'a dyn Fn(&str) -> Vec<OsString>,
}

const fn of<A: Agent>() -> Builtin {
    Builtin {
        name: A::NAME,
        by_default: true,
        run: |args| pmda::host::run::<A>(args),
        schema: |config| Engine::<A>::builder().config(config).schema(),
        arguments: |_| Ok(Vec::new()),
    }
}

impl Builtin {
    #[cfg(any(feature = "openmetrics", feature = "trace"))]
    const fn on_request(self) -> Builtin {
        Builtin { by_default: false, ..self }
    }

    const fn with(self, arguments: fn(&Place<'_>) -> Result<Vec<OsString>, BoxError>) -> Builtin {
        Builtin { arguments, ..self }
    }

    /// Returns the agent's metrics, and its name space with the dynamic roots.
    fn names(&self, config: Config) -> Result<(Schema, pmns::Tree), BoxError> {
        let schema = (self.schema)(config)?;
        let mut names = pmns::Tree::new();
        for metric in schema.metrics() {
            names.insert(metric.name(), metric.desc(schema.domain()).pmid)?;
        }
        for root in schema.dynamic() {
            names.insert(root, pmns::dynamic_root(schema.domain()))?;
        }
        Ok((schema, names))
    }
}

/// Runs this process as an agent if the command line is `agent NAME OPTIONS…`. Otherwise returns `None`.
pub(crate) fn agent(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    args.next().filter(|first| first == AS_AGENT)?;
    let name = args.next()?;
    let agent = AGENTS.iter().find(|agent| name == agent.name)?;
    // An agent ends when its input ends. An agent that hangs must not outlive this program either.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let program = OsString::from(format!("pmda{}", agent.name));
    Some((agent.run)(std::iter::once(program).chain(args).collect()))
}

/// Plans the start of an agent with its files in `scratch`, so that an installed PCP is not changed.
pub(crate) fn plan(agent: &Builtin, scratch: &Path) -> Result<Plan, BoxError> {
    let pmdas = scratch.join("pmdas");
    let dir = pmdas.join(agent.name);
    fs::create_dir_all(&dir)?;
    let mut places = pcp_view::trial(scratch)?.to_vec();
    places.push((OsStr::new("PCP_PMDAS_DIR"), pmdas));
    let config = Config::load().with(places.iter().map(|(name, path)| ((*name).to_owned(), path.into())));

    let (schema, names) = agent.names(config.clone())?;
    for (file, text) in schema.files() {
        let path = dir.join(file);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }

    // The agent runs as the current user, which owns the files, not as PCP's user.
    let user = User::from_uid(geteuid())?.map(|user| user.name);
    let common = |name: &str| {
        let user = user.iter().flat_map(|user| ["--username", user]);
        [AS_AGENT, name, "--log", "-"].into_iter().chain(user).map(OsString::from).collect()
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(common(agent.name)).envs(places);
    command.args((agent.arguments)(&Place { dir: &dir, config: &config, common: &common })?);
    Ok(Plan::new(agent.name, command, names, scratch)?)
}

/// Configures agent `derived` to start its own agent `simple`. Returns the arguments.
fn derive(place: &Place<'_>) -> Result<Vec<OsString>, BoxError> {
    let (schema, names) = SIMPLE.names(place.config.clone())?;
    fs::write(place.dir.join("simple.pmns"), pmns::write::root(&names))?;
    let mut command = vec![std::env::current_exe()?.into_os_string()];
    command.extend((place.common)(SIMPLE.name));
    let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    // A JSON array of strings is valid TOML.
    let command = serde_json::to_string(&command)?;
    let metrics = include_str!("derived.toml");
    let group = format!(
        "[group.simple]\ninterval = \"1sec\"\n\
         agent = {{ domain = {}, pmns = \"simple.pmns\", command = {command} }}\n\n{metrics}",
        schema.domain()
    );
    let path = place.dir.join("derived.toml");
    fs::write(&path, group)?;
    Ok(vec!["-c".into(), path.into_os_string()])
}
