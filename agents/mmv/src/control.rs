//! The agent's control metrics. Names and types are those of PCP's agent. The lines of help text have its order, so
//! that `qa/run` can exchange them.

use std::ffi::OsStr;
use std::str;

use pmda::pmapi::Config;
use pmda::prelude::*;

use crate::{CONTROL_CLUSTER, Files, limits};

const RELOAD: Item = Item::new(CONTROL_CLUSTER, 0);
const DEBUG: Item = Item::new(CONTROL_CLUSTER, 1);
const FILES: Item = Item::new(CONTROL_CLUSTER, 2);
const METRICS: Item = Item::new(CONTROL_CLUSTER, 3);

/// Returns whether the installed PCP is version 7 or later. Its agent accepts debug options by name and counts metrics.
pub(crate) fn is_newer(config: &Config) -> bool {
    let version = config.var("PCP_VERSION").and_then(OsStr::to_str).unwrap_or_default();
    version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= 7)
}

impl<const DOMAIN: u16> Files<DOMAIN> {
    pub(crate) fn add_controls(&mut self) {
        let name = |last| format!("{}.control.{last}", self.prefix);
        let mut reload = MetricDef::new(name("reload"), RELOAD, Type::I32);
        reload.restricted().help(
            "Reload of all files",
            "With any value but 0, the agent reads its directory again and maps\nthe files that are in it.\n",
        );
        let mut debug = MetricDef::new(name("debug"), DEBUG, if self.newer { Type::String } else { Type::I32 });
        debug
            .restricted()
            .help("Debugging options", "The options of pmdbg(1) that are on. Storing a value changes them.\n");
        let mut files = MetricDef::new(name("files"), FILES, Type::I32);
        files.help("Number of files", "All files that are mapped now, whose values clients get.\n");
        let mut metrics = MetricDef::new(name("metrics"), METRICS, Type::I32);
        metrics.help("Number of metrics", "How many metrics of files are exported.");
        for metric in [reload, debug, files].into_iter().chain(self.newer.then_some(metrics)) {
            if let Err(e) = self.controls.insert(&metric) {
                tracing::error!("{}: {e}", self.prefix);
            }
        }
    }

    /// Adds the metrics of `control.limits` to the names that clients list.
    pub(crate) fn show_limits(&mut self) {
        if self.hidden.take().is_none() {
            return;
        }
        for metric in limits::METRICS.metrics(&self.prefix) {
            if let Err(e) = self.controls.insert(&metric) {
                tracing::error!("{}: {e}", self.prefix);
            }
        }
    }

    pub(crate) fn control(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            RELOAD => out.put(self.files.reload()),
            DEBUG if self.newer => out.put(pmda::log::debug_options().to_string().as_str()),
            DEBUG => out.put(self.debug),
            FILES => out.put(i32::try_from(self.files.file_count()).unwrap_or(i32::MAX)),
            METRICS if self.newer => out.put(i32::try_from(self.files.metric_count()).unwrap_or(i32::MAX)),
            _ => out.put(limits::value(item, &self.files).ok_or(Error::PMID)?),
        }
    }

    pub(crate) fn store_control(&mut self, item: Item, value: Atom<'_>) -> Result {
        if let (DEBUG, Atom::String(options)) = (item, value) {
            let options = str::from_utf8(options).ok().and_then(|options| options.parse().ok());
            pmda::log::set_debug_options(options.ok_or(Error::CONV)?);
            return Ok(());
        }
        let Atom::I32(value) = value else { return Err(Error::CONV) };
        match item {
            RELOAD => self.files.set_reload(value),
            DEBUG => {
                // The number has a bit for each of the older options.
                let options = value.to_string().parse().map_err(|_| Error::BADSTORE)?;
                pmda::log::set_debug_options(options);
                self.debug = value;
            }
            _ => return Err(Error::PERMISSION),
        }
        Ok(())
    }
}
