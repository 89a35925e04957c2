//! An installed agent that a new one is to replace: its metrics, as it describes them itself.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pcp_base::escape;
use pcp_collector::{Collector, Launch, Process};
use pcp_help::Target;
use pcp_help::source::{self, Resolver};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_view::{BoxError, trial};
use pmapi::{Config, Desc, Domain, InDom, Inst, PmId, Serial};
use pmns::{Loader, Tree};

use crate::names::text;

/// Largest number of metrics that are declared. Agents with more have names that they make at run time.
const MOST_METRICS: usize = 2000;
/// Largest number of instances that are declared, as those of a domain that never changes.
const MOST_INSTANCES: usize = 32;
/// Largest number of lines that are printed of what an agent that fails has printed.
const MOST_LINES: usize = 10;
/// What helps if an agent fails.
const ADVICE: &str = "give the agent's options after --, or run its Install first";

/// The metrics of an agent.
#[derive(Debug)]
pub(crate) struct Original {
    pub(crate) metrics: Vec<Metric>,
    pub(crate) indoms: BTreeMap<Serial, Instances>,
}

/// A metric as its agent describes it. Texts are empty if it has none.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) desc: Desc,
    pub(crate) texts: [String; 2],
}

/// An instance domain as its agent describes it.
#[derive(Debug)]
pub(crate) struct Instances {
    /// The present instances, unless there are many.
    pub(crate) present: Vec<(Inst, String)>,
    pub(crate) texts: [String; 2],
}

/// The file that an agent runs from.
enum Program {
    Binary(PathBuf),
    /// The interpreter, the language in the names of the variables by which it prints its names, and the script.
    Script(OsString, &'static str, PathBuf),
}

impl Program {
    /// Finds the program in an agent's directory: `pmdaNAME`, or a script of this name.
    fn find(dir: &Path, name: &str, config: &Config) -> Result<Program, BoxError> {
        let name = format!("pmda{name}");
        let interpreter =
            |variable: &str, default: &str| config.var(variable).map_or(default.into(), ToOwned::to_owned);
        for (end, language, variable, default) in [
            ("", "", "", ""),
            (".python", "PYTHON", "PCP_PYTHON_PROG", "python3"),
            (".py", "PYTHON", "PCP_PYTHON_PROG", "python3"),
            (".pl", "PERL", "PCP_PERL_PROG", "perl"),
            (".perl", "PERL", "PCP_PERL_PROG", "perl"),
        ] {
            let file = dir.join(format!("{name}{end}"));
            if file.is_file() {
                return Ok(match language {
                    "" => Program::Binary(file),
                    _ => Program::Script(interpreter(variable, default), language, file),
                });
            }
        }
        Err(format!("{}: there is no agent {name}, {name}.python or {name}.pl", dir.display()).into())
    }

    fn command(&self) -> Command {
        match self {
            Program::Binary(file) => Command::new(file),
            Program::Script(interpreter, _, file) => {
                let mut command = Command::new(interpreter);
                // As in pcp.env: PCP's modules are those of the system's interpreter.
                let mut path = OsString::from("/usr/sbin:/usr/bin:/sbin:/bin:");
                path.push(std::env::var_os("PATH").unwrap_or_default());
                command.arg(file).env("PATH", path);
                command
            }
        }
    }

