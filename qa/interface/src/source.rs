//! The modules of a crate, and the items to which names in them refer.

use std::path::{Path, PathBuf};
use std::{fs, io};

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Ident, Item, Token, Type, UseTree, Visibility, parse_quote};

/// Failure to read the source of a crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file has a syntax error.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        source: syn::Error,
    },
}

/// Module of a crate, with its items and imports.
pub(crate) struct Module {
    pub(crate) parent: Option<usize>,
    /// Path within the crate, empty for the root.
    pub(crate) path: String,
    pub(crate) items: Vec<Item>,
    /// Names and numbers of the modules directly below.
    children: Vec<(String, usize)>,
}

/// All modules of a crate. The root has number 0.
pub(crate) struct Source {
    pub(crate) modules: Vec<Module>,
}

/// Item to which a name refers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Target {
    Module(usize),
    /// Item of a module: the number of the module and the index of the item.
    Item(usize, usize),
    /// Path to another crate.
    Extern(String),
}

/// Name that a `use` declares in a module.
pub(crate) struct Import {
    /// Local name. `None` for all names of a module.
    pub(crate) name: Option<String>,
    pub(crate) path: Vec<String>,
}

impl Source {
    pub(crate) fn load(root: &Path) -> Result<Source, Error> {
        let mut source = Source { modules: Vec::new() };
        let directory = root.parent().unwrap_or(Path::new("."));
        source.load_file(None, String::new(), root, directory)?;
        Ok(source)
    }

    fn load_file(&mut self, parent: Option<usize>, path: String, file: &Path, below: &Path) -> Result<usize, Error> {
        let text = fs::read_to_string(file).map_err(|source| Error::Io { path: file.into(), source })?;
        let parsed = syn::parse_file(&text).map_err(|source| Error::Syntax { path: file.into(), source })?;
        self.load_items(parent, path, parsed.items, file, below)
    }

    /// Adds a module with its children. `below` is the directory in which files of children are.
    fn load_items(
        &mut self,
        parent: Option<usize>,
        path: String,
        items: Vec<Item>,
        file: &Path,
        below: &Path,
    ) -> Result<usize, Error> {
        let number = self.modules.len();
        self.modules.push(Module { parent, path: path.clone(), items: Vec::new(), children: Vec::new() });
        let mut kept = Vec::new();
        for item in items.into_iter().filter(|item| !is_left_out(attributes(item))) {
            match item {
                Item::Mod(mut module) => {
                    let name = module.ident.to_string();
                    let inner = if path.is_empty() { name.clone() } else { format!("{path}::{name}") };
                    let directory = below.join(&name);
                    let child = match module.content.take() {
                        Some((_, items)) => self.load_items(Some(number), inner, items, file, &directory)?,
                        None => {
                            let (file, directory) = file_of(&module.attrs, &name, file, below);
                            self.load_file(Some(number), inner, &file, &directory)?
                        }
                    };
                    self.modules[number].children.push((name, child));
                    kept.push(Item::Mod(module));
                }
                Item::Macro(item) if item.mac.path.is_ident("bitflags") => {
                    let flags: Flags =
                        syn::parse2(item.mac.tokens).map_err(|source| Error::Syntax { path: file.into(), source })?;
                    kept.extend(flags.items());
                }
                item => kept.push(item),
            }
        }
        self.modules[number].items = kept;
        Ok(number)
    }

    /// Returns the items to which a path within a module refers. A name can refer to several items, for instance a
    /// module and a macro.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return vec![Target::Module(module)] };
        let from = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(module)],
            "super" => self.modules[module].parent.map(Target::Module).into_iter().collect(),
            name => self.look_up(module, name),
        };
        if from.is_empty() {
            return vec![Target::Extern(path.join("::"))];
        }
        let mut targets = Vec::new();
        for target in from {
            match target {
                Target::Module(inner) if !rest.is_empty() => targets.extend(self.resolve_in(inner, rest)),
                Target::Extern(path) if !rest.is_empty() => {
                    targets.push(Target::Extern(format!("{path}::{}", rest.join("::"))));
                }
                target if rest.is_empty() => targets.push(target),
                _ => {}
            }
        }
        targets
    }

    /// Resolves the rest of a path, whose first name is never that of another crate.
    fn resolve_in(&self, module: usize, path: &[String]) -> Vec<Target> {
        let path: Vec<String> = std::iter::once("self".to_owned()).chain(path.iter().cloned()).collect();
        match path.as_slice() {
            [_, first, rest @ ..] if first != "super" && first != "self" => {
                let found = self.look_up(module, first);
                found
                    .into_iter()
                    .flat_map(|target| match target {
                        Target::Module(inner) if !rest.is_empty() => self.resolve_in(inner, rest),
                        Target::Extern(path) if !rest.is_empty() => {
                            vec![Target::Extern(format!("{path}::{}", rest.join("::")))]
                        }
                        target if rest.is_empty() => vec![target],
                        _ => Vec::new(),
                    })
                    .collect()
            }
            _ => self.resolve(module, &path[1..]),
        }
    }

    /// Returns the items to which a name in a module refers. Through a `use` of all names of another module, it finds
    /// only items that the other module declares itself.
    fn look_up(&self, module: usize, name: &str) -> Vec<Target> {
        let mut targets = self.own(module, name);
        let globs = if targets.is_empty() { self.imports(module).collect() } else { Vec::new() };
        for import in globs.iter().filter(|import| import.name.is_none()) {
            // A path that begins with another crate leads to no module of this crate.
            let from = match import.path.first().map(String::as_str) {
                Some("crate" | "self" | "super") => self.resolve(module, &import.path),
                Some(first) if !self.own(module, first).is_empty() => self.resolve(module, &import.path),
                _ => Vec::new(),
            };
            let modules = from.iter().filter_map(|target| match target {
                Target::Module(inner) => Some(*inner),
                _ => None,
            });
            targets.extend(modules.flat_map(|inner| self.own(inner, name)));
        }
        targets
    }

    /// Returns the items that a module declares or imports by this name.
    fn own(&self, module: usize, name: &str) -> Vec<Target> {
        let here = &self.modules[module];
        let child = here.children.iter().find(|(child, _)| child == name).map(|(_, number)| Target::Module(*number));
        let items = here.items.iter().enumerate();
        let own = items.filter(|(_, item)| item_name(item).is_some_and(|own| own == name));
        let mut targets: Vec<Target> = child.into_iter().chain(own.map(|(at, _)| Target::Item(module, at))).collect();
        for import in self.imports(module) {
            // A name that is imported under its own name from another crate would resolve to itself.
            if import.name.as_deref() == Some(name) && import.path.first().map(String::as_str) != Some(name) {
                targets.extend(self.resolve(module, &import.path));
            }
        }
        targets
    }

    fn imports(&self, module: usize) -> impl Iterator<Item = Import> {
        self.modules[module].items.iter().filter_map(as_use).flat_map(|item| imports(&item.tree))
    }
}

