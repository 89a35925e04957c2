//! Payload of event values: records with time, flags and parameters (pmUnpackEventRecords(3)).

use std::borrow::Cow;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use bitflags::bitflags;
use memchr::memchr;

use super::result::{BLOCK_HEAD, MAX_PAYLOAD, block_atom};
use pmapi::{Atom, Error, Item, PmId, Result, Type};

bitflags! {
    /// Flags of an event record (`PM_EVENT_FLAG_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct EventFlags: u32 {
        /// Event without a duration.
        const POINT = 1;
        /// Start of an activity.
        const START = 2;
        /// End of an activity.
        const END = 4;
        /// The first parameter identifies the activity that the event belongs to.
        const ID = 8;
        /// The next parameter identifies the parent of that activity.
        const PARENT = 16;
        /// Record of missed events, which has their number in place of parameters.
        const MISSED = 1 << 31;
    }
}

/// Layout of an event value, which determines its timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    /// Layout of [`Type::Event`]: seconds and microseconds in 32 bits each.
    Micro,
    /// Layout of [`Type::HighResEvent`]: seconds and nanoseconds in 64 bits each.
    Nano,
}

/// Timestamp since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Stamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

impl Stamp {
    /// Returns the current time.
    pub fn now() -> Stamp {
        SystemTime::now().into()
    }
}

/// Converts the system's time; a time before the epoch becomes the epoch.
impl From<SystemTime> for Stamp {
    fn from(time: SystemTime) -> Stamp {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }
}

/// Event record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Time of the event.
    pub time: Stamp,
    /// Kind of the record, and use of its first parameters.
    pub flags: EventFlags,
    /// Number of missed events in a record of missed events, else 0.
    pub missed: u32,
    params: &'a [u8],
}

impl<'a> Record<'a> {
    /// Iterates over the parameters: metrics and their values.
    pub fn params(&self) -> impl Iterator<Item = (Option<PmId>, Atom<'a>)> + use<'a> {
        params(self.params)
    }

    /// Returns the first value of a parameter.
    pub fn param(&self, item: Item) -> Option<Atom<'a>> {
        self.params().find(|(pmid, _)| pmid.is_some_and(|pmid| pmid.item() == item)).map(|(_, value)| value)
    }

    /// Returns a parameter that is a text; `None` for another type, or if the record does not have it. Bytes that are not
    /// UTF-8 become `U+FFFD`.
    pub fn text(&self, item: Item) -> Option<Cow<'a, str>> {
        match self.param(item) {
            Some(Atom::String(bytes)) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }
}

fn params(mut rest: &[u8]) -> impl Iterator<Item = (Option<PmId>, Atom<'_>)> {
    std::iter::from_fn(move || {
        let (pmid, value, tail) = param(rest)?;
        rest = tail;
        Some((pmid, value))
    })
}

/// Length of the number of records, in bytes.
const COUNT: usize = 4;
/// Longest head of a record, in bytes.
const HEAD: usize = 24;

/// Encoded parameters of a record, kept until the record is sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Params {
    bytes: Vec<u8>,
    count: u32,
}

impl Params {
    /// Adds a parameter.
    ///
    /// # Errors
    /// `PM_ERR_TYPE` for an event value, `PM_ERR_TOOBIG` when the record would not fit into any event value.
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

    /// Iterates over the parameters: metrics and their values.
    pub fn iter(&self) -> impl Iterator<Item = (Option<PmId>, Atom<'_>)> {
        params(&self.bytes)
    }

