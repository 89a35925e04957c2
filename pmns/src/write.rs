//! Name spaces as text, in the form that pmnsmerge(1) writes: the root, then each inner node before
//! the inner nodes below it.

use crate::{Node, Tree, is_dynamic_root, is_name};
use pmapi::{Domain, PmId};
use std::fmt::{self, Write as _};

/// A whole name space with numbers, as `$PCP_VAR_DIR/pmns/root` has it.
pub fn root(tree: &Tree) -> String {
    let mut text = String::new();
    for (at, node) in inner_nodes(tree).enumerate() {
        block(&mut text, at > 0, node, None);
    }
    text
}

/// The files of an agent's directory that tell its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentFiles {
    /// `pmns`: the names, their domain as a symbol; pmdaproc.sh replaces it by the number and hands
    /// the file to pmnsadd(1).
    pub pmns: String,
    /// `root`: a complete name space around `pmns`, for `newhelp -n root` and `pminfo -n root`.
    pub root: String,
}

/// The files of an agent with these names. PMIDs of `domain`, also its dynamic roots, are written
/// with `symbol`, which is a letter and letters, digits, underscores.
///
/// Names below a single top-level node make a `pmns` that begins with that node. Other names, such as
/// a metric without a dot, make one with a `root` of its own, which pmnsadd(1) takes as well.
pub fn agent(tree: &Tree, domain: Domain, symbol: &str) -> Result<AgentFiles, Error> {
    if symbol.contains('.') || !is_name(symbol) {
        return Err(Error(symbol.into()));
    }
    let symbols = Some((domain, symbol));
    let mut root = format!("#include <stdpmid>\n#ifndef {symbol}\n#define {symbol} {domain}\n#endif\n\n");
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

/// A symbol that no macro can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no symbol of a domain")]
pub struct Error(pub String);

/// The root and the nodes that are no leaves.
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
            // Writing to a string does not fail.
            let _: fmt::Result = write!(text, "\t{}", Source { pmid, symbols });
        }
        text.push('\n');
    }
    text.push_str("}\n");
}

/// A PMID as the format has it: `DOMAIN:CLUSTER:ITEM` or `DOMAIN:*:*`.
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
