//! Rules for the names of metrics and instances.
//!
//! ```
//! use pmapi::names;
//!
//! assert!(names::is_at_or_below("disk.dev.read", "disk.dev") && !names::is_at_or_below("disk.device", "disk.dev"));
//! assert_eq!(names::instance_key("1 minute"), "1");
//! ```

/// Returns the part of a metric's name after a node at or above it: empty, or beginning with a dot.
pub fn strip_node<'a>(name: &'a str, node: &str) -> Option<&'a str> {
    name.strip_prefix(node).filter(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns whether a name is that of a node, or of a node or metric below it.
pub fn is_at_or_below(name: &str, node: &str) -> bool {
    strip_node(name, node).is_some()
}

/// Returns the part of an instance's name that identifies it: up to the first space (pmLookupInDom(3)).
pub fn instance_key(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_what_is_below() {
        let cases = [("a.b", "a", Some(".b")), ("a", "a", Some("")), ("ab", "a", None), ("a", "a.b", None)];
        for (name, node, rest) in cases {
            assert_eq!((strip_node(name, node), is_at_or_below(name, node)), (rest, rest.is_some()), "{name} {node}");
        }
    }
}
