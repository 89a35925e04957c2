//! The agent as a program. pmcd starts it; in a terminal, use `cargo pmda run`.

pmda::main!(pmda_template::Template);
