//! Configuration while files are loaded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pcp_client::HostSpec;
use pcp_derived::{Control, Controls, Definitions, Message, Scope, Setter, Severity, UnknownNames};
use pmapi::debug::Debug;

use super::{Config, GroupConfig, Operands, Place, Problem};

/// Group of definitions that no file assigns to another group.
pub(super) const DERIVED: &str = "derived";

/// Groups and problems of the files that have been loaded so far.
pub(super) struct Loader {
    pub(super) host: HostSpec,
    controls: Controls,
    pub(super) config: Config,
}

impl Loader {
    pub(super) fn new(host: &HostSpec) -> Loader {
        let config = Config { groups: Vec::new(), problems: Vec::new() };
        let mut controls = Controls::default();
        controls.on_debug(follow);
        Loader { host: host.clone(), controls, config }
    }

    /// Applies `$PCP_DERIVED_CONTROL`, which takes precedence over controls in files.
    pub(super) fn environment(&mut self) {
        let name = "PCP_DERIVED_CONTROL";
        let Some(text) = std::env::var_os(name) else { return };
        for error in self.controls.set_from_text(Setter::Environment, &text.to_string_lossy()) {
            self.problem(&format!("${name}").into(), 0, format!("Warning: {error}"));
        }
        let controls = self.controls.clone();
        let group = self.group(DERIVED);
        controls.apply(&mut group.definitions);
        group.novalue = controls.unknown_names() == UnknownNames::NoValue;
    }

    pub(super) fn problem(&mut self, file: &Arc<str>, line: usize, text: String) {
        self.config.problems.push(Problem { place: Place { file: Arc::clone(file), line }, definition: None, text });
    }

    /// Returns the group with a name, and creates it if necessary.
    pub(super) fn group(&mut self, name: &str) -> &mut GroupConfig {
        let groups = &mut self.config.groups;
        let at = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
            groups.push(GroupConfig::new(name, &self.host));
            groups.len() - 1
        });
        &mut groups[at]
    }

    /// Loads definitions in the format of pmLoadDerivedConfig(3).
    pub(super) fn definitions(&mut self, file: &Arc<str>, text: &str) {
        let mut controls = std::mem::take(&mut self.controls);
        let group = self.group(DERIVED);
        let before = group.definitions.len();
        let loaded = group.definitions.load_text(file, text, &mut controls);
        group.refused += loaded.messages.iter().filter(|message| refuses_definition(message)).count();
        group.novalue |= controls.unknown_names() == UnknownNames::NoValue;
        for (definition, line) in group.definitions.iter().skip(before).zip(loaded.lines) {
            group.places.insert(definition.name().to_owned(), Place { file: Arc::clone(file), line });
        }
        self.controls = controls;
        self.config.problems.extend(loaded.messages.into_iter().map(Problem::from));
    }
}

/// Returns whether a message reports a refused definition, rather than a refused text or control.
fn refuses_definition(message: &Message) -> bool {
    let text = message.text.as_str();
    let of_text = text.contains("attribute") || text.ends_with("for value");
    let of_line = text.starts_with("pmRegisterDerived(") || text.starts_with("pmLoadDerivedConfig: ") && !of_text;
    message.severity == Severity::Error && of_line
}

impl GroupConfig {
    fn new(name: &str, host: &HostSpec) -> GroupConfig {
        GroupConfig {
            name: name.to_owned(),
            interval: None,
            operands: Operands::Host(host.clone()),
            definitions: Definitions::new(Scope::Global),
            novalue: false,
            shown: HashMap::new(),
            places: HashMap::new(),
            taken: HashSet::new(),
            refused: 0,
            described: None,
        }
    }
}

/// Returns the debug options that a control sets: `DEBUG_SYNTAX`, `DEBUG_SEMANTICS` and `DEBUG_EVAL`, as in libpcp.
fn debug_options(control: Control) -> Option<Debug> {
    match control {
        Control::DebugSyntax => "derive,appl0".parse().ok(),
        Control::DebugSemantics => "derive,appl1".parse().ok(),
        Control::DebugEval => "derive,appl2".parse().ok(),
        _ => None,
    }
}

/// Sets the debug options of a control with value 1, and clears those of one with value 0.
fn follow(control: Control, value: i32) {
    let Some(options) = debug_options(control) else { return };
    let mut all = pmda::log::debug_options();
    if value == 0 {
        all.clear(options);
    } else {
        all.set(options);
    }
    pmda::log::set_debug_options(all);
}
