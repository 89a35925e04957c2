//! Identifiers of metrics, instance domains and instances.
//!
//! A *domain* (1 to 510) belongs to an agent. Within it, an [`Item`] names a metric by cluster and
//! item, and a [`Serial`] names an instance domain; both carry no domain, so that an agent's code
//! does not depend on the number that it runs under. [`PmId`] and [`InDom`] are the full words.
//! "Absent" (`PM_ID_NULL`, `PM_INDOM_NULL`, `PM_IN_NULL`) is [`Option`].

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU32;

/// The number of an agent: 0 to 511, of which pmcd lets agents use 1 to 510.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Domain(u16);

impl Domain {
    /// Client-side derived metrics and the roots of dynamic name spaces.
    pub const DYNAMIC: Domain = Domain(511);

    /// A domain of an agent, 1 to 510.
    pub const fn new(domain: u16) -> Option<Domain> {
        if domain >= 1 && domain <= 510 { Some(Domain(domain)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A metric within its agent: cluster (12 bits) and item (10 bits).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item {
    cluster: u16,
    item: u16,
}

impl Item {
    /// The largest cluster.
    pub const MAX_CLUSTER: u16 = 0xfff;
    /// The largest item of a cluster.
    pub const MAX_ITEM: u16 = 0x3ff;

    /// Cluster and item of a metric.
    ///
    /// # Panics
    /// When the cluster is over 4095 or the item over 1023; in a `const` that stops the
    /// compilation. [`Item::try_new`] is for numbers from outside.
    pub const fn new(cluster: u16, item: u16) -> Item {
        assert!(cluster <= Self::MAX_CLUSTER && item <= Self::MAX_ITEM, "cluster over 4095 or item over 1023");
        Item { cluster, item }
    }

    /// Cluster and item of a metric, `None` out of range.
    pub const fn try_new(cluster: u16, item: u16) -> Option<Item> {
        if cluster <= Self::MAX_CLUSTER && item <= Self::MAX_ITEM { Some(Item { cluster, item }) } else { None }
    }

    /// pmID_cluster(3).
    pub const fn cluster(self) -> u16 {
        self.cluster
    }

    /// pmID_item(3).
    pub const fn item(self) -> u16 {
        self.item
    }

    /// Cluster and item in one number of 22 bits, ordered as PMIDs are.
    pub const fn index(self) -> u32 {
        (self.cluster as u32) << 10 | self.item as u32
    }
}

/// `cluster.item`
impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.cluster, self.item)
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({self})")
    }
}

/// A metric's identifier (`pmID`): domain, cluster and item in one word. Never `PM_ID_NULL`.
///
/// Word: flag (1 bit), domain (9), cluster (12), item (10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PmId(u32);

impl PmId {
    /// pmID_build(3).
    pub const fn new(domain: Domain, item: Item) -> PmId {
        PmId((domain.0 as u32) << 22 | item.index())
    }

    /// The identifier with this word; `None` for `PM_ID_NULL`.
    pub const fn from_word(word: u32) -> Option<PmId> {
        if word == u32::MAX { None } else { Some(PmId(word)) }
    }

    /// The word as it travels.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// pmID_domain(3).
    pub const fn domain(self) -> Domain {
        Domain((self.0 >> 22 & 0x1ff) as u16)
    }

    /// Cluster and item.
    pub const fn item(self) -> Item {
        Item { cluster: (self.0 >> 10 & 0xfff) as u16, item: (self.0 & 0x3ff) as u16 }
    }

    /// Whether this marks the root of a dynamic part of the name space (`DOMAIN:*:*`), and of
    /// which agent.
    pub const fn dynamic_root(self) -> Option<Domain> {
        let item = self.item();
        if self.domain().0 == Domain::DYNAMIC.0 && item.item == 0 { Domain::new(item.cluster) } else { None }
    }
}

/// pmIDStr(3): `domain.cluster.item`, or `domain.*.*` for the root of a dynamic part of the name space.
impl fmt::Display for PmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (domain, item) = (self.domain(), self.item());
        if domain == Domain::DYNAMIC && item.item == 0 {
            return write!(f, "{}.*.*", item.cluster);
        }
        write!(f, "{domain}.{item}")
    }
}

impl fmt::Debug for PmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PmId({self})")
    }
}

/// An instance domain within its agent (22 bits).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Serial(u32);

impl Serial {
    /// The largest serial number.
    pub const MAX: u32 = 0x3f_ffff;

