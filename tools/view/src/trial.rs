//! The environment of an agent that runs for a trial.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use pmapi::Config;

/// Creates the state directory of an agent that runs for a trial, below `scratch`, and returns the variables of the agent's
/// environment. The instance numbers of a trial are then not those of the installed PCP, whose configuration the agent
/// reads. May be called again with the same directory.
///
/// # Errors
/// The error of the directory's creation.
pub fn trial(scratch: &Path) -> io::Result<[(&'static OsStr, PathBuf); 3]> {
    let host = Config::load();
    let var = scratch.join("var");
    fs::create_dir_all(var.join("config/pmda"))?;
    // Agents read the host's name space there.
    match symlink(host.var_dir().join("pmns"), var.join("pmns")) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // Without pcp.conf these are below PCP_VAR_DIR. Applications write their files for agents to the usual directory.
    Ok([("PCP_VAR_DIR", var), ("PCP_PMDAS_DIR", host.pmdas_dir()), ("PCP_TMP_DIR", host.tmp_dir())]
        .map(|(name, path)| (OsStr::new(name), path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_has_a_state_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let variables = trial(dir.path()).unwrap();
        assert_eq!(trial(dir.path()).unwrap(), variables);
        let config = Config::load().with(variables.map(|(name, path)| (name.into(), path.into())));
        assert_eq!(config.var_dir(), dir.path().join("var"));
        assert!(config.var_dir().join("config/pmda").is_dir());
        let host = Config::load();
        assert_eq!((config.pmdas_dir(), config.tmp_dir()), (host.pmdas_dir(), host.tmp_dir()));
        assert_eq!(config.sysconf_dir(), host.sysconf_dir());
    }
}
