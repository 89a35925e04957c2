//! Daemon `pmdatrivial`.
pmda::main!(pmda_trivial::Trivial);
