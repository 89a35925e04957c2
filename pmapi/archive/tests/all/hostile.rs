//! Damaged archives: every cut and many mutations of a small archive lead to an error that names a file, or to fewer
//! records.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use pcp_archive::{Archive, ArchiveError, Check, Options};
use pmapi::Error;
use proptest::prelude::*;

/// Appends a record: its length at both ends of the body.
fn framed(out: &mut Vec<u8>, body: &[&[u8]]) {
    let body = body.concat();
    let len = (body.len() as u32 + 8).to_be_bytes();
    out.extend_from_slice(&[&len[..], &body, &len].concat());
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn label(volume: i32) -> Vec<u8> {
    let mut host = b"host".to_vec();
    host.resize(64, 0);
    let mut zone = b"UTC".to_vec();
    zone.resize(40, 0);
    let mut out = Vec::new();
    framed(&mut out, &[&words(&[0x5005_2602, 1, 100, 0, volume as u32]), &host, &zone]);
    out
}

const PMID: u32 = 253 << 22 | 1;
const INDOM: u32 = 253 << 22 | 7;

/// Files of an archive of version 2 with two metrics, an instance domain, labels, a text and three records.
fn files() -> [(&'static str, Vec<u8>); 3] {
    let mut meta = label(-1);
    framed(&mut meta, &[&words(&[1, PMID, 1, INDOM, 3, 0, 1, 3]), b"a.b"]);
    framed(&mut meta, &[&words(&[1, PMID + 1, 6, u32::MAX, 3, 0, 1, 1]), b"c"]);
    framed(&mut meta, &[&words(&[2, 100, 0, INDOM, 2, 0, 5, 0, 4]), b"one\0five\0"]);
    framed(
        &mut meta,
        &[&words(&[3, 100, 0, 1, 0, 1, u32::MAX, 7]), b"{\"a\":1}", &words(&[1, 0x0002_0101, 0x0005_0001])],
    );
    framed(&mut meta, &[&words(&[4, 1 | 4, PMID]), b"text\0"]);
    let mut data = label(0);
    for time in [100, 101, 102] {
        let head = words(&[time, 0, 2, PMID, 2, 0, 0, 7, 5, 8, PMID + 1, 1, 1, u32::MAX, 18]);
        framed(&mut data, &[&head, &words(&[6 << 24 | 8]), b"abc\0"]);
    }
    let mut index = label(-2);
    index.extend(words(&[100, 0, 0, 132, 132]));
    index.extend(words(&[102, 0, 0, meta.len() as u32, 284]));
    [("x.meta", meta), ("x.0", data), ("x.index", index)]
}

/// Reads all of an archive, in both directions; returns the number of records.
fn read(path: &Path) -> Result<usize, ArchiveError> {
    Check::new().run(path, |finding| assert!(!finding.to_string().is_empty()));
    let archive = Archive::open(path)?;
    let meta = archive.metadata();
    let mut names = meta.instance_names();
    for indom in meta.indoms() {
        _ = meta.instances_ever(indom).unwrap();
        for record in meta.indom_records(indom).unwrap() {
            names.instances_of(indom, record);
        }
    }
    for record in meta.label_records() {
        record.sets().for_each(|set| _ = (set.label_set(), set.labels().count()));
    }
    _ = (meta.metric_texts().count(), meta.names().below(b"").unwrap());
    let mut count = 0;
    let mut cursor = archive.cursor();
    while let Some(record) = cursor.forward()? {
        count += 1;
        record.values.iter().for_each(|set| _ = set.values().count());
    }
    cursor.seek(archive.end()?);
    while cursor.backward()?.is_some() {}
    Ok(count)
}

fn write(dir: &Path, files: &[(&str, Vec<u8>)]) {
    files.iter().for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
}

#[test]
fn a_whole_archive() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files());
    for name in ["x", "x.0", "x.meta", "x.index"] {
        assert_eq!(read(&dir.path().join(name)).unwrap(), 3, "{name}");
    }
    assert_eq!(read(dir.path()).unwrap(), 3);
    fs::remove_file(dir.path().join("x.index")).unwrap();
    assert_eq!(read(&dir.path().join("x")).unwrap(), 3);
    assert_eq!(Archive::open(dir.path().join("y")).unwrap_err().code(), Error::from_errno(2));
    fs::remove_file(dir.path().join("x.meta")).unwrap();
    assert_eq!(Archive::open(dir.path().join("x")).unwrap_err().code(), Error::LOGFILE);
}

