//! The payload of event values: records of time, flags and parameters (pmUnpackEventRecords(3)).

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::result::{BLOCK_HEAD, MAX_PAYLOAD, block_atom};
use pmapi::{Atom, Error, PmId, Result, Type};

/// Flags of an event record (`PM_EVENT_FLAG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EventFlags(pub u32);

impl EventFlags {
    /// An event that has no duration.
    pub const POINT: EventFlags = EventFlags(1);
    /// The start of something.
    pub const START: EventFlags = EventFlags(2);
    /// The end of something.
    pub const END: EventFlags = EventFlags(4);
    /// The first parameter identifies what the event belongs to.
    pub const ID: EventFlags = EventFlags(8);
    /// The next parameter identifies what that belongs to.
    pub const PARENT: EventFlags = EventFlags(16);
    /// Records have been lost; the record has no parameters but their number.
    pub const MISSED: EventFlags = EventFlags(1 << 31);

    /// Whether all of these are set.
    pub const fn contains(self, flags: EventFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Both.
    pub const fn union(self, flags: EventFlags) -> EventFlags {
        EventFlags(self.0 | flags.0)
    }
}

/// The two layouts of event values: they differ in the time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    /// [`Type::Event`]: seconds and microseconds in 32 bits each.
    Micro,
    /// [`Type::HighResEvent`]: seconds and nanoseconds in 64 bits each.
    Nano,
}

/// A time stamp since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Stamp {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

impl Stamp {
    /// The present.
    pub fn now() -> Stamp {
        SystemTime::now().into()
    }
}

/// A time before the epoch is the epoch.
impl From<SystemTime> for Stamp {
    fn from(time: SystemTime) -> Stamp {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
    }
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When.
    pub time: Stamp,
    /// What.
    pub flags: EventFlags,
    /// How many records were lost, in a record that says so.
    pub missed: u32,
    params: &'a [u8],
}

impl<'a> Record<'a> {
    /// The parameters: metrics and their values.
    pub fn params(&self) -> impl Iterator<Item = (Option<PmId>, Atom<'a>)> + use<'a> {
        params(self.params)
    }
}

fn params(mut rest: &[u8]) -> impl Iterator<Item = (Option<PmId>, Atom<'_>)> {
    std::iter::from_fn(move || {
        let (pmid, value, tail) = param(rest)?;
        rest = tail;
        Some((pmid, value))
    })
}

/// Bytes of the number of records.
const COUNT: usize = 4;
/// Bytes of a record before its parameters, at most.
const HEAD: usize = 24;

/// Parameters of a record as they go out, to be kept until then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Params {
    bytes: Vec<u8>,
    count: u32,
}

impl Params {
    /// Adds one. `PM_ERR_TYPE` for events in events, `PM_ERR_TOOBIG` when no value could hold the record.
    pub fn add(&mut self, pmid: PmId, value: Atom<'_>) -> Result {
        let before = self.bytes.len();
        put_param(&mut self.bytes, pmid, value)?;
        if COUNT + HEAD + self.bytes.len() > MAX_PAYLOAD {
            self.bytes.truncate(before);
            return Err(Error::TOOBIG);
        }
        self.count += 1;
        Ok(())
    }

    /// Metrics and their values.
    pub fn iter(&self) -> impl Iterator<Item = (Option<PmId>, Atom<'_>)> {
        params(&self.bytes)
    }

