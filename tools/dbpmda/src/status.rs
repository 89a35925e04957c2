//! Command `status`.

use pmapi::debug::Debug;

use crate::console::out;
use crate::state::State;

/// Shows the settings of a session.
pub(crate) fn show(state: &State) {
    let console = &state.console;
    out!(console, "\n");
    let file = state.names.file().map_or_else(|| "(default)".into(), |path| path.to_string_lossy());
    out!(console, "Namespace:              {file}\n");
    match &state.agent {
        None => out!(console, "PMDA:                   none\n"),
        Some(agent) => {
            out!(console, "PMDA:                   {}\n", String::from_utf8_lossy(&agent.name));
            match agent.interface() {
                Some(version) => {
                    out!(console, "Connection:             dso\nDSO Interface Version:  {version}\n");
                }
                None => out!(console, "Connection:             daemon (pid: {})\n", state.pid),
            }
            let version = agent.version.map_or_else(|| "unknown!".to_owned(), |version| version.to_string());
            out!(console, "PMDA PMAPI Version:     {version}\n");
        }
    }
    let options = match state.console.options() {
        Debug::ALL => "(all)".to_owned(),
        Debug::NONE => "(none)".to_owned(),
        options => options.names().collect::<Vec<_>>().join(" "),
    };
    out!(console, "Debug options:          {options}\n");
    let on_off = |on| if on { "on" } else { "off" };
    out!(console, "Timer:                  {}\n", on_off(state.timer));
    out!(console, "Getdesc:                {}\n", on_off(state.getdesc));
    out!(console, "Getiname:               {}\n", on_off(state.getiname));
    out!(console, "\n{}\n", state.profile.dump(None));
}
