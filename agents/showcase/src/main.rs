//! Daemon `pmdashowcase`.
pmda::main!(pmda_showcase::Showcase);
