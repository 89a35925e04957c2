//! Text of event flags (pmEventFlagsStr(3)).

use std::fmt;

use crate::pdu::event::EventFlags;

/// Names of the flags separated by commas; "missed" alone for a record of missed events (pmEventFlagsStr(3)).
impl fmt::Display for EventFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.contains(EventFlags::MISSED) {
            return f.pad("missed");
        }
        let names = [
            (EventFlags::POINT, "point"),
            (EventFlags::START, "start"),
            (EventFlags::END, "end"),
            (EventFlags::ID, "id"),
            (EventFlags::PARENT, "parent"),
        ];
        let set: Vec<_> = names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| *name).collect();
        f.pad(&set.join(","))
    }
}
