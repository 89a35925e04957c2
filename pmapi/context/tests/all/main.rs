//! The tests of pcp-context, but for those that need a process of their own.

mod archives;
mod c_api;
mod client;
mod context;
mod derived;
mod group;
mod group_errors;
mod more;
mod window;
