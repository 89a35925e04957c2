//! The tests of pmda-trivial, but for those that need a process of their own.

mod dbpmda;
mod rules;
