//! Name space of metrics.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use pcp_derive::{Controls, Definitions, Scope, read_files};
use pcp_tools::PmIds;
use pmapi::{Config, Domain, Item, OptionWord as _, OrNull, PmId};
use pmns::{Node, Tree};

use crate::console::{Console, err};
use crate::trace::Trace;

/// Names of metrics.
pub(crate) struct NameSpace {
    tree: Tree,
    derived: Derived,
    /// File to load again after an error: that of `-n`, or `None` for the default name space.
    file: Option<PathBuf>,
    /// File of the last `namespace` command.
    chosen: Option<PathBuf>,
    console: Console,
    trace: Trace,
    /// Whether the trace has shown the location of the name space.
    located: Cell<bool>,
}

/// Error of loading a name space. The console has shown the reason.
#[derive(Debug)]
pub struct NoNames;

impl NameSpace {
    /// Loads the name space of a file, or the default one. Shows the reason of a failure.
    pub(crate) fn load(file: Option<PathBuf>, console: &Console, trace: &Trace) -> Result<Self, NoNames> {
        let tree = load(file.as_deref(), console, trace)?;
        let derived = Derived::load(console);
        let (console, trace) = (console.clone(), trace.clone());
        Ok(NameSpace { tree, derived, file, chosen: None, console, trace, located: Cell::new(false) })
    }

    /// Replaces the name space by that of a file; if the file is bad, by the first one.
    pub(crate) fn replace(&mut self, path: PathBuf) -> Result<(), NoNames> {
        let NameSpace { console, trace, .. } = self;
        let loaded = load(Some(&path), console, trace);
        self.chosen = Some(path);
        self.tree = match (loaded, &self.file) {
            (Ok(tree), _) => tree,
            (Err(NoNames), file) => {
                match file {
                    None => err!(console, "dbpmda: Reload default namespace\n"),
                    Some(file) => err!(console, "dbpmda: Reload namespace from \"{}\"\n", file.display()),
                }
                load(file.as_deref(), console, trace)?
            }
        };
        Ok(())
    }

    /// Returns the file that was named last.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.chosen.as_deref().or(self.file.as_deref())
    }

    /// Returns the PMID of a name (pmLookupName(3)). For a dynamic name this is its root.
    pub(crate) fn lookup(&self, name: &str) -> Result<PmId, pmapi::Error> {
        if self.trace.has("pmapi") {
            err!(self.console, "pmLookupName(1, name[0] {name}, ...) <:");
        }
        let found = self.tree.lookup(name);
        if self.trace.has("pmns") {
            self.trace_location();
            self.trace_lookup(name, found);
        }
        let found = found.or_else(|code| self.derived.lookup(name).ok_or(code));
        self.trace.line(
            "pmapi",
            format_args!(
                ":> returns {}",
                match found {
                    Ok(pmid) => format!("1 (pmid[0] {pmid})"),
                    Err(code) => code.to_string(),
                }
            ),
        );
        self.trace.line(
            "pmns",
            format_args!(
                "pmLookupName(1, ...) -> {}",
                match found {
                    Ok(_) => "1".to_owned(),
                    Err(code) => code.to_string(),
                }
            ),
        );
        found
    }

    fn trace_lookup(&self, name: &str, found: Result<PmId, pmapi::Error>) {
        let (count, pmid) = match found {
            Ok(pmid) => (1, Some(Some(pmid))),
            // Not finding a name is not an error in this trace.
            Err(pmapi::Error::NAME) => (0, Some(None)),
            Err(code) => (code.code(), None),
        };
        let pmid = pmid.map_or_else(String::new, |pmid| format!(" PMID: {:#x} {}", pmid.word(), OrNull(pmid)));
        err!(self.console, "pmLookupName(1, ...) using local PMNS returns {count} and ...\n");
        err!(self.console, "  name[0]: \"{name}\"{pmid}\n");
    }

    fn trace_location(&self) {
        if self.trace.has("pmns") && !self.located.replace(true) {
            err!(self.console, "pmGetPMNSLocation() -> Local\n");
        }
    }

    /// Returns all names of a metric (pmNameAll(3)), with a trace.
    pub(crate) fn all(&self, pmid: Option<PmId>) -> Vec<String> {
        self.trace_location();
        self.all_quietly(pmid)
    }

    /// Returns all names of a metric (pmNameAll(3)), without a trace.
    pub(crate) fn all_quietly(&self, pmid: Option<PmId>) -> Vec<String> {
        let Some(pmid) = pmid.filter(|pmid| !is_dynamic_root(*pmid)) else { return Vec::new() };
        let names: Vec<_> = self.tree.names(pmid).collect();
        if names.is_empty() { self.derived.name(pmid).map(str::to_owned).into_iter().collect() } else { names }
    }
}

