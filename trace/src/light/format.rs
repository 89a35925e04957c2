//! The file of a process that traces over the light transport: version 1.
//!
//! # Where
//! The agent's own directory is `$PCP_RUN_DIR/trace/PORT/` (mode 0755), where the port is the agent's. Its file `agent` is
//! the path of another directory, without a newline, and the agent holds a write lock on it (`F_OFD_SETLK` of fcntl(2)). A
//! process asks with `F_OFD_GETLK` for a read lock whether there is one, which only the agent's user can have.
//!
//! The other directory, `/dev/shm/pcp-trace-PORT.XXXXXX`, is for files (mode 3777, of the agent's group); `PCP_TRACE_DIR` in
//! the agent's environment or in pcp.conf moves it. A process makes one file there, of any name that does not begin with a
//! dot; while it is being made it has such a name, and mode 0600. The process holds an exclusive flock(2) on the file as long
//! as it is there, and then gives it mode 0640: the agent's group may read. The agent removes files of processes that have
//! ended.
//!
//! # Layout
//! Everything is in words of 64 bits in the host's byte order; numbers in brackets are words. The file has a header, and
//! then blocks, which are appended while the process runs and never move. Only the process writes, each word as a whole;
//! a lane's blocks are written by one thread at a time. Whoever reads may trust nothing.
//!
//! | header | 4,096 bytes |
//! |---|---|
//! | \[0\] | `PCPTRACE` |
//! | \[1\] | version: 1 |
//! | \[2\] | process identifier |
//! | \[3\] | when the process started: field 22 of `/proc/PID/stat` |
//! | \[4\] | where the last block ends, in bytes. Blocks before this are complete |
//! | \[5\] | number of tags. Entries of tags before this are complete |
//! | \[6\] | 1: the process adds nothing more |
//! | \[7\] | marks that are nowhere in the file, for want of room |
//!
//! | block | a multiple of 4,096 bytes |
//! |---|---|
//! | \[0\] | 1 tags, 2 ring, 3 sums; a reader skips others |
//! | \[1\] | length in bytes |
//! | \[2\] | ring, sums: number of the lane. A lane is what one thread writes; another one may go on when that has ended |
//! | \[3\] | tags, sums: number of the first tag, a multiple of 63 |
//! | \[4\] | ring: cells written so far, counted from the first |
//! | from \[8\] | as many entries as there is room for: 63 in tags (16,384 bytes) and sums (8,192) |
//!
//! An entry of **tags** has 256 bytes: the kind (1 to 4, [`Kind`](crate::protocol::Kind)), the length of the name, and the
//! name.
//!
//! An entry of **sums** has 128 bytes: what the lane's thread has marked with a tag.
//!
//! | sums | |
//! |---|---|
//! | \[0\] | how often |
//! | \[1\] | transactions: nanoseconds of all |
//! | \[2\] | observations, counters: the last value, a double |
//! | \[3\] | observations, counters: when that was |
//! | \[4\] to \[11\] | transactions: shortest and longest of four epochs |
//!
//! An epoch is 2^30 ns of CLOCK_MONOTONIC, and what is in words 4 + 2 (e mod 4) and the next is of an epoch e if that is
//! in their upper halves; the lower halves are seconds, a float. So each word means something without the others, and a
//! reader that looks once in four epochs misses none.
//!
//! A **ring** has cells of 64 bytes. A record takes a cell and up to 15 more; where the ring ends it goes on at the
//! beginning, over the oldest records. \[0\] of each cell has the number of the record in the lane, times 256, plus the
//! number of the cell in the record.
//!
//! | first cell | |
//! |---|---|
//! | \[1\] | nanoseconds of CLOCK_MONOTONIC |
//! | \[2\] | tag; from bit 32 flags (2 begin, 4 end), from bit 40 the number of cells, from bit 48 bytes of fields |
//! | \[3\] | transactions: nanoseconds (all bits set: it was aborted); observations, counters: the value, a double |
//! | \[4\] | identifier of the transaction, unique in the process, or 0 |
//! | \[5\] | that of the transaction that it is a part of, or 0 |
//! | \[6\], \[7\] | fields, which go on in \[1\] to \[7\] of the cells that follow |
//!
//! A field is the length of its key (a byte), the length of its value (two bytes, the low one first), key and value.
//!
//! There are at most 65,536 tags, 4,096 lanes with rings of at most 16 MiB, and 4,096 blocks of sums.
//!
//! # Order
//! A thread writes the cells of a record, and then (release) the ring's number of cells. Before it writes the next cells
//! it sees to it that they do not come before that (a release fence). So whoever reads the number, copies cells, and reads
//! the number again, knows that cells are good if they are not among the oldest of which a record that begins there might
//! have written some: as many as the ring has, less 16. Numbers of records tell how many were not seen.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// `PCPTRACE`.
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"PCPTRACE");
pub(crate) const VERSION: u64 = 1;
/// Files, and blocks in them, begin at multiples of this.
pub(crate) const PAGE: usize = 4096;
pub(crate) const WORD: usize = 8;

/// Words of the header.
pub(crate) mod header {
    pub(crate) const PID: usize = 2;
    pub(crate) const START: usize = 3;
    pub(crate) const END: usize = 4;
    pub(crate) const TAGS: usize = 5;
    pub(crate) const ENDED: usize = 6;
    pub(crate) const MISSED: usize = 7;
    pub(crate) const WORDS: usize = 8;
}

/// Words of a block.
pub(crate) mod block {
    pub(crate) const KIND: usize = 0;
    pub(crate) const LEN: usize = 1;
    pub(crate) const FIRST: usize = 3;
    pub(crate) const CELLS: usize = 4;
    pub(crate) const WORDS: usize = 8;

    pub(crate) const TAGS: u64 = 1;
    pub(crate) const RING: u64 = 2;
    pub(crate) const SUMS: u64 = 3;
}

/// Entries of a block of tags or of sums.
pub(crate) const PER_BLOCK: usize = 63;
pub(crate) const TAG_WORDS: usize = 32;
pub(crate) const TAGS_LEN: u64 = ((block::WORDS + PER_BLOCK * TAG_WORDS) * WORD).next_multiple_of(PAGE) as u64;
pub(crate) const SUM_WORDS: usize = 16;
pub(crate) const SUMS_LEN: u64 = ((block::WORDS + PER_BLOCK * SUM_WORDS) * WORD).next_multiple_of(PAGE) as u64;

/// The most of each that a process makes and a reader reads.
pub(crate) const MAX_TAGS: usize = 1 << 16;
pub(crate) const MAX_LANES: usize = 1 << 12;
pub(crate) const MAX_RING_LEN: u64 = 16 << 20;
pub(crate) const MAX_SUMS: usize = 1 << 12;

pub(crate) const CELL_WORDS: usize = 8;
pub(crate) const MAX_CELLS: usize = 16;
/// Words of fields in the first cell, and in each of the others.
pub(crate) const FIRST_FIELDS: usize = 2;
pub(crate) const MORE_FIELDS: usize = 7;
/// Bytes of a record's fields, at most.
pub(crate) const MAX_FIELDS: usize = (FIRST_FIELDS + (MAX_CELLS - 1) * MORE_FIELDS) * WORD;

/// Flags of records.
pub(crate) const BEGIN: u8 = 2;
pub(crate) const END: u8 = 4;
/// The time of a transaction that was aborted.
pub(crate) const ABORTED: u64 = u64::MAX;

/// Words that one writes and others read: the mapped file, or what stands for it in a test.
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
