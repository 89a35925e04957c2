//! Conversion of value blocks between network byte order and that of the host.

use pmapi::{Error, Result, Type};

/// Byte order of the numbers in a payload before the conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Network byte order, to be converted to that of the host.
    Wire,
    /// Byte order of the host, to be converted to network byte order.
    Host,
}

/// Converts the byte order of a value block's payload. `PM_ERR_CONV` when the payload does not match its type.
pub(crate) fn turn(ty: Type, payload: &mut [u8], order: Order) -> Result {
    let mut turn = Turn { rest: payload, order };
    let done = match ty {
        Type::I32 | Type::U32 | Type::Float => turn.u32().map(|_| ()),
        Type::I64 | Type::U64 | Type::Double => turn.u64(),
        Type::Event => turn.records(false),
        Type::HighResEvent => turn.records(true),
        Type::String | Type::Aggregate | Type::AggregateStatic => return Ok(()),
        Type::NoSupport => None,
    };
    done.filter(|()| turn.rest.is_empty()).ok_or(Error::CONV)
}

struct Turn<'a> {
    rest: &'a mut [u8],
    order: Order,
}

impl<'a> Turn<'a> {
    fn take(&mut self, n: usize) -> Option<&'a mut [u8]> {
        let (front, rest) = std::mem::take(&mut self.rest).split_at_mut_checked(n)?;
        self.rest = rest;
        Some(front)
    }

    /// Converts a number, and returns it.
    fn u32(&mut self) -> Option<u32> {
        let order = self.order;
        let bytes: &mut [u8; 4] = self.take(4)?.try_into().ok()?;
        let value = match order {
            Order::Wire => u32::from_be_bytes(*bytes),
            Order::Host => u32::from_ne_bytes(*bytes),
        };
        *bytes = match order {
            Order::Wire => value.to_ne_bytes(),
            Order::Host => value.to_be_bytes(),
        };
        Some(value)
    }

    fn u64(&mut self) -> Option<()> {
        let bytes: &mut [u8; 8] = self.take(8)?.try_into().ok()?;
        // Both directions swap bytes.
        *bytes = u64::from_be_bytes(*bytes).to_ne_bytes();
        Some(())
    }

    /// Converts event records; see [`pcp_pdu::event`].
    fn records(&mut self, high: bool) -> Option<()> {
        const MISSED: u32 = 1 << 31;
        let count = self.u32()?;
        for _ in 0..count {
            if high {
                self.u64()?;
                self.u64()?;
            } else {
                self.u32()?;
                self.u32()?;
            }
            let flags = self.u32()?;
            let params = self.u32()?;
            if flags & MISSED != 0 {
                continue;
            }
            for _ in 0..params {
                self.u32()?;
                let head = self.u32()?;
                let len = ((head & 0xff_ffff) as usize).checked_sub(4)?;
                let value = self.take(len.next_multiple_of(4))?.get_mut(..len)?;
                let ty = Type::from_code((head >> 24) as i32).ok()?;
                if matches!(ty, Type::Event | Type::HighResEvent) {
                    return None;
                }
                turn(ty, value, self.order).ok()?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_pdu::event::{EventArray, EventFlags, Layout, Stamp};
    use pmapi::{Atom, Domain, Item, PmId};

    #[test]
    fn events_come_back_as_they_were() {
        let id = PmId::new(Domain::new(400).unwrap(), Item::new(0, 1));
        for (layout, ty) in [(Layout::Micro, Type::Event), (Layout::Nano, Type::HighResEvent)] {
            let mut array = EventArray::new(layout);
            let time = Stamp { seconds: 17, nanoseconds: 18_000 };
            array.record(time, EventFlags::POINT).unwrap();
            array.param(id, Atom::String(b"text")).unwrap();
            array.param(id, Atom::U32(1)).unwrap();
            array.param(id, Atom::Double(2.5)).unwrap();
            array.missed(time, 3).unwrap();
            let (Atom::Event(wire) | Atom::HighResEvent(wire)) = array.atom() else { panic!("an event") };
            let mut bytes = wire.to_vec();
            turn(ty, &mut bytes, Order::Wire).unwrap();
            assert_eq!(bytes[..4], 2u32.to_ne_bytes());
            assert_ne!(bytes, wire);
            turn(ty, &mut bytes, Order::Host).unwrap();
            assert_eq!(bytes, wire);
            for len in 0..wire.len() {
                assert_eq!(turn(ty, &mut wire[..len].to_vec(), Order::Wire), Err(Error::CONV), "{len}");
            }
        }
    }

    #[test]
    fn numbers_have_their_size() {
        let mut four = [0, 0, 0, 1];
        turn(Type::U32, &mut four, Order::Wire).unwrap();
        assert_eq!(u32::from_ne_bytes(four), 1);
        assert_eq!(turn(Type::U64, &mut four, Order::Wire), Err(Error::CONV));
        assert_eq!(turn(Type::U32, &mut [0; 8], Order::Host), Err(Error::CONV));
        assert_eq!(turn(Type::NoSupport, &mut four, Order::Host), Err(Error::CONV));
    }
}