/// A large file that consists of holes costs neither memory nor time.
#[test]
fn holes() {
    for name in ["x.meta", "x.index"] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &files());
        fs::File::options().write(true).open(dir.path().join(name)).unwrap().set_len(1 << 40).unwrap();
        let error = read(&dir.path().join("x")).unwrap_err();
        assert!(error.code() == Error::LOGREC && error.to_string().contains("on the disk"), "{error}");
    }
    // A record with a claimed length and the right length at its end.
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &files());
    let path = dir.path().join("x.0");
    let (volume, start, len) =
        (fs::File::options().write(true).open(&path).unwrap(), label(0).len() as u64, 0x7fff_fff0);
    let word = (len as u32).to_be_bytes();
    let time: u32 = 100;
    volume.set_len(start + len).unwrap();
    volume.write_all_at(&word, start).unwrap();
    volume.write_all_at(&time.to_be_bytes(), start + 4).unwrap();
    volume.write_all_at(&word, start + len - 4).unwrap();
    fs::remove_file(dir.path().join("x.index")).unwrap();
    let error = read(&dir.path().join("x")).unwrap_err();
    assert!(error.code() == Error::LOGREC && error.to_string().contains("on the disk"), "{error}");
}

#[test]
// Slow: an archive is read at each length.
fn every_cut() {
    let whole = files();
    for (nth, (name, bytes)) in whole.iter().enumerate() {
        for len in 0..bytes.len() {
            let dir = tempfile::tempdir().unwrap();
            let mut cut = whole.clone();
            cut[nth].1.truncate(len);
            write(dir.path(), &cut);
            match read(&dir.path().join("x")) {
                Ok(count) => assert!(count == 3 || *name == "x.0", "{name} of {len} bytes: {count} records"),
                Err(e) => {
                    let known = [Error::NODATA, Error::LABEL, Error::LOGREC];
                    assert!(known.contains(&e.code()) && e.to_string().contains("/x"), "{name} of {len} bytes: {e}");
                }
            }
        }
    }
}

/// Instances may share a name, but a small record must not have many instances with a long name.
#[test]
fn overlapping_names() {
    let open = |count: u32, name: &[u8]| {
        let dir = tempfile::tempdir().unwrap();
        let [mut meta, data, index] = files();
        let insts: Vec<u32> = (0..count).collect();
        let offsets = vec![0; count as usize];
        framed(&mut meta.1, &[&words(&[2, 100, 0, INDOM + 1, count]), &words(&insts), &words(&offsets), name, b"\0"]);
        write(dir.path(), &[meta, data, index]);
        let indom = pmapi::InDom::from_word(INDOM + 1).unwrap();
        Archive::open(dir.path().join("x")).map(|archive| archive.metadata().instances_ever(indom).unwrap().len())
    };
    assert_eq!(open(1000, b"cpu").unwrap(), 1000);
    let error = open(1000, &[b'x'; 20_000]).unwrap_err();
    assert_eq!(error.code(), Error::LOGREC);
    let text = error.to_string();
    assert!(text.contains("x.meta") && text.contains("names of instances overlap"), "{text}");
}

#[test]
#[cfg(feature = "gzip")]
fn a_bomb_has_a_limit() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let [meta, (_, data), index] = files();
    write(dir.path(), &[meta, index]);
    let file = fs::File::create(dir.path().join("x.0.gz")).unwrap();
    let mut to = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    to.write_all(&data).unwrap();
    to.write_all(&vec![0; 20 << 20]).unwrap();
    to.finish().unwrap();
    let error = Options::new().decompressed_limit(10 << 20).open(dir.path().join("x")).unwrap_err();
    assert!(error.to_string().contains("x.0.gz: the file has more than 10485760 bytes after decompression"), "{error}");
    assert!(Options::new().open(dir.path().join("x")).is_ok());
}