    /// Removes all parameters.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Returns the encoded length in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// Decodes the parameter at the start of `bytes`. Also returns the bytes after it.
fn param(bytes: &[u8]) -> Option<(Option<PmId>, Atom<'_>, &[u8])> {
    let (pmid, rest) = bytes.split_first_chunk()?;
    let (head, rest) = rest.split_first_chunk()?;
    let head = u32::from_be_bytes(*head);
    let len = ((head & 0xff_ffff) as usize).checked_sub(BLOCK_HEAD)?;
    let (payload, rest) = rest.split_at_checked(len.next_multiple_of(4))?;
    let payload = &payload[..len];
    let ty = Type::from_code((head >> 24) as i32).ok()?;
    let atom = match ty {
        // libpcp writes no terminating NUL here, unlike in a metric's value. Other senders may.
        Type::String => Atom::String(payload.strip_suffix(b"\0").unwrap_or(payload)),
        _ => block_atom(ty, payload)?,
    };
    Some((PmId::from_word(u32::from_be_bytes(*pmid)), atom, rest))
}

/// Decodes the record at the start of `bytes`. Also returns the bytes after it.
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
    let flags = EventFlags::from_bits_retain(u32::from_be_bytes(*flags));
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

/// Iterates over the records of an event value's payload.
///
/// # Errors
/// `PM_ERR_CONV` for a payload with a damaged record or extra bytes.
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

/// Writer of event records into the payload of an event value (pmdaEventNewArray(3)). It reuses its memory.
#[derive(Clone, Debug)]
pub struct EventArray {
    layout: Layout,
    payload: Vec<u8>,
    /// Offset of the open record's number of parameters.
    params: Option<usize>,
}

impl EventArray {
    /// Creates a payload without records.
    pub fn new(layout: Layout) -> Self {
        EventArray { layout, payload: vec![0; 4], params: None }
    }

    /// Removes all records and sets the layout of further ones.
    pub fn start(&mut self, layout: Layout) {
        self.layout = layout;
        self.clear();
    }

    /// Removes all records (pmdaEventResetArray(3)).
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
        self.payload.extend_from_slice(&flags.bits().to_be_bytes());
        self.payload.extend_from_slice(&count.to_be_bytes());
        Ok(())
    }

    /// Starts a record, to which [`EventArray::param`] adds parameters (pmdaEventAddRecord(3)).
    ///
    /// # Errors
    /// `PM_ERR_CONV` for [`EventFlags::MISSED`], `PM_ERR_TOOBIG` when the value is full.
    pub fn record(&mut self, time: Stamp, flags: EventFlags) -> Result {
        if flags.contains(EventFlags::MISSED) {
            return Err(Error::CONV);
        }
        self.head(time, flags, 0, 0)?;
        self.params = Some(self.payload.len() - 4);
        Ok(())
    }

    /// Adds a record with all its parameters. After an error the payload is unchanged.
    ///
    /// # Errors
    /// `PM_ERR_CONV` for [`EventFlags::MISSED`], `PM_ERR_TOOBIG` when the value is full.
    pub fn push(&mut self, time: Stamp, flags: EventFlags, params: &Params) -> Result {
        if flags.contains(EventFlags::MISSED) {
            return Err(Error::CONV);
        }
        self.params = None;
        self.head(time, flags, params.count, params.bytes.len())?;
        self.payload.extend_from_slice(&params.bytes);
        Ok(())
    }

    /// Returns whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.payload.len() <= COUNT
    }

    /// Adds a record with the number of missed events (pmdaEventAddMissedRecord(3)).
    ///
    /// # Errors
    /// `PM_ERR_TOOBIG` when the value is full.
    pub fn missed(&mut self, time: Stamp, count: u32) -> Result {
        self.params = None;
        self.head(time, EventFlags::MISSED, count, 0)
    }

    /// Adds a parameter to the record that [`EventArray::record`] started (pmdaEventAddParam(3)).
    ///
    /// # Errors
    /// `PM_ERR_NODATA` without such a record, `PM_ERR_TYPE` for an event value, `PM_ERR_TOOBIG` when the value is full.
    pub fn param(&mut self, pmid: PmId, value: Atom<'_>) -> Result {
        let at = self.params.ok_or(Error::NODATA)?;
        put_param(&mut self.payload, pmid, value)?;
        self.bump(at);
        Ok(())
    }

    /// Returns the event value.
    pub fn atom(&self) -> Atom<'_> {
        match self.layout {
            Layout::Micro => Atom::Event(&self.payload),
            Layout::Nano => Atom::HighResEvent(&self.payload),
        }
    }
}

/// Appends a parameter; after an error `out` is unchanged.
fn put_param(out: &mut Vec<u8>, pmid: PmId, value: Atom<'_>) -> Result {
    let number: [u8; 8];
    let payload = match value {
        Atom::String(v) if memchr(0, v).is_some() => return Err(Error::CONV),
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
    // Parameters are padded with zeros, unlike value blocks.
    out.resize(out.len().next_multiple_of(4), 0);
    Ok(())
}

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
