//! pmEventFlagsStr(3).

use std::fmt;

use crate::pdu::event::EventFlags;

/// The names of the flags with commas between (pmEventFlagsStr(3)); of a record of missed ones
/// "missed" alone.
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
