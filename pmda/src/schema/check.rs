//! Checks of an agent's declarations.

use std::collections::{BTreeMap, HashMap, HashSet};

use pmapi::names::is_at_or_below;
use pmapi::{Inst, Item};

use super::mistake::{Mistake, check_help};
use super::{Declarations, InDomDef, MetricDef};

impl Declarations {
    pub(super) fn check_metrics(&self, mistakes: &mut Vec<Mistake>) {
        let mut names: BTreeMap<&str, &MetricDef> = BTreeMap::new();
        let mut items: HashMap<Item, &MetricDef> = HashMap::new();
        for m in &self.metrics {
            mistakes.extend(m.check_restriction(self.wants).err());
            if !pmns::is_name(&m.name) {
                mistakes.push(Mistake::Name(m.name.clone()));
            }
            if names.insert(&m.name, m).is_some() {
                mistakes.push(Mistake::Twice(m.name.clone()));
            }
            if let Some(other) = items.insert(m.item, m).filter(|other| other.name != m.name) {
                let (first, second) = (other.name.clone(), m.name.clone());
                mistakes.push(Mistake::SameItem { first, second, item: m.item });
            }
            if let Some(serial) = m.indom.filter(|serial| !self.indoms.iter().any(|i| i.serial == *serial)) {
                mistakes.push(Mistake::Undeclared { metric: m.name.clone(), indom: serial });
            }
            mistakes.extend(check_help(&m.name, &m.oneline, &m.text).err());
            for root in &self.dynamic {
                if is_at_or_below(&m.name, root) || is_at_or_below(root, &m.name) {
                    mistakes.push(Mistake::Static { metric: m.name.clone(), root: root.clone() });
                }
            }
        }
        // In this order a name precedes the names below it, possibly with other names in between.
        for name in names.keys() {
            let below = format!("{name}.");
            if names.range(below.as_str()..).next().is_some_and(|(next, _)| next.starts_with(&below)) {
                mistakes.push(Mistake::Inner((*name).to_owned()));
            }
        }
    }

    pub(super) fn check_indoms(&self, mistakes: &mut Vec<Mistake>) {
        let mut serials = HashSet::new();
        for i in &self.indoms {
            if !serials.insert(i.serial) {
                mistakes.push(Mistake::IndomTwice(i.serial));
            }
            i.check(mistakes);
        }
    }
}

impl Declarations {
    pub(super) fn check_install(&self, mistakes: &mut Vec<Mistake>) {
        let mut options = HashSet::new();
        for argument in &self.arguments {
            mistakes.extend(argument.check().err());
            if !options.insert(argument.option()) {
                mistakes.push(Mistake::Argument { option: argument.option().to_owned(), reason: "declared twice" });
            }
        }
        mistakes.extend(self.running.check().err());
        self.check_copied_files(mistakes);
    }

    /// Checks the files that Install copies into directories of PCP.
    fn check_copied_files(&self, mistakes: &mut Vec<Mistake>) {
        const STARTS: [(&str, &str, &str); 3] = [
            ("etc", "", ""),
            ("pmlogconf", "#pmlogconf-setup ", "a template of pmlogconf begins with #pmlogconf-setup"),
            ("pmieconf", "#pmieconf-rules ", "rules for pmieconf begin with #pmieconf-rules"),
        ];
        for (path, text) in &self.files {
            let Some((_, start, rule)) = STARTS.iter().find(|(folder, ..)| path.starts_with(folder)) else { continue };
            let name = path.iter().nth(1).and_then(|name| name.to_str()).unwrap_or_default();
            let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            let mistake = |reason| Mistake::File { path: path.display().to_string(), reason };
            if path.iter().count() != 2 || name.starts_with('.') || !is_plain {
                mistakes.push(mistake("its name has letters, digits, . _ and - only, and begins with no dot"));
            }
            if !text.starts_with(start) {
                mistakes.push(mistake(rule));
            }
        }
    }
}

impl InDomDef {
    pub(crate) fn check(&self, mistakes: &mut Vec<Mistake>) {
        mistakes.extend(check_help(&format!("instance domain {}", self.serial), &self.oneline, &self.text).err());
        for (id, name) in self.instances.iter() {
            match Inst::from_word(id) {
                None => mistakes.push(Mistake::InstanceNumber { indom: self.serial, name: name.to_owned() }),
                Some(inst) if name.is_empty() || name.contains('\0') => {
                    mistakes.push(Mistake::InstanceName { indom: self.serial, inst });
                }
                Some(_) => {}
            }
        }
        let twice = self.instances.twice();
        mistakes.extend(twice.map(|(inst, name)| Mistake::InstanceTwice {
            indom: self.serial,
            inst,
            name: name.to_owned(),
        }));
    }
}
