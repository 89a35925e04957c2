//! Templates of agents, which are the files in the folder `templates`.

use clap::ValueEnum;

/// Template of a new agent.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Template {
    /// Single values, an own option, and a value that clients can store
    Simple,
    /// A table: instances that come and go, and a metric for each column
    Table,
    /// A slow source, which a thread reads
    Background,
    /// Events: the lines of a log, with a filter for each client
    Events,
    /// Metrics whose names are known only while the agent runs
    Dynamic,
}

/// Values that replace those of a template.
#[derive(Clone, Debug)]
pub(crate) struct Identity<'a> {
    /// Name of the agent.
    pub(crate) name: &'a str,
    pub(crate) domain: u16,
}

/// The crates that the agent depends on, as values in Cargo.toml.
#[derive(Clone, Debug)]
pub(crate) struct Crates {
    /// Comment above the first one.
    pub(crate) note: &'static str,
    pub(crate) pmda: String,
    pub(crate) collector: String,
}

/// Text that stands for the agent's domain.
const DOMAIN: &str = "const DOMAIN: u16 = 510;";

impl Template {
    fn agent(self) -> &'static str {
        match self {
            Template::Simple => include_str!("../templates/simple/src/lib.rs"),
            Template::Table => include_str!("../templates/table/src/lib.rs"),
            Template::Background => include_str!("../templates/background/src/lib.rs"),
            Template::Events => include_str!("../templates/events/src/lib.rs"),
            Template::Dynamic => include_str!("../templates/dynamic/src/lib.rs"),
        }
    }

    /// Returns the files of the package: each path, and its text.
    pub(crate) fn files(self, of: &Identity<'_>, crates: &Crates) -> [(&'static str, String); 5] {
        let manifest = include_str!("../templates/common/Cargo.toml.in");
        let manifest = of
            .adopt(manifest)
            .replace("@PMDA@", &format!("{}pcp-pmda = {}", crates.note, crates.pmda))
            .replace("@COLLECTOR@", &format!("pcp-collector = {}", crates.collector));
        [
            ("Cargo.toml", manifest),
            (".gitignore", include_str!("../templates/common/gitignore").to_owned()),
            ("README.md", of.adopt(include_str!("../templates/common/README.md"))),
            ("src/main.rs", of.adopt(include_str!("../templates/common/src/main.rs"))),
            ("src/lib.rs", of.adopt(self.agent())),
        ]
    }
}

impl Identity<'_> {
    /// Puts the name, the type and the domain of the agent into a text.
    fn adopt(&self, text: &str) -> String {
        let domain = format!("const DOMAIN: u16 = {};", self.domain);
        // The domain is replaced first, because the name is the only text that could contain it.
        text.replace(DOMAIN, &domain).replace("Template", &type_name(self.name)).replace("template", self.name)
    }
}

/// Returns the name of the agent's type: `MyDisks` for `my_disks`, and `CacheAgent` where `Cache` already means
/// something in the source file of an agent.
pub(crate) fn type_name(name: &str) -> String {
    let mut camel = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    if IN_USE.split(' ').any(|name| name == camel) { camel + "Agent" } else { camel }
}

/// Words that `pmda::prelude`, the templates or Rust use.
const IN_USE: &str = "Agent Args ArgumentDef Atom Background Box BoxError BufRead BufReader Cache Catalog \
    Client Clients Collector ConfigFile Duration Dynamic Engine Err Error EventFlags EventQueue EventSender File \
    FromArgMatches HashMap InDomDef Inst Instances Item LabelSet Local Log MetadataExt MetricDef None Ok Option \
    Options Path PathBuf PollSet Read Request Result Seek Self Serial Setup Some Stamp String Table Type Units \
    Usage Values Vec Write";

#[cfg(test)]
mod tests {
    use super::*;

    const CRATES: fn() -> Crates = || Crates { note: "", pmda: "1".to_owned(), collector: "1".to_owned() };

    #[test]
    fn each_template_has_the_name_and_the_domain_of_the_agent() {
        for template in Template::value_variants() {
            assert_eq!(template.agent().matches(DOMAIN).count(), 1, "{template:?}");
            for (path, text) in template.files(&Identity { name: "my_disks", domain: 444 }, &CRATES()) {
                assert!(!text.to_lowercase().contains("template"), "{template:?} {path}");
                assert!(!text.contains('@') && !text.contains("510;"), "{template:?} {path}");
                let has = |words: &[&str]| words.iter().all(|word| text.contains(word));
                assert!(match path {
                    "Cargo.toml" =>
                        has(&["\"pmda-my_disks\"", "\"pmdamy_disks\"", "\"pmda_my_disks\"", "pcp-pmda = 1"]),
                    "src/main.rs" => has(&["pmda::main!(pmda_my_disks::MyDisks);"]),
                    "src/lib.rs" =>
                        has(&["const DOMAIN: u16 = 444;", "impl Agent for MyDisks {", "dso!(my_disks_init, MyDisks)"]),
                    _ => true,
                });
            }
        }
    }

    #[test]
    fn the_type_of_an_agent_hides_no_name_of_the_prelude() {
        let prelude = std::fs::read_to_string("../../pmda/src/prelude.rs").unwrap();
        let exported = prelude.lines().filter(|line| line.starts_with("pub use"));
        let names = exported.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
        let mut types: Vec<_> = names.filter(|name| name.starts_with(char::is_uppercase)).collect();
        assert!(types.len() > 20);
        // Names that the templates import or define.
        for template in Template::value_variants() {
            let imports = template.agent().split(';').filter_map(|item| item.trim().strip_prefix("use "));
            let words = imports.flat_map(|path| path.split(|c: char| !c.is_alphanumeric()));
            types.extend(words.filter(|name| name.starts_with(char::is_uppercase)));
            let defined = template.agent().lines().filter_map(|line| line.strip_prefix("struct "));
            types.extend(defined.filter_map(|line| line.split(' ').next()));
        }
        for name in types {
            let lower =
                name.chars().flat_map(|c| (c.is_uppercase().then_some('_').into_iter()).chain(c.to_lowercase()));
            let name = lower.collect::<String>();
            let made = type_name(name.trim_start_matches('_'));
            assert!(
                made.ends_with("Agent") && (made == "Agent" || IN_USE.split(' ').all(|name| name != made)),
                "{name}: {made}"
            );
        }
        assert_eq!(type_name("self"), "SelfAgent");
        assert_eq!(type_name("my_disks_2"), "MyDisks2");
        assert_eq!(type_name("a__b_"), "AB");
    }
}
