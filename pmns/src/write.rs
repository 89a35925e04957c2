//! Name spaces as text, in the form that pmnsmerge(1) writes: the root first, and each inner node before the inner
//! nodes below it.

use crate::{Node, Tree, is_dynamic_root, is_name};
use pmapi::{Domain, PmId};
use std::fmt::{self, Write as _};

/// Writes a whole name space with numeric PMIDs, the format of `$PCP_VAR_DIR/pmns/root`.
pub fn root(tree: &Tree) -> String {
    let mut text = String::new();
    for (at, node) in inner_nodes(tree).enumerate() {
        block(&mut text, at > 0, node, None);
    }
    text
}

/// Contents of the two files of an agent's directory that list its names.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AgentFiles {
    /// The file `pmns`: the names, with a symbol for the domain. PCP's `pmdaproc.sh` replaces the symbol by the number
    /// and passes the file to pmnsadd(1).
    pub pmns: String,
    /// The file `root`: a complete name space that includes `pmns`, for `newhelp -n root` and `pminfo -n root`.
    pub root: String,
}

/// Writes the files of an agent with the names of `tree`. PMIDs and roots of dynamic names that belong to `domain` are
/// written with `symbol`.
///
/// If all names are below a single top-level node, `pmns` begins with that node. Otherwise, for example for a metric
/// without a dot, `pmns` begins with a block `root`, which pmnsadd(1) accepts as well.
///
/// # Errors
///
/// [`Error`] unless `symbol` is an ASCII letter followed by letters, digits and underscores.
pub fn agent(tree: &Tree, domain: Domain, symbol: &str) -> Result<AgentFiles, Error> {
    if symbol.contains('.') || !is_name(symbol) {
        return Err(Error(symbol.into()));
    }
    let symbols = Some((domain, symbol));
    // PCP's agents include <stdpmid> for the number. A host has that file only once pmcd has been started, and the number
    // there may be that of another agent.
    let mut root = format!("#define {symbol} {domain}\n\n");
    let mut tops = tree.root().children();
    let single = tops.next().is_some_and(|top| top.pmid().is_none()) && tops.next().is_none();
    if single {
        block(&mut root, false, tree.root(), symbols);
        root.push('\n');
    }
    root.push_str("#include \"pmns\"\n");
    let mut pmns = String::new();
    for (at, node) in inner_nodes(tree).skip(single.into()).enumerate() {
        block(&mut pmns, at > 0, node, symbols);
    }
    Ok(AgentFiles { pmns, root })
}

/// A symbol that is not a valid name of a macro.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} cannot be the symbol of a domain")]
pub struct Error(pub String);

/// Returns the root and every other node that has no PMID.
fn inner_nodes(tree: &Tree) -> impl Iterator<Item = Node<'_>> {
    tree.root().subtree().filter(|node| node.pmid().is_none())
}

fn block(text: &mut String, gap: bool, node: Node<'_>, symbols: Option<(Domain, &str)>) {
    if gap {
        text.push('\n');
    }
    match node.parent() {
        None => text.push_str(node.name()),
        Some(_) => text.push_str(&node.path()),
    }
    text.push_str(" {\n");
    for child in node.children() {
        text.push('\t');
        text.push_str(child.name());
        if let Some(pmid) = child.pmid() {
            // Writing to a string cannot fail.
            let _: fmt::Result = write!(text, "\t{}", Source { pmid, symbols });
        }
        text.push('\n');
    }
    text.push_str("}\n");
}

/// A PMID as written in the file: `DOMAIN:CLUSTER:ITEM` or `DOMAIN:*:*`.
struct Source<'a> {
    pmid: PmId,
    symbols: Option<(Domain, &'a str)>,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = self.pmid.item();
        let dynamic = is_dynamic_root(self.pmid);
        let domain = if dynamic { item.cluster() } else { self.pmid.domain().get() };
        match self.symbols {
            Some((of, symbol)) if of.get() == domain => f.write_str(symbol)?,
            _ => write!(f, "{domain}")?,
        }
        if dynamic { f.write_str(":*:*") } else { write!(f, ":{}:{}", item.cluster(), item.item()) }
    }
}