    /// Returns what a script prints when it is asked for its name space (`root`) or its domain (`domain.h`).
    fn prints(&self, what: &str, scratch: &Path) -> Result<Option<String>, BoxError> {
        let Program::Script(_, language, file) = self else { return Ok(None) };
        let mut command = self.command();
        command.env(format!("PCP_{language}_{what}"), "root").envs(trial(scratch)?).current_dir(scratch);
        let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", file.display()))?;
        if !output.status.success() {
            print_first(&[output.stdout, output.stderr].concat());
            return Err(format!("{}: {}; {ADVICE}", file.display(), output.status).into());
        }
        Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

impl Original {
    /// Starts the agent of a directory, such as `/var/lib/pcp/pmdas/zswap`, and asks it for its metrics. `known` is its
    /// domain if none of its files has it.
    ///
    /// # Errors
    /// The directory has no agent that can be started, or no name space; the agent fails or does not answer.
    pub(crate) fn ask((dir, name): (&Path, &str), args: &[OsString], known: Option<u16>) -> Result<Original, BoxError> {
        let (config, scratch) = (Config::load(), tempfile::tempdir()?);
        let program = Program::find(dir, name, &config)?;
        let printed = program.prints("DOMAIN", scratch.path())?;
        let domain = printed.or_else(|| Some(text(&dir.join("domain.h")))).and_then(|text| defined(&text)).or(known);
        let number = domain.ok_or_else(|| format!("{}: the agent's domain is in no file", dir.display()))?;
        let domain = Domain::new(number).ok_or_else(|| format!("{number} is not a domain"))?;
        let tree = names((dir, name), &program, scratch.path(), &config)?;

        let log = scratch.path().join("log");
        let mut command = program.command();
        if let Program::Binary(_) = program {
            command.args(["-d", &number.to_string(), "-l"]).arg(&log);
        }
        command.args(args);
        command.envs(trial(scratch.path())?).current_dir(scratch.path()).stderr(File::create(&log)?);
        let asked = Launch::pipe(command).isolated().start().map_err(BoxError::from).and_then(|mut agent| {
            let metrics = metrics(&tree, domain, &mut agent)?;
            let indoms = metrics.iter().filter_map(|metric| metric.desc.indom);
            let indoms = indoms.map(|indom| (indom.serial(), indom)).collect::<BTreeMap<_, _>>();
            let indoms = indoms.into_iter().map(|(serial, indom)| (serial, instances(indom, &mut agent))).collect();
            Ok(Original { metrics, indoms })
        });
        let mut original = asked.map_err(|e| {
            print_first(&fs::read(&log).unwrap_or_default());
            format!("{}: {e}; {ADVICE}", dir.display())
        })?;
        original.add_help(text(&dir.join("help")).as_bytes(), domain);
        Ok(original)
    }

    /// Returns whether any metric or instance domain has a text.
    pub(crate) fn has_help(&self) -> bool {
        let mut texts = self.metrics.iter().map(|m| &m.texts).chain(self.indoms.values().map(|indom| &indom.texts));
        texts.any(|texts| texts.iter().any(|text| !text.is_empty()))
    }

    /// Adds the texts of a source of newhelp(1) where the agent has none. Before its Install, the compiled files are
    /// missing that an agent in C reads.
    fn add_help(&mut self, help: &[u8], domain: Domain) {
        let names = Names { domain, metrics: self.metrics.iter().map(|m| (m.name.clone(), m.desc.pmid)).collect() };
        for entry in source::raw_entries(help) {
            let texts = match source::target(&entry.name(), &names) {
                Ok(Target::Metric(pmid)) => {
                    self.metrics.iter_mut().find(|m| m.desc.pmid == pmid).map(|metric| &mut metric.texts)
                }
                Ok(Target::InDom(indom)) => self.indoms.get_mut(&indom.serial()).map(|indom| &mut indom.texts),
                Err(_) => None,
            };
            if let Some(texts) = texts.filter(|texts| texts.iter().all(String::is_empty)) {
                *texts = [entry.oneline, &entry.text].map(|text| String::from_utf8_lossy(text).trim_end().to_owned());
            }
        }
    }
}

/// Resolves the names in the help of an agent. A symbol is that of its own domain.
struct Names {
    domain: Domain,
    metrics: HashMap<String, PmId>,
}

impl Resolver for Names {
    fn metric(&self, name: &str) -> Option<PmId> {
        self.metrics.get(name).copied()
    }

    fn domain(&self, _: &str) -> Option<Domain> {
        Some(self.domain)
    }
}

/// Prints the first lines of what an agent has printed. The first ones say what is wrong, and its usage may follow.
fn print_first(said: &[u8]) {
    let said = String::from_utf8_lossy(said);
    let lines: Vec<_> = said.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("Log ")).collect();
    let mut text = String::new();
    for line in lines.iter().take(MOST_LINES) {
        text += &format!("  {line}\n");
    }
    if lines.len() > MOST_LINES {
        text += &format!("  … {} more lines\n", lines.len() - MOST_LINES);
    }
    if !lines.is_empty() {
        escape::eprint(format_args!("The agent printed:\n{text}"));
    }
}

/// Returns the number of a line `#define NAME NUMBER`.
fn defined(text: &str) -> Option<u16> {
    let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("#define"));
    lines.find_map(|line| line.split_whitespace().nth(1)?.parse().ok())
}

/// Loads the name space of an agent: the one that it prints, or its file `root_NAME` or `root`.
fn names((dir, name): (&Path, &str), program: &Program, scratch: &Path, config: &Config) -> Result<Tree, BoxError> {
    let loader = Loader::new().include_dir(dir).include_dir(config.var_dir().join("pmns"));
    if let Some(printed) = program.prints("PMNS", scratch)? {
        // What Install puts below the root of all names.
        let text = if printed.contains("root") { printed } else { format!("root {{\n{printed}\n}}\n") };
        return Ok(loader.parse(text, &dir.join("root"))?);
    }
    let files = [dir.join(format!("root_{name}")), dir.join("root")];
    let file = files.iter().find(|file| file.is_file());
    let file = file.ok_or_else(|| format!("{}: there is no name space, root_{name} or root", dir.display()))?;
    Ok(loader.load(file)?)
}

/// Returns the metrics of an agent: those of its name space, and those below the dynamic names there.
fn metrics(tree: &Tree, domain: Domain, agent: &mut Collector<Process>) -> Result<Vec<Metric>, BoxError> {
    let mut found = Vec::new();
    for leaf in tree.root().leaves() {
        match leaf.pmid() {
            Some(pmid) if pmid.domain() == domain => found.push((leaf.path(), pmid)),
            Some(root) if root == pmns::dynamic_root(domain) => {
                for name in agent.traverse(&leaf.path())? {
                    let pmid = agent.pmid(&name)?;
                    found.push((name, pmid));
                }
            }
            _ => {}
        }
    }
    if found.len() > MOST_METRICS {
        return Err(format!("it has {} metrics; at most {MOST_METRICS} can be declared", found.len()).into());
    }
    found.sort_by_key(|(_, pmid)| *pmid);
    let mut metrics = Vec::new();
    for (name, pmid) in found {
        // The agent may know a name but no such metric, on this host.
        let Ok(desc) = agent.desc(pmid) else { continue };
        metrics.push(Metric { name, desc, texts: texts(Subject::Metric(pmid), agent) });
    }
    if metrics.is_empty() { Err("the agent describes no metric".into()) } else { Ok(metrics) }
}

fn instances(indom: InDom, agent: &mut Collector<Process>) -> Instances {
    let mut present = agent.instances(indom).unwrap_or_default();
    present.truncate(if present.len() > MOST_INSTANCES { 0 } else { present.len() });
    Instances { present, texts: texts(Subject::InDom(indom), agent) }
}

/// Returns the line and the help text. An agent without texts answers with an error, which is no reason to stop.
fn texts(subject: Subject, agent: &mut Collector<Process>) -> [String; 2] {
    [TextKind::OneLine, TextKind::Help].map(|kind| agent.text(subject, kind).unwrap_or_default().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use pmapi::{Item, PmId, Semantics, Type, Units};

    use super::*;

    #[test]
    fn the_help_file_has_what_the_agent_does_not_say() {
        let domain = Domain::new(19).unwrap();
        let metric = |name: &str, item, oneline: &str| {
            let pmid = PmId::new(domain, Item::new(0, item));
            let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE };
            Metric { name: name.to_owned(), desc, texts: [oneline.to_owned(), String::new()] }
        };
        let indom = Instances { present: Vec::new(), texts: <[String; 2]>::default() };
        let metrics = vec![metric("x.a", 0, ""), metric("x.b", 1, "own"), metric("x.c", 2, "")];
        let mut original = Original { metrics, indoms: BTreeMap::from([(Serial::new(3), indom)]) };
        original.add_help(b"# comment\n@ x.a One\ntwo\nlines\n\n@ x.b Other\n@ X.3 Things\n@ y.z None\n", domain);
        let texts: Vec<_> = original.metrics.iter().map(|metric| metric.texts.each_ref().map(String::as_str)).collect();
        assert_eq!(texts, [["One", "two\nlines"], ["own", ""], ["", ""]]);
        assert_eq!(original.indoms[&Serial::new(3)].texts, ["Things", ""]);
    }
}
