//! Reads arbitrary bytes as a file: `cargo +nightly fuzz run --fuzz-dir . reader` in `qa/fuzz`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mmv_reader::{File, TextKind};

fuzz_target!(|bytes: &[u8]| {
    mmv_reader::dump::dump(&mut std::io::sink(), b"name", bytes).expect("a sink takes everything");
    let Ok(file) = File::parse(bytes.to_vec()) else { return };
    for metric in file.metrics() {
        file.name(metric);
        file.help(metric, TextKind::OneLine);
        file.help(metric, TextKind::Help);
        for value in metric.values() {
            let record = file.value(value.index).expect("the value of a metric is in the file");
            file.string(&record);
        }
    }
    for indom in file.indoms() {
        file.indom_help(indom, TextKind::OneLine);
        indom.instances().iter().for_each(|instance| _ = file.instance_name(instance));
    }
    file.labels().iter().for_each(|label| _ = file.payload(label));
});
