//! The metrics that control the agent itself. Names, types and help are those of PCP's agent, which
//! PCP's tests look for.

use pmda::prelude::*;

use crate::Files;

pub(crate) const CLUSTER: u16 = 0;

const RELOAD: Item = Item::new(CLUSTER, 0);
const DEBUG: Item = Item::new(CLUSTER, 1);
const FILES: Item = Item::new(CLUSTER, 2);

impl<const DOMAIN: u16> Files<DOMAIN> {
    pub(crate) fn add_controls(&mut self) {
        let name = |last| format!("{}.control.{last}", self.prefix);
        let mut reload = Metric::new(name("reload"), RELOAD, Type::I32);
        reload.storable().help(
            "Control maps reloading",
            "Writing anything other then 0 to this metric will result in\nre-reading directory and re-mapping files.\n",
        );
        let mut debug = Metric::new(name("debug"), DEBUG, Type::I32);
        debug.storable().help("Debug flag", "See pmdbg(1).  pmstore into this metric to change the debug value.\n");
        let mut files = Metric::new(name("files"), FILES, Type::I32);
        files.help("Memory mapped file count", "Count of currently mapped and exported statistics files.\n");
        for metric in [reload, debug, files] {
            if let Err(e) = self.controls.insert(&metric) {
                tracing::error!("{}: {e}", self.prefix);
            }
        }
    }

    pub(crate) fn control(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            RELOAD => out.put(self.files.reload()),
            DEBUG => out.put(self.debug),
            FILES => out.put(i32::try_from(self.files.file_count()).unwrap_or(i32::MAX)),
            _ => Err(Error::PMID),
        }
    }

    pub(crate) fn store_control(&mut self, item: Item, value: Atom<'_>) -> Result {
        let Atom::I32(value) = value else { return Err(Error::CONV) };
        match item {
            RELOAD => self.files.set_reload(value),
            DEBUG => {
                // The bits of the first 32 options.
                let options = value.to_string().parse().map_err(|_| Error::BADSTORE)?;
                pmda::log::set_debug_options(options);
                self.debug = value;
            }
            _ => return Err(Error::PERMISSION),
        }
        Ok(())
    }
}
