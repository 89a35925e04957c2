//! Two metrics: `cargo run -p pcp-mmv --example hello`, then `pmval mmv.hello.greetings`.
use std::{thread, time::Duration};

fn main() -> Result<(), mmv::Error> {
    let registry = mmv::Registry::new("hello")?;
    let greetings = registry.counter("greetings").help("Greetings so far").register()?;
    let mood = registry.gauge("mood").help("Between -1 and 1").register()?;
    registry.start();
    for second in 0..u32::MAX {
        greetings.inc();
        mood.set(f64::from(second).sin());
        thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}
