//! A minimal agent that counts trace events, and the files of processes as an agent reads them.
#![allow(dead_code, reason = "not every test program uses all of it")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use pcp_trace::protocol::{self, Kind, Pdu};
use pcp_trace::shared_memory::format::ring_name;
use pcp_trace::shared_memory::sums::{Word, tag_of};

/// Returns the paths of the files with sums in a directory of files.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        names.filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.')).collect();
    files.sort();
    files
}

/// Returns the path of the event records beside a file with sums.
pub(crate) fn ring(file: &Path) -> PathBuf {
    file.with_file_name(ring_name(file.file_name().unwrap()))
}

/// Returns the tags of a file with sums, by their numbers.
pub(crate) fn tags(file: &Path) -> BTreeMap<u32, String> {
    let file = mmv_reader::File::open(file).unwrap();
    let instances = file.indoms().iter().flat_map(|indom| indom.instances());
    let tag = |instance| String::from_utf8(tag_of(file.instance_name(instance))).unwrap();
    instances.map(|instance| (instance.id as u32, tag(instance))).collect()
}

/// A word of the sums of a tag, with its present value.
pub(crate) type Sum = (Kind, String, Word, u64);

/// Reads a file with sums.
pub(crate) fn sums(file: &Path) -> Vec<Sum> {
    let file = mmv_reader::File::open(file).unwrap();
    assert_eq!(file.problems().first(), []);
    let tag = |indom: u32, id: i32| {
        let indom = file.indoms().iter().find(|known| known.serial == indom).unwrap();
        let instance = indom.instances().iter().find(|instance| instance.id == id).unwrap();
        String::from_utf8(tag_of(file.instance_name(instance))).unwrap()
    };
    let mut sums = Vec::new();
    for metric in file.metrics() {
        let (kind, word) = Word::of_item(metric.item).unwrap();
        for value in metric.values() {
            let now = file.value(value.index).unwrap().word;
            sums.push((kind, tag(metric.indom.unwrap(), value.instance), word, now));
        }
    }
    sums
}

/// Returns the number of trace events of each tag in all files of a directory.
pub(crate) fn counts(directory: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (_, tag, word, value) in files(directory).iter().flat_map(|file| sums(file)) {
        if word == Word::Count {
            *counts.entry(tag).or_default() += value;
        }
    }
    counts
}

/// Returns the number of all trace events in a directory.
pub(crate) fn counted(directory: &Path) -> u64 {
    counts(directory).values().sum()
}

/// Counts the trace events of a connection until the client closes it.
pub(crate) fn serve(mut stream: TcpStream) -> u64 {
    stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
    let (mut bytes, mut count) = (Vec::new(), 0);
    loop {
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(0) | Err(_) => return count,
            Ok(n) => bytes.extend_from_slice(&more[..n]),
        }
        while let Some((Pdu::Data(data), len)) = protocol::next(&bytes).unwrap() {
            if data.reply {
                stream.write_all(&protocol::encode_ack(data.kind as i32, 1)).unwrap();
            }
            count += 1;
            bytes.drain(..len);
        }
    }
}
