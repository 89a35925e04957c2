//! Archives that tests write.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::Path;

use pcp_archive::{Archive, Create, Writer};
use pcp_pdu::event::Stamp;
use pcp_pdu::label::LabelSetRef;
use pcp_pdu::metadata::Subject;
use pmapi::{InDom, Inst, LabelLevel, PmId, RawLabel};

/// Copies the metadata of an archive over time, each part before the values that need it.
pub(crate) struct Metadata<'a> {
    from: &'a Archive,
    /// Instance domains and labels that have not been copied yet, by time.
    timed: Vec<(Stamp, Timed<'a>)>,
    done: usize,
}

enum Timed<'a> {
    InDom(InDom, Vec<(Inst, &'a [u8])>),
    Labels(pcp_archive::LabelRecord<'a>),
}

impl<'a> Metadata<'a> {
    /// Copies the metadata without times: descriptors and help texts.
    pub(crate) fn new(from: &'a Archive, to: &mut Writer) -> Metadata<'a> {
        let meta = from.metadata();
        for (pmid, desc) in meta.descs() {
            let names: Vec<&[u8]> = meta.names().names(pmid).collect();
            to.metric(desc, &names).unwrap();
        }
        for (ident, kind, text) in meta.metric_texts() {
            to.text(Subject::Metric(PmId::from_word(ident).unwrap()), kind, text).unwrap();
        }
        for (ident, kind, text) in meta.indom_texts() {
            to.text(Subject::InDom(InDom::from_word(ident).unwrap()), kind, text).unwrap();
        }
        let mut timed = Vec::new();
        let mut names = meta.instance_names();
        for indom in meta.indoms() {
            for record in meta.indom_records(indom).unwrap() {
                let list = names.instances_of(indom, record);
                let list = list.iter().map(|instance| (Inst::new(instance.inst), instance.name)).collect();
                timed.push((record.time, Timed::InDom(indom, list)));
            }
        }
        timed.extend(meta.label_records().map(|record| (record.time, Timed::Labels(record))));
        timed.sort_by_key(|(time, _)| *time);
        Metadata { from, timed, done: 0 }
    }

    /// Copies the metadata as of a time.
    pub(crate) fn until(&mut self, time: Stamp, to: &mut Writer) {
        let start = self.from.label().start;
        while let Some((at, what)) = self.timed.get(self.done).filter(|(at, _)| *at <= time) {
            self.done += 1;
            let at = (*at).max(start);
            match what {
                Timed::InDom(indom, list) => to.instances(at, *indom, list).unwrap(),
                Timed::Labels(record) => {
                    let Some(level) = LabelLevel::from_code(record.level) else { continue };
                    let indexes: Vec<Vec<RawLabel>> = record.sets().map(|set| set.labels().collect()).collect();
                    let sets = record.sets().zip(&indexes).map(|(set, index)| LabelSetRef {
                        inst: Inst::from_word(set.inst),
                        labels: set.error.map_or(Ok(index.as_slice()), Err),
                        json: set.json,
                    });
                    to.raw_labels(at, (level, record.ident), &sets.collect::<Vec<_>>()).unwrap();
                }
            }
        }
    }
}

/// Copies an archive through the reader and the writer.
pub(crate) fn copy(from: &Archive, options: &Create, to: &Path) {
    let mut writer = options.create(to).unwrap();
    let mut metadata = Metadata::new(from, &mut writer);
    let mut cursor = from.cursor();
    while let Some(record) = cursor.forward().unwrap() {
        metadata.until(record.time, &mut writer);
        writer.record(record.time, record.values).unwrap();
    }
    writer.finish().unwrap();
}
