//! Processes that trace through shared memory: several at a time, killed, and hostile ones.

mod counts;
mod harm;
mod limits;
mod records;
mod scene;
