//! The name space and the compiled help of declarations.

use pcp_help::{Compiled, Entry};
use pmapi::{InDom, PmId};

use crate::error::BoxError;
use crate::schema::Schema;

impl Schema {
    /// Returns the name as a macro of the C preprocessor: `SIMPLE` for `simple`.
    pub(crate) fn symbol(&self) -> String {
        self.name().to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    }

    pub(crate) fn help_entries(&self) -> Vec<Entry> {
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

    pub(crate) fn compile_help(&self) -> Result<Compiled, pcp_help::Error> {
        let files = pcp_help::compile(&self.help_entries())?;
        Compiled::from_bytes(files.dir, files.pag)
    }

    /// Returns the text of the agent's name space, for pmnsadd(1).
    ///
    /// # Errors
    /// When a name is invalid or used twice.
    pub fn pmns(&self) -> Result<String, BoxError> {
        Ok(self.name_space()?.pmns)
    }

    /// Returns the texts of the files `pmns` and `root` (PMNS(5)).
    pub(crate) fn name_space(&self) -> Result<pmns::write::AgentFiles, BoxError> {
        let mut tree = pmns::Tree::new();
        for m in self.metrics() {
            tree.insert(m.name(), PmId::new(self.domain(), m.item()))?;
        }
        for name in self.dynamic() {
            tree.insert(name, pmns::dynamic_root(self.domain()))?;
        }
        Ok(pmns::write::agent(&tree, self.domain(), &self.symbol())?)
    }
}