    /// Drops them.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// The bytes that they take.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// Takes a parameter off the front.
fn param(bytes: &[u8]) -> Option<(Option<PmId>, Atom<'_>, &[u8])> {
    let (pmid, rest) = bytes.split_first_chunk()?;
    let (head, rest) = rest.split_first_chunk()?;
    let head = u32::from_be_bytes(*head);
    let len = ((head & 0xff_ffff) as usize).checked_sub(BLOCK_HEAD)?;
    let (payload, rest) = rest.split_at_checked(len.next_multiple_of(4))?;
    let payload = &payload[..len];
    let ty = Type::from_code((head >> 24) as i32).ok()?;
    let atom = match ty {
        // Without a terminating NUL, unlike a metric's value; a sender may have put one all the same.
        Type::String => Atom::String(payload.strip_suffix(b"\0").unwrap_or(payload)),
        _ => block_atom(ty, payload)?,
    };
    Some((PmId::from_word(u32::from_be_bytes(*pmid)), atom, rest))
}

/// Takes a record off the front.
fn record(bytes: &[u8], layout: Layout) -> Option<(Record<'_>, &[u8])> {
    let (time, rest) = match layout {
        Layout::Micro => {
            let (time, rest) = bytes.split_first_chunk()?;
            let time = u64::from_be_bytes(*time);
            let stamp = Stamp { seconds: (time >> 32) as i32 as i64, nanoseconds: (time as u32).checked_mul(1000)? };
            (stamp, rest)
        }
        Layout::Nano => {
            let (seconds, rest) = bytes.split_first_chunk()?;
            let (nano, rest) = rest.split_first_chunk()?;
            let nanoseconds = u32::try_from(i64::from_be_bytes(*nano)).ok()?;
            (Stamp { seconds: i64::from_be_bytes(*seconds), nanoseconds }, rest)
        }
    };
    let (flags, rest) = rest.split_first_chunk()?;
    let flags = EventFlags(u32::from_be_bytes(*flags));
    let (count, rest) = rest.split_first_chunk()?;
    let count = u32::from_be_bytes(*count);
    if flags.contains(EventFlags::MISSED) {
        return Some((Record { time, flags, missed: count, params: &[] }, rest));
    }
    let mut tail = rest;
    for _ in 0..count {
        (_, _, tail) = param(tail)?;
    }
    Some((Record { time, flags, missed: 0, params: &rest[..rest.len() - tail.len()] }, tail))
}

/// The records of an event value's payload. `PM_ERR_CONV` when it is damaged anywhere.
pub fn records(payload: &[u8], layout: Layout) -> Result<impl Iterator<Item = Record<'_>> + Clone> {
    let (count, rest) = payload.split_first_chunk().ok_or(Error::CONV)?;
    let count = i32::from_be_bytes(*count);
    let mut tail = rest;
    for _ in 0..u32::try_from(count).map_err(|_| Error::CONV)? {
        (_, tail) = record(tail, layout).ok_or(Error::CONV)?;
    }
    if !tail.is_empty() {
        return Err(Error::CONV);
    }
    let mut rest = rest;
    Ok(std::iter::from_fn(move || {
        let (found, tail) = record(rest, layout)?;
        rest = tail;
        Some(found)
    }))
}

/// Packs records into the payload of an event value; the memory stays for the next one
/// (pmdaEventNewArray(3)).
#[derive(Clone, Debug)]
pub struct EventArray {
    layout: Layout,
    payload: Vec<u8>,
    /// Where the open record counts its parameters.
    params: Option<usize>,
}

impl EventArray {
    /// An empty one.
    pub fn new(layout: Layout) -> Self {
        EventArray { layout, payload: vec![0; 4], params: None }
    }

    /// Drops all records, for others in a layout.
    pub fn start(&mut self, layout: Layout) {
        self.layout = layout;
        self.clear();
    }

    /// Drops all records (pmdaEventResetArray(3)).
    pub fn clear(&mut self) {
        self.payload.clear();
        self.payload.resize(4, 0);
        self.params = None;
    }

