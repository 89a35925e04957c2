//! The tests of pcp-archive, but for those that need a process of their own.

mod check;
mod compressed;
mod damage;
mod folder;
mod hostile;
mod interpolate;
mod labels;
mod oracle;
mod skipped;
mod support;
mod write;
mod written;
