//! The file that readers see, and the records that it has.
//!
//! Records are appended behind the published number, and then the number changes. The order is: strings, instance domains
//! with their instances, metrics, labels, values, and at last the generation. So each state between two stores is a valid
//! file, except between the two stores of the generation, when readers see a file that is being written.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::directory::Kept;
use crate::format::{
    Flags, Header, IndomRecord, LABEL_LEN, MAGIC, PAYLOAD_LEN, STRING_LEN, Section, Toc, ValueRecord, Version,
    word_of_half,
};
use crate::handle::read_text;
use crate::home::{Home, check_size};
use crate::layout::{Layout, Table};
use crate::model::{Counts, Kind, Label, Model, TextId};

/// The owner of a file, as its header describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub flags: Flags,
    pub process: i32,
    pub cluster: u16,
}

/// A file that readers see.
#[derive(Debug)]
pub(super) struct Published {
    pub file: Arc<Kept>,
    /// Whether it is the home of the values. Otherwise, flushes copy all values to it.
    pub is_home: bool,
    owner: Owner,
    generation: u64,
    counts: Counts,
    /// For each domain, the number of instances that it has, and the index of the first one.
    indoms: Vec<(usize, usize)>,
    /// Number of places that domains have left, and that have been written.
    left: usize,
    /// The table of contents.
    contents: Vec<Toc>,
    /// Whether readers may see the file: then records are published by single stores.
    is_visible: bool,
    /// The values that are not in their home, as they were last written.
    copied: Vec<(u64, u64)>,
    /// The texts as they were last written.
    texts: Vec<Shown>,
}

/// A text as a file that is not its home shows it.
#[derive(Debug)]
struct Shown {
    text: [u8; STRING_LEN],
    /// Whether it is in the second of the two buffers.
    second: bool,
}

/// Where the instances of each domain are among the records.
///
/// The instances of a domain are adjacent. A domain that grows while another one follows gets a place for twice as many.
/// Records that are not in use, or have another copy, are valid records of an instance.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The present place of each domain.
    of: Vec<Place>,
    /// Places that domains have left.
    left: Vec<(usize, Place)>,
    /// Number of records in use and left, together.
    len: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    first: usize,
    room: usize,
}

impl Places {
    /// Makes room for all instances of the model.
    fn grow(&mut self, model: &Model) {
        for (index, (_, indom)) in model.indoms().enumerate() {
            let (place, count) = (self.of.get(index).copied().unwrap_or_default(), indom.len());
            let new = if count <= place.room {
                place
            } else if place.room > 0 && place.first + place.room == self.len {
                Place { room: count, ..place }
            } else if place.room == 0 {
                Place { first: self.len, room: count }
            } else {
                self.left.push((index, place));
                Place { first: self.len, room: 2 * count }
            };
            self.len = self.len.max(new.first + new.room);
            match self.of.get_mut(index) {
                Some(place) => *place = new,
                None => self.of.push(new),
            }
        }
    }

    fn first(&self, indom: usize) -> usize {
        self.of.get(indom).map_or(0, |place| place.first)
    }
}

/// State from which a file is written.
pub(super) struct Contents<'a> {
    pub model: &'a Model,
    pub home: &'a Home,
    pub places: &'a mut Places,
    /// Index of the value of each text.
    pub texts: &'a [usize],
}

impl Published {
    /// Writes a file that no reader sees yet.
    ///
    /// # Errors
    /// Errors of write(2); `FileTooLarge` beyond `RLIMIT_FSIZE`.
    pub(super) fn new(
        file: Arc<Kept>,
        is_home: bool,
        owner: Owner,
        generation: u64,
        contents: &mut Contents<'_>,
    ) -> io::Result<Published> {
        let toc = |section: Section, table: &Table| Toc { section: section as u32, count: 0, offset: table.at };
        let layout = &contents.home.layout;
        let mut published = Published {
            file,
            is_home,
            owner,
            generation,
            counts: Counts::default(),
            indoms: Vec::new(),
            left: 0,
            // The agent requires at least these two sections.
            contents: vec![toc(Section::Metrics, &layout.metrics), toc(Section::Values, &layout.values)],
            is_visible: false,
            copied: Vec::new(),
            texts: Vec::new(),
        };
        let file = Arc::clone(&published.file);
        let file = file.get()?;
        published.append(contents, generation)?;
        published.copy(contents)?;
        published.write_front(file)?;
        published.is_visible = true;
        Ok(published)
    }

