//! Name space of metrics.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use pcp_derived::{Controls, Definitions, Scope, Setter, read_files};
use pcp_tools::PmIds;
use pmapi::{Config, Domain, Error, Item, OptionWord as _, OrNull, PmId};
use pmns::{Node, Tree};

use crate::console::{Console, err};

/// Names of metrics.
pub(crate) struct NameSpace {
    tree: Tree,
    /// Derived metrics, which exist for clients but not for agents.
    derived: Definitions,
    /// File to load again after an error: that of `-n`, or `None` for the default name space.
    file: Option<PathBuf>,
    /// File of the last `namespace` command.
    chosen: Option<PathBuf>,
    console: Console,
    /// Whether the trace has shown the location of the name space.
    located: Cell<bool>,
}

/// Error of loading a name space. The console has shown the reason.
#[derive(Debug)]
pub struct NoNames;

/// Metrics that libpcp defines itself.
const ANONYMOUS: [(&str, PmId); 2] = [
    ("event.flags", PmId::new(Domain::DYNAMIC, Item::new(0, 1))),
    ("event.missed", PmId::new(Domain::DYNAMIC, Item::new(0, 2))),
];

impl NameSpace {
    /// Loads the name space of a file, or the default one. Shows the reason of a failure.
    pub(crate) fn load(file: Option<PathBuf>, console: &Console) -> Result<Self, NoNames> {
        let (tree, derived) = (load(file.as_deref(), console)?, derived(console));
        Ok(NameSpace { tree, derived, file, chosen: None, console: console.clone(), located: Cell::new(false) })
    }

    /// Replaces the name space by that of a file; if the file is bad, by the first one.
    pub(crate) fn replace(&mut self, path: PathBuf) -> Result<(), NoNames> {
        let loaded = load(Some(&path), &self.console);
        self.chosen = Some(path);
        self.tree = loaded.or_else(|NoNames| {
            match &self.file {
                None => err!(self.console, "dbpmda: Reload default namespace\n"),
                Some(file) => err!(self.console, "dbpmda: Reload namespace from \"{}\"\n", file.display()),
            }
            load(self.file.as_deref(), &self.console)
        })?;
        Ok(())
    }

    /// Returns the file that was named last.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.chosen.as_deref().or(self.file.as_deref())
    }

    /// Returns the PMID of a name (pmLookupName(3)). For a dynamic name this is its root.
    pub(crate) fn lookup(&self, name: &str) -> Result<PmId, Error> {
        if self.console.has("pmapi") {
            err!(self.console, "pmLookupName(1, name[0] {name}, ...) <:");
        }
        let found = self.tree.lookup(name);
        if self.console.has("pmns") {
            self.trace_location();
            self.trace_lookup(name, found);
        }
        let derived = || self.derived.get(name).map(|definition| definition.pmid());
        let found = found.or_else(|code| {
            ANONYMOUS.iter().find(|(known, _)| *known == name).map(|(_, pmid)| *pmid).or_else(derived).ok_or(code)
        });
        let (status, pmid) = match found {
            Ok(pmid) => ("1".to_owned(), format!(" (pmid[0] {pmid})")),
            Err(code) => (code.to_string(), String::new()),
        };
        self.console.trace("pmapi", format_args!(":> returns {status}{pmid}"));
        self.console.trace("pmns", format_args!("pmLookupName(1, ...) -> {status}"));
        found
    }

    fn trace_lookup(&self, name: &str, found: Result<PmId, Error>) {
        let (count, pmid) = match found {
            Ok(pmid) => (1, Some(Some(pmid))),
            // Not finding a name is not an error in this trace.
            Err(Error::NAME) => (0, Some(None)),
            Err(code) => (code.code(), None),
        };
        let pmid = pmid.map_or_else(String::new, |pmid| format!(" PMID: {:#x} {}", pmid.word(), OrNull(pmid)));
        err!(self.console, "pmLookupName(1, ...) using local PMNS returns {count} and ...\n");
        err!(self.console, "  name[0]: \"{name}\"{pmid}\n");
    }

    fn trace_location(&self) {
        if self.console.has("pmns") && !self.located.replace(true) {
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
        let derived = self.derived.iter().map(|definition| (definition.name(), definition.pmid()));
        let mut others = ANONYMOUS.into_iter().chain(derived);
        let mut names: Vec<_> = self.tree.names(pmid).collect();
        if names.is_empty() {
            names.extend(others.find(|(_, known)| *known == pmid).map(|(name, _)| name.to_owned()));
        }
        names
    }
}

/// Returns whether a PMID is the root of dynamic names.
pub(crate) fn is_dynamic_root(pmid: PmId) -> bool {
    pmid.domain() == Domain::DYNAMIC && pmid.item().item() == 0
}

fn load(file: Option<&Path>, console: &Console) -> Result<Tree, NoNames> {
    let default = pcp_tools::default_name_space();
    let path = file.unwrap_or(&default);
    // The default name space is loaded without a preprocessor.
    let (name, cpp) = file.map_or_else(|| ("(null)".to_owned(), 0), |file| (file.display().to_string(), 1));
    let shown = path.display();
    console.trace("pmns", format_args!("load(name={name}, dupok=1, use_cpp={cpp}) lic case=0 fname={shown}"));
    console.trace("pmns", format_args!("loadascii(dupok=1, use_cpp={cpp}) fname={shown}"));
    let tree = pcp_tools::loader(PmIds::Shared).load(path).map_err(|e| {
        err!(console, "{}", e.diagnostics());
        let code = Error::from(e);
        match file {
            None => err!(console, "dbpmda: Cannot load default namespace: {code}\n"),
            Some(_) => err!(console, "dbpmda: Cannot load namespace from \"{name}\": {code}\n"),
        }
        NoNames
    })?;
    if console.has("pmns") {
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

/// Loads the definitions of `$PCP_DERIVED_CONFIG`, or else of PCP's configuration. Shows their mistakes.
fn derived(console: &Console) -> Definitions {
    let config = Config::load();
    let default = config.var_dir().join("config/derived");
    let paths = config.var("PCP_DERIVED_CONFIG").unwrap_or(default.as_os_str()).to_string_lossy();
    let (mut definitions, mut controls) = (Definitions::new(Scope::Global), Controls::default());
    if let Some(text) = std::env::var_os("PCP_DERIVED_CONTROL") {
        let errors = controls.set_from_text(Setter::Environment, &text.to_string_lossy());
        errors.iter().for_each(|error| err!(console, "Warning: $PCP_DERIVED_CONTROL: {error}\n"));
        controls.apply(&mut definitions);
    }
    read_files(&paths, &mut |path, text| {
        // A file that cannot be read counts as empty, as in libpcp.
        let text = text.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let loaded = definitions.load_text(&path.display().to_string(), &text, &mut controls);
        loaded.messages.iter().for_each(|message| err!(console, "{message}\n"));
    });
    definitions
}