    fn bump(&mut self, at: usize) {
        if let Some(count) = self.payload.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *count = (u32::from_be_bytes(*count) + 1).to_be_bytes();
        }
    }

    fn head(&mut self, time: Stamp, flags: EventFlags, count: u32, params: usize) -> Result {
        if self.payload.len() + HEAD + params > MAX_PAYLOAD {
            return Err(Error::TOOBIG);
        }
        self.bump(0);
        match self.layout {
            Layout::Micro => {
                self.payload.extend_from_slice(&(time.seconds as i32).to_be_bytes());
                self.payload.extend_from_slice(&(time.nanoseconds / 1000).to_be_bytes());
            }
            Layout::Nano => {
                self.payload.extend_from_slice(&time.seconds.to_be_bytes());
                self.payload.extend_from_slice(&i64::from(time.nanoseconds).to_be_bytes());
            }
        }
        self.payload.extend_from_slice(&flags.0.to_be_bytes());
        self.payload.extend_from_slice(&count.to_be_bytes());
        Ok(())
    }

    /// Starts a record (pmdaEventAddRecord(3)). `PM_ERR_TOOBIG` when the value is full.
    pub fn record(&mut self, time: Stamp, flags: EventFlags) -> Result {
        if flags.contains(EventFlags::MISSED) {
            return Err(Error::CONV);
        }
        self.head(time, flags, 0, 0)?;
        self.params = Some(self.payload.len() - 4);
        Ok(())
    }

    /// Adds a record with its parameters, or nothing. Errors as with [`EventArray::record`].
    pub fn push(&mut self, time: Stamp, flags: EventFlags, params: &Params) -> Result {
        if flags.contains(EventFlags::MISSED) {
            return Err(Error::CONV);
        }
        self.params = None;
        self.head(time, flags, params.count, params.bytes.len())?;
        self.payload.extend_from_slice(&params.bytes);
        Ok(())
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.payload.len() <= COUNT
    }

    /// Adds a record that tells how many were lost (pmdaEventAddMissedRecord(3)).
    pub fn missed(&mut self, time: Stamp, count: u32) -> Result {
        self.params = None;
        self.head(time, EventFlags::MISSED, count, 0)
    }

    /// Adds a parameter to the record (pmdaEventAddParam(3)). `PM_ERR_TYPE` for events in events,
    /// `PM_ERR_TOOBIG` when the value is full.
    pub fn param(&mut self, pmid: PmId, value: Atom<'_>) -> Result {
        let at = self.params.ok_or(Error::NODATA)?;
        put_param(&mut self.payload, pmid, value)?;
        self.bump(at);
        Ok(())
    }

    /// The value.
    pub fn atom(&self) -> Atom<'_> {
        match self.layout {
            Layout::Micro => Atom::Event(&self.payload),
            Layout::Nano => Atom::HighResEvent(&self.payload),
        }
    }
}

/// Appends a parameter, or nothing.
fn put_param(out: &mut Vec<u8>, pmid: PmId, value: Atom<'_>) -> Result {
    let number: [u8; 8];
    let payload = match value {
        Atom::String(v) | Atom::Aggregate(v) => v,
        Atom::Event(_) | Atom::HighResEvent(_) => return Err(Error::TYPE),
        Atom::I32(v) => &v.to_be_bytes()[..],
        Atom::U32(v) => &v.to_be_bytes()[..],
        Atom::Float(v) => &v.to_be_bytes()[..],
        Atom::I64(v) => {
            number = v.to_be_bytes();
            &number
        }
        Atom::U64(v) => {
            number = v.to_be_bytes();
            &number
        }
        Atom::Double(v) => {
            number = v.to_be_bytes();
            &number
        }
    };
    if out.len() + payload.len() + 12 > MAX_PAYLOAD {
        return Err(Error::TOOBIG);
    }
    let head = (value.ty().code() as u32) << 24 | (payload.len() + BLOCK_HEAD) as u32;
    out.extend_from_slice(&pmid.word().to_be_bytes());
    out.extend_from_slice(&head.to_be_bytes());
    out.extend_from_slice(payload);
    // Zeros, unlike the padding between value blocks.
    out.resize(out.len().next_multiple_of(4), 0);
    Ok(())
}

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
