//! The clients of pmcd: their identity, and the state that an agent keeps for each.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::{Rc, Weak};

use pcp_pdu::handshake::Attribute;

use crate::fixed_limit::FixedLimit;

/// A client of pmcd (pmdaGetContext(3)). Two values are equal when they have the same number.
///
/// Agents learn the identity of clients when they ask for it with [`Agent::WANTS`](crate::Agent::WANTS). pmcd knows the
/// identity of clients on its Unix socket and of those that have authenticated.
///
/// ```
/// # use pmda::prelude::*;
/// fn only_root(client: Client) -> Result {
///     if client.uid() == Some(0) { Ok(()) } else { Err(Error::PERMISSION) }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Client {
    number: i32,
    who: Who,
}

/// The attributes of a client that pmcd has sent.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Who {
    uid: Option<u32>,
    gid: Option<u32>,
    pid: Option<u32>,
}

impl Client {
    /// A client without known attributes.
    pub const fn new(number: i32) -> Self {
        Client { number, who: Who { uid: None, gid: None, pid: None } }
    }

    /// Returns the number that pmcd gave to the client; another client may get it later.
    pub const fn number(self) -> i32 {
        self.number
    }

    /// Returns the user ID, if pmcd has sent it.
    pub const fn uid(self) -> Option<u32> {
        self.who.uid
    }

    /// Returns the group ID, if pmcd has sent it.
    pub const fn gid(self) -> Option<u32> {
        self.who.gid
    }

    /// Returns the process ID, if pmcd has sent it.
    pub const fn pid(self) -> Option<u32> {
        self.who.pid
    }

    /// Returns the text that names the client in the field `source` of a [log line](crate::log): its user if pmcd has
    /// sent it, or otherwise its number.
    pub fn source(self) -> impl fmt::Display {
        Source(self)
    }
}

struct Source(Client);

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.uid() {
            Some(uid) => write!(f, "uid {uid}"),
            None => write!(f, "client {}", self.0),
        }
    }
}

impl PartialEq for Client {
    fn eq(&self, other: &Client) -> bool {
        self.number == other.number
    }
}

impl Eq for Client {}

impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// An attribute of a client that pmcd sends (`PMDA_ATTR_*`), decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ClientAttribute<'a> {
    /// Name under which the client has authenticated.
    UserName(&'a str),
    /// User ID.
    UserId(u32),
    /// Group ID.
    GroupId(u32),
    /// Process ID.
    ProcessId(u32),
    /// Container whose metrics the client requests. `None` returns to the metrics of the host.
    Container(Option<&'a str>),
    /// Any other attribute, or one whose value is invalid.
    Other(Attribute, &'a [u8]),
}

impl<'a> ClientAttribute<'a> {
    pub(crate) fn decode(attribute: Attribute, value: &'a [u8]) -> Self {
        let text = std::str::from_utf8(value);
        let number = || text.ok().and_then(|text| text.parse().ok());
        let decoded = match attribute {
            Attribute::USERNAME => text.ok().map(ClientAttribute::UserName),
            Attribute::USERID => number().map(ClientAttribute::UserId),
            Attribute::GROUPID => number().map(ClientAttribute::GroupId),
            Attribute::PROCESSID => number().map(ClientAttribute::ProcessId),
            Attribute::CONTAINER => {
                text.ok().map(|name| ClientAttribute::Container(Some(name).filter(|name| !name.is_empty())))
            }
            _ => None,
        };
        decoded.unwrap_or(ClientAttribute::Other(attribute, value))
    }
}

/// Largest number of clients for which state is kept.
pub(crate) const MOST: usize = 65_536;

/// The attributes of clients that pmcd has sent.
///
/// pmcd sends all attributes of a client together, when the client connects and again when one of them changes. It does
/// not report the end of a client while it waits for the agent. Therefore the first attribute of a series replaces all
/// earlier ones, which may belong to a previous client with the same number.
#[derive(Debug)]
pub(crate) struct Known {
    clients: HashMap<i32, Who>,
    /// The client whose attributes are arriving, and a bit for each attribute of this series.
    series: Option<(i32, u32)>,
    /// Largest number of clients.
    most: usize,
}

impl Default for Known {
    fn default() -> Self {
        Known { clients: HashMap::new(), series: None, most: MOST }
    }
}

impl Known {
    pub(crate) fn client(&self, number: i32) -> Client {
        // Most agents do not ask for attributes.
        let who = if self.clients.is_empty() { None } else { self.clients.get(&number).copied() };
        Client { number, who: who.unwrap_or_default() }
    }

    /// Records an attribute. `decoded` is its value.
    pub(crate) fn tell(&mut self, number: i32, attribute: Attribute, decoded: ClientAttribute<'_>) {
        let bit = u32::try_from(attribute.code()).ok().and_then(|code| 1u32.checked_shl(code)).unwrap_or_default();
        match &mut self.series {
            Some((client, received)) if *client == number && *received & bit == 0 => *received |= bit,
            _ => {
                self.series = Some((number, bit));
                self.clients.remove(&number);
            }
        }
        let mut who = self.clients.get(&number).copied().unwrap_or_default();
        match decoded {
            ClientAttribute::UserId(uid) => who.uid = Some(uid),
            ClientAttribute::GroupId(gid) => who.gid = Some(gid),
            ClientAttribute::ProcessId(pid) => who.pid = Some(pid),
            _ => return,
        }
        // pmcd has far fewer clients. A client without an entry has no identity, and therefore fewer permissions.
        if self.clients.len() < self.most || self.clients.contains_key(&number) {
            self.clients.insert(number, who);
        } else {
            FixedLimit::Clients.count();
        }
    }

    /// Ends a series of attributes: another PDU has arrived.
    pub(crate) fn end_series(&mut self) {
        self.series = None;
    }

    pub(crate) fn forget(&mut self, number: i32) {
        self.clients.remove(&number);
    }

    pub(crate) fn clear(&mut self) {
        self.clients.clear();
    }
}

/// State that an agent keeps for each of its clients, from [`Setup::clients`](crate::Setup::clients).
///
/// The framework drops the state of a client when the client disconnects. A clone is another handle to the same states.
/// Methods panic when a state that they need is still borrowed.
#[derive(Debug)]
pub struct Clients<T> {
    states: Rc<RefCell<HashMap<i32, T>>>,
    /// Largest number of states.
    most: usize,
}

impl<T> Clone for Clients<T> {
    fn clone(&self) -> Self {
        Clients { states: Rc::clone(&self.states), most: self.most }
    }
}

impl<T: 'static> Clients<T> {
    pub(crate) fn new(ends: &mut Ends) -> Self {
        let states = Rc::new(RefCell::new(HashMap::new()));
        let weak: Weak<RefCell<HashMap<i32, T>>> = Rc::downgrade(&states);
        ends.0.push(weak);
        Clients { states, most: MOST }
    }

    /// Returns the state of a client. A client without one gets a new state.
    ///
    /// # Panics
    /// When any state is borrowed.
    pub fn of(&self, client: Client) -> RefMut<'_, T>
    where
        T: Default,
    {
        self.make_room(client.number);
        RefMut::map(self.states.borrow_mut(), |states| states.entry(client.number).or_default())
    }

    /// Returns the state of a client, if it has one.
    ///
    /// # Panics
    /// When a state is borrowed with [`Clients::of`].
    pub fn find(&self, client: Client) -> Option<Ref<'_, T>> {
        Ref::filter_map(self.states.borrow(), |states| states.get(&client.number)).ok()
    }

    /// Sets the state of a client, and returns the previous one.
    ///
    /// # Panics
    /// When any state is borrowed.
    pub fn set(&self, client: Client, state: T) -> Option<T> {
        self.make_room(client.number);
        self.states.borrow_mut().insert(client.number, state)
    }

    /// Drops a state when there is no room for another one, because pmcd has not reported the end of some clients.
    fn make_room(&self, number: i32) {
        let states = self.states.borrow();
        if states.len() >= self.most && !states.contains_key(&number) {
            FixedLimit::Clients.count();
            let any = states.keys().next().copied();
            drop(states);
            // The state is dropped after the borrow has ended: it may hold a handle to the same states.
            let dropped = any.and_then(|any| self.states.borrow_mut().remove(&any));
            drop(dropped);
        }
    }

    /// Removes the state of a client, and returns it.
    ///
    /// # Panics
    /// When any state is borrowed.
    pub fn take(&self, client: Client) -> Option<T> {
        self.states.borrow_mut().remove(&client.number)
    }

    /// Returns the number of clients that have a state.
    ///
    /// # Panics
    /// When a state is borrowed with [`Clients::of`].
    pub fn len(&self) -> usize {
        self.states.borrow().len()
    }

    /// Returns whether no client has a state.
    ///
    /// # Panics
    /// When a state is borrowed with [`Clients::of`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The objects that must be notified when a client disconnects.
#[derive(Default)]
pub(crate) struct Ends(Vec<Weak<dyn PerClient>>);

/// An object that keeps state for each client.
pub(crate) trait PerClient {
    /// Drops the state of a client that has disconnected, or of all clients (`None`).
    fn forget(&self, client: Option<i32>);
}

impl<T> PerClient for RefCell<HashMap<i32, T>> {
    fn forget(&self, client: Option<i32>) {
        // The state is dropped after the borrow has ended: it may hold a handle to the same states.
        let gone = match client {
            Some(number) => self.borrow_mut().remove(&number).map(|state| HashMap::from([(number, state)])),
            None => Some(std::mem::take(&mut *self.borrow_mut())),
        };
        drop(gone);
    }
}

impl Ends {
    pub(crate) fn add(&mut self, to: Weak<dyn PerClient>) {
        self.0.push(to);
    }

    pub(crate) fn forget(&self, client: Option<i32>) {
        self.0.iter().filter_map(Weak::upgrade).for_each(|to| to.forget(client));
    }
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ends({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes() {
        use ClientAttribute::*;
        for (attribute, value, decoded) in [
            (Attribute::USERID, &b"1000"[..], UserId(1000)),
            (Attribute::GROUPID, b"0", GroupId(0)),
            (Attribute::PROCESSID, b"77", ProcessId(77)),
            (Attribute::USERNAME, b"pcp", UserName("pcp")),
            (Attribute::CONTAINER, b"web", Container(Some("web"))),
            (Attribute::CONTAINER, b"", Container(None)),
            (Attribute::USERID, b"-1", Other(Attribute::USERID, b"-1")),
            (Attribute::USERID, b"", Other(Attribute::USERID, b"")),
            (Attribute::USERNAME, b"\xff", Other(Attribute::USERNAME, b"\xff")),
            (Attribute::new(3), b"x", Other(Attribute::new(3), b"x")),
        ] {
            assert_eq!(ClientAttribute::decode(attribute, value), decoded);
        }
    }

    #[test]
    fn clients_without_number_cost_a_limited_amount() {
        const MOST: usize = 500;
        let mut known = Known { most: MOST, ..Known::default() };
        let clients = Clients::<u8> { most: MOST, ..Clients::new(&mut Ends::default()) };
        for number in 0..2 * MOST as i32 {
            known.tell(number, Attribute::USERID, ClientAttribute::UserId(7));
            *clients.of(Client::new(number)) += 1;
        }
        known.tell(1, Attribute::USERID, ClientAttribute::UserId(8));
        assert_eq!((known.clients.len(), clients.len()), (MOST, MOST));
        assert!(FixedLimit::Clients.exceeded() >= 2 * MOST as u64);
        assert_eq!([1, -1].map(|number| known.client(number).uid()), [Some(8), None]);
        assert_eq!(clients.set(Client::new(-5), 1), None);
        assert_eq!(clients.len(), MOST);
    }

    #[test]
    fn states_go_with_their_clients() {
        let mut ends = Ends::default();
        let [one, two] = [1, 2].map(Client::new);
        let alive = Rc::new(());
        let clients = Clients::<Option<Rc<()>>>::new(&mut ends);
        *clients.of(one) = Some(alive.clone());
        clients.set(two, Some(alive.clone()));
        assert_eq!((Rc::strong_count(&alive), clients.len()), (3, 2));
        ends.forget(Some(1));
        assert!(clients.find(one).is_none() && clients.find(two).is_some());
        assert_eq!(Rc::strong_count(&alive), 2);
        ends.forget(None);
        assert_eq!((Rc::strong_count(&alive), clients.is_empty()), (1, true));
        // The agent may have dropped its handle.
        drop(clients);
        ends.forget(Some(1));
    }
}
