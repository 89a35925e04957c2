//! Format of the files of a process that traces over shared memory, version 2.
//!
//! # Location
//! The agent's directory is `$PCP_RUN_DIR/trace/PORT/` (mode 0755), with the agent's TCP port. Its file `agent`
//! contains the path of the directory of files, without a newline. While it runs, the agent holds a write lock on
//! `agent` (`F_OFD_SETLK` of fcntl(2)), which only the agent's user can take. A process queries with `F_OFD_GETLK`, for
//! a read lock, whether it is held. It trusts root, PCP's user and its own user. `agent` must be a regular file that
//! belongs to one of them, and that others cannot write to. So must both directories, and all directories above them,
//! unless they are sticky. The directory of files must be sticky, and belong to root or the owner of `agent`.
//!
//! The directory of files is `/dev/shm/pcp-trace-PORT.XXXXXX` (mode 3777, of the agent's group). `PCP_TRACE_DIR` in
//! the agent's environment or in `pcp.conf` replaces `/dev/shm`. A process makes two files there:
//!
//! 1. It creates `.NAME.ring`, the file of its event records, with mode 0600.
//! 2. It takes an exclusive flock(2) on this file, and holds it until it exits.
//! 3. It sets mode 0640, so that the agent's group can read the file.
//! 4. It creates `NAME`, an MMV file (mmv(5)) with its [sums](super::sums), with mode 0640.
//!
//! The agent removes both when the process has exited.
//!
//! # Layout
//! Files of records consist of words of 64 bits in the host's byte order. Numbers in brackets are indexes of words. A
//! header comes first, then blocks, which the process appends while it runs and never moves. Only the process writes, each
//! word as a whole. One thread at a time writes a block. A reader must not trust any word.
//!
//! | header | 4,096 bytes |
//! |---|---|
//! | \[0\] | `PCPTRACE` |
//! | \[1\] | version: 2 |
//! | \[2\] | process identifier |
//! | \[3\] | start time of the process: field 22 of `/proc/PID/stat` |
//! | \[4\] | offset of the end of the last block, in bytes. Blocks before this are complete |
//! | \[6\] | 1: the process adds nothing more |
//! | \[7\] | trace events that are not in the files, because these had no room |
//!
//! | block | a multiple of 4,096 bytes |
//! |---|---|
//! | \[0\] | 2: a ring; a reader skips others |
//! | \[1\] | length in bytes |
//! | \[2\] | number of the lane, which one thread writes. After it has ended, another thread may continue |
//! | \[4\] | number of cells written so far |
//! | from \[8\] | the ring's cells |
//!
//! A **ring** has cells of 64 bytes. A record takes 1 to 16 cells. After the last cell, records continue in the first
//! one, and overwrite the oldest records. \[0\] of each cell has the number of the record in the lane, times 256, plus
//! the number of the cell in the record.
//!
//! | first cell | |
//! |---|---|
//! | \[1\] | time, in nanoseconds of `CLOCK_MONOTONIC` |
//! | \[2\] | tag: its instance identifier in the MMV file; from bit 32 flags (2 begin, 4 end), from bit 40 the number of cells, from bit 48 bytes of fields |
//! | \[3\] | transactions: nanoseconds (all bits set: it was aborted); observations, counters: the value, a double |
//! | \[4\] | identifier of the transaction, unique in the process, or 0 |
//! | \[5\] | identifier of the parent transaction, or 0 |
//! | \[6\], \[7\] | fields, which continue in \[1\] to \[7\] of the following cells |
//!
//! A field is the length of its key (a byte), the length of its value (two bytes, little-endian), key and value.
//!
//! A process has at most 16,384 tags, and 4,096 lanes with rings of at most 16 MiB.
//!
//! # Order
//! A thread writes the cells of a record, and then the ring's number of cells with release ordering. A release fence
//! before the next record keeps its cells from becoming visible before that number.
//!
//! A reader reads the number, copies cells, and reads the number again. Let N be the number of the ring's cells, less
//! 16. The last N cells before the second number are intact. A record in progress may have overwritten the others. Gaps
//! in the numbers of records show how many were missed.

use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// First word of every file: the bytes `PCPTRACE`.
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"PCPTRACE");
pub(crate) const VERSION: u64 = 2;
/// Alignment of blocks, and of the length of a file, in bytes.
pub(crate) const PAGE: usize = 4096;
pub(crate) const WORD: usize = 8;

/// Words of the header.
pub(crate) mod header {
    pub(crate) const PID: usize = 2;
    pub(crate) const START: usize = 3;
    pub(crate) const END: usize = 4;
    pub(crate) const ENDED: usize = 6;
    pub(crate) const MISSED: usize = 7;
    pub(crate) const WORDS: usize = 8;
}

/// Returns the name of the file of event records beside the file `name`.
pub fn ring_name(name: &OsStr) -> OsString {
    let mut ring = OsString::from(".");
    ring.push(name);
    ring.push(".ring");
    ring
}

/// Words of a block.
pub(crate) mod block {
    pub(crate) const KIND: usize = 0;
    pub(crate) const LEN: usize = 1;
    pub(crate) const CELLS: usize = 4;
    pub(crate) const WORDS: usize = 8;

    pub(crate) const RING: u64 = 2;
}

/// Limits of a file, for writers and readers.
pub(crate) const MAX_TAGS: usize = 1 << 14;
pub(crate) const MAX_LANES: usize = 1 << 12;
pub(crate) const MAX_RING_LEN: u64 = 16 << 20;

pub(crate) const CELL_WORDS: usize = 8;
pub(crate) const MAX_CELLS: usize = 16;
/// Words of fields in the first cell, and in each of the others.
pub(crate) const FIRST_FIELDS: usize = 2;
pub(crate) const MORE_FIELDS: usize = 7;
/// Largest number of bytes of a record's fields.
pub(crate) const MAX_FIELDS: usize = (FIRST_FIELDS + (MAX_CELLS - 1) * MORE_FIELDS) * WORD;

/// Flags of records.
pub(crate) const BEGIN: u8 = 2;
pub(crate) const END: u8 = 4;
/// Duration of an aborted transaction.
pub(crate) const ABORTED: u64 = u64::MAX;

/// Shared words with one writer and any number of readers: the mapped file, or its model in a test.
pub(crate) trait Words {
    fn load(&self, at: usize, order: Ordering) -> u64;
    fn store(&self, at: usize, word: u64, order: Ordering);
    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

impl Words for [AtomicU64] {
    #[inline]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.get(at).map_or(0, |word| word.load(order))
    }

    #[inline]
    fn store(&self, at: usize, value: u64, order: Ordering) {
        if let Some(word) = self.get(at) {
            word.store(value, order);
        }
    }
}
