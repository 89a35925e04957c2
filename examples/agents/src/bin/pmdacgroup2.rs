//! Agent `cgroup2` as a program.

pmda::main!(gallery::cgroup2::Cgroup2);
