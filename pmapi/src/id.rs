//! Identifiers of metrics, instance domains and instances.
//!
//! A *domain* (1 to 510) belongs to an agent. Within it, an [`Item`] identifies a metric by cluster and item, and a
//! [`Serial`] identifies an instance domain. Neither contains the domain, so that an agent's code does not depend on
//! its domain. [`PmId`] and [`InDom`] are the full identifiers, in one word each. `PM_ID_NULL`, `PM_INDOM_NULL` and
//! `PM_IN_NULL` are `None` of an [`Option`].

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU32;

/// Domain of an agent: 0 to 511, of which pmcd lets agents use 1 to 510.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Domain(u16);

impl Domain {
    /// Domain of client-side derived metrics, and of the roots of dynamic name spaces.
    pub const DYNAMIC: Domain = Domain(511);

    /// Creates the domain of an agent, 1 to 510; `None` out of range.
    pub const fn new(domain: u16) -> Option<Domain> {
        if domain >= 1 && domain <= 510 { Some(Domain(domain)) } else { None }
    }

    /// Returns the domain as a number, 0 to 511.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifier of a metric within its agent: cluster (12 bits) and item (10 bits).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item {
    cluster: u16,
    item: u16,
}

impl Item {
    /// Largest cluster.
    pub const MAX_CLUSTER: u16 = 0xfff;
    /// Largest item of a cluster.
    pub const MAX_ITEM: u16 = 0x3ff;

    /// Creates the identifier of a metric within its agent.
    ///
    /// # Panics
    /// Panics when the cluster is over 4095 or the item over 1023; in a `const` the compilation fails.
    /// [`Item::try_new`] is for numbers from outside.
    pub const fn new(cluster: u16, item: u16) -> Item {
        assert!(cluster <= Self::MAX_CLUSTER && item <= Self::MAX_ITEM, "cluster over 4095 or item over 1023");
        Item { cluster, item }
    }

    /// Creates the identifier of a metric within its agent; `None` out of range.
    pub const fn try_new(cluster: u16, item: u16) -> Option<Item> {
        if cluster <= Self::MAX_CLUSTER && item <= Self::MAX_ITEM { Some(Item { cluster, item }) } else { None }
    }

    /// Returns the cluster (`pmID_cluster(3)`).
    pub const fn cluster(self) -> u16 {
        self.cluster
    }

    /// Returns the item within the cluster (`pmID_item(3)`).
    pub const fn item(self) -> u16 {
        self.item
    }

    /// Returns cluster and item in one number of 22 bits, ordered as PMIDs are.
    pub const fn index(self) -> u32 {
        (self.cluster as u32) << 10 | self.item as u32
    }
}

/// Displays as `cluster.item`.
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

/// Identifier of a metric (`pmID`): domain, cluster and item in one word, never `PM_ID_NULL`.
///
/// From the highest bit, the word has a flag (1 bit), the domain (9), the cluster (12) and the item (10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PmId(u32);

impl PmId {
    /// Creates the identifier of a metric (`pmID_build(3)`).
    pub const fn new(domain: Domain, item: Item) -> PmId {
        PmId((domain.0 as u32) << 22 | item.index())
    }

    /// Creates the identifier with this word; `None` for `PM_ID_NULL`.
    pub const fn from_word(word: u32) -> Option<PmId> {
        if word == u32::MAX { None } else { Some(PmId(word)) }
    }

    /// Returns the word of the wire encoding.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Returns the domain (`pmID_domain(3)`).
    pub const fn domain(self) -> Domain {
        Domain((self.0 >> 22 & 0x1ff) as u16)
    }

    /// Returns cluster and item.
    pub const fn item(self) -> Item {
        Item { cluster: (self.0 >> 10 & 0xfff) as u16, item: (self.0 & 0x3ff) as u16 }
    }

