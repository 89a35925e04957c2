//! Exported numbers of instance domains, and classes of numbers.

use pmapi::Serial;

/// Number of classes. The exported number of an instance domain contains the cluster modulo this, so clusters of one
/// class can have domains in common.
pub(super) const CLASSES: u16 = 1 << 11;

/// Returns the exported number of a file's instance domain.
pub(super) fn exported_serial(cluster: u16, serial: u32) -> Serial {
    let number = (u32::from(cluster) << 11 | serial) & Serial::MAX;
    Serial::try_new(number).unwrap_or(const { Serial::new(0) })
}

pub(super) fn class_of_cluster(cluster: u16) -> u16 {
    cluster % CLASSES
}

pub(super) fn class_of_indom(serial: Serial) -> u16 {
    (serial.get() >> 11) as u16 % CLASSES
}
