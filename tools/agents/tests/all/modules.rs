//! Modules depend on each other in one direction: within each folder of modules there is no circle.
//!
//! Module A depends on module B if A, or a module below A, names an item of B or of a module below B. The item may be
//! named directly, by `crate::…` or `super::…`, or by a name that a module above re-exports. A module and the modules
//! below it may use each other.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Path of a module within its crate. It is empty for the root.
type Module = Vec<String>;

/// Modules of a crate, each with the paths that its file names and re-exports.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<Module, File>,
}

#[derive(Default)]
struct File {
    /// Paths that the module uses, from the crate's root.
    used: BTreeSet<Module>,
    /// Names that the module imports, with their paths from the crate's root.
    imports: BTreeMap<String, Module>,
}

impl Crate {
    fn load(src: &Path) -> Crate {
        let mut all = Crate::default();
        all.add(src, &Vec::new());
        all
    }

    fn add(&mut self, dir: &Path, module: &Module) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            let below = |name: &str| [&module[..], &[name.to_owned()]].concat();
            if path.is_dir() && !(module.is_empty() && name == "bin") {
                self.add(&path, &below(&name));
            } else if let Some(stem) = name.strip_suffix(".rs").filter(|stem| *stem != "tests") {
                let module = if ["mod", "lib", "main"].contains(&stem) { module.clone() } else { below(stem) };
                let file = self.modules.entry(module.clone()).or_default();
                file.read(&code(&fs::read_to_string(path).unwrap()), &module);
            }
        }
    }

    /// Returns the module that a path belongs to, through re-exports.
    fn owner(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let len = (0..=path.len()).rev().find(|len| self.modules.contains_key(&path[..*len])).unwrap_or(0);
            let imported = path.get(len).and_then(|name| self.modules.get(&path[..len])?.imports.get(name));
            match imported.filter(|target| !path.starts_with(target)) {
                Some(target) => path = [target, &path[len + 1..]].concat(),
                None => return path[..len].to_vec(),
            }
        }
        path
    }

    /// Returns the circles among the modules of each folder, as `folder: module module`.
    fn circles(&self) -> Vec<String> {
        let mut edges: BTreeMap<Module, BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
        for (from, file) in &self.modules {
            for to in file.used.iter().map(|path| self.owner(path)) {
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                    edges.entry(from[..common].to_vec()).or_default().entry(a).or_default().insert(b.clone());
                }
            }
        }
        edges
            .iter()
            .flat_map(|(folder, edges)| circles(edges).into_iter().map(|one| (folder.join("/"), one)))
            .map(|(folder, circle)| format!("{folder}: {}", circle.join(" ")))
            .collect()
    }
}

/// Returns the groups of nodes that can reach each other.
fn circles(edges: &BTreeMap<&str, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |start: &str| {
        let (mut all, mut next) = (BTreeSet::new(), vec![start.to_owned()]);
        while let Some(node) = next.pop() {
            for to in edges.get(node.as_str()).into_iter().flatten() {
                if all.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        all
    };
    let reached: BTreeMap<&str, BTreeSet<String>> = edges.keys().map(|node| (*node, reached(node))).collect();
    let mut groups = BTreeSet::new();
    for (node, all) in reached.iter().filter(|(node, all)| all.contains(**node)) {
        let group = reached.iter().filter(|(other, back)| all.contains(**other) && back.contains(*node));
        groups.insert(group.map(|(other, _)| (*other).to_owned()).collect::<Vec<_>>());
    }
    groups.into_iter().collect()
}

/// Returns a file without comments, and without its tests, which are at the end.
fn code(text: &str) -> String {
    let text = text.split("\nmod tests {").next().unwrap();
    text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect()
}

impl File {
    /// Adds the modules that the text of a module uses.
    fn read(&mut self, text: &str, module: &Module) {
        for start in ["crate::", "super::"].iter().flat_map(|word| text.match_indices(word).map(|(at, _)| at)) {
            let before = text[..start].chars().next_back().unwrap_or(' ');
            if !before.is_alphanumeric() && before != '_' && !text[..start].ends_with("super::") {
                self.used.extend(expand(&text[start..], module).into_iter().map(|(path, _)| path));
            }
        }
        for (at, _) in text.match_indices("use ") {
            let imported = text[at + 4..].split(';').next().unwrap();
            let imports = expand(imported, module).into_iter();
            self.imports.extend(imports.filter_map(|(path, name)| Some((name.or(path.last().cloned())?, path))));
        }
    }
}

/// Returns the paths of a `use`, from the crate's root, each with the name that `as` gives.
fn expand(text: &str, module: &Module) -> Vec<(Module, Option<String>)> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let (path, rest) = (&text[..end], &text[end..]);
    let mut base = module.clone();
    let mut words: Vec<&str> = path.split("::").filter(|word| !word.is_empty()).collect();
    match words.first() {
        Some(&"crate") => base.clear(),
        Some(&"super") => {
            base.truncate(module.len().saturating_sub(words.iter().take_while(|word| **word == "super").count()));
        }
        _ => (),
    }
    words.retain(|word| !["crate", "super", "self"].contains(word));
    base.extend(words.into_iter().map(str::to_owned));
    let alias =
        rest.strip_prefix(" as ").and_then(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
    match rest.strip_prefix('{') {
        Some(group) if path.ends_with("::") => parts(group).into_iter().flat_map(|part| expand(part, &base)).collect(),
        _ => vec![(base, alias.map(str::to_owned))],
    }
}

/// Splits a group at the commas that are not within another group.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut all) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        depth += i32::from(c == '{');
        if depth == 0 && (c == ',' || c == '}') {
            all.push(group[from..at].trim());
            from = at + 1;
        }
        depth -= i32::from(c == '}');
        if depth < 0 {
            break;
        }
    }
    all.retain(|part| !part.is_empty());
    all
}

/// Calls `visit` with each folder that has a package.
fn packages(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        if path.ends_with("target") || path.ends_with(".git") || path.ends_with("fuzz") {
            continue;
        }
        if path.join("Cargo.toml").exists() && path.join("src").exists() {
            visit(&path);
        }
        packages(&path, visit);
    }
}

#[test]
fn modules_use_each_other_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|dir| dir.join("check").exists()).unwrap();
    let mut found = BTreeSet::new();
    packages(root, &mut |package| {
        let name = package.strip_prefix(root).unwrap().display().to_string();
        found.extend(
            Crate::load(&package.join("src")).circles().into_iter().map(|circle| format!("{name}/src/{circle}")),
        );
    });
    assert!(found.is_empty(), "circles of modules: {found:#?}");
}

#[test]
fn a_circle_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::create_dir(dir.path().join("c")).unwrap();
    write("lib.rs", "mod a; mod b; mod c;\npub use b::Thing;\n");
    write("a.rs", "use crate::{Other, Thing as Renamed};\n");
    write("b.rs", "use super::c::{deep::{Item, Two}, self};\npub struct Thing; // crate::a::Comment\n");
    write("c/mod.rs", "mod deep;\nmod side;\nfn f() { crate::a::g() }\n");
    write("c/deep.rs", "use super::side::S;\n");
    write("c/side.rs", "fn f(_: super::super::c::deep::Item) {}\n");
    assert_eq!(Crate::load(dir.path()).circles(), [": a b c", "c: deep side"]);
    write("b.rs", "pub struct Thing;\n");
    write("c/side.rs", "use super::*;\nuse crate::c;\n");
    assert_eq!(Crate::load(dir.path()).circles(), Vec::<String>::new());
}