    /// Returns the agent's domain if this is the root of a dynamic part of the name space (`DOMAIN:*:*`), or `None`
    /// otherwise.
    pub const fn dynamic_root(self) -> Option<Domain> {
        let item = self.item();
        if self.domain().0 == Domain::DYNAMIC.0 && item.item == 0 { Domain::new(item.cluster) } else { None }
    }
}

/// Displays as pmIDStr(3) does: `domain.cluster.item`, or `domain.*.*` for the root of a dynamic part of the name
/// space.
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

/// Identifier of an instance domain within its agent (22 bits).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Serial(u32);

impl Serial {
    /// Largest serial number.
    pub const MAX: u32 = 0x3f_ffff;

    /// Creates the serial number of an instance domain.
    ///
    /// # Panics
    /// Panics when the number has more than 22 bits; in a `const` the compilation fails. [`Serial::try_new`] is for
    /// numbers from outside.
    pub const fn new(serial: u32) -> Serial {
        assert!(serial <= Self::MAX, "serial of more than 22 bits");
        Serial(serial)
    }

    /// Creates the serial number of an instance domain; `None` out of range.
    pub const fn try_new(serial: u32) -> Option<Serial> {
        if serial <= Self::MAX { Some(Serial(serial)) } else { None }
    }

    /// Returns the serial number as an integer, 0 to [`Serial::MAX`].
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifier of an instance domain (`pmInDom`): domain and serial number in one word, never `PM_INDOM_NULL`.
///
/// From the highest bit, the word has a flag (1 bit), the domain (9) and the serial number (22).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InDom(u32);

impl InDom {
    /// Creates the identifier of an instance domain (`pmInDom_build(3)`).
    pub const fn new(domain: Domain, serial: Serial) -> InDom {
        InDom((domain.0 as u32) << 22 | serial.0)
    }

    /// Creates the identifier with this word; `None` for `PM_INDOM_NULL`.
    pub const fn from_word(word: u32) -> Option<InDom> {
        if word == u32::MAX { None } else { Some(InDom(word)) }
    }

    /// Returns the word of the wire encoding.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Returns the domain (`pmInDom_domain(3)`).
    pub const fn domain(self) -> Domain {
        Domain((self.0 >> 22 & 0x1ff) as u16)
    }

    /// Returns the serial number (`pmInDom_serial(3)`).
    pub const fn serial(self) -> Serial {
        Serial(self.0 & Serial::MAX)
    }
}

/// Displays as pmInDomStr(3) does: `domain.serial`.
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

/// Internal identifier of an instance, never `PM_IN_NULL`, so that an `Option` of it is one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inst(
    /// Identifier with all bits inverted.
    NonZeroU32,
);

impl Inst {
    /// Creates the identifier of an instance.
    ///
    /// # Panics
    /// Panics for `PM_IN_NULL`; in a `const` the compilation fails. [`Inst::from_word`] is for numbers from outside.
    pub const fn new(id: u32) -> Inst {
        let inst = Self::from_word(id);
        assert!(inst.is_some(), "PM_IN_NULL is no instance");
        match inst {
            Some(inst) => inst,
            None => Inst(NonZeroU32::MIN),
        }
    }

    /// Creates the identifier with this word; `None` for `PM_IN_NULL`.
    pub const fn from_word(word: u32) -> Option<Inst> {
        match NonZeroU32::new(!word) {
            Some(inverted) => Some(Inst(inverted)),
            None => None,
        }
    }

    /// Returns the word of the wire encoding.
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

/// Displays as a signed number, as PCP's tools do.
impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.word() as i32).fmt(f)
    }
}

/// Prevents implementations of [`OptionWord`] outside of this crate.
mod sealed {
    pub trait Sealed {}
}

/// Word of an optional identifier: all ones for `None`.
pub trait OptionWord: sealed::Sealed {
    /// Returns the word of the wire encoding.
    fn word(self) -> u32;
}

macro_rules! option_word {
    ($($id:ty)*) => {$(
        impl sealed::Sealed for Option<$id> {}

        impl OptionWord for Option<$id> {
            #[inline]
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
