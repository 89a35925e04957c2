//! Event records as metrics and values.

use pcp_pdu::event::{EventFlags, Layout, Stamp, records};
use pmapi::{Atom, Desc, Domain, Error, Item, PmId, Result, Semantics, Type, Units};

/// Metric `event.flags`: the flags of an event record, in front of its parameters.
pub const EVENT_FLAGS: PmId = PmId::new(Domain::DYNAMIC, Item::new(0, 1));
/// Metric `event.missed`: the number of missed events, in a record of missed events.
pub const EVENT_MISSED: PmId = PmId::new(Domain::DYNAMIC, Item::new(0, 2));

/// Record of an event with its parameters (an element of what pmUnpackEventRecords(3) returns).
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct EventRecord<'a> {
    /// Time of the event.
    pub time: Stamp,
    /// Metrics and values: [`EVENT_FLAGS`] if there are flags, or [`EVENT_MISSED`] for missed events, followed by the
    /// parameters of the event. A metric may occur several times.
    pub parameters: Vec<(Option<PmId>, Atom<'a>)>,
}

/// Unpacks the records of an event value (pmUnpackEventRecords(3), pmUnpackHighResEventRecords(3)).
///
/// # Errors
/// `PM_ERR_CONV` for a value of another type, a damaged record, and for other flags beside that of missed events.
pub fn unpack_events(value: Atom<'_>) -> Result<Vec<EventRecord<'_>>> {
    let (payload, layout) = match value {
        Atom::Event(payload) => (payload, Layout::Micro),
        Atom::HighResEvent(payload) => (payload, Layout::Nano),
        _ => return Err(Error::CONV),
    };
    let unpacked = records(payload, layout)?.map(|record| {
        let is_missed = record.flags.contains(EventFlags::MISSED);
        if is_missed && record.flags != EventFlags::MISSED {
            return Err(Error::CONV);
        }
        let flags = (!record.flags.is_empty()).then_some((Some(EVENT_FLAGS), Atom::U32(record.flags.bits())));
        let missed = is_missed.then_some((Some(EVENT_MISSED), Atom::U32(record.missed)));
        let parameters = flags.into_iter().chain(missed).chain(record.params()).collect();
        Ok(EventRecord { time: record.time, parameters })
    });
    unpacked.collect()
}

/// Metrics of the client's own, with their names.
const RESERVED: [(&str, PmId); 2] = [("event.flags", EVENT_FLAGS), ("event.missed", EVENT_MISSED)];

pub(crate) fn pmid(name: &str) -> Option<PmId> {
    RESERVED.iter().find(|(known, _)| *known == name).map(|(_, pmid)| *pmid)
}

pub(crate) fn name(pmid: PmId) -> Option<&'static str> {
    RESERVED.iter().find(|(_, known)| *known == pmid).map(|(name, _)| *name)
}

pub(crate) fn desc(pmid: PmId) -> Option<Desc> {
    let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Discrete, units: Units::NONE };
    name(pmid).map(|_| desc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_pdu::event::EventArray;

    #[test]
    fn records_as_metrics() {
        let pmid = PmId::from_word(7).unwrap();
        let time = |seconds| Stamp { seconds, nanoseconds: 5000 };
        for layout in [Layout::Micro, Layout::Nano] {
            let mut array = EventArray::new(layout);
            array.record(time(1), EventFlags::empty()).unwrap();
            array.param(pmid, Atom::U32(3)).unwrap();
            array.record(time(2), EventFlags::POINT).unwrap();
            array.param(pmid, Atom::String(b"text")).unwrap();
            array.param(pmid, Atom::Double(0.5)).unwrap();
            array.missed(time(3), 9).unwrap();
            let found = unpack_events(array.atom()).unwrap();
            let all: Vec<_> = found.iter().map(|record| (record.time, record.parameters.as_slice())).collect();
            let flags = |bits| (Some(EVENT_FLAGS), Atom::U32(bits));
            let wanted: [(Stamp, &[_]); 3] = [
                (time(1), &[(Some(pmid), Atom::U32(3))]),
                (time(2), &[flags(1), (Some(pmid), Atom::String(b"text")), (Some(pmid), Atom::Double(0.5))]),
                (time(3), &[flags(1 << 31), (Some(EVENT_MISSED), Atom::U32(9))]),
            ];
            assert_eq!(all, wanted);
        }
        assert_eq!(unpack_events(Atom::U32(3)), Err(Error::CONV));
        assert_eq!(unpack_events(Atom::Event(b"\0\0\0\x01")), Err(Error::CONV));
        assert_eq!(pmid.word(), 7);
    }
}
