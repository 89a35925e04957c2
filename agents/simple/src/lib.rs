//! Agent with common features: a counter that clients can reset, values with instances, times of the process, and a
//! domain whose instances come from a configuration file.

use std::cell::Cell;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use pmda::pmapi::zone::{LocalTime, Zone};
use pmda::prelude::*;
use tracing::{error, warn};

const TIME: Serial = Serial::new(1);

/// Agent `simple`.
#[derive(Debug)]
pub struct Simple {
    numfetch: u32,
    /// Red, green and blue, which step up when they are fetched.
    colors: Table<Cell<u8>>,
    /// CPU time of the process in user mode and in the kernel, read once for each fetch that needs it.
    usage: Option<[f64; 2]>,
    now: Table<Unit>,
    zone: Zone,
    conf: ConfigFile,
}

/// Returns a part of the time of day.
type Unit = fn(&LocalTime) -> u32;

const UNITS: [(&str, Unit); 3] = [("sec", |time| time.second), ("min", |time| time.minute), ("hour", |time| time.hour)];

impl Agent for Simple {
    const NAME: &'static str = "simple";
    const DOMAIN: u16 = 253;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.labels(json!({"role": "testing"}));
        setup.gauge("simple.numfetch", Item::new(0, 0), |simple: &Self| simple.numfetch).storable().help(
            "Fetches since the agent started",
            "Every fetch that reaches the agent adds one.\npmstore(1) sets the number, for instance back to 0.",
        );
        let mut colors = setup.table(Serial::new(0), |simple: &Self| &simple.colors).whole_names();
        colors.labels(json!({"indom_name": "color", "model": "RGB"}));
        colors.help("Colors", "The three colors red (0), green (1) and blue (2).");
        let step = |color: &Cell<u8>| {
            color.set(color.get().wrapping_add(1));
            i32::from(color.get())
        };
        colors.gauge("simple.color", Item::new(0, 1), step).storable().help(
            "Values that step up at every fetch",
            "Each color goes from 0 to 255 and around again, one step whenever it is fetched.\n\
             Red starts at 0, green at 100 and blue at 200; pmstore(1) sets them.",
        );
        let colors =
            colors.finish_with(setup, [("red", Cell::new(0)), ("green", Cell::new(100)), ("blue", Cell::new(200))])?;
        for (item, (name, mode)) in [("user", "in user mode"), ("sys", "in the kernel")].into_iter().enumerate() {
            let (name, time) = (format!("simple.time.{name}"), move |simple: &Self| Some(simple.usage?[item]));
            let time = setup.counter(name, Item::new(1, item as u16 + 2), time).units(Units::SECONDS);
            time.help(format!("CPU time {mode}"), format!("Seconds of CPU time that the agent has spent {mode}."));
        }
        setup.file("simple.conf", "sec,min,hour\n");
        let conf = ConfigFile::new(setup.dir().join("simple.conf"));
        setup.argument("--username").prompt("User that the agent runs as, instead of PCP's").help(
            "Without a user, the agent changes to the user of PCP_USER in pcp.conf. Another user needs a pmcd that has the\n\
             rights of root when it starts the agent.",
        );
        let mut now = setup.table(TIME, |simple: &Self| &simple.now).persistent();
        now.labels(json!({"indom_name": "time", "unitsystem": "SI"}));
        now.help("Units of the time of day", "The units that simple.conf names, see simple.now.");
        now.metric("simple.now", Item::new(2, 4), Type::U32).help(
            "Parts of the local time of day",
            "The seconds, minutes and hours of the clock, one instance for each.\n\n\
             The first line of simple.conf in the agent's directory selects the instances: the\n\
             words sec, min and hour, separated by commas, such as \"sec,hour\".\n\
             The file is read again when it has changed.",
        );
        Ok(Simple { numfetch: 0, colors, usage: None, now: now.finish(setup), zone: Zone::system(), conf })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if let Request::Fetch(items) = request {
            self.numfetch = self.numfetch.wrapping_add(1);
            if items.iter().any(|item| item.cluster() == 1) {
                let usage = getrusage(UsageWho::RUSAGE_SELF).map(|usage| [usage.user_time(), usage.system_time()]).ok();
                self.usage = usage.map(|times| times.map(|time| time.num_microseconds() as f64 / 1e6));
            }
        }
        if matches!(request, Request::Fetch(_) | Request::Instance(TIME) | Request::InstanceLabels(TIME)) {
            self.read_conf();
        }
        Ok(())
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        let time = self.zone.now();
        out.put_each(&self.now, |unit| unit(&time))
    }

    /// Refuses a number out of range, but stores the nearest number in range.
    fn store(&mut self, _: Item, inst: Option<Inst>, value: Atom<'_>, _: Client) -> Result {
        let in_range = match value {
            Atom::U32(value) => {
                // A negative number arrives as a large one.
                self.numfetch = if value > i32::MAX as u32 { 0 } else { value };
                self.numfetch == value
            }
            Atom::I32(value) => {
                let color = inst.and_then(|inst| self.colors.get(inst)).ok_or(Error::INST)?;
                color.set(value.clamp(0, 255) as u8);
                i32::from(color.get()) == value
            }
            _ => return Err(Error::CONV),
        };
        if in_range { Ok(()) } else { Err(Error::BADSTORE) }
    }

    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        let unit = self.now.instance(inst).filter(|_| indom == TIME);
        unit.map_or(Ok(LabelSet::new()), |unit| Ok(LabelSet::from_serialize(json!({"units": unit.name}))?))
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
