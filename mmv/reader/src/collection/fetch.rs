//! Fetches of metrics' values.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pmapi::{Atom, Error, Inst, Item};

use super::Collection;
use super::opening::Opening;
use super::source::SourceFile;
use super::tables::{Place, Values};
use super::texts::Texts;
use crate::format::{Flags, ValueRecord, ValueType};

impl Collection {
    /// Calls `out` with the present values of a metric, in the order of the instances. `wants` selects the instances.
    /// Instances without a value get an error: `PM_ERR_INST`, `PM_ERR_PMID` or, after a failed read, `PM_ERR_GENERIC`.
    /// They get `PM_ERR_AGAIN` if the request may open no further file of the user, and the file does not
    /// [stay open](Collection::keep_open).
    ///
    /// For a value that the application has not set, in a file with sentinels, `out` is not called.
    ///
    /// # Errors
    /// `PM_ERR_PMID` if there is no such metric, `PM_ERR_APPVERSION` if it has no type.
    pub fn fetch(
        &mut self,
        item: Item,
        wants: impl Fn(Inst) -> bool,
        mut out: impl FnMut(Option<Inst>, Result<Atom<'_>, Error>),
    ) -> Result<(), Error> {
        let Collection { groups, opening, buffer, texts, prefix, request, .. } = self;
        let number = groups.of_item(prefix, item).ok_or(Error::PMID)?;
        if groups.has_foreign_instances(prefix, number, item) {
            out(None, Err(Error::INST));
            return Ok(());
        }
        let group = groups.get_mut(number).ok_or(Error::PMID)?;
        // Values may have changed since the last request, and the group may be new.
        group.begin(*request, opening, buffer);
        let (sources, tables) = group.parts_mut(prefix);
        let Values { ty, places, missing } = tables.values(item).ok_or(Error::PMID)?;
        if ty == ValueType::NoSupport {
            return Err(Error::APPVERSION);
        }
        let now = match ty {
            ValueType::Elapsed => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let instances = if missing.is_some() { tables.instances_of(sources, item) } else { &[] };
        let mut give = |inst: Option<Inst>, place: Option<&Place>| {
            let Some(place) = place else { return out(inst, Err(missing.unwrap_or(Error::INST))) };
            let Some(source) = sources.get_mut(place.source as usize) else { return };
            match source.atom(place, ty, now, (&mut *opening, &mut *buffer, &mut *texts)) {
                Ok(Some(atom)) => out(inst, Ok(atom)),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => out(inst, Err(Error::AGAIN)),
                Err(e) => {
                    let name = tables.metric(item).map_or("", |entry| tables.name(entry));
                    source.fail(prefix, name, &e);
                    out(inst, Err(Error::GENERIC));
                }
            }
        };
        if instances.is_empty() {
            let wanted = places.iter().filter(|place| place.inst.is_none_or(&wants));
            wanted.for_each(|place| give(place.inst, Some(place)));
            if missing.is_some() {
                give(None, None);
            }
        }
        let mut places = places.iter().peekable();
        for inst in instances.iter().map(|instance| instance.id) {
            let place = places.next_if(|place| place.inst == Some(inst));
            if wants(inst) {
                give(Some(inst), place);
            }
        }
        if ty == ValueType::String {
            sources.iter_mut().for_each(|source| source.close_borrowed());
            texts.clear();
        }
        Ok(())
    }
}

impl SourceFile {
    /// Logs that a value could not be read, and marks the file for a check.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, prefix: &str, name: &str, e: &io::Error) {
        self.log(prefix, format_args!("{name}: {e}"));
        if e.kind() != io::ErrorKind::InvalidInput {
            self.set_broken();
        }
    }

    /// Returns a value, or `None` if the application has not set it.
    #[inline]
    fn atom<'b>(
        &mut self,
        place: &Place,
        ty: ValueType,
        now: Duration,
        (opening, buffer, texts): (&mut Opening, &mut Vec<u8>, &'b mut Texts),
    ) -> io::Result<Option<Atom<'b>>> {
        self.reread(place.metric as usize, opening, buffer)?;
        let value = self.file.value(place.index).ok_or(io::ErrorKind::UnexpectedEof)?;
        let sentinel = self.file.header().flags.contains(Flags::SENTINEL);
        if sentinel && is_no_value(&value, ty) {
            return Ok(None);
        }
        Ok(Some(match ty {
            ValueType::I32 => Atom::I32(value.half() as i32),
            ValueType::U32 => Atom::U32(value.half()),
            ValueType::I64 => Atom::I64(value.word as i64),
            ValueType::U64 => Atom::U64(value.word),
            ValueType::Float => Atom::Float(f32::from_bits(value.half())),
            ValueType::Double => Atom::Double(f64::from_bits(value.word)),
            ValueType::Elapsed => Atom::I64(value.elapsed(now)),
            ValueType::String => {
                texts.begin(place.source);
                let text = self.reread_string(&value, opening, texts)?;
                if sentinel && text.is_empty() {
                    return Ok(None);
                }
                Atom::String(text)
            }
            ValueType::NoSupport => return Ok(None),
        }))
    }
}

/// Returns whether a value of a file with sentinels means "no value".
fn is_no_value(value: &ValueRecord, ty: ValueType) -> bool {
    match ty {
        ValueType::Float => f32::from_bits(value.half()).is_nan(),
        ValueType::Double => f64::from_bits(value.word).is_nan(),
        ValueType::String | ValueType::NoSupport => false,
        ValueType::I32 | ValueType::U32 | ValueType::I64 | ValueType::U64 | ValueType::Elapsed => {
            value.word == u64::MAX
        }
    }
}
