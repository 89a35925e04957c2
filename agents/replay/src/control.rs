//! Metrics that control the replay.

use std::time::{Duration, Instant};

use pmapi::{Atom, Error, Units};
use pmda::Setup;
use pmda::prelude::{Item, Type, Values};

use crate::clock::Clock;
use crate::options::is_speed;
use crate::recording::Recording;

const POSITION: u16 = 0;
const SPEED: u16 = 1;
const PAUSE: u16 = 2;
const LOOP: u16 = 3;
const TIME: u16 = 4;
const LENGTH: u16 = 5;

/// Declares the metrics below a name.
pub(crate) fn declare(setup: &mut Setup, prefix: &str, cluster: u16) {
    let seconds = Units::time(pmapi::TimeScale::Sec);
    let item = |item| Item::new(cluster, item);
    let position = setup.metric(format!("{prefix}.position"), item(POSITION), Type::Double);
    position
        .units(seconds)
        .restricted()
        .help("Seconds since the start of the recording", "A stored value is the new position.");
    let speed = setup.metric(format!("{prefix}.speed"), item(SPEED), Type::Double);
    speed
        .restricted()
        .help("Seconds of the recording in a second", "A stored value is the new speed, over 0 and at most 1000000.");
    let pause = setup.metric(format!("{prefix}.pause"), item(PAUSE), Type::U32);
    pause.restricted().help("Whether the recording stands still", "1 stops it, 0 lets it go on.");
    let repeat = setup.metric(format!("{prefix}.loop"), item(LOOP), Type::U32);
    repeat
        .restricted()
        .help("Whether the recording begins anew at its end", "1 or 0. Counters go on when it begins anew.");
    let time = setup.metric(format!("{prefix}.time"), item(TIME), Type::Double);
    time.units(seconds).help("Recorded time that is shown", "Seconds since 1970.");
    let length = setup.metric(format!("{prefix}.length"), item(LENGTH), Type::Double);
    length.units(seconds).discrete().help("Length of the recording", "Seconds from its start to its end.");
}

/// Puts the value of a control metric.
///
/// # Errors
/// `PM_ERR_PMID` for an unknown item.
pub(crate) fn fetch(item: Item, clock: &Clock, recording: &Recording, out: &mut Values<'_>) -> Result<(), Error> {
    let position = clock.position(Instant::now());
    match item.item() {
        POSITION => out.put(position.offset.as_secs_f64()),
        SPEED => out.put(clock.speed()),
        PAUSE => out.put(u32::from(clock.is_paused())),
        LOOP => out.put(u32::from(clock.is_loop())),
        TIME => {
            let time = recording.time(position);
            out.put(time.seconds as f64 + f64::from(time.nanoseconds) / 1e9)
        }
        LENGTH => out.put(recording.length().as_secs_f64()),
        _ => Err(Error::PMID),
    }
}

/// Changes the clock.
///
/// # Errors
/// `PM_ERR_BADSTORE` for a value out of range.
pub(crate) fn store(item: Item, value: Atom<'_>, clock: &mut Clock, now: Instant) -> Result<(), Error> {
    match (item.item(), value) {
        (POSITION, Atom::Double(seconds)) => {
            let offset = Duration::try_from_secs_f64(seconds).map_err(|_| Error::BADSTORE)?;
            clock.set_offset(offset, now);
        }
        (SPEED, Atom::Double(speed)) if is_speed(speed) => clock.set_speed(speed, now),
        (PAUSE, Atom::U32(0)) => clock.go_on(now),
        (PAUSE, Atom::U32(1)) => clock.pause(now),
        (LOOP, Atom::U32(0)) => clock.stop_at_end(now),
        (LOOP, Atom::U32(1)) => clock.repeat(now),
        _ => return Err(Error::BADSTORE),
    }
    Ok(())
}
