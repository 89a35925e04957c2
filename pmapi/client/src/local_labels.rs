//! Labels that pmcd adds to the context of a client.

use pcp_base::file;
use pmapi::{Config, LabelError, LabelFlags, LabelLevel, LabelSet};
use sha2::{Digest, Sha256};

/// Returns the labels that pmcd adds for its host: name, domain and machine. The machine is hashed if
/// `$PCP_SYSCONF_DIR/labels.conf` requests it.
///
/// # Errors
/// [`LabelError::TooLong`] for a name or identifier that does not fit into a set.
pub fn host_labels(config: &Config) -> Result<LabelSet, LabelError> {
    let system = nix::sys::utsname::uname();
    let text = |name: &std::ffi::OsStr| Some(name.to_string_lossy().into_owned());
    let host = system.as_ref().ok().and_then(|u| text(u.nodename())).unwrap_or_else(|| "localhost".into());
    #[cfg(target_os = "linux")]
    let domain = system.as_ref().ok().and_then(|u| text(u.domainname()));
    #[cfg(not(target_os = "linux"))]
    let domain = None::<String>;
    let domain = domain.filter(|d| !d.is_empty() && d != "(none)").unwrap_or_else(|| "localdomain".into());
    let machine = file::read_text("/etc/machine-id").ok();
    let machine = machine.and_then(|m| m.split_whitespace().next().map(str::to_owned));
    let machine = machine.unwrap_or_else(|| "localmachine".into());
    let conf = file::read_text(config.sysconf_dir().join("labels.conf")).unwrap_or_default();

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

/// Returns the notes that pmcd adds for the user of a client.
///
/// # Errors
/// Never fails: the labels are two numbers.
pub fn user_labels(uid: u32, gid: u32) -> Result<LabelSet, LabelError> {
    let json = format!("{{\"groupid\":{gid},\"userid\":{uid}}}");
    LabelSet::parse_flagged(&json, LabelFlags::from(LabelLevel::Context) | LabelFlags::OPTIONAL)
}

/// Returns whether `machineid_hash = sha256` is in the global section, which is the first one.
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
    use std::fs;

    use super::*;

    #[test]
    fn hashed_machine() {
        let etc = tempfile::tempdir().unwrap();
        let config = Config::new(b"", [("PCP_SYSCONF_DIR".into(), etc.path().into())]);
        fs::write(etc.path().join("labels.conf"), "[global]\n# x\n machineid_hash = sha256\n").unwrap();
        let host = host_labels(&config).unwrap();
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
