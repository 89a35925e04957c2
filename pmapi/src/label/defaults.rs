//! Labels that PCP itself gives to hosts, users and agents.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{LabelError, LabelFlags, LabelLevel, LabelSet};
use crate::config::Config;

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
    /// that cannot be read or parsed are left out.
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
            if let Ok(text) = fs::read_to_string(dir.join(name))
                && let Ok(labels) = Self::parse_flagged(&text, flags)
            {
                // A set that has become too large keeps the labels that it has.
                let _ = self.merge(&labels);
            }
        }
    }

    /// Creates the labels that pmcd adds for its host: host name, domain name and machine identifier.
    ///
    /// The machine identifier is hashed if `$PCP_SYSCONF_DIR/labels.conf` says so.
    ///
    /// # Errors
    /// [`LabelError::TooLong`] for a name or identifier that does not fit into a set.
    pub fn host(config: &Config) -> Result<LabelSet, LabelError> {
        let system = nix::sys::utsname::uname();
        let text = |name: &std::ffi::OsStr| Some(name.to_string_lossy().into_owned());
        let host = system.as_ref().ok().and_then(|u| text(u.nodename())).unwrap_or_else(|| "localhost".into());
        #[cfg(target_os = "linux")]
        let domain = system.as_ref().ok().and_then(|u| text(u.domainname()));
        #[cfg(not(target_os = "linux"))]
        let domain = None::<String>;
        let domain = domain.filter(|d| !d.is_empty() && d != "(none)").unwrap_or_else(|| "localdomain".into());
        let machine = fs::read_to_string("/etc/machine-id").ok();
        let machine = machine.and_then(|m| m.split_whitespace().next().map(str::to_owned));
        let machine = machine.unwrap_or_else(|| "localmachine".into());
        let conf = fs::read_to_string(config.sysconf_dir().join("labels.conf")).unwrap_or_default();

        let mut set = LabelSet::new();
        set.insert("hostname", host)?;
        set.insert("domainname", domain)?;
        if hash_machine(&conf) {
            let hash = Sha256::digest(machine.as_bytes());
            set.insert("machineid_sha256", hash.iter().map(|b| format!("{b:02x}")).collect::<String>())?;
        } else {
            set.insert("machineid", machine)?;
        }
        set.flag(LabelLevel::Context.into());
        Ok(set)
    }

    /// Creates the notes that pmcd adds for the user of a client.
    ///
    /// # Errors
    /// Never fails: the labels are two numbers.
    pub fn user(uid: u32, gid: u32) -> Result<LabelSet, LabelError> {
        let json = format!("{{\"groupid\":{gid},\"userid\":{uid}}}");
        Self::parse_flagged(&json, LabelFlags::from(LabelLevel::Context) | LabelFlags::OPTIONAL)
    }
}

/// Returns whether the global section, which is the first one, has `machineid_hash = sha256`.
fn hash_machine(conf: &str) -> bool {
    conf.lines()
        .map(str::trim_start)
        .take_while(|l| !l.starts_with('[') || l.starts_with("[global]"))
        .filter(|l| !l.starts_with('#'))
        .find_map(|l| l.strip_prefix("machineid_hash"))
        .is_some_and(|v| v.trim_start_matches([' ', '\t', ':', '=']).starts_with("sha256"))
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
        write(".hidden", r#"{"hidden":1}"#);
        write("optional/note", r#"{"note":"n"}"#);
        let config = Config::new(b"", [("PCP_SYSCONF_DIR".into(), etc.path().into())]);
        let set = LabelSet::context(&config);
        assert_eq!(set.json(), r#"{"note":"n","rack.row":1,"site":"B"}"#);
        assert_eq!(set.index().map(|l| l.flags.bits()).collect::<Vec<_>>(), [193, 65, 65]);
        fs::write(etc.path().join("labels.conf"), "[global]\n# x\n machineid_hash = sha256\n").unwrap();
        let host = LabelSet::host(&config).unwrap();
        assert_eq!(host.value("machineid_sha256").unwrap().len(), 66);
        assert!(host.index().all(|l| l.flags.bits() == 1));
    }

    #[test]
    fn hash_setting() {
        assert!(!hash_machine("#machineid_hash = sha256\n"));
        assert!(!hash_machine("[global]\nmachineid_hash=none\nmachineid_hash=sha256\n"));
        assert!(!hash_machine("[other]\nmachineid_hash=sha256\n"));
        assert!(hash_machine("machineid_hash: sha256\n"));
    }
}
