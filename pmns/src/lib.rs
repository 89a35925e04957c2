//! The performance metrics name space, PMNS(5): names of metrics in a tree, each with its PMID.
//!
//! [`Tree`] is a name space, [`Loader`] reads one from files, [`mod@write`] turns it into text again.
//!
//! ```
//! use pmapi::{Domain, Item, PmId};
//!
//! let domain = Domain::new(253).unwrap();
//! let mut names = pmns::Tree::new();
//! names.insert("simple.numfetch", PmId::new(domain, Item::new(0, 0)))?;
//! names.insert("simple.time.user", PmId::new(domain, Item::new(1, 2)))?;
//! let files = pmns::write::agent(&names, domain, "SIMPLE")?;
//! assert_eq!(files.pmns, "simple {\n\tnumfetch\tSIMPLE:0:0\n\ttime\n}\n\nsimple.time {\n\tuser\tSIMPLE:1:2\n}\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Types of [`pmapi`] are in the interface, so this crate is re-exported.

mod cpp;
mod diagnose;
mod error;
mod files;
mod load;
mod parse;
mod tree;
pub mod write;

pub use pmapi;

pub use error::{Error, Place, Problem};
pub use files::{FileSystem, Files};
pub use load::Loader;
pub use tree::{Children, InsertError, Leaves, Node, Tree};

use pmapi::{Domain, Item, PmId};

/// Returns the PMID of a root of dynamic names of `domain`, `DOMAIN:*:*` in PMNS(5).
///
/// Only the agent of the domain knows the names below such a root. [`PmId::dynamic_root`] is the inverse function.
pub fn dynamic_root(domain: Domain) -> PmId {
    PmId::new(Domain::DYNAMIC, Item::new(domain.get(), 0))
}

/// Returns whether PMNS(5) allows `name`: components separated by dots, each of them an ASCII letter followed by
/// letters, digits and underscores.
pub fn is_name(name: &str) -> bool {
    name.split('.').all(is_component)
}

/// Returns whether `name` can be a dynamic name, which an agent reports.
///
/// The components consist of ASCII letters, digits and underscores, and the first one begins with a letter. libpcp and
/// PCP's tools accept such names from agents. Names in files must satisfy [`is_name`], which is stricter.
pub fn is_dynamic_name(name: &str) -> bool {
    let mut components = name.split('.');
    components.next().is_some_and(is_component)
        && components.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

fn is_component(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns whether `pmid` is a root of dynamic names. The file format also has such a root for domain 0, which
/// [`PmId::dynamic_root`] does not report.
fn is_dynamic_root(pmid: PmId) -> bool {
    pmid.domain().get() == Domain::DYNAMIC.get() && pmid.item().item() == 0
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
