//! Selection of an operand's instances.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;

/// Largest compiled pattern, in bytes.
const LARGEST: usize = 16 << 20;
/// Largest sum of all compiled patterns of the process, in mebibytes.
const LIMIT_MIB: usize = 64;

/// Selection by `[instance]` or by the pattern of `matchinst`.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    Instance(Box<str>),
    Pattern { regex: Arc<Regex>, invert: bool },
}

impl Filter {
    pub(crate) fn instance(name: String) -> Filter {
        Filter::Instance(name.into())
    }

    /// Compiles a pattern. The error is a text of regerror(3), or names the limit of all patterns.
    pub(crate) fn pattern(pattern: &str, invert: bool) -> Result<Filter, String> {
        let regex = COMPILED.compile(pattern, LIMIT_MIB << 20)?;
        Ok(Filter::Pattern { regex, invert })
    }
}

/// Compiled pattern, which all definitions with this pattern share.
#[derive(Debug)]
pub(crate) struct Regex {
    text: Box<str>,
    vm: PikeVM,
}

/// Formats the pattern as it was written.
impl fmt::Display for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Regex {
    fn size(&self) -> usize {
        self.vm.get_nfa().memory_usage()
    }

    /// Returns whether the pattern matches a part of a text. `memory` is for one pattern, and empty at first.
    pub(crate) fn is_match(&self, memory: &mut Option<Cache>, text: &[u8]) -> bool {
        self.vm.is_match(memory.get_or_insert_with(|| self.vm.create_cache()), text)
    }
}

/// Compiled patterns in use, by their text.
struct Compiled(Mutex<Option<HashMap<Box<str>, Weak<Regex>>>>);

static COMPILED: Compiled = Compiled(Mutex::new(None));

impl Compiled {
    fn compile(&self, pattern: &str, limit: usize) -> Result<Arc<Regex>, String> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = guard.get_or_insert_default();
        if let Some(regex) = compiled.get(pattern).and_then(Weak::upgrade) {
            return Ok(regex);
        }
        let mut used = 0;
        compiled.retain(|_, regex| {
            let size = regex.upgrade().map(|regex| regex.size());
            used += size.unwrap_or(0);
            size.is_some()
        });
        let left = limit.saturating_sub(used);
        let config = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(left.min(LARGEST)));
        let mut builder = PikeVM::builder();
        builder.syntax(syntax::Config::new().utf8(false)).thompson(config);
        let built = builder.build(&pcp_ere::translate(pattern).map_err(|e| e.to_string())?);
        let vm = built.map_err(|e| match e.size_limit() {
            Some(most) if most < LARGEST => {
                format!("the limit of {} MiB for all patterns together is reached", limit >> 20)
            }
            _ => pcp_ere::TOO_BIG.to_owned(),
        })?;
        let regex = Arc::new(Regex { text: pattern.into(), vm });
        compiled.insert(pattern.into(), Arc::downgrade(&regex));
        Ok(regex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_patterns_are_compiled_once() {
        let compiled = Compiled(Mutex::new(None));
        let compile = |pattern| compiled.compile(pattern, LIMIT_MIB << 20).unwrap();
        let (one, same, other) = (compile("^a+$"), compile("^a+$"), compile("^b+$"));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        let mut memory = None;
        assert!(one.is_match(&mut memory, b"aa") && !one.is_match(&mut memory, b"ab"));
    }

    /// Patterns that are no longer in use do not count.
    #[test]
    fn all_patterns_have_one_limit() {
        let compiled = Compiled(Mutex::new(None));
        let mut kept = Vec::new();
        let refused = loop {
            match compiled.compile(&format!("[a-z]{{1,1000}}{}", kept.len()), 1 << 20) {
                Ok(regex) => kept.push(regex),
                Err(why) => break why,
            }
        };
        assert_eq!(refused, "the limit of 1 MiB for all patterns together is reached");
        let used: usize = kept.iter().map(|regex| regex.size()).sum();
        assert!(kept.len() > 1 && used <= 1 << 20, "{} {used}", kept.len());
        // A small one may still fit, and one in use is there already.
        assert!(compiled.compile("[a-z]{1,1000}0", 1 << 20).is_ok());
        kept.clear();
        assert!(compiled.compile("[a-z]{1,1000}x", 1 << 20).is_ok());
    }

    #[test]
    fn a_pattern_may_be_too_big() {
        let compiled = Compiled(Mutex::new(None));
        assert_eq!(compiled.compile("(([a-z]{1,200}){1,200}){1,200}", 1 << 30).unwrap_err(), pcp_ere::TOO_BIG);
        assert_eq!(compiled.compile(&"[[:alpha:]]".repeat(1000), 1 << 30).unwrap_err(), pcp_ere::TOO_BIG);
    }
}
