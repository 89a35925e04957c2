//! Values of metrics.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pmapi::{Atom, Error, Inst, Item};

use super::Collection;
use super::source::Source;
use super::tables::Place;
use crate::format::{Flags, ValueRecord, ValueType};

impl Collection {
    /// Hands over the present values of a metric, those of the instances that are wanted.
    ///
    /// Without any value, the error says why there is none; it is no error that an application has
    /// not set one yet.
    pub fn fetch(
        &mut self,
        item: Item,
        wants: impl Fn(Inst) -> bool,
        mut out: impl FnMut(Option<Inst>, Atom<'_>),
    ) -> Result<(), Error> {
        let (ty, places) = self.tables.values(item).ok_or(Error::PMID)?;
        if ty == ValueType::NoSupport {
            return Err(Error::APPVERSION);
        }
        let now = match ty {
            ValueType::Elapsed => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let mut values = 0;
        let mut status = if places.is_empty() { Err(Error::INST) } else { Ok(()) };
        for place in places.iter().filter(|place| place.inst.is_none_or(&wants)) {
            let Some(source) = self.sources.get_mut(place.source as usize) else { continue };
            match source.atom(place, ty, now, &mut self.buffer) {
                Ok(Some(atom)) => {
                    values += 1;
                    out(place.inst, atom);
                }
                Ok(None) => status = Ok(()),
                Err(e) => {
                    let name = self.tables.metric(item).map_or("", |entry| &entry.name);
                    tracing::error!("{}: {name}: {e}", self.prefix);
                    source.set_broken();
                    status = Err(Error::GENERIC);
                }
            }
        }
        if values == 0 { status } else { Ok(()) }
    }
}

impl Source {
    /// A value; nothing when the application says that it has none.
    #[inline]
    fn atom<'b>(
        &mut self,
        place: &Place,
        ty: ValueType,
        now: Duration,
        buffer: &'b mut Vec<u8>,
    ) -> io::Result<Option<Atom<'b>>> {
        self.reread(place.metric as usize)?;
        let value = self.file.value(place.index).ok_or(io::ErrorKind::UnexpectedEof)?;
        let sentinel = self.file.header().flags.contains(Flags::SENTINEL);
        if sentinel && is_no_value(&value, ty) {
            return Ok(None);
        }
        Ok(Some(match ty {
            ValueType::I32 => Atom::I32(value.half().cast_signed()),
            ValueType::U32 => Atom::U32(value.half()),
            ValueType::I64 => Atom::I64(value.word.cast_signed()),
            ValueType::U64 => Atom::U64(value.word),
            ValueType::Float => Atom::Float(f32::from_bits(value.half())),
            ValueType::Double => Atom::Double(f64::from_bits(value.word)),
            ValueType::Elapsed => Atom::I64(value.elapsed(now)),
            ValueType::String => {
                self.reread_string(&value, buffer)?;
                if sentinel && buffer.is_empty() {
                    return Ok(None);
                }
                Atom::String(buffer)
            }
            ValueType::NoSupport => return Ok(None),
        }))
    }
}

/// Whether a value stands for none, in a file with sentinels.
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
