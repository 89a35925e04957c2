//! Daemon `pmdaderived`.

pmda::main!(pmda_derived::Derived);
