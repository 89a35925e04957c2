//! Agent `health` as a program.

pmda::main!(gallery::health::Health);
