//! Memory that the supervisor and the process with the agent share, and descriptors that a process inherits.
//!
//! This module has all unsafe code of the program.
//!
//! The agent can write anything anywhere in its process. Therefore the supervisor reads only single words from the
//! shared memory, which may have any value.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use pcp_pdu::{HEADER, PduType};

use crate::wire::LONGEST;

/// Offset of the profile.
const PROFILE: usize = 4096;
const LEN: usize = PROFILE + LONGEST as usize;

/// Activity of the process that has the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Phase {
    /// The supervisor has the connection.
    Away,
    /// The process with the agent waits for a PDU.
    Idle,
    /// The process with the agent has read a part of a PDU.
    Reading,
    /// The agent works on a request whose answer pmcd awaits.
    Calling,
    /// The agent works on a PDU that has no answer.
    Telling,
    /// The answer is being written.
    Writing,
    /// pmcd has closed the connection, or has sent something that is not a PDU.
    Ended,
}

impl Phase {
    const ALL: [Phase; 7] =
        [Phase::Away, Phase::Idle, Phase::Reading, Phase::Calling, Phase::Telling, Phase::Writing, Phase::Ended];

    /// Returns whether the agent has been called and has not returned.
    pub(crate) fn is_call(self) -> bool {
        matches!(self, Phase::Calling | Phase::Telling)
    }
}

/// The words at the start of the shared memory.
#[repr(C)]
struct Words {
    /// Time at which the current call began, in milliseconds of the monotonic clock.
    started: AtomicU64,
    phase: AtomicU32,
    /// Type of the PDU that the agent works on.
    pdu: AtomicI32,
    /// 1 while the supervisor watches calls.
    watched: AtomicU32,
    /// Length of the last profile, in bytes; 0 for none.
    profile: AtomicU32,
    /// The header of the PDU that is being read, each byte [`UNREAD`] before it arrives.
    header: [AtomicU8; HEADER],
}

/// Value of the bytes of a header that have not been read yet. A header that contains this value counts as
/// incomplete.
pub(crate) const UNREAD: u8 = u8::MAX;

const _: () = assert!(size_of::<Words>() <= PROFILE);

/// The shared memory. Pages that are not written take no memory.
#[derive(Debug)]
pub(crate) struct Shared {
    file: OwnedFd,
    map: MmapRaw,
}

impl Shared {
    /// Creates memory of zeros.
    pub(crate) fn create() -> io::Result<Shared> {
        let file = memfd_create(c"pmda-host", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        nix::unistd::ftruncate(&file, LEN as libc::off_t)?;
        // An agent that shortened the file would end the supervisor by SIGBUS.
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL))?;
        Shared::open(file)
    }

    /// Maps memory that another process has created.
    pub(crate) fn open(file: OwnedFd) -> io::Result<Shared> {
        let seals = SealFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GET_SEALS)?);
        let len = nix::sys::stat::fstat(&file)?.st_size;
        if !seals.contains(SealFlag::F_SEAL_SHRINK) || len < LEN as libc::off_t {
            return Err(Errno::EINVAL.into());
        }
        let map = MmapOptions::new().len(LEN).map_raw(&file)?;
        Ok(Shared { file, map })
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn words(&self) -> &Words {
        // SAFETY: the mapping is longer than the words, lives as long as `self`, and is aligned to a page. Atomic words
        // are valid whatever the other process writes. The file cannot become shorter.
        unsafe { &*self.map.as_ptr().cast::<Words>() }
    }

    /// Returns the phase; `None` if the agent has overwritten it.
    pub(crate) fn phase(&self) -> Option<Phase> {
        let word = self.words().phase.load(SeqCst);
        Phase::ALL.into_iter().find(|phase| *phase as u32 == word)
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.words().phase.store(phase as u32, SeqCst);
    }

    /// Changes the phase if it is `from`. Returns whether it was.
    pub(crate) fn change(&self, from: Phase, to: Phase) -> bool {
        self.words().phase.compare_exchange(from as u32, to as u32, SeqCst, SeqCst).is_ok()
    }

    /// Forgets the header of the last PDU. The supervisor sees that when it sees the next phase.
    pub(crate) fn clear_header(&self) {
        self.words().header.iter().for_each(|byte| byte.store(UNREAD, Relaxed));
    }

    /// Reads the rest of a header, of which `have` bytes are read, into the shared memory. So the supervisor knows what
    /// was read, even if the process ends before it can do anything else.
    pub(crate) fn read_header(&self, input: BorrowedFd<'_>, have: usize) -> io::Result<usize> {
        let rest = self.words().header.get(have..).unwrap_or_default();
        // SAFETY: the kernel writes at most `rest.len()` bytes there, which are atomic and may have any value.
        let read = unsafe { libc::read(input.as_raw_fd(), rest.as_ptr().cast_mut().cast(), rest.len()) };
        Ok(Errno::result(read)?.try_into().unwrap_or_default())
    }

    /// Returns the header of the PDU that is being read; `None` if none of its bytes has arrived.
    pub(crate) fn header(&self) -> Option<[u8; HEADER]> {
        let header = self.words().header.each_ref().map(|byte| byte.load(SeqCst));
        (header != [UNREAD; HEADER]).then_some(header)
    }

    /// Records the beginning of a call. Returns whether the supervisor watches calls already.
    pub(crate) fn begin(&self, phase: Phase, pdu: PduType, now: u64) -> bool {
        let words = self.words();
        words.pdu.store(pdu.code(), SeqCst);
        words.started.store(now, SeqCst);
        words.phase.store(phase as u32, SeqCst);
        self.watch()
    }

    /// Marks calls as watched. Returns whether they were.
    pub(crate) fn watch(&self) -> bool {
        self.words().watched.swap(1, SeqCst) == 1
    }

    /// Ends the watch over calls.
    pub(crate) fn rest(&self) {
        self.words().watched.store(0, SeqCst);
    }

    /// Returns the type of the PDU that the agent works on, and when it began.
    pub(crate) fn call(&self) -> (PduType, u64) {
        let words = self.words();
        (PduType::new(words.pdu.load(SeqCst)), words.started.load(SeqCst))
    }

    /// Stores the PDU of the last profile. Only the process that has the connection may do that.
    pub(crate) fn set_profile(&self, pdu: &[u8]) {
        let len = &self.words().profile;
        // If a process dies during the copy, there is no profile, instead of parts of two.
        len.store(0, SeqCst);
        let Some(count) = u32::try_from(pdu.len()).ok().filter(|count| *count <= LONGEST) else { return };
        // SAFETY: the mapping has room for LONGEST bytes after PROFILE. It is not `pdu`, which is a slice of Rust. The
        // other process does not use the bytes, since it does not have the connection.
        unsafe { self.map.as_mut_ptr().add(PROFILE).copy_from_nonoverlapping(pdu.as_ptr(), pdu.len()) }
        len.store(count, SeqCst);
    }

    /// Returns a copy of the last profile's PDU; an empty one for none.
    pub(crate) fn profile(&self) -> Vec<u8> {
        let len = self.words().profile.load(SeqCst).min(LONGEST) as usize;
        let mut copy = vec![0; len];
        // SAFETY: the mapping has room for LONGEST bytes after PROFILE, and `copy` for `len`, which is at most that.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(self.map.as_ptr().add(PROFILE), len) }
        copy
    }
}

