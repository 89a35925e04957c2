//! Agents in this process.

use std::fs;
use std::path::PathBuf;

use pmapi::Config;
use pmda::host::{Engine, SetupError};
use pmda::prelude::*;

use crate::Local;

/// An agent whose instance has a number in a file, and whose configuration is a file that Install copies.
struct Spool {
    files: Cache<()>,
    places: [PathBuf; 6],
    text: String,
}

impl Agent for Spool {
    const NAME: &'static str = "spool";
    const DOMAIN: u16 = 466;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let config = setup.config();
        let places = [config.var_dir(), config.sysconf_dir(), config.pmdas_dir(), config.log_dir(), config.run_dir()];
        let [var, etc, pmdas, log, run] = places;
        let places = [var, etc, pmdas, log, run, config.tmp_dir()];
        let mut files = setup.cache(Serial::new(0)).whole_names().persistent();
        files.store("a test's", ())?;
        files.save()?;
        let text = setup.configuration("spool.conf", "the default").changed().transpose()?.unwrap_or_default();
        Ok(Spool { files, places, text: String::from_utf8_lossy(&text).into_owned() })
    }

    fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
        Ok(())
    }
}

#[test]
fn an_agent_has_directories_of_its_own() -> Result<(), SetupError> {
    let host = Config::load();
    let local = Local::<Spool>::new()?;
    let agent = local.engine().agent();
    let [var, etc, ..] = &agent.places;
    assert!(var.join("config/pmda/466.0").exists());
    let top = var.parent().unwrap().to_owned();
    assert!(agent.places.iter().all(|place| place.starts_with(&top)), "{:?}", agent.places);
    assert!(!host.var_dir().starts_with(&top) && !host.sysconf_dir().starts_with(&top));
    assert_eq!((agent.text.as_str(), agent.files.len(), fs::read_dir(etc).unwrap().count()), ("the default", 1, 0));
    drop(local);
    assert!(!top.exists());
    Ok(())
}

#[test]
fn a_configuration_of_the_caller_counts() -> Result<(), SetupError> {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("config/pmda")).unwrap();
    fs::create_dir(dir.path().join("pmdaspool")).unwrap();
    fs::write(dir.path().join("pmdaspool/spool.conf"), "installed").unwrap();
    let config = Config::load().with(["PCP_VAR_DIR", "PCP_SYSCONF_DIR"].map(|name| (name.into(), dir.path().into())));
    let local = Local::<Spool>::start(Engine::builder().config(config))?;
    assert_eq!(local.engine().agent().text, "installed");
    drop(local);
    assert!(dir.path().join("config/pmda/466.0").exists());
    Ok(())
}
