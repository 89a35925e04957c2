//! Agent `follow` as a program.

pmda::main!(gallery::follow::Follow);