/// Adopts a descriptor that this process has inherited, and closes it in programs that it starts.
///
/// # Errors
/// `EBADF` if the number is not that of an open descriptor, or is one of the standard descriptors.
pub(crate) fn adopt(number: i32) -> io::Result<File> {
    if number <= 2 {
        return Err(Errno::EBADF.into());
    }
    // SAFETY: only asks for flags.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open. No other code in this process owns it: this is called once for each number, at
    // the start of `main`, before the process opens anything.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(fd.into())
}

/// Variable of glibc's allocator, and its value in the process with the agent: more freed blocks of a size than the 7 of
/// the default are kept apart for the next request.
///
/// C agents allocate each string of a fetch. Without this, glibc joins all of them after a fetch, when it frees the array
/// of values, and splits them again in the next one.
pub(crate) const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=16384");

/// Removes [`TUNABLES`] from the environment of the programs that the agent starts.
pub(crate) fn forget_tunables() {
    let (name, value) = TUNABLES;
    if std::env::var_os(name).is_some_and(|given| given == value) {
        // SAFETY: the process has no other thread yet.
        unsafe { std::env::remove_var(name) }
    }
}

/// Makes libc keep memory that the agent frees, up to 8 MiB, for the next request.
///
/// C agents free the values of a fetch one by one. glibc would return the end of its heap to the kernel after each fetch, and
/// the next one would begin with a fault of each page. A daemon in C is spared that by chance: its buffer for PDUs is last.
pub(crate) fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes numbers of the allocator, before the process has other threads.
    unsafe {
        // The first alone would end the adjustment of the second, which begins with 128 KiB.
        libc::mallopt(libc::M_TRIM_THRESHOLD, 8 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 4 << 20);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_one_memory() {
        let one = Shared::create().unwrap();
        let other = Shared::open(one.file().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(other.phase(), Some(Phase::Away));
        assert!(!one.begin(Phase::Calling, PduType::FETCH, 7) && other.watch());
        assert_eq!((other.phase(), other.call()), (Some(Phase::Calling), (PduType::FETCH, 7)));
        assert!(other.change(Phase::Calling, Phase::Away) && !one.change(Phase::Calling, Phase::Writing));
        other.set_profile(b"profile");
        assert_eq!(one.profile(), b"profile");
        other.set_profile(&vec![0; LONGEST as usize + 1]);
        assert!(one.profile().is_empty());
    }

    /// What a process has read is known after its end, whenever that comes.
    #[test]
    fn a_header_that_arrives_in_parts() {
        let shared = Shared::create().unwrap();
        shared.clear_header();
        assert_eq!(shared.header(), None);
        let (input, output) = nix::unistd::pipe().unwrap();
        let mut all = [UNREAD; HEADER];
        for (have, part) in [(0, &[0, 0, 0][..]), (3, &[16, 0, 0, 0x70, 3]), (8, &[0, 0, 0, 9, 1, 2])] {
            nix::unistd::write(&output, part).unwrap();
            let read = shared.read_header(input.as_fd(), have).unwrap();
            assert_eq!(read, part.len().min(HEADER - have));
            all[have..have + read].copy_from_slice(&part[..read]);
            assert_eq!(shared.header(), Some(all));
        }
        shared.clear_header();
        assert_eq!(shared.header(), None);
    }

    #[test]
    fn words_of_an_agent_that_writes_anywhere() {
        let shared = Shared::create().unwrap();
        shared.words().phase.store(77, SeqCst);
        shared.words().profile.store(u32::MAX, SeqCst);
        assert_eq!((shared.phase(), shared.profile().len()), (None, LONGEST as usize));
        assert!(nix::unistd::ftruncate(&shared.file, 0).is_err());
    }

    #[test]
    fn descriptors_that_are_none() {
        for number in [-1, 0, 2, 1 << 20] {
            assert_eq!(adopt(number).unwrap_err().raw_os_error(), Some(libc::EBADF), "{number}");
        }
    }
}
