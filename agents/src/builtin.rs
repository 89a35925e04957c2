//! The agents of this repository: each is this program started again as that agent.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use pmapi::Config;
use pmda::{Agent, Failure, Schema, Start};

use crate::fleet::Plan;

/// Every agent, one line each.
pub(crate) const AGENTS: &[Builtin] = &[
    of::<pmda_trivial::Trivial>(),
    SIMPLE,
    of::<pmda_derived::Derived>().with(derive),
    of::<pmda_showcase::Showcase>(),
    of::<pmda_mmv::Mmv>(),
    // Only one can have its port.
    of::<pmda_trace::Trace>().on_request(),
];

const SIMPLE: Builtin = of::<pmda_simple::Simple>();

/// The first argument of this program when it is to be an agent.
const AS_AGENT: &str = "agent";

/// An agent of this repository.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    /// Whether it is started when no agent is named.
    pub(crate) by_default: bool,
    run: fn(Vec<OsString>) -> ExitCode,
    schema: fn(Config) -> Start<Schema>,
    arguments: fn(&Place<'_>) -> Start<Vec<OsString>>,
}

/// What an agent's own arguments are made from.
struct Place<'a> {
    /// The agent's own directory.
    dir: &'a Path,
    config: &'a Config,
    /// Those that every agent gets, from the agent's name on.
    common: &'a dyn Fn(&str) -> Vec<OsString>,
}

const fn of<A: Agent>() -> Builtin {
    Builtin {
        name: A::NAME,
        by_default: true,
        run: |args| pmda::run::<A>(args),
        schema: |config| Schema::with::<A>(config),
        arguments: |_| Ok(Vec::new()),
    }
}

impl Builtin {
    const fn on_request(self) -> Builtin {
        Builtin { by_default: false, ..self }
    }

    const fn with(self, arguments: fn(&Place<'_>) -> Start<Vec<OsString>>) -> Builtin {
        Builtin { arguments, ..self }
    }

    /// The agent's metrics, with the places where names are dynamic.
    fn names(&self, config: Config) -> Start<(Schema, pmns::Tree)> {
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

/// Runs this process as an agent if that is what its command line says: `agent NAME OPTIONS…`.
pub(crate) fn agent(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    args.next().filter(|first| first == AS_AGENT)?;
    let name = args.next()?;
    let agent = AGENTS.iter().find(|agent| name == agent.name)?;
    // The end of its input ends an agent; one that hangs must not outlive the collector either.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let program = OsString::from(format!("pmda{}", agent.name));
    Some((agent.run)(std::iter::once(program).chain(args).collect()))
}

/// How to start an agent with its files under `scratch`, so that nothing of an installed PCP changes.
pub(crate) fn plan(agent: &Builtin, scratch: &Path) -> Result<Plan, Failure> {
    let (pmdas, var) = (scratch.join("pmdas"), scratch.join("var"));
    let dir = pmdas.join(agent.name);
    fs::create_dir_all(var.join("config/pmda"))?;
    fs::create_dir_all(&dir)?;
    let places = [
        ("PCP_PMDAS_DIR", pmdas),
        ("PCP_VAR_DIR", var),
        // Files that applications make for an agent are where they are without this program.
        ("PCP_TMP_DIR", Config::load().tmp_dir()),
    ];
    let places = places.map(|(name, path)| (OsString::from(name), path.into_os_string()));
    let text = fs::read(Config::path()).unwrap_or_default();
    let config = Config::new(&text, std::env::vars_os().chain(places.clone()));

    let (schema, names) = agent.names(config.clone())?;
    for (file, text) in schema.files() {
        let path = dir.join(file);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }

    // As this user, whose files those are, not as PCP's.
    let user = User::from_uid(geteuid())?.map(|user| user.name);
    let common = |name: &str| {
        let user = user.iter().flat_map(|user| ["--username", user]);
        [AS_AGENT, name, "-l", "-"].into_iter().chain(user).map(OsString::from).collect()
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(common(agent.name)).envs(places);
    command.args((agent.arguments)(&Place { dir: &dir, config: &config, common: &common })?);
    log_to(&mut command, scratch, agent.name)?;
    Ok(Plan { name: agent.name.to_owned(), command, names, log: Some(log(scratch, agent.name)) })
}

/// How to start an agent by its command line, with the names of its metrics.
pub(crate) fn foreign(command: &[OsString], names: pmns::Tree, scratch: &Path) -> Result<Plan, Failure> {
    let (program, args) = command.split_first().ok_or("no command")?;
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let name = name.strip_prefix("pmda").unwrap_or(&name).to_owned();
    let mut command = Command::new(program);
    command.args(args);
    log_to(&mut command, scratch, &name)?;
    Ok(Plan { log: Some(log(scratch, &name)), name, command, names })
}

fn log(scratch: &Path, name: &str) -> std::path::PathBuf {
    scratch.join(Path::new(name).with_extension("log").file_name().unwrap_or(OsStr::new("log")))
}

/// Standard error to a file; Ctrl-C to this program alone, which ends its agents.
fn log_to(command: &mut Command, scratch: &Path, name: &str) -> io::Result<()> {
    command.stderr(File::create(log(scratch, name))?).process_group(0);
    Ok(())
}

/// Agent derived starts an agent simple of its own.
fn derive(place: &Place<'_>) -> Start<Vec<OsString>> {
    let (schema, names) = SIMPLE.names(place.config.clone())?;
    fs::write(place.dir.join("simple.pmns"), pmns::write::root(&names))?;
    let mut command = vec![std::env::current_exe()?.into_os_string()];
    command.extend((place.common)(SIMPLE.name));
    let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    // A list of strings in JSON is one in TOML too.
    let command = serde_json::to_string(&command)?;
    let metrics = include_str!("derived.toml");
    let group = format!(
        "[group.simple]\ninterval = \"10msec\"\n\
         agent = {{ domain = {}, pmns = \"simple.pmns\", command = {command} }}\n\n{metrics}",
        schema.domain()
    );
    let path = place.dir.join("derived.toml");
    fs::write(&path, group)?;
    Ok(vec!["-c".into(), path.into_os_string()])
}
