//! Name spaces for a private pmcd, merged from the files of agents.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

/// A name space of agents' `pmns` files. Its `Display` is a root that pmcd and the tools load with `-n`.
#[derive(Debug, Clone)]
pub struct NameSpace {
    /// Path of each inner node, with its children: names, and the PMIDs of metrics. The root is the first.
    nodes: Vec<(String, Vec<Child>)>,
}

type Child = (String, Option<String>);

impl Default for NameSpace {
    fn default() -> Self {
        Self { nodes: vec![("root".to_owned(), Vec::new())] }
    }
}

impl NameSpace {
    /// Adds the text of a `pmns` file. A symbol before cluster and item stands for `domain`. Known nodes get further
    /// children.
    ///
    /// The text is either a list of subtrees (`simple { … }`), or has its own `root { … }`. Subtrees without a dot in
    /// their name join the root. Comments and preprocessor lines are dropped.
    pub fn add(&mut self, pmns: &str, domain: u16) {
        static DROPPED: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"(?s)/\*.*?\*/|(?-s:(?m:^[ \t]*#.*$))").expect("a constant pattern"));
        static SYMBOL: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\b[A-Za-z_]\w*:(\d+|\*):(\d+|\*)").expect("a constant pattern"));
        static SUBTREE: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"(?s)([\w.]+)\s*\{(.*?)\}").expect("a constant pattern"));

        let text = DROPPED.replace_all(pmns, "");
        let text = SYMBOL.replace_all(&text, format!("{domain}:$1:$2"));
        for subtree in SUBTREE.captures_iter(&text) {
            let path = &subtree[1];
            if !path.contains('.') && path != "root" {
                self.child("root", path, None);
            }
            let mut words = subtree[2].split_whitespace().peekable();
            while let Some(name) = words.next() {
                let pmid = words.next_if(|word| word.contains(':'));
                self.child(path, name, pmid);
            }
        }
    }

    /// Adds a child to a node, unless the node has it.
    fn child(&mut self, path: &str, name: &str, pmid: Option<&str>) {
        let at = self.nodes.iter().position(|(other, _)| other == path).unwrap_or_else(|| {
            self.nodes.push((path.to_owned(), Vec::new()));
            self.nodes.len() - 1
        });
        let children = &mut self.nodes[at].1;
        if !children.iter().any(|(other, _)| other == name) {
            children.push((name.to_owned(), pmid.map(str::to_owned)));
        }
    }
}

impl fmt::Display for NameSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, children) in &self.nodes {
            writeln!(f, "{path} {{")?;
            for (name, pmid) in children {
                writeln!(f, "\t{name}\t{}", pmid.as_deref().unwrap_or_default())?;
            }
            writeln!(f, "}}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_join_the_root_with_the_domain_in_place_of_the_symbol() {
        let mut names = NameSpace::default();
        names.add("/* simple */\n#define X\nsimple {\n now SIMPLE:2:4\n time\n}\nsimple.time { user SIMPLE:1:2 }", 253);
        names.add("root {\n mmv MMV:*:*\n simple\n}\nsimple { more MMV:*:* }", 70);
        let text = names.to_string().replace('\t', " ").replace(" \n", "\n");
        let root = "root {\n simple\n mmv 70:*:*\n}\n";
        let simple = "simple {\n now 253:2:4\n time\n more 70:*:*\n}\nsimple.time {\n user 253:1:2\n}\n";
        assert_eq!(text, format!("{root}{simple}"));
    }
}