/// Returns whether a PMID is the root of dynamic names.
pub(crate) fn is_dynamic_root(pmid: PmId) -> bool {
    pmid.domain() == Domain::DYNAMIC && pmid.item().item() == 0
}

fn load(file: Option<&Path>, console: &Console, trace: &Trace) -> Result<Tree, NoNames> {
    let default = pcp_tools::default_name_space();
    let path = file.unwrap_or(&default).display();
    // The default name space is loaded without a preprocessor.
    let (name, cpp) = file.map_or_else(|| ("(null)".to_owned(), 0), |file| (file.display().to_string(), 1));
    trace.line("pmns", format_args!("load(name={name}, dupok=1, use_cpp={cpp}) lic case=0 fname={path}"));
    trace.line("pmns", format_args!("loadascii(dupok=1, use_cpp={cpp}) fname={path}"));
    let tree = pcp_tools::loader(PmIds::Shared).load(file.unwrap_or(&default)).map_err(|e| {
        err!(console, "{}", e.diagnostics());
        let code = pmapi::Error::from(e);
        match file {
            None => err!(console, "dbpmda: Cannot load default namespace: {code}\n"),
            Some(file) => err!(console, "dbpmda: Cannot load namespace from \"{}\": {code}\n", file.display()),
        }
        NoNames
    })?;
    if trace.has("pmns") {
        trace_leaves(tree.root(), console);
        err!(console, "Loaded ASCII PMNS\n");
    }
    Ok(tree)
}

/// Traces metrics in the order of a file: those of a node before those further below.
fn trace_leaves(node: Node<'_>, console: &Console) {
    for child in node.children() {
        if let Some(pmid) = child.pmid() {
            err!(console, "pmLoadNameSpace: {} -> {pmid}\n", child.name());
        }
    }
    node.children().filter(|child| child.pmid().is_none()).for_each(|child| trace_leaves(child, console));
}

/// Derived metrics, which exist for clients but not for agents.
struct Derived(Definitions);

/// Metrics that libpcp defines itself.
const ANONYMOUS: [(&str, PmId); 2] = [
    ("event.flags", PmId::new(Domain::DYNAMIC, Item::new(0, 1))),
    ("event.missed", PmId::new(Domain::DYNAMIC, Item::new(0, 2))),
];

impl Derived {
    /// Loads the definitions of `$PCP_DERIVED_CONFIG`, or else of PCP's configuration. Shows their mistakes.
    fn load(console: &Console) -> Derived {
        let config = Config::load();
        let default = config.var_dir().join("config/derived");
        let paths = config.var("PCP_DERIVED_CONFIG").unwrap_or(default.as_os_str()).to_string_lossy();
        let (mut definitions, mut controls) = (Definitions::new(Scope::Global), Controls::default());
        read_files(&paths, &mut |path, text| {
            // A file that cannot be read counts as empty, as in libpcp.
            let text = text.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let loaded = definitions.load_text(&path.display().to_string(), &text, &mut controls);
            loaded.messages.iter().for_each(|message| err!(console, "{message}\n"));
        });
        Derived(definitions)
    }

    fn lookup(&self, name: &str) -> Option<PmId> {
        let anonymous = ANONYMOUS.iter().find(|(known, _)| *known == name);
        anonymous.map(|(_, pmid)| *pmid).or_else(|| Some(self.0.get(name)?.pmid()))
    }

    fn name(&self, pmid: PmId) -> Option<&str> {
        let anonymous = ANONYMOUS.iter().find(|(_, known)| *known == pmid);
        anonymous
            .map(|(name, _)| *name)
            .or_else(|| Some(self.0.iter().find(|definition| definition.pmid() == pmid)?.name()))
    }
}
