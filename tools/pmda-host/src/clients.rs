//! State of pmcd's clients, for an agent that is restarted.

use std::collections::BTreeMap;

use pcp_pdu::{Header, Pdu};
use pmapi::Error;

/// Largest number of attributes, of all clients together, that are kept.
const MOST: usize = 1 << 16;

/// Largest size of all PDUs that are kept, in bytes. One attribute may have 4 KiB.
pub(crate) const ROOM: usize = 16 << 20;

/// Attributes of clients and the last profile, as PDUs.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Attributes by the numbers of client and attribute.
    attributes: BTreeMap<(i32, i32), Vec<u8>>,
    /// Size of the attributes' PDUs, in bytes.
    size: usize,
    profile: Vec<u8>,
}

impl Clients {
    /// Records a PDU that has no answer. Returns false if there are too many attributes.
    pub(crate) fn record(&mut self, header: Header, pdu: &[u8]) -> bool {
        match Pdu::decode(header, pdu) {
            Ok(Pdu::Profile(_)) => {
                self.profile.clear();
                self.profile.extend_from_slice(pdu);
            }
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

    /// Returns the PDUs for an agent that has been restarted.
    pub(crate) fn pdus(&self) -> impl Iterator<Item = &[u8]> {
        self.attributes.values().chain([&self.profile]).map(Vec::as_slice).filter(|pdu| !pdu.is_empty())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pcp_pdu::handshake::{Attr, Attribute, encode_error};
    use pcp_pdu::profile::Profile;

    fn record(clients: &mut Clients, pdu: &[u8]) -> bool {
        clients.record(Header::parse(pdu).unwrap().unwrap(), pdu)
    }

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
    fn the_last_attributes_of_the_clients_that_are_left_and_the_last_profile() {
        let mut clients = Clients::default();
        let newer = attr(2, Attribute::USERID, b"1000");
        let [first, last] = [1, 2].map(|client| {
            let mut pdu = Vec::new();
            Profile::default().encode(&mut pdu, client, 0).unwrap();
            pdu
        });
        let mut damaged = last.clone();
        damaged.truncate(damaged.len() - 4);
        damaged[..4].copy_from_slice(&(last.len() as u32 - 4).to_be_bytes());
        let old = attr(2, Attribute::USERID, b"7");
        for pdu in [&first, &attr(1, Attribute::USERID, b"0"), &old, &last, &newer, &end(1), &damaged] {
            assert!(record(&mut clients, pdu));
        }
        assert_eq!(clients.pdus().collect::<Vec<_>>(), [newer, last]);
    }

    #[test]
    fn attributes_have_a_limit() {
        let mut clients = Clients::default();
        let all = (0..=MOST as i32).all(|client| record(&mut clients, &attr(client, Attribute::USERID, b"0")));
        assert!(!all && clients.attributes.len() == MOST);
    }

    #[test]
    fn long_attributes_have_a_limit_of_bytes() {
        let mut clients = Clients::default();
        let long = |client| attr(client, Attribute::CONTAINER, &[b'a'; 4000]);
        let count = (0..MOST as i32).find(|client| !record(&mut clients, &long(*client))).unwrap();
        assert_eq!(count, (ROOM / long(0).len()) as i32);
        assert!([long(0), end(0), long(count)].iter().all(|pdu| record(&mut clients, pdu)));
        (1..=count).for_each(|client| assert!(record(&mut clients, &end(client))));
        assert_eq!(clients.size, 0);
    }
}
