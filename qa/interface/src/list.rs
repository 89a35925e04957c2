//! The list of a crate's public items.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use syn::{Item, ItemImpl, Type, Visibility};

use crate::source::{Error, Source, Target, imports, item_name};
use crate::{item, text};

/// Returns the public interface of the crate whose root module is in the file `root`: a paragraph for each item, with
/// its path, in the order of the paths.
///
/// # Errors
/// [`Error`] when a file cannot be read or has a syntax error.
pub fn interface(root: &Path) -> Result<String, Error> {
    let source = Source::load(root)?;
    let mut list = List { source: &source, found: BTreeMap::new(), visited: BTreeSet::new() };
    list.module(0, "crate");
    list.exported_macros();
    list.implementations();
    list.invocations();
    let mut out = String::new();
    for (path, lines) in &list.found {
        _ = write!(out, "\n{path}\n");
        lines.iter().for_each(|line| _ = writeln!(out, "    {line}"));
    }
    Ok(out)
}

struct List<'a> {
    source: &'a Source,
    /// Lines of the list that each item gets, by the path of the item.
    found: BTreeMap<String, Vec<String>>,
    /// Modules with the paths under which they have been visited.
    visited: BTreeSet<(usize, String)>,
}

impl List<'_> {
    /// Adds the public items of a module, which has the path `path`. For a module that the documentation hides, it adds
    /// only the name, because only other crates of this repository use the module.
    fn module(&mut self, number: usize, path: &str) {
        if !self.visited.insert((number, path.to_owned())) {
            return;
        }
        let source = self.source;
        for (at, item) in source.modules[number].items.iter().enumerate() {
            match item {
                Item::Use(item) if is_public(&item.vis) => {
                    for import in imports(&item.tree) {
                        for target in source.resolve(number, &import.path) {
                            self.target(&target, path, import.name.as_deref(), item);
                        }
                    }
                }
                Item::Mod(module) if is_public(&module.vis) => {
                    let inner = format!("{path}::{}", module.ident);
                    let mut lines = item::attributes(&module.attrs);
                    let is_hidden = lines.iter().any(|attribute| attribute == "#[doc(hidden)]");
                    lines.push(format!("pub mod {};", module.ident));
                    self.found.entry(inner.clone()).or_default().extend(lines);
                    if is_hidden {
                        continue;
                    }
                    for target in source.resolve(number, &["self".to_owned(), module.ident.to_string()]) {
                        if let Target::Module(child) = target {
                            self.module(child, &inner);
                        }
                    }
                }
                Item::Use(_) | Item::Mod(_) | Item::Macro(_) | Item::Impl(_) => {}
                item if visibility(item).is_some_and(is_public) => {
                    let name = item_name(item).map(ToString::to_string).unwrap_or_default();
                    self.item(number, at, path, &name);
                }
                _ => {}
            }
        }
    }

    /// Adds the items that a public `use` names. Without a name, the `use` imports all names of a module.
    fn target(&mut self, target: &Target, path: &str, name: Option<&str>, item: &syn::ItemUse) {
        match (target, name) {
            (Target::Module(inner), None) => self.module(*inner, path),
            (Target::Module(inner), Some(name)) => self.module(*inner, &format!("{path}::{name}")),
            (Target::Item(module, at), Some(name)) => self.item(*module, *at, path, name),
            (Target::Extern(other), name) => {
                let line = format!("pub use {other}{};", if name.is_none() { "::*" } else { "" });
                let mut lines = item::attributes(&item.attrs);
                lines.push(line);
                self.found.entry(format!("{path}::{}", name.unwrap_or("*"))).or_default().extend(lines);
            }
            (Target::Item(..), None) => {}
        }
    }

    fn item(&mut self, module: usize, at: usize, path: &str, name: &str) {
        let lines = item::lines(&self.source.modules[module].items[at], name);
        self.found.entry(format!("{path}::{name}")).or_default().extend(lines);
    }

    fn exported_macros(&mut self) {
        for module in &self.source.modules {
            for item in &module.items {
                if let Item::Macro(exported) = item
                    && exported.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"))
                    && let Some(name) = &exported.ident
                {
                    let lines = item::lines(item, &name.to_string());
                    self.found.entry(format!("crate::{name}!")).or_default().extend(lines);
                }
            }
        }
    }

    /// Adds the implementations of public types and traits. Implementations with the same header are combined.
    fn implementations(&mut self) {
        let mut all: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        let paths = self.paths();
        for (number, module) in self.source.modules.iter().enumerate() {
            for item in &module.items {
                let Item::Impl(item) = item else { continue };
                let Some(path) = self.path_of(number, item, &paths) else { continue };
                let (head, parts) = item::implementation(item);
                let conditions: String =
                    item::attributes(&item.attrs).iter().map(|attribute| format!("{attribute} ")).collect();
                if item.trait_.is_some() || !parts.is_empty() {
                    all.entry((path, format!("{conditions}{head}"))).or_default().extend(parts);
                }
            }
        }
        for ((path, head), parts) in all {
            let lines = self.found.entry(path).or_default();
            lines.push(if parts.is_empty() { head } else { format!("{head}:") });
            lines.extend(parts.into_iter().map(|part| format!("    {part}")));
        }
    }

    /// Returns the paths of the public items, by module and name.
    fn paths(&self) -> BTreeMap<(usize, String), String> {
        let mut paths = BTreeMap::new();
        for (number, prefix) in &self.visited {
            for item in &self.source.modules[*number].items {
                let names: Vec<(String, Vec<String>)> = match item {
                    Item::Use(item) if is_public(&item.vis) => {
                        imports(&item.tree).into_iter().filter_map(|import| Some((import.name?, import.path))).collect()
                    }
                    item if visibility(item).is_some_and(is_public) => {
                        let name = item_name(item).map(ToString::to_string).unwrap_or_default();
                        vec![(name.clone(), vec!["self".to_owned(), name])]
                    }
                    _ => Vec::new(),
                };
                for (name, path) in names {
                    for target in self.source.resolve(*number, &path) {
                        if let Target::Item(module, at) = target
                            && let Some(own) = item_name(&self.source.modules[module].items[at])
                        {
                            paths.entry((module, own.to_string())).or_insert_with(|| format!("{prefix}::{name}"));
                        }
                    }
                }
            }
        }
        paths
    }

    /// Returns the path of the public type or trait that an implementation belongs to.
    fn path_of(&self, module: usize, item: &ItemImpl, paths: &BTreeMap<(usize, String), String>) -> Option<String> {
        let public = |path: &syn::Path| {
            let path: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let targets = self.source.resolve(module, &path);
            let own = targets.iter().find_map(|target| match target {
                Target::Item(module, at) => {
                    let name = item_name(&self.source.modules[*module].items[*at])?;
                    Some(paths.get(&(*module, name.to_string())).cloned())
                }
                _ => None,
            });
            match own {
                Some(Some(path)) => Found::Public(path),
                Some(None) => Found::Private,
                None => Found::Foreign,
            }
        };
        let of_trait = item.trait_.as_ref().map(|(_, path, _)| public(path));
        let of_type = match without_references(&item.self_ty) {
            Type::Path(ty) => public(&ty.path),
            _ => Found::Foreign,
        };
        match (of_type, of_trait) {
            (_, Some(Found::Private)) | (Found::Private, _) => None,
            (Found::Public(path), _) | (Found::Foreign, Some(Found::Public(path))) => Some(path),
            (Found::Foreign, _) => None,
        }
    }

    /// Adds the tokens of macros that stand for items, and of their definitions.
    fn invocations(&mut self) {
        for module in &self.source.modules {
            for item in &module.items {
                let Item::Macro(used) = item else { continue };
                if used.mac.path.is_ident("thread_local") || used.mac.path.is_ident("macro_rules") {
                    continue;
                }
                let name = text::of(&used.mac.path);
                let lines = text::lines(&used.mac.tokens);
                self.found.entry(format!("crate::{}::{name}! {{}}", module.path)).or_default().extend(lines);
            }
        }
    }
}

/// Item that an implementation belongs to.
enum Found {
    Public(String),
    Private,
    Foreign,
}

fn without_references(ty: &Type) -> &Type {
    match ty {
        Type::Reference(ty) => without_references(&ty.elem),
        ty => ty,
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn visibility(item: &Item) -> Option<&Visibility> {
    match item {
        Item::Const(item) => Some(&item.vis),
        Item::Enum(item) => Some(&item.vis),
        Item::Fn(item) => Some(&item.vis),
        Item::Static(item) => Some(&item.vis),
        Item::Struct(item) => Some(&item.vis),
        Item::Trait(item) => Some(&item.vis),
        Item::Type(item) => Some(&item.vis),
        Item::Union(item) => Some(&item.vis),
        _ => None,
    }
}