/// 45 MB of zeros, compressed by bzip2 to 48 bytes.
#[cfg(feature = "bzip2")]
const ZEROS: [u8; 48] = [
    0x42, 0x5a, 0x68, 0x39, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, 0x3a, 0x0d, 0x4a, 0x6b, 0x01, 0x5f, 0x8e, 0x40, 0x00,
    0xc0, 0x00, 0x00, 0x48, 0x20, 0x00, 0x30, 0xcc, 0x09, 0xaa, 0x69, 0xa8, 0x54, 0x04, 0xb6, 0xa4, 0x2a, 0x02, 0x5e,
    0x2e, 0xe4, 0x8a, 0x70, 0xa1, 0x20, 0x74, 0x1a, 0x94, 0xd6,
];

/// A small file must not be decompressed to very many times its size, in memory or in a temporary file.
#[test]
#[cfg(feature = "bzip2")]
fn a_small_file_is_no_large_bomb() {
    use std::io::Write as _;
    let limits = ["metadata record of 0 bytes", "more than 67108864 bytes after decompression", "entry of the index"];
    for (whole, reason) in files().into_iter().zip(limits) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &files());
        fs::remove_file(dir.path().join(whole.0)).unwrap();
        let mut to = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        to.write_all(&whole.1).unwrap();
        // Three streams follow one another, as if files were concatenated.
        let bomb = [&to.finish().unwrap(), &ZEROS[..], &ZEROS].concat();
        fs::write(dir.path().join(format!("{}.bz2", whole.0)), bomb).unwrap();
        let mut result = Ok(0);
        let used = allocation_counter::measure(|| result = read(&dir.path().join("x"))).bytes_max;
        let error = result.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        // The decoder needs 4 MB. Volumes are decompressed into a temporary file.
        assert!(used < 16 << 20, "{reason}: {used} bytes");
    }
}

/// Memory for compressed metadata and a compressed index is that of the valid records before the first damaged one.
#[test]
#[cfg(all(feature = "bzip2", feature = "gzip"))]
// Slow: tables of 50 MB are compressed and read.
fn memory_of_compressed_tables_follows_what_is_valid() {
    use std::io::Write as _;
    let gzip = |bytes: &[u8]| {
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    };
    let bzip2 = |bytes: &[u8]| {
        let mut to = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    };
    let zeros = gzip(&vec![0; 50 << 20]);
    let [(meta, records), _, (index, entries)] = files();
    let record = |len: u32, kind: u32| [len.to_be_bytes(), kind.to_be_bytes()].concat();
    // What a file has after its valid part: zeros, a record of 60 MB, one of 1 GB, an entry in the label, a negative one.
    let tails = [
        (meta, &records, vec![]),
        (meta, &records, record(60 << 20, 2)),
        (meta, &records, record(1 << 30, 4)),
        (meta, &records, record(u32::MAX, 7)),
        (index, &entries, vec![]),
        (index, &entries, [0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 131, 0, 0, 1, 0].into()),
        (index, &entries, [0xff; 20].into()),
    ];
    for (name, valid, tail) in tails {
        let start = [valid, &tail[..]].concat();
        // Both formats may consist of several streams.
        let bombs = [("gz", [gzip(&start), zeros.clone()].concat()), ("bz2", [&bzip2(&start)[..], &ZEROS].concat())];
        for (suffix, bytes) in bombs {
            let dir = tempfile::tempdir().unwrap();
            let others = files().into_iter().filter(|(other, _)| *other != name);
            write(dir.path(), &others.collect::<Vec<_>>());
            fs::write(dir.path().join(format!("{name}.{suffix}")), bytes).unwrap();
            let mut result = Ok(0);
            let used = allocation_counter::measure(|| result = read(&dir.path().join("x"))).bytes_max;
            let error = result.unwrap_err();
            assert_eq!(error.offset(), Some(valid.len() as u64), "{error}");
            // The decoders need up to 10 MB.
            assert!(used < 16 << 20, "{error}: {used} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A panic, an endless loop or an allocation by a claimed length fails the test.
    #[test]
    // Slow: many random changes of archives.
    fn mutations(file in 0..3_usize, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let dir = tempfile::tempdir().unwrap();
        let mut changed = files();
        for (at, byte) in changes {
            let bytes = &mut changed[file].1;
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        write(dir.path(), &changed);
        if let Err(e) = read(&dir.path().join("x")) {
            prop_assert!(e.to_string().contains(": "), "{e}");
        }
    }
}