    /// Returns whether the file shows some values only after a flush.
    pub(super) fn is_copied(&self, home: &Home) -> bool {
        self.first_copied(home) < usize::MAX
    }

    fn first_copied(&self, home: &Home) -> usize {
        if self.is_home { home.detached() } else { 0 }
    }

    /// Returns the generation.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Appends the records that the file lacks. After an error the file is valid, and lacks some of them.
    ///
    /// # Errors
    /// Errors of write(2); `FileTooLarge` beyond `RLIMIT_FSIZE`.
    pub(super) fn append(&mut self, contents: &mut Contents<'_>, generation: u64) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        let file = file.get()?;
        contents.places.grow(contents.model);
        let all = contents.model.counts();
        let (Layout { values, texts, .. }, new_texts) = (&contents.home.layout, all.texts > self.counts.texts);
        if self.is_home {
            // The end of the constant records, or of values that are not in their home.
            check_size(values.record(if self.is_copied(contents.home) { all.values } else { 0 }))?;
        } else {
            let len = if all.texts > 0 { texts.record(all.texts) } else { values.record(all.values) };
            check_size(len)?;
            if new_texts || !self.is_visible {
                // Unset texts are in a hole.
                file.set_len(len)?;
            }
        }
        self.append_strings(contents, file)?;
        self.append_indoms(contents, file)?;
        self.append_metrics(contents, file)?;
        self.append_labels(contents, file)?;
        self.append_values(contents, file)?;
        self.counts = all;
        self.generation = generation;
        self.put_word(file, G1_AT, generation)?;
        self.put_word(file, G1_AT + 8, generation)
    }

    /// Stores a word of a file that readers see. They see the old or the new one.
    fn put_word(&self, file: &File, at: u64, word: u64) -> io::Result<()> {
        if !self.is_visible {
            return Ok(());
        }
        // Not through the map: the page may have blocks that are holes, and a store then needs room on the disk.
        file.write_all_at(&word.to_ne_bytes(), at)?;
        #[cfg(test)]
        tests::stored();
        Ok(())
    }

    /// Writes the header and the contents of a new file.
    fn write_front(&self, file: &File) -> io::Result<()> {
        let Owner { flags, process, cluster } = self.owner;
        let version = if self.counts.labels == 0 { Version::V2 } else { Version::V3 };
        let header = Header {
            magic: MAGIC,
            version: version as i32,
            g1: self.generation,
            g2: self.generation,
            tocs: self.contents.len() as i32,
            flags,
            process,
            cluster: cluster.into(),
        };
        let mut front = header.bytes().to_vec();
        front.extend(self.contents.iter().flat_map(Toc::bytes));
        file.write_all_at(&front, 0)
    }

