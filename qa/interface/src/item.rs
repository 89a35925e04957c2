//! Text of one item: its signature and its public parts.

use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Fields, FnArg, Generics, ImplItem, ItemImpl, ItemTrait, Pat, Signature, Token, TraitItem, Visibility,
};

use crate::text::{self, of};

/// Returns the lines of an item with the name that it has in the interface.
pub(crate) fn lines(item: &syn::Item, name: &str) -> Vec<String> {
    let mut lines = attributes(crate::source::attributes(item));
    match item {
        syn::Item::Const(item) => {
            let (ty, value) = (&item.ty, &item.expr);
            lines.push(format!("pub const {name}: {} = {};", of(ty), of(value)));
        }
        syn::Item::Static(item) => lines.push(format!("pub static {name}: {};", of(&item.ty))),
        syn::Item::Type(item) => {
            lines.push(format!("pub type {name}{} = {};", generics(&item.generics), of(&item.ty)));
        }
        syn::Item::Fn(item) => lines.push(format!("pub {};", signature(&item.sig, name))),
        syn::Item::Struct(item) => {
            let head = format!("pub struct {name}{}", generics(&item.generics));
            lines.extend(fields(&head, &item.fields, &item.generics, ";"));
        }
        syn::Item::Enum(item) => {
            lines.push(format!("pub enum {name}{}{} {{", generics(&item.generics), bounds(&item.generics)));
            for variant in &item.variants {
                lines.extend(attributes(&variant.attrs).into_iter().map(|line| format!("    {line}")));
                let value = variant.discriminant.as_ref().map(|(_, value)| format!(" = {}", of(value)));
                let fields = of(&without_attributes(&variant.fields));
                let space = if matches!(variant.fields, Fields::Named(_)) { " " } else { "" };
                lines.push(format!("    {}{space}{fields}{},", variant.ident, value.unwrap_or_default()));
            }
            lines.push("}".to_owned());
        }
        syn::Item::Trait(item) => lines.extend(trait_lines(item, name)),
        syn::Item::Macro(item) => {
            lines.push(format!("macro_rules! {name} {{"));
            lines.extend(matchers(&item.mac.tokens).into_iter().map(|line| format!("    {line}")));
            lines.push("}".to_owned());
        }
        other => lines.push(of(other)),
    }
    lines
}

fn without_attributes(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    fields.iter_mut().for_each(|field| field.attrs.clear());
    fields
}

/// Returns the patterns of a `macro_rules!`, without their expansions.
fn matchers(tokens: &proc_macro2::TokenStream) -> Vec<String> {
    let tokens: Vec<_> = tokens.clone().into_iter().collect();
    let rules = tokens.split(|token| matches!(token, proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ';'));
    rules.filter_map(|rule| rule.first()).map(|pattern| format!("{};", of(&pattern.to_token_stream()))).collect()
}

/// Returns the header of an implementation and its public parts, by name.
pub(crate) fn implementation(item: &ItemImpl) -> (String, Vec<String>) {
    let mut head = String::from("impl");
    head.push_str(&generics(&item.generics));
    head.push(' ');
    if let Some((not, path, _)) = &item.trait_ {
        head.push_str(if not.is_some() { "!" } else { "" });
        head.push_str(&of(path));
        head.push_str(" for ");
    }
    head.push_str(&of(&item.self_ty));
    head.push_str(&bounds(&item.generics));
    if item.unsafety.is_some() {
        head.insert_str(0, "unsafe ");
    }
    let is_public = |visibility: &Visibility| item.trait_.is_some() || matches!(visibility, Visibility::Public(_));
    let mut parts = Vec::new();
    for part in &item.items {
        let (attrs, line) = match part {
            ImplItem::Const(part) if is_public(&part.vis) => {
                (&part.attrs, format!("pub const {}: {} = {};", part.ident, of(&part.ty), of(&part.expr)))
            }
            ImplItem::Fn(part) if item.trait_.is_none() && is_public(&part.vis) => {
                (&part.attrs, format!("pub {};", signature(&part.sig, &part.sig.ident.to_string())))
            }
            ImplItem::Type(part) => (&part.attrs, format!("type {} = {};", part.ident, of(&part.ty))),
            ImplItem::Macro(part) => {
                let name = of(&part.mac.path);
                parts.extend(text::lines(&part.mac.tokens).into_iter().map(|line| format!("{name}! {line}")));
                continue;
            }
            _ => continue,
        };
        let attributes: String = attributes(attrs).iter().map(|attribute| format!("{attribute} ")).collect();
        parts.push(format!("{attributes}{line}"));
    }
    (head, parts)
}