    /// The serial number of an instance domain.
    ///
    /// # Panics
    /// When it has more than 22 bits; in a `const` that stops the compilation.
    /// [`Serial::try_new`] is for numbers from outside.
    pub const fn new(serial: u32) -> Serial {
        assert!(serial <= Self::MAX, "serial of more than 22 bits");
        Serial(serial)
    }

    /// The serial number of an instance domain, `None` out of range.
    pub const fn try_new(serial: u32) -> Option<Serial> {
        if serial <= Self::MAX { Some(Serial(serial)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An instance domain's identifier (`pmInDom`): domain and serial in one word. Never
/// `PM_INDOM_NULL`.
///
/// Word: flag (1 bit), domain (9), serial (22).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InDom(u32);

impl InDom {
    /// pmInDom_build(3).
    pub const fn new(domain: Domain, serial: Serial) -> InDom {
        InDom((domain.0 as u32) << 22 | serial.0)
    }

    /// The identifier with this word; `None` for `PM_INDOM_NULL`.
    pub const fn from_word(word: u32) -> Option<InDom> {
        if word == u32::MAX { None } else { Some(InDom(word)) }
    }

    /// The word as it travels.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// pmInDom_domain(3).
    pub const fn domain(self) -> Domain {
        Domain((self.0 >> 22 & 0x1ff) as u16)
    }

    /// pmInDom_serial(3).
    pub const fn serial(self) -> Serial {
        Serial(self.0 & Serial::MAX)
    }
}

/// pmInDomStr(3): `domain.serial`.
impl fmt::Display for InDom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.domain(), self.serial())
    }
}

impl fmt::Debug for InDom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InDom({self})")
    }
}

/// The internal identifier of an instance. Never `PM_IN_NULL`, so an `Option` of it is one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inst(
    /// All bits inverted.
    NonZeroU32,
);

impl Inst {
    /// An instance.
    ///
    /// # Panics
    /// For `PM_IN_NULL`; in a `const` that stops the compilation. [`Inst::from_word`] is for
    /// numbers from outside.
    pub const fn new(id: u32) -> Inst {
        let inst = Self::from_word(id);
        assert!(inst.is_some(), "PM_IN_NULL is no instance");
        match inst {
            Some(inst) => inst,
            None => Inst(NonZeroU32::MIN),
        }
    }

    /// The instance with this word; `None` for `PM_IN_NULL`.
    pub const fn from_word(word: u32) -> Option<Inst> {
        match NonZeroU32::new(!word) {
            Some(inverted) => Some(Inst(inverted)),
            None => None,
        }
    }

    /// The word as it travels.
    pub const fn word(self) -> u32 {
        !self.0.get()
    }
}

impl PartialOrd for Inst {
    fn partial_cmp(&self, other: &Inst) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Inst {
    fn cmp(&self, other: &Inst) -> Ordering {
        self.word().cmp(&other.word())
    }
}

impl fmt::Debug for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inst").field(&self.word()).finish()
    }
}

/// As a signed number, which is what PCP's tools print.
impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.word() as i32).fmt(f)
    }
}

/// The word of something that may be absent: all ones when it is.
pub trait OptionWord {
    /// The word as it travels.
    fn word(self) -> u32;
}

macro_rules! option_word {
    ($($id:ty)*) => {$(
        impl OptionWord for Option<$id> {
            fn word(self) -> u32 {
                self.map_or(u32::MAX, <$id>::word)
            }
        }
    )*};
}
option_word!(PmId InDom Inst);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let simple = Domain::new(253).unwrap();
        let pmid = PmId::new(simple, Item::new(2, 4));
        assert_eq!(pmid.word(), 0x3f40_0804);
        assert_eq!((pmid.domain(), pmid.item()), (simple, Item::new(2, 4)));
        assert_eq!(pmid.to_string(), "253.2.4");
        let indom = InDom::new(simple, Serial::new(1));
        assert_eq!(indom.word(), 0x3f40_0001);
        assert_eq!(indom.to_string(), "253.1");
        assert_eq!(PmId::from_word(u32::MAX), None);
        assert_eq!(None::<Inst>.word(), u32::MAX);
        assert_eq!(Inst::from_word(0xffff_fffe).unwrap().to_string(), "-2");
        assert_eq!((Inst::from_word(u32::MAX), size_of::<Option<Inst>>()), (None, 4));
        assert!(Inst::new(1) < Inst::new(2) && Inst::new(7) == Inst::new(7));
    }

    #[test]
    fn limits() {
        assert!(Domain::new(0).is_none() && Domain::new(511).is_none() && Domain::new(510).is_some());
        assert!(Item::try_new(4096, 0).is_none() && Item::try_new(0, 1024).is_none());
        assert!(Serial::try_new(1 << 22).is_none());
    }
}