    /// Changes the number of records of a section.
    fn put_count(&mut self, file: &File, section: Section, table: &Table, count: usize) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let entry = Toc { section: section as u32, count: count as i32, offset: table.at };
        let bytes = entry.bytes();
        let known = self.contents.iter().position(|known| known.offset == table.at);
        let Some(index) = known else {
            if self.is_visible {
                file.write_all_at(&bytes, Toc::at(self.contents.len()))?;
            }
            // Number of sections and flags. Until it is stored, the next attempt begins here again.
            let word = word_of_halves(self.contents.len() as u32 + 1, self.owner.flags.bits());
            self.put_word(file, TOCS_AT, word)?;
            self.contents.push(entry);
            return Ok(());
        };
        if let Some(known) = self.contents.get_mut(index) {
            *known = entry;
        }
        // Kind and number are in the first word.
        self.put_word(file, Toc::at(index), first_word(&bytes))
    }

    fn append_strings(&mut self, Contents { model, home, .. }: &Contents<'_>, file: &File) -> io::Result<()> {
        let (before, now) = (self.counts, model.counts());
        if now.strings > before.strings {
            let mut sink = Sink::new(file, home.layout.strings.record(before.strings));
            model.strings_from(before.strings).try_for_each(|text| sink.put_padded::<STRING_LEN>(text))?;
            sink.finish()?;
            self.put_count(file, Section::Strings, &home.layout.strings, now.strings)?;
        }
        if now.texts > before.texts {
            self.put_count(file, Section::Strings, &home.layout.texts, 2 * now.texts)?;
        }
        Ok(())
    }

    /// Appends domains and their instances, and the instances of domains that have grown.
    fn append_indoms(&mut self, Contents { model, home, places, .. }: &Contents<'_>, file: &File) -> io::Result<()> {
        for (index, (_, indom)) in model.indoms().enumerate() {
            let Some(place) = places.of.get(index).copied() else { continue };
            let (count, record_at) = (indom.len(), home.layout.indoms.record(index));
            let known = self.indoms.get(index).copied();
            match known {
                Some((known, first)) if known == count && first == place.first => continue,
                Some((known, first)) if first == place.first => {
                    write_instances(model, home, index, place, known..count, file)?;
                }
                _ => write_instances(model, home, index, place, 0..place.room, file)?,
            }
            let offset = home.layout.instances.record(place.first);
            let help = |text: Option<TextId>| string(model, home, text);
            let (serial, [short, long]) = (indom.serial, [indom.help.short, indom.help.long].map(help));
            let record = IndomRecord { serial, count: count as u32, offset, short, long }.bytes();
            if known.is_none() {
                file.write_all_at(&record, record_at)?;
                self.indoms.push((count, place.first));
                continue;
            }
            // The new place has the old instances, too: so first it is another place, and then more instances.
            self.put_word(file, record_at + 8, offset)?;
            self.put_word(file, record_at, first_word(&record))?;
            if let Some(known) = self.indoms.get_mut(index) {
                *known = (count, place.first);
            }
        }
        for (index, place) in places.left.iter().skip(self.left) {
            write_instances(model, home, *index, *place, 0..place.room, file)?;
        }
        self.left = places.left.len();
        self.put_count(file, Section::Indoms, &home.layout.indoms, self.indoms.len())?;
        self.put_count(file, Section::Instances, &home.layout.instances, places.len)
    }

    fn append_metrics(&mut self, Contents { model, home, .. }: &Contents<'_>, file: &File) -> io::Result<()> {
        let (before, now) = (self.counts.metrics, model.counts().metrics);
        if now == before {
            return Ok(());
        }
        let mut sink = Sink::new(file, home.layout.metrics.record(before));
        for (_, metric) in model.metrics().skip(before) {
            let indom = metric.indom().map_or(u32::MAX, |i| model.indom(i).serial);
            let mut record = [0; Version::V2.metric_len()];
            record[..8].copy_from_slice(&home.layout.string(metric.name).to_ne_bytes());
            record[8..12].copy_from_slice(&u32::from(metric.item).to_ne_bytes());
            record[12..16].copy_from_slice(&(metric.ty as i32).to_ne_bytes());
            record[16..20].copy_from_slice(&metric.semantics.code().to_ne_bytes());
            record[20..24].copy_from_slice(&metric.units.word().to_ne_bytes());
            record[24..28].copy_from_slice(&indom.to_ne_bytes());
            record[32..40].copy_from_slice(&string(model, home, metric.help.short).to_ne_bytes());
            record[40..].copy_from_slice(&string(model, home, metric.help.long).to_ne_bytes());
            sink.put(&record)?;
        }
        sink.finish()?;
        self.put_count(file, Section::Metrics, &home.layout.metrics, now)
    }

    fn append_labels(&mut self, Contents { model, home, .. }: &Contents<'_>, file: &File) -> io::Result<()> {
        let (before, now) = (self.counts.labels, model.labels().len());
        if now == before {
            return Ok(());
        }
        let mut sink = Sink::new(file, home.layout.labels.record(before));
        let new: &[Label] = model.labels().get(before..).unwrap_or_default();
        for label in new {
            let (identity, internal) = label.subject.numbers(model, self.owner.cluster);
            let mut record = [0; LABEL_LEN - PAYLOAD_LEN];
            record[..4].copy_from_slice(&label.code().to_ne_bytes());
            record[4..8].copy_from_slice(&identity.to_ne_bytes());
            record[8..].copy_from_slice(&internal.to_ne_bytes());
            sink.put(&record)?;
            sink.put_padded::<PAYLOAD_LEN>(&label.json)?;
        }
        sink.finish()?;
        if before == 0 {
            // Magic number and version. Records of versions 2 and 3 are the same.
            self.put_word(file, 0, word_of_halves(u32::from_ne_bytes(MAGIC), Version::V3 as u32))?;
        }
        self.put_count(file, Section::Labels, &home.layout.labels, now)
    }

    fn append_values(&mut self, contents: &Contents<'_>, file: &File) -> io::Result<()> {
        let Contents { model, home, places, .. } = contents;
        let (before, now) = (self.counts.values, model.counts().values);
        let first_copied = self.first_copied(home);
        // An earlier attempt may have failed.
        self.copied.truncate(before.saturating_sub(first_copied));
        self.texts.truncate(self.counts.texts);
        let mut copies = Sink::new(file, home.layout.values.record(first_copied.clamp(before, now)));
        for run in model.values().within(before..now) {
            let metric = model.metric(run.metric);
            let metric_at = home.layout.metrics.record(run.metric);
            let first = metric.indom().map(|indom| places.first(indom) + run.instance);
            for n in 0..run.count {
                let instance = first.map_or(0, |first| home.layout.instances.record(first + n));
                let value = run.first + n;
                let [word, extra, of_metric, of_instance] = home.value(value) else { continue };
                if value < first_copied {
                    of_metric.store(metric_at, Relaxed);
                    of_instance.store(instance, Release);
                    continue;
                }
                let (mut word, mut extra) = (word.load(Relaxed), extra.load(Acquire));
                if metric.kind == Kind::Text {
                    (word, extra) = (0, home.layout.texts.record(self.texts.len()));
                    self.texts.push(Shown { text: [0; STRING_LEN], second: false });
                }
                self.copied.push((word, extra));
                copies.put(&ValueRecord { word, extra: extra as i64, metric: metric_at, instance }.bytes())?;
            }
        }
        copies.finish()?;
        self.put_count(file, Section::Values, &home.layout.values, now)
    }

    /// Writes values and texts that have changed and are not in their home. Nothing is locked that an update would need.
    ///
    /// # Errors
    /// Errors of write(2); `FileTooLarge` beyond `RLIMIT_FSIZE`.
    pub(super) fn copy(&mut self, Contents { model, home, texts, .. }: &Contents<'_>) -> io::Result<()> {
        let first = self.first_copied(home);
        if first >= self.counts.values {
            return Ok(());
        }
        let file = Arc::clone(&self.file);
        let file = file.get()?;
        let is_text = !self.texts.is_empty();
        check_size(if is_text {
            home.layout.texts.record(self.texts.len())
        } else {
            home.layout.values.record(self.counts.values)
        })?;
        for run in model.values().within(first..self.counts.values) {
            if model.metric(run.metric).kind == Kind::Text {
                continue;
            }
            for value in run.first..run.first + run.count {
                let [word, extra, ..] = home.value(value) else { continue };
                let now = (word.load(Relaxed), extra.load(Acquire));
                if let Some(written) = self.copied.get_mut(value - first).filter(|written| **written != now) {
                    write_words(file, now, home.layout.values.record(value))?;
                    *written = now;
                }
            }
        }
        for (index, (shown, value)) in self.texts.iter_mut().zip(*texts).enumerate() {
            let text = read_text(&home.slot(*value));
            if text == shown.text {
                continue;
            }
            // The buffer that readers do not use, and then the value.
            let at = home.layout.texts.record(index) + if shown.second { 0 } else { STRING_LEN as u64 };
            file.write_all_at(&text, at)?;
            let len = text.iter().position(|byte| *byte == 0).unwrap_or(STRING_LEN);
            write_words(file, (word_of_half(len as u32), at), home.layout.values.record(*value))?;
            *shown = Shown { text, second: !shown.second };
        }
        Ok(())
    }
}

