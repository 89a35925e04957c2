//! Agent `script` as a program.

pmda::main!(gallery::script::Script);