fn as_use(item: &Item) -> Option<&syn::ItemUse> {
    match item {
        Item::Use(item) => Some(item),
        _ => None,
    }
}

/// Returns the names that a tree of a `use` declares.
pub(crate) fn imports(tree: &UseTree) -> Vec<Import> {
    fn add(tree: &UseTree, path: &mut Vec<String>, out: &mut Vec<Import>) {
        match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                add(&inner.tree, path, out);
                path.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                out.push(Import { name: path.last().cloned(), path: path.clone() });
            }
            UseTree::Name(name) => out.push(import(Some(name.ident.to_string()), path, &name.ident)),
            UseTree::Rename(name) => out.push(import(Some(name.rename.to_string()), path, &name.ident)),
            UseTree::Glob(_) => out.push(Import { name: None, path: path.clone() }),
            UseTree::Group(group) => group.items.iter().for_each(|tree| add(tree, path, out)),
        }
    }
    fn import(name: Option<String>, path: &[String], last: &Ident) -> Import {
        Import { name, path: path.iter().cloned().chain([last.to_string()]).collect() }
    }
    let mut out = Vec::new();
    add(tree, &mut Vec::new(), &mut out);
    out
}

/// Returns the file of a module, and the directory for the modules below it.
fn file_of(attributes: &[Attribute], name: &str, parent: &Path, below: &Path) -> (PathBuf, PathBuf) {
    let given = attributes.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| {
        let Ok(syn::MetaNameValue { value: Expr::Lit(value), .. }) = attribute.meta.require_name_value() else {
            return None;
        };
        match &value.lit {
            syn::Lit::Str(path) => Some(parent.parent()?.join(path.value())),
            _ => None,
        }
    });
    let flat = below.join(name).with_extension("rs");
    let nested = below.join(name).join("mod.rs");
    let file = given.unwrap_or(if flat.exists() { flat } else { nested });
    (file, below.join(name))
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item is compiled for tests only.
fn is_left_out(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|attribute| attribute.parse_args::<syn::Meta>().ok()).any(|condition| match &condition {
        syn::Meta::Path(path) => path.is_ident("test") || path.is_ident("mmv_loom"),
        syn::Meta::List(list) => list.path.is_ident("all") && crate::text::of(&list.tokens).starts_with("test"),
        syn::Meta::NameValue(_) => false,
    })
}

/// Returns the name of an item, if it has one.
pub(crate) fn item_name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

/// Content of `bitflags!`: one set of flags.
struct Flags {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: Ident,
    bits: Type,
    flags: Vec<(Ident, Expr)>,
}

impl Parse for Flags {
    fn parse(input: ParseStream<'_>) -> syn::Result<Flags> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        input.parse::<Token![struct]>()?;
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        let bits = input.parse()?;
        let content;
        syn::braced!(content in input);
        let mut flags = Vec::new();
        while !content.is_empty() {
            content.call(Attribute::parse_outer)?;
            content.parse::<Token![const]>()?;
            let flag = content.parse()?;
            content.parse::<Token![=]>()?;
            flags.push((flag, content.parse()?));
            content.parse::<Token![;]>()?;
        }
        Ok(Flags { attributes, visibility, name, bits, flags })
    }
}

impl Flags {
    fn items(self) -> [Item; 2] {
        let Flags { attributes, visibility, name, bits, flags } = self;
        let (flags, values): (Vec<_>, Vec<_>) = flags.into_iter().unzip();
        let bitflags = Ident::new("bitflags", Span::call_site());
        [
            parse_quote!(#(#attributes)* #[#bitflags(#bits)] #visibility struct #name(#bits);),
            parse_quote!(impl #name { #(pub const #flags: #name = #values;)* }),
        ]
    }
}