fn trait_lines(item: &ItemTrait, name: &str) -> Vec<String> {
    let mut head = format!("pub {}trait {name}{}", prefix(&item.unsafety), generics(&item.generics));
    if !item.supertraits.is_empty() {
        head.push_str(": ");
        head.push_str(&of(&item.supertraits));
    }
    let mut lines = vec![format!("{head}{} {{", bounds(&item.generics))];
    for part in &item.items {
        let line = match part {
            TraitItem::Const(part) => {
                let default = part.default.as_ref().map(|(_, value)| format!(" = {}", of(value)));
                format!("const {}: {}{};", part.ident, of(&part.ty), default.unwrap_or_default())
            }
            TraitItem::Fn(part) => {
                let end = if part.default.is_some() { " { .. }" } else { ";" };
                format!("{}{end}", signature(&part.sig, &part.sig.ident.to_string()))
            }
            TraitItem::Type(part) => of(&quote!(#part)),
            other => of(other),
        };
        lines.push(format!("    {line}"));
    }
    lines.push("}".to_owned());
    lines
}

/// Returns a struct with its public fields. `..` stands for private fields.
fn fields(head: &str, fields: &Fields, parameters: &Generics, end: &str) -> Vec<String> {
    match fields {
        Fields::Unit => vec![format!("{head}{}{end}", bounds(parameters))],
        Fields::Unnamed(fields) => {
            let shown = fields.unnamed.iter().map(|field| match field.vis {
                Visibility::Public(_) => format!("pub {}", of(&field.ty)),
                _ => "_".to_owned(),
            });
            vec![format!("{head}({}){}{end}", shown.collect::<Vec<_>>().join(", "), bounds(parameters))]
        }
        Fields::Named(fields) => {
            let mut lines = vec![format!("{head}{} {{", bounds(parameters))];
            let (public, private): (Vec<_>, Vec<_>) =
                fields.named.iter().partition(|field| matches!(field.vis, Visibility::Public(_)));
            for field in public {
                lines.push(format!("    pub {}: {},", of(&field.ident), of(&field.ty)));
            }
            lines.extend((!private.is_empty()).then(|| "    ..".to_owned()));
            lines.push("}".to_owned());
            lines
        }
    }
}

fn signature(signature: &Signature, name: &str) -> String {
    let Signature { constness, asyncness, unsafety, abi, generics: parameters, inputs, output, .. } = signature;
    let head = format!("{}{}{}{}", prefix(constness), prefix(asyncness), prefix(unsafety), prefix(abi));
    let inputs: Punctuated<FnArg, Token![,]> = inputs.iter().map(without_mut).collect();
    let output = of(output);
    let space = if output.is_empty() { "" } else { " " };
    format!("{head}fn {name}{}({}){space}{output}{}", generics(parameters), of(&inputs), bounds(parameters))
}

/// Returns an argument without `mut`, which callers do not see.
fn without_mut(argument: &FnArg) -> FnArg {
    let mut argument = argument.clone();
    match &mut argument {
        FnArg::Typed(typed) => {
            if let Pat::Ident(name) = &mut *typed.pat {
                name.mutability = None;
            }
        }
        FnArg::Receiver(receiver) if receiver.reference.is_none() && receiver.colon_token.is_none() => {
            receiver.mutability = None;
        }
        FnArg::Receiver(_) => {}
    }
    argument
}

fn prefix(keyword: &Option<impl ToTokens>) -> String {
    keyword.as_ref().map(|keyword| format!("{} ", of(keyword))).unwrap_or_default()
}

fn generics(generics: &Generics) -> String {
    let mut without_bounds = generics.clone();
    without_bounds.where_clause = None;
    of(&without_bounds)
}

fn bounds(generics: &Generics) -> String {
    let bounds = generics.where_clause.as_ref().map(|bounds| {
        let bounds = of(bounds);
        format!(" {}", bounds.strip_suffix(',').unwrap_or(&bounds))
    });
    bounds.unwrap_or_default()
}

/// Attributes that are part of an interface.
const SHOWN: [&str; 9] =
    ["bitflags", "cfg", "default", "deprecated", "derive", "macro_export", "must_use", "non_exhaustive", "repr"];

pub(crate) fn attributes(attributes: &[Attribute]) -> Vec<String> {
    let is_shown = |attribute: &&Attribute| {
        SHOWN.iter().any(|name| attribute.path().is_ident(name)) || of(&attribute.meta) == "doc(hidden)"
    };
    attributes.iter().filter(is_shown).map(of).collect()
}
