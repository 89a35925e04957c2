//! Agent `status` as a program.

pmda::main!(gallery::status::Status);
