//! Default labels of agents and of hosts, set by PCP and by administrators.

use std::fs;
use std::path::Path;

use super::{LabelError, LabelFlags, LabelLevel, LabelSet};
use crate::config::Config;
use pcp_base::file;

impl LabelSet {
    /// Creates an agent's default label: its name without "pmda" (`__pmGetDomainLabels`).
    ///
    /// # Errors
    /// [`LabelError::TooLong`] for a name that does not fit into a set.
    pub fn domain(agent: &str) -> Result<LabelSet, LabelError> {
        let name = agent.strip_prefix("pmda").filter(|n| !n.is_empty()).unwrap_or(agent);
        let name = name.strip_suffix(" DSO").filter(|n| !n.is_empty()).unwrap_or(name);
        let json = serde_json::json!({ "agent": name }).to_string();
        Self::parse_flagged(&json, LabelLevel::Domain.into())
    }

    /// Reads the labels that the administrator gave this host (`__pmGetContextLabels`).
    ///
    /// They are in the files of `$PCP_SYSCONF_DIR/labels`. Files of its subdirectory `optional` contain notes. Files
    /// that cannot be read or parsed are left out, and so are labels with invalid names.
    pub fn context(config: &Config) -> LabelSet {
        let mut set = LabelSet::new();
        let flags = LabelFlags::from(LabelLevel::Context) | LabelFlags::COMPOUND;
        let dir = config.sysconf_dir().join("labels");
        set.add_files(&dir, flags);
        set.add_files(&dir.join("optional"), flags | LabelFlags::OPTIONAL);
        set
    }

    fn add_files(&mut self, dir: &Path, flags: LabelFlags) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        let mut names: Vec<_> = entries.flatten().map(|e| e.file_name()).collect();
        names.sort();
        for name in names.iter().filter(|n| !n.as_encoded_bytes().starts_with(b".")) {
            let Ok(text) = file::read_text(dir.join(name)) else { continue };
            if let Ok(labels) = Self::parse_flagged(&text, flags) {
                // A set that would become too large keeps its labels.
                let _ = self.merge(&labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents() {
        assert_eq!(LabelSet::domain("pmdasimple").unwrap().json(), r#"{"agent":"simple"}"#);
        assert_eq!(LabelSet::domain("sample DSO").unwrap().json(), r#"{"agent":"sample"}"#);
        assert_eq!(LabelSet::domain("pmda").unwrap().json(), r#"{"agent":"pmda"}"#);
        assert_eq!(LabelSet::domain("a\"b").unwrap().json(), r#"{"agent":"a\"b"}"#);
    }

    #[test]
    fn files_of_the_host() {
        let etc = tempfile::tempdir().unwrap();
        fs::create_dir_all(etc.path().join("labels/optional")).unwrap();
        let write = |name: &str, text: &str| fs::write(etc.path().join("labels").join(name), text).unwrap();
        write("10-site", r#"{"site":"A","rack.row":1}"#);
        write("20-site", r#"{"site":"B"}"#);
        write("30-broken", r#"{"site":"#);
        write("40-names", r#"{"_zone":1,"k8s.io/name":"x"}"#);
        write(".hidden", r#"{"hidden":1}"#);
        write("optional/note", r#"{"note":"n"}"#);
        let config = Config::new(b"", [("PCP_SYSCONF_DIR".into(), etc.path().into())]);
        let set = LabelSet::context(&config);
        assert_eq!(set.json(), r#"{"_zone":1,"note":"n","rack.row":1,"site":"B"}"#);
        assert_eq!(set.index().map(|l| l.flags.bits()).collect::<Vec<_>>(), [65, 193, 65, 65]);
    }
}
