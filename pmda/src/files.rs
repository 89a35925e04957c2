//! The files that PCP needs beside an agent's binary, written from what the agent declares.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use help::{Compiled, Entry};
use pmapi::{InDom, PmId};

use crate::agent::Failure;
use crate::schema::Schema;

impl Schema {
    /// The name as a macro of the C preprocessor: `SIMPLE` for `simple`.
    fn symbol(&self) -> String {
        self.name().to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    }

    fn help_entries(&self) -> Vec<Entry> {
        let domain = self.domain();
        let metrics = self.metrics().iter().map(|m| {
            let pmid = PmId::new(domain, m.item());
            Entry::new(m.name(), pmid, m.oneline(), m.text())
        });
        let indoms = self.indoms().iter().map(|i| {
            let indom = InDom::new(domain, i.serial());
            Entry::new(indom.to_string(), indom, i.oneline(), i.text())
        });
        indoms.chain(metrics).filter(|e| !e.oneline.is_empty() || !e.text.is_empty()).collect()
    }

    pub(crate) fn compiled_help(&self) -> Result<Compiled, help::Error> {
        let files = help::compile(&self.help_entries())?;
        Compiled::from_bytes(files.dir, files.pag)
    }

    /// Writes `base.dir` and `base.pag`, as newhelp(1) would from [`Schema::help`].
    pub fn write_help(&self, base: &Path) -> Result<(), help::Error> {
        help::compile(&self.help_entries())?.write(base)
    }

    /// The source text of the help, for newhelp(1).
    pub fn help(&self) -> Result<String, help::Error> {
        let text = help::source::write(&self.help_entries())?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The text of `domain.h`.
    pub fn domain_h(&self) -> String {
        format!("#define {} {}\n", self.symbol(), self.domain())
    }

    /// The texts of `pmns` and `root` (PMNS(5)).
    pub fn pmns(&self) -> Result<pmns::write::AgentFiles, Failure> {
        let mut tree = pmns::Tree::new();
        for m in self.metrics() {
            tree.insert(m.name(), PmId::new(self.domain(), m.item()))?;
        }
        for name in self.dynamic() {
            tree.insert(name, pmns::dynamic_root(self.domain()))?;
        }
        Ok(pmns::write::agent(&tree, self.domain(), &self.symbol())?)
    }

    fn readme(&self) -> String {
        let mut text = format!("Agent {} of Performance Co-Pilot, domain {}.\n\n", self.name(), self.domain());
        text.push_str("./Install puts it into the PCP of this host, ./Remove takes it out again.\n\nMetrics:\n");
        for m in self.metrics() {
            text.push_str(&format!("  {:<30} {}\n", m.name(), m.oneline()));
        }
        text
    }

    fn script(&self, template: &str) -> String {
        let args = if self.is_renamed() { format!("--name {}", self.name()) } else { String::new() };
        let entry = format!("{}_init", self.own_name());
        let notready = if self.is_not_ready() { "true" } else { "false" };
        let replace = [
            ("@NOTREADY@", notready),
            ("@ENTRY@", entry.as_str()),
            ("@NAME@", self.name()),
            ("@SYMBOL@", &self.symbol()),
            ("@ARGS@", &args),
        ];
        replace.iter().fold(template.to_owned(), |text, (mark, value)| text.replace(mark, value))
    }

    /// Writes the agent's complete PCP directory, which then needs nothing else: scripts, name space,
    /// help, and `binary` under the name of the agent.
    pub fn write_dir(&self, dir: &Path, binary: &Path) -> Result<(), Failure> {
        let pmns = self.pmns()?;
        let write = |name: &Path, text: &str, mode: u32| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap_or(dir))
                .and_then(|()| fs::write(&path, text))
                .and_then(|()| fs::set_permissions(&path, PermissionsExt::from_mode(mode)))
                .map_err(at(&path))
        };
        write("Install".as_ref(), &self.script(include_str!("dir/Install.in")), 0o755)?;
        write("Remove".as_ref(), &self.script(include_str!("dir/Remove.in")), 0o755)?;
        write("pmns".as_ref(), &pmns.pmns, 0o644)?;
        write("root".as_ref(), &pmns.root, 0o644)?;
        write("help".as_ref(), &self.help()?, 0o644)?;
        write("domain.h".as_ref(), &self.domain_h(), 0o644)?;
        write("README".as_ref(), &self.readme(), 0o644)?;
        for (name, text) in self.files() {
            write(name, text, 0o644)?;
        }
        // By way of another name: the agent that is running there keeps its file.
        let target = dir.join(format!("pmda{}", self.name()));
        let fresh = target.with_extension("new");
        fs::copy(binary, &fresh).and_then(|_| fs::rename(&fresh, &target)).map_err(at(&target))
    }
}

/// An error of a file, with its path.
fn at(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |e| format!("{}: {e}", path.display()).into()
}