fn write_words(file: &File, (word, extra): (u64, u64), at: u64) -> io::Result<()> {
    file.write_all_at([word.to_ne_bytes(), extra.to_ne_bytes()].as_flattened(), at)
}

/// Writes instances of a domain. Records of a place that are not in use are those of the first instance.
fn write_instances(
    model: &Model,
    home: &Home,
    index: usize,
    place: Place,
    range: Range<usize>,
    file: &File,
) -> io::Result<()> {
    let (indom, of_indom) = (model.indom(index), home.layout.indoms.record(index));
    let mut sink = Sink::new(file, home.layout.instances.record(place.first + range.start));
    for instance in range {
        let instance = indom.at(if instance < indom.len() { instance } else { 0 });
        let mut record = [0; Version::V2.instance_len()];
        record[..8].copy_from_slice(&of_indom.to_ne_bytes());
        record[12..16].copy_from_slice(&instance.id.to_ne_bytes());
        record[16..].copy_from_slice(&home.layout.string(instance.name).to_ne_bytes());
        sink.put(&record)?;
    }
    sink.finish()
}

/// Returns the offset of a help text, or 0 for none.
fn string(model: &Model, home: &Home, text: Option<TextId>) -> u64 {
    text.map_or(0, |text| home.layout.string(model.help_string(text)))
}

/// Offsets of the first generation, and of the number of sections.
const G1_AT: u64 = 8;
const TOCS_AT: u64 = 24;

