//! Name spaces for a private pmcd, put together from the files that agents bring.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

/// A name space made of agents' `pmns` files; its `Display` is a root that pmcd and the tools load with `-n`.
#[derive(Debug, Clone, Default)]
pub struct NameSpace {
    roots: Vec<String>,
    subtrees: String,
}

impl NameSpace {
    /// Adds a `pmns` file's text; a symbol before a cluster and an item stands for `domain`.
    ///
    /// The text is either subtrees (`simple { … }`), of which those without a dot in their name join the root, or has
    /// a `root { … }` of its own. Comments and preprocessor lines are dropped.
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
            match &subtree[1] {
                "root" => self.roots.push(subtree[2].trim().to_owned()),
                name => {
                    self.subtrees.push_str(&subtree[0]);
                    self.subtrees.push('\n');
                    if !name.contains('.') {
                        self.add_root(name);
                    }
                }
            }
        }
    }

    fn add_root(&mut self, name: &str) {
        if !self.roots.iter().any(|root| root.split_whitespace().any(|word| word == name)) {
            self.roots.push(name.to_owned());
        }
    }
}

impl fmt::Display for NameSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "root {{")?;
        for root in &self.roots {
            writeln!(f, "{root}")?;
        }
        writeln!(f, "}}\n{}", self.subtrees)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_join_the_root_with_the_domain_in_place_of_the_symbol() {
        let mut names = NameSpace::default();
        names.add("/* simple */\n#define X\nsimple {\n now SIMPLE:2:4\n time\n}\nsimple.time { user SIMPLE:1:2 }", 253);
        names.add("root {\n mmv MMV:*:*\n}\n", 70);
        let text = names.to_string();
        assert_eq!(
            text,
            "root {\nsimple\nmmv 70:*:*\n}\nsimple {\n now 253:2:4\n time\n}\nsimple.time { user 253:1:2 }\n\n"
        );
    }
}
