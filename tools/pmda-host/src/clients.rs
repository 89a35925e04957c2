//! State of pmcd's clients, for an agent that is restarted.

use std::collections::BTreeMap;

use pcp_pdu::{Header, Pdu};
use pmapi::Error;

/// Largest number of attributes, of all clients together, that are kept.
const MOST: usize = 1 << 16;

/// Largest size of all PDUs that are kept, in bytes. One attribute may have 4 KiB.
const ROOM: usize = 16 << 20;

/// Largest number of PDUs that are kept for an agent that has not returned from a call.
const MISSED: usize = 1 << 12;

/// Attributes of clients, as PDUs.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Attributes by the numbers of client and attribute.
    attributes: BTreeMap<(i32, i32), Vec<u8>>,
    /// PDUs that the agent has not received, because it had not returned from a call.
    missed: Vec<Vec<u8>>,
    /// Size of all these PDUs, in bytes.
    size: usize,
}

impl Clients {
    /// Records a PDU about a client. Returns false if there are too many.
    pub(crate) fn record(&mut self, pdu: &[u8]) -> bool {
        let Ok(Some(header)) = Header::parse(pdu) else { return true };
        match Pdu::decode(header, pdu) {
            Ok(Pdu::Attr(attr)) => {
                let key = (header.from, attr.attribute.code());
                let before = self.attributes.get(&key).map(Vec::len);
                let size = self.size - before.unwrap_or_default() + pdu.len();
                if size > ROOM || before.is_none() && self.attributes.len() >= MOST {
                    return false;
                }
                self.size = size;
                self.attributes.insert(key, pdu.to_vec());
            }
            Ok(Pdu::Error(e)) if e.status() == Err(Error::NOTCONN) => {
                self.attributes.retain(|(client, _), pdu| {
                    let stays = *client != header.from;
                    self.size -= if stays { 0 } else { pdu.len() };
                    stays
                });
            }
            _ => {}
        }
        true
    }

    /// Records a PDU about a client, for the time when the agent has returned. Returns false if there are too many.
    pub(crate) fn miss(&mut self, pdu: &[u8]) -> bool {
        if self.missed.len() >= MISSED || self.size + pdu.len() > ROOM {
            return false;
        }
        self.size += pdu.len();
        self.missed.push(pdu.to_vec());
        self.record(pdu)
    }

    /// Returns the PDUs for an agent that has returned from its call.
    pub(crate) fn take_missed(&mut self) -> Vec<Vec<u8>> {
        let missed = std::mem::take(&mut self.missed);
        self.size -= missed.iter().map(Vec::len).sum::<usize>();
        missed
    }

    /// Returns the PDUs for an agent that has been restarted.
    pub(crate) fn all(&mut self) -> Vec<Vec<u8>> {
        drop(self.take_missed());
        self.attributes.values().cloned().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pcp_pdu::handshake::{Attr, Attribute, encode_error};

    fn attr(client: i32, attribute: Attribute, value: &[u8]) -> Vec<u8> {
        let mut pdu = Vec::new();
        Attr { attribute, value }.encode(&mut pdu, client).unwrap();
        pdu
    }

    fn end(client: i32) -> Vec<u8> {
        let mut pdu = Vec::new();
        encode_error(&mut pdu, client, Err(Error::NOTCONN)).unwrap();
        pdu
    }

    #[test]
    fn the_last_attributes_of_the_clients_that_are_left() {
        let mut clients = Clients::default();
        let newer = attr(2, Attribute::USERID, b"1000");
        for pdu in [attr(1, Attribute::USERID, b"0"), attr(2, Attribute::USERID, b"7"), newer.clone(), end(1), vec![9]]
        {
            assert!(clients.record(&pdu));
        }
        assert_eq!(clients.all(), [newer]);
    }

    #[test]
    fn what_an_agent_has_missed() {
        let mut clients = Clients::default();
        clients.record(&attr(1, Attribute::USERID, b"0"));
        assert!(clients.miss(&end(1)));
        assert_eq!(clients.take_missed(), [end(1)]);
        assert!(clients.take_missed().is_empty() && clients.all().is_empty());
        assert!((0..=MISSED).any(|_| !clients.miss(&end(1))));
    }

    #[test]
    fn attributes_have_a_limit() {
        let mut clients = Clients::default();
        let all = (0..=MOST as i32).all(|client| clients.record(&attr(client, Attribute::USERID, b"0")));
        assert!(!all && clients.attributes.len() == MOST);
    }

    #[test]
    fn long_attributes_have_a_limit_of_bytes() {
        let mut clients = Clients::default();
        let long = |client| attr(client, Attribute::CONTAINER, &[b'a'; 4000]);
        let count = (0..MOST as i32).find(|client| !clients.record(&long(*client))).unwrap();
        assert_eq!(count, (ROOM / long(0).len()) as i32);
        assert!(clients.record(&long(0)) && clients.record(&end(0)) && clients.record(&long(count)));
        assert!(!clients.miss(&long(count)));
        (1..=count).for_each(|client| assert!(clients.record(&end(client))));
        assert_eq!(clients.size, 0);
        assert!(clients.miss(&end(0)) && clients.size > 0);
        clients.take_missed();
        assert_eq!(clients.size, 0);
    }
}
