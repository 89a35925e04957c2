//! Agent with common features: a counter that clients can reset, values with instances, times of the process, and a
//! domain whose instances come from a configuration file.

use nix::sys::resource::{Usage, UsageWho, getrusage};
use pmda::pmapi::zone::{LocalTime, Zone};
use pmda::prelude::*;
use tracing::{error, warn};

const COLOR: Serial = Serial::new(0);
const TIME: Serial = Serial::new(1);

const NUMFETCH: Item = Item::new(0, 0);
const COLORS: Item = Item::new(0, 1);
const USER: Item = Item::new(1, 2);
const SYS: Item = Item::new(1, 3);
const NOW: Item = Item::new(2, 4);

/// Agent `simple`.
#[derive(Debug)]
pub struct Simple {
    numfetch: u32,
    /// Red, green and blue.
    colors: [u8; 3],
    /// CPU time of the process, read once for each fetch that needs it.
    usage: Option<Usage>,
    now: Cache<Unit>,
    zone: Zone,
    conf: ConfigFile,
}

/// Returns a part of the time of day.
type Unit = fn(&LocalTime) -> u32;

const UNITS: [(&str, Unit); 3] = [("sec", |time| time.second), ("min", |time| time.minute), ("hour", |time| time.hour)];

impl Agent for Simple {
    const NAME: &'static str = "simple";
    const DOMAIN: u16 = 253;

    fn new(setup: &mut Setup) -> Start<Self> {
        setup.labels(json!({"role": "testing"}));
        let color = setup.indom(COLOR).instances([(0, "red"), (1, "green"), (2, "blue")]);
        color.labels(json!({"indom_name": "color", "model": "RGB"}));
        color.help("Colors", "The three colors red (0), green (1) and blue (2).");
        let time = setup.indom(TIME).labels(json!({"indom_name": "time", "unitsystem": "SI"}));
        time.help("Units of the time of day", "The units that simple.conf names, see simple.now.");

        setup.metric("simple.numfetch", NUMFETCH, Type::U32).storable().help(
            "Fetches since the agent started",
            "Every fetch that reaches the agent adds one.\npmstore(1) sets the number, for instance back to 0.",
        );
        setup.metric("simple.color", COLORS, Type::I32).indom(COLOR).storable().help(
            "Values that step up at every fetch",
            "Each color goes from 0 to 255 and around again, one step whenever it is fetched.\n\
             Red starts at 0, green at 100 and blue at 200; pmstore(1) sets them.",
        );
        for (name, item, mode) in [("user", USER, "in user mode"), ("sys", SYS, "in the kernel")] {
            let time = setup.metric(format!("simple.time.{name}"), item, Type::Double).counter().units(Units::SECONDS);
            time.help(format!("CPU time {mode}"), format!("Seconds of CPU time that the agent has spent {mode}."));
        }
        setup.metric("simple.now", NOW, Type::U32).indom(TIME).help(
            "Parts of the local time of day",
            "The seconds, minutes and hours of the clock, one instance for each.\n\n\
             The first line of simple.conf in the agent's directory selects the instances: the\n\
             words sec, min and hour, separated by commas, such as \"sec,hour\".\n\
             The file is read again when it has changed.",
        );
        setup.file("simple.conf", "sec,min,hour\n");
        setup.argument("--username").prompt("User that the agent runs as, instead of PCP's").help(
            "Without a user, the agent changes to the user of PCP_USER in pcp.conf. Another user needs a pmcd that has the\n\
             rights of root when it starts the agent.",
        );

        let now = Cache::open(setup.indom_id(TIME), setup.config());
        let conf = ConfigFile::new(setup.dir().join("simple.conf"));
        Ok(Simple { numfetch: 0, colors: [0, 100, 200], usage: None, now, zone: Zone::system(), conf })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        match request {
            Request::Fetch(items) => {
                self.numfetch = self.numfetch.wrapping_add(1);
                if items.iter().any(|item| matches!(item, USER | SYS)) {
                    self.usage = getrusage(UsageWho::RUSAGE_SELF).ok();
                }
                self.read_conf();
            }
            Request::Instance(TIME) | Request::InstanceLabels(TIME) => self.read_conf(),
            _ => {}
        }
        Ok(())
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        (indom == TIME).then_some(&self.now)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            NUMFETCH => out.put(self.numfetch),
            COLORS => {
                for (inst, color) in (0..).map(Inst::new).zip(&mut self.colors) {
                    if out.wants(inst) {
                        *color = color.wrapping_add(1);
                        out.put_inst(inst, i32::from(*color))?;
                    }
                }
                Ok(())
            }
            USER | SYS => {
                let usage = self.usage.ok_or(Error::VALUE)?;
                let time = if item == USER { usage.user_time() } else { usage.system_time() };
                out.put(time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
            }
            NOW => {
                let time = self.zone.now();
                out.put_each(&self.now, |unit| unit(&time))
            }
            _ => Err(Error::PMID),
        }
    }

    /// Refuses a number out of range, but stores the nearest number in range.
    fn store(&mut self, item: Item, inst: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        let in_range = match (item, value) {
            (NUMFETCH, Atom::U32(value)) => {
                // A negative number arrives as a large one.
                self.numfetch = if value > i32::MAX as u32 { 0 } else { value };
                self.numfetch == value
            }
            (COLORS, Atom::I32(value)) => {
                let color = inst.and_then(|inst| self.colors.get_mut(inst.word() as usize)).ok_or(Error::INST)?;
                *color = value.clamp(0, 255) as u8;
                i32::from(*color) == value
            }
            _ => return Err(Error::CONV),
        };
        if in_range { Ok(()) } else { Err(Error::BADSTORE) }
    }

    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        let unit = self.now.instance(inst).filter(|_| indom == TIME);
        unit.map_or(Ok(LabelSet::new()), |unit| Ok(LabelSet::of(json!({"units": unit.name}))?))
    }
}

impl Simple {
    /// Updates the instances of `simple.now` if `simple.conf` has changed.
    fn read_conf(&mut self) {
        let Some(read) = self.conf.changed() else { return };
        let path = self.conf.path().display();
        let text = read.inspect_err(|e| error!("{path}: {e}")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        self.now.hide_all();
        for word in text.lines().next().unwrap_or_default().split(',').filter(|word| !word.is_empty()) {
            match UNITS.into_iter().find(|(name, _)| *name == word) {
                Some((_, unit)) => _ = self.now.store(word, unit).inspect_err(|e| error!("{path}:1: {e}")),
                None => warn!("{path}:1: ignoring {word:?}, which is not one of sec, min, hour"),
            }
        }
        if self.now.active_len() == 0 {
            warn!("{path}:1: no unit of time, so simple.now has no instances");
        }
        self.now.save().unwrap_or_else(|e| error!("instances of simple.now may change after a restart: {e}"));
    }
}

pmda::dso!(simple_init, Simple);
