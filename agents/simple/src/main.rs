//! Daemon `pmdasimple`.
pmda::main!(pmda_simple::Simple);
