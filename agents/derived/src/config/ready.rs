//! Configuration files that come with the agent, for Linux hosts.

/// Name and content of each file.
pub(crate) const READY: [(&str, &str); 4] = [
    ("cpu.conf", include_str!("../../etc/cpu.conf")),
    ("disk.conf", include_str!("../../etc/disk.conf")),
    ("memory.conf", include_str!("../../etc/memory.conf")),
    ("network.conf", include_str!("../../etc/network.conf")),
];
