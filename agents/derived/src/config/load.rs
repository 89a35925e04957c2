//! Loading of configuration files.

use std::sync::Arc;

use pcp_client::HostSpec;
use pcp_derived::read_files;
use tracing::debug;

use super::loader::{DERIVED, Loader};
use super::{Config, NameSpace, toml};

impl Config {
    /// Loads colon-separated files and directories. Files whose names end in `.toml` are TOML, all others have the
    /// format of pmLoadDerivedConfig(3). `host` is the default source of operands, and `names` contains the names in
    /// use.
    pub fn load(paths: &str, host: &HostSpec, names: &NameSpace) -> Config {
        let mut loader = Loader::new(host);
        loader.group(DERIVED);
        loader.environment();
        read_files(paths, &mut |path, text| {
            let file: Arc<str> = path.to_string_lossy().into();
            debug!("loading {file}");
            match text {
                Ok(text) if path.extension().is_some_and(|extension| extension == "toml") => {
                    toml::read(&mut loader, &file, &text);
                }
                Ok(text) => loader.definitions(&file, &String::from_utf8_lossy(&text)),
                Err(e) => loader.problem(&file, 0, e.to_string()),
            }
        });
        let mut config = loader.config;
        config.set_names(names);
        config.share();
        config
    }
}