fn word_of_halves(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn first_word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

/// A buffered writer of records.
struct Sink<'a> {
    file: &'a File,
    at: u64,
    buffer: Vec<u8>,
}

/// Number of bytes that are written at once.
const FULL: usize = 32 << 10;

impl<'a> Sink<'a> {
    fn new(file: &'a File, at: u64) -> Sink<'a> {
        Sink { file, at, buffer: Vec::new() }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.buffer.reserve_exact(FULL);
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > FULL - STRING_LEN { self.spill() } else { Ok(()) }
    }

    /// Appends a text, padded with NULs to `ROOM` bytes. The text must be shorter than that.
    fn put_padded<const ROOM: usize>(&mut self, text: &str) -> io::Result<()> {
        debug_assert!(text.len() < ROOM);
        let mut padded = [0; ROOM];
        padded.iter_mut().zip(text.as_bytes()).for_each(|(to, from)| *to = *from);
        self.put(&padded)
    }

    fn spill(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.spill()?;
        }
        #[cfg(test)]
        tests::stored();
        Ok(())
    }
}

/// Returns a generation number in the format of C's library: seconds in the upper half, microseconds in the lower.
pub(super) fn generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() << 32 | u64::from(now.subsec_micros())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use std::rc::Rc;
    use std::time::Duration;

    use mmv_reader::{File, ReadError};

    use crate::{Counter, Family, Registry, Text};

    thread_local! {
        /// Called after each store to the file.
        static STORED: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    pub(super) fn stored() {
        STORED.with_borrow_mut(|stored| stored.iter_mut().for_each(|stored| stored()));
    }

    /// Registers records of every kind during the export, and keeps the file as it is after each store: in the directories
    /// `0`, `1`, … of `dir`. Returns their number. The file is the home of the values, or a copy.
    fn states(dir: &Path, is_home: bool) -> usize {
        let files = dir.join("mmv");
        if is_home {
            fs::create_dir(&files).unwrap();
        }
        let registry = Registry::builder("app").directory(&files).room(64).flush_every(Duration::ZERO).build().unwrap();
        let count = registry.counter("count").help("one line").register().unwrap();
        let text = registry.text("text").register().unwrap();
        let rows = registry.indom("rows").instances(["a", "b"]).register().unwrap();
        let family: Family<Counter> = registry.counter("family").over(&rows).unwrap();
        if !is_home {
            fs::create_dir(&files).unwrap();
        }
        registry.try_start().unwrap();
        count.add(7);
        text.set("some words");
        family.get("b").unwrap().add(8);
        registry.flush();
        let stores = Rc::new(Cell::new(0));
        let (from, to, number) = (files.join("app"), dir.to_owned(), Rc::clone(&stores));
        STORED.set(Some(Box::new(move || {
            let state = to.join(number.get().to_string()).join("mmv");
            fs::create_dir_all(&state).unwrap();
            fs::copy(&from, state.join("app")).unwrap();
            number.set(number.get() + 1);
        })));
        registry.gauge("gauge").help("another line").long_help("and more").register().unwrap();
        let others = registry.indom("others").instances(["x"]).register().unwrap();
        let other: Family<Text> = registry.text("other").over(&others).unwrap();
        // Domains that grow by turns get other places.
        for n in 0..5 {
            family.instance(&format!("row{n}")).unwrap();
            other.instance(&format!("other{n}")).unwrap();
        }
        registry.label("tier", "web").unwrap();
        rows.label_instance("a", "first", true).unwrap();
        registry.counter("labelled").label("rack", 3).register().unwrap();
        let batch = registry.batch();
        let both = registry.indom("both").instances(["1", "2", "3"]).register().unwrap();
        registry.histogram("times").buckets(&[1.0, 2.0]).unwrap();
        let _both: Family<Counter> = registry.counter("both").over(&both).unwrap();
        drop(batch);
        STORED.set(None);
        stores.get()
    }

    fn state(dir: &Path, number: usize) -> std::path::PathBuf {
        dir.join(number.to_string())
    }

    #[test]
    fn the_file_is_valid_after_each_store() {
        for is_home in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let count = states(dir.path(), is_home);
            let (mut metrics, mut instances, mut in_flux) = (0, 0, 0);
            for number in 0..count {
                let file = match File::open(state(dir.path(), number).join("mmv/app")) {
                    Err(ReadError::InFlux { g1, g2 }) => {
                        assert!(g1 > g2 && g2 > 0);
                        in_flux += 1;
                        continue;
                    }
                    file => file.unwrap(),
                };
                assert_eq!(file.problems().first(), [], "after store {number}");
                let value = |name: &[u8], index: usize| {
                    let metric = file.metrics().iter().find(|metric| file.name(metric) == name).unwrap();
                    file.value(metric.values()[index].index).unwrap()
                };
                assert_eq!((value(b"count", 0).word, value(b"family", 1).word), (7, 8));
                assert_eq!(file.string(&value(b"text", 0)), Some(&b"some words"[..]));
                // What is there is complete: no record is published before those that it refers to.
                for metric in file.metrics() {
                    assert!(!file.name(metric).is_empty(), "after store {number}");
                    let of_indom = file.indoms().iter().filter(|indom| Some(indom.serial) == metric.indom);
                    assert_eq!(of_indom.count(), usize::from(metric.indom.is_some()), "after store {number}");
                }
                let rows = file.indoms()[0].instances();
                assert_eq!(file.instance_name(&rows[1]), b"b");
                assert!(file.metrics().len() >= metrics && rows.len() >= instances, "after store {number}");
                (metrics, instances) = (file.metrics().len(), rows.len());
            }
            // One state between the two stores of each generation.
            assert_eq!((metrics, instances, in_flux), (10, 7, 17));
            assert!(count > 80, "{count} stores");
        }
    }

    /// Domains that grow by turns leave places behind. These never reach the records of the next section.
    #[test]
    fn domains_that_grow_by_turns_fill_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::builder("app").directory(dir.path()).room(64).build().unwrap();
        registry.label("tier", "web").unwrap();
        let domains = ["a", "b", "c"].map(|name| registry.indom(name).register().unwrap());
        let families = ["a", "b", "c"].map(|name| {
            let family: Family<Counter> =
                registry.counter(name).over(&domains[name.as_bytes()[0] as usize - 97]).unwrap();
            family
        });
        registry.try_start().unwrap();
        let mut grown = 0;
        while families[grown % 3].instance(&format!("i{grown}")).is_ok() {
            grown += 1;
        }
        let state = registry.inner().lock().unwrap();
        let most = state.home.as_ref().unwrap().layout.instances.most;
        assert!(grown == 64 && state.places.len <= most as usize, "{grown} {}", state.places.len);
        drop(state);
        let file = File::open(dir.path().join("app")).unwrap();
        assert_eq!((file.problems().first(), file.labels().len()), (&[][..], 1));
        assert_eq!(file.indoms().iter().map(|indom| indom.instances().len()).sum::<usize>(), grown);
    }

    /// PCP's mmvdump and agent read each state, too.
    #[test]
    #[ignore = "needs PCP"]
    // Slow: mmvdump runs after each store of the writer.
    fn pcp_reads_the_file_after_each_store() {
        _ = testkit::Pcp::required();
        for is_home in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let count = states(dir.path(), is_home);
            let pmns = dir.path().join("pmns");
            fs::write(&pmns, "root {\n    mmv 70:*:*\n}\n").unwrap();
            let mut before = 0;
            for number in 0..count {
                let state = state(dir.path(), number);
                let is_in_flux = matches!(File::open(state.join("mmv/app")), Err(ReadError::InFlux { .. }));
                let dump = Command::new("/usr/lib/pcp/pmdas/mmv/mmvdump").arg(state.join("mmv/app")).output().unwrap();
                let dump = (dump.status.success(), String::from_utf8_lossy(&dump.stdout).into_owned());
                assert_eq!(dump.0, !is_in_flux, "after store {number}: {}", dump.1);
                assert!(!dump.1.contains("Bad"), "after store {number}: {}", dump.1);
                let agent = "add,70,/var/lib/pcp/pmdas/mmv/pmda_mmv.so,mmv_init";
                let mut pminfo = Command::new("pminfo");
                pminfo.env("PCP_TMP_DIR", &state).args(["-L", "-K", "clear", "-K", agent, "-f", "mmv.app"]);
                let shown = pminfo.arg("-n").arg(&pmns).output().unwrap();
                let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
                if !is_in_flux {
                    for part in ["mmv.app.count\n    value 7", "or \"b\"] value 8", "value \"some words\""] {
                        assert!(shown.contains(part), "after store {number}: {shown}");
                    }
                    let metrics = shown.matches("mmv.app.").count();
                    assert!(metrics >= before, "after store {number}: {shown}");
                    before = metrics;
                }
            }
            assert_eq!(before, 10);
        }
    }
}
