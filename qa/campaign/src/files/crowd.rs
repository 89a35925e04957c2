//! Strangers that write files into a directory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use trace::shared_memory::format::ring_name;

use super::Format;
use super::pools::Style;
use crate::Outcome;
use crate::rng::Rng;
use crate::users::{As, FIRST, USERS};

/// Number of files that strangers write in a round.
const FILES: usize = 192;

/// The strangers' files in a directory.
#[derive(Debug)]
pub(crate) struct Crowd {
    dir: PathBuf,
    /// Whether the agent only notices files that are renamed to their names.
    renames: bool,
    style: Style,
    bytes: Vec<u8>,
}

fn name(n: usize) -> String {
    format!("h{n}")
}

impl Crowd {
    pub(crate) fn new(dir: PathBuf, renames: bool, style: Style) -> Crowd {
        Crowd { dir, renames, style, bytes: Vec::new() }
    }

    /// As one of the users, writes files, and returns their number.
    pub(crate) fn come(&mut self, rng: &mut Rng, format: &mut dyn Format) -> Outcome<u64> {
        let user = rng.below(USERS);
        let _as = As::user(user);
        for _ in 0..FILES {
            let len = format.make(rng, user, &mut self.bytes);
            // Each user has its own names, because it cannot replace another user's files.
            let n = rng.below(FILES) * USERS + user;
            self.put(rng, &self.dir.join(name(n)), len, format.sums());
        }
        if rng.one_in(8) {
            self.odd(rng, user);
        }
        Ok(FILES as u64)
    }

    /// Writes a file of length `len`. Ignores errors, which only harm the stranger.
    fn put(&self, rng: &mut Rng, path: &Path, len: u64, sums: Option<&[u8]>) {
        let Some(sums) = sums else { return self.put_file(rng, path, len, &self.bytes) };
        let records = path.with_file_name(ring_name(path.file_name().unwrap_or_default()));
        self.put_file(rng, &records, len, &self.bytes);
        let mut sums = sums.to_vec();
        for _ in 0..if rng.one_in(3) { rng.below(16) } else { 0 } {
            // The records are in the first and the last pages. Holes are between them.
            let at = if rng.one_in(2) { rng.below(4096) } else { sums.len().saturating_sub(1 + rng.below(8192)) };
            sums.get_mut(at).into_iter().for_each(|byte| *byte = rng.word() as u8);
        }
        self.put_file(rng, path, sums.len() as u64, &sums);
    }

    fn put_file(&self, rng: &mut Rng, path: &Path, len: u64, bytes: &[u8]) {
        let hidden = path.with_file_name(format!(".{}", rng.below(16)));
        let direct = !self.renames && rng.one_in(3);
        let to = if direct { path } else { &hidden };
        let written = File::create(to).and_then(|file| {
            // Pages of zeros are holes.
            for (page, at) in bytes.chunks(4096).zip((0..).step_by(4096)) {
                if page.iter().any(|byte| *byte != 0) {
                    file.write_all_at(page, at)?;
                }
            }
            file.set_len(len)
        });
        if !direct && written.is_ok() && fs::rename(&hidden, path).is_err() {
            let _ = fs::remove_file(&hidden);
        }
    }

    /// Creates an entry that is not a regular file, or has an invalid name.
    fn odd(&self, rng: &mut Rng, user: usize) {
        let path = self.dir.join(format!("odd{}", rng.below(8) * USERS + user));
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        let _ = match rng.below(8) {
            0 => mkfifo(&path, Mode::from_bits_truncate(0o666)).map_err(Into::into),
            1 => symlink(&path, &path),
            2 => symlink("/etc/shadow", &path),
            3 => symlink("/dev/zero", &path),
            4 => fs::create_dir(&path),
            5 => UnixListener::bind(&path).map(drop),
            6 => {
                let forged =
                    format!("{user}\u{1b}[2J\n[Sun Nov 22] pmcd(1) Error: forged\n{}", "x".repeat(rng.below(180)));
                File::create(self.dir.join(forged)).and_then(|mut file| file.write_all(&self.bytes))
            }
            _ => {
                let bytes = (0..rng.below(255)).map(|_| 1 + rng.below(255) as u8);
                let name = OsString::from_vec(bytes.filter(|byte| *byte != b'/').collect());
                File::create(self.dir.join(name)).and_then(|mut file| file.write_all(&self.bytes))
            }
        };
    }

    /// Removes all files of strangers.
    pub(crate) fn go(&self) -> Outcome {
        use std::os::unix::fs::MetadataExt as _;
        for file in fs::read_dir(&self.dir)?.flatten() {
            if file.metadata().is_ok_and(|metadata| metadata.uid() >= FIRST) {
                fs::remove_file(file.path()).or_else(|_| fs::remove_dir_all(file.path()))?;
            }
        }
        Ok(())
    }
}

/// A thread that changes strangers' files while the agent reads them.
#[derive(Debug)]
pub(crate) struct Flicker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flicker {
    pub(crate) fn start(crowd: &Crowd, seed: u64) -> Flicker {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, dir, renames, style) = (Arc::clone(&stop), crowd.dir.clone(), crowd.renames, crowd.style);
        let thread = thread::spawn(move || {
            let mut rng = Rng::of(seed, u64::MAX);
            while !stopped.load(Ordering::Relaxed) {
                let user = rng.below(USERS);
                let _as = As::user(user);
                let file = |rng: &mut Rng| dir.join(name(rng.below(FILES) * USERS + user));
                let of_records = renames && rng.one_in(2);
                let file = |rng: &mut Rng| {
                    let file = file(rng);
                    let records = file.with_file_name(ring_name(file.file_name().unwrap_or_default()));
                    if of_records { records } else { file }
                };
                let (one, other) = (file(&mut rng), file(&mut rng));
                // The change may fail, because the file may not exist.
                let _ = match style {
                    Style::Damaged => change(&mut rng, &one, &other, renames),
                    Style::Flux => complete(&mut rng, &one),
                    Style::Components | Style::Domains => fs::rename(one, other),
                };
                thread::sleep(if style == Style::Flux { FLUX } else { Duration::from_micros(200) });
            }
        });
        Flicker { stop, thread: Some(thread) }
    }
}

/// Time between two changes of the generation of a file.
const FLUX: Duration = Duration::from_micros(20);

/// Completes a file, or makes it incomplete.
fn complete(rng: &mut Rng, path: &Path) -> std::io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut generation = [0; 8];
    file.read_exact_at(&mut generation, 8)?;
    file.write_all_at(if rng.one_in(2) { &[0; 8] } else { &generation }, 16)
}

fn change(rng: &mut Rng, one: &Path, other: &Path, renames: bool) -> std::io::Result<()> {
    let open = || File::options().write(true).open(one);
    match rng.below(8) {
        0 => fs::remove_file(one),
        1 => fs::rename(one, other),
        2 => fs::hard_link(one, other),
        3 => open()?.set_len(rng.below(3000) as u64),
        4 if renames => open()?.set_len(4096 * rng.below(9) as u64),
        4 => open()?.set_len((rng.below(64) as u64) << 20),
        // The generation numbers of an MMV file, or the words at their offsets.
        5 => open()?.write_all_at(&rng.odd_number().to_ne_bytes(), 8 + 8 * rng.below(2) as u64),
        _ => open()?.write_all_at(&rng.odd_number().to_ne_bytes(), 8 * rng.below(400) as u64),
    }
}

impl Drop for Flicker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
