//! Metadata of an archive that is written.

use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::label::LabelSetRef;
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::{Error, InDom, Inst, LabelLevel, LabelSet, RawLabel};

use super::state::{EINVAL, Update};
use super::{Writer, encode, refuse};
use crate::decode::Version;
use crate::error::{Result, Shown};

const E2BIG: i32 = 7;

impl Writer {
    /// Checks that metadata of this time may follow the earlier metadata.
    fn check_meta_time(&self, time: Stamp) -> Result {
        self.fits(time)?;
        let start = Some(self.label.start).filter(|_| self.is_started);
        if let Some(earliest) = self.last_meta.or(start).filter(|earliest| time < *earliest) {
            let reason = format!("the time of the metadata, {}, is before {}", Shown(time), Shown(earliest));
            return Err(refuse(&self.meta, (EINVAL, reason)));
        }
        Ok(())
    }

    /// Sets the time of metadata. The first time becomes the start of the archive.
    fn set_meta_time(&mut self, time: Stamp) -> Result {
        self.last_meta = Some(time);
        if self.is_started { Ok(()) } else { self.start(time) }
    }

    /// Writes the descriptor and the names of a metric, unless the archive already has them. A metric needs a name.
    ///
    /// # Errors
    /// `PM_ERR_PMID` without an identifier; `PM_ERR_NAME` for a name that is empty, longer than 4095 bytes or in use
    /// for another metric; `PM_ERR_LOGCHANGE*` for a metric that the archive describes differently; `-errno` for a
    /// failed write.
    pub fn metric(&mut self, desc: &RawDesc, names: &[&[u8]]) -> Result {
        let new = self.state.metric(desc, names).map_err(|e| refuse(&self.meta, e))?;
        if let Some(new) = new {
            encode::desc(&mut self.meta.pending, desc, &new);
        }
        self.write_when_full()
    }

    /// Sets the instances of a domain from a time on, unless they are the same as before. Version 3 writes only the
    /// changes if they are not longer, as pmlogger(1) does.
    ///
    /// # Errors
    /// `-EINVAL` for a duplicate instance, for an instance over 2147483647, for a name with a NUL, and for a time
    /// before that of earlier metadata; `-errno` for a failed write.
    pub fn instances(&mut self, time: Stamp, indom: InDom, instances: &[(Inst, &[u8])]) -> Result {
        self.check_meta_time(time)?;
        let mut list: Vec<_> = instances.iter().map(|(inst, name)| (inst.word(), *name)).collect();
        let mut changes = Vec::new();
        let version = self.label.version;
        let update =
            self.state.instances(indom, &mut list, &mut changes, |len| Some(len).filter(|_| version == Version::V3));
        let update = update.map_err(|e| refuse(&self.meta, e))?;
        if let Update::Write(extent) = update {
            self.set_meta_time(time)?;
            encode::indom(&mut self.meta.pending, (version, extent), time, indom, &changes);
        }
        self.write_when_full()
    }

    /// Sets the labels of a subject from a time on, unless they are the same as before. The subject is the identifier
    /// of a domain, cluster, metric or instance domain, and `None` for the host. Sets have an instance only on the
    /// level of instances.
    ///
    /// # Errors
    /// `-EINVAL` for a time before that of earlier metadata; `-errno` for a failed write.
    pub fn labels(
        &mut self,
        time: Stamp,
        (level, ident): (LabelLevel, u32),
        sets: &[(Option<Inst>, &LabelSet)],
    ) -> Result {
        let indexes: Vec<Vec<RawLabel>> = sets.iter().map(|(_, set)| set.index().collect()).collect();
        let raw = sets.iter().zip(&indexes).map(|((inst, set), index)| LabelSetRef {
            inst: *inst,
            labels: Ok(index.as_slice()),
            json: set.json().as_bytes(),
        });
        self.raw_labels(time, (level, ident), &raw.collect::<Vec<_>>())
    }

    /// Sets the labels of a subject as [`Writer::labels`] does, from sets in wire encoding.
    ///
    /// # Errors
    /// Errors of [`Writer::labels`]; `-E2BIG` for JSON text over 65534 bytes or over 254 labels.
    pub fn raw_labels(&mut self, time: Stamp, (level, ident): (LabelLevel, u32), sets: &[LabelSetRef<'_>]) -> Result {
        let is_too_long = sets.iter().any(|set| {
            let count = set.labels.as_ref().map_or(0, |labels| labels.len());
            set.json.len() > LabelSet::MAX_JSON || count > LabelSet::MAX_LABELS
        });
        if is_too_long {
            return Err(refuse(&self.meta, (Error::from_errno(E2BIG), "a label set is too long".to_owned())));
        }
        self.check_meta_time(time)?;
        let version = self.label.version;
        let ident = if level == LabelLevel::Context { u32::MAX } else { ident };
        let subject = (level.code(), ident);
        let mut timeless = Vec::new();
        encode::labels(&mut timeless, (version, Stamp::default()), subject, sets);
        if self.state.is_new_labels(subject, &timeless) {
            self.set_meta_time(time)?;
            encode::labels(&mut self.meta.pending, (version, time), subject, sets);
        }
        self.write_when_full()
    }

    /// Adds a help text, unless it is the same as before.
    ///
    /// # Errors
    /// `-EINVAL` for a text with a NUL, `-errno` for a failed write.
    pub fn text(&mut self, subject: Subject, kind: TextKind, text: &[u8]) -> Result {
        if text.contains(&0) {
            return Err(refuse(&self.meta, (EINVAL, "a help text has a NUL".to_owned())));
        }
        let (ident, of) = match subject {
            Subject::Metric(pmid) => (pmid.word(), 4),
            Subject::InDom(indom) => (indom.word(), 8),
        };
        let bits = of | if kind == TextKind::OneLine { 1 } else { 2 };
        if self.state.is_new_text((bits, ident), text) {
            encode::text(&mut self.meta.pending, bits, ident, text);
        }
        self.write_when_full()
    }
}
