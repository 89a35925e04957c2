//! The controls `DEBUG_SYNTAX`, `DEBUG_SEMANTICS` and `DEBUG_EVAL`, which set debug options of the agent as in libpcp.

use pcp_derived::Control;
use pmapi::debug::Debug;

/// Returns the debug options that a control sets.
fn options(control: Control) -> Option<Debug> {
    match control {
        Control::DebugSyntax => "derive,appl0".parse().ok(),
        Control::DebugSemantics => "derive,appl1".parse().ok(),
        Control::DebugEval => "derive,appl2".parse().ok(),
        _ => None,
    }
}

/// Sets the debug options of a control with value 1, and clears those of one with value 0.
pub(super) fn follow(control: Control, value: i32) {
    let Some(options) = options(control) else { return };
    let mut all = pmda::log::debug_options();
    if value == 0 {
        all.clear(options);
    } else {
        all.set(options);
    }
    pmda::log::set_debug_options(all);
}
