//! The performance metrics name space, PMNS(5): names of metrics in a tree, each with its PMID.
//!
//! [`Tree`] is the name space, [`Loader`] reads one from files, [`mod@write`] turns it into text again.
//! [`cli`] is for the commands pmnsmerge, pmnsadd and pmnsdel, and for those of help text.
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

pub mod cli;
mod cpp;
mod diagnose;
mod error;
mod load;
mod node;
mod parse;
mod tree;
pub mod write;

pub use error::{Error, Place, Problem};
pub use load::{FileSystem, Files, Loader};
pub use node::{Children, Leaves, Node};
pub use tree::{InsertError, Tree};

use pmapi::{Domain, Item, PmId};

/// The PMID that marks the root of an agent's dynamic names (`DOMAIN:*:*`), which the agent lists
/// itself; [`PmId::dynamic_root`] is the way back.
pub fn dynamic_root(domain: Domain) -> PmId {
    PmId::new(Domain::DYNAMIC, Item::new(domain.get(), 0))
}

/// Whether every component of a metric's name begins with a letter and goes on with letters, digits
/// and underscores.
pub fn is_name(name: &str) -> bool {
    name.split('.').all(is_component)
}

/// Whether a name can be that of a metric whose agent answers for its names: of its components, of letters, digits
/// and underscores, the first alone has to begin with a letter. libpcp and PCP's tools take them, which no file of
/// the name space has.
pub fn is_dynamic_name(name: &str) -> bool {
    let mut components = name.split('.');
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    components.next().is_some_and(is_component) && components.all(word)
}

fn is_component(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether a PMID marks the root of dynamic names. The format has such a root for domain 0 as well.
fn is_dynamic_root(pmid: PmId) -> bool {
    pmid.domain().get() == Domain::DYNAMIC.get() && pmid.item().item() == 0
}
