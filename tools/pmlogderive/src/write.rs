//! Writes metrics that are evaluated over an archive to a new one.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::ExitCode;

use pcp_archive::{Archive, ArchiveError, Create, InDomRecord, InstanceNames, Writer};
use pcp_base::escape;
use pcp_derived::{Evaluator, Plan};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Desc, Domain, InDom, Inst, Item, LabelLevel, LabelSet, PmId, Serial};
use pmda_derived::config::{Config, GroupConfig};
use pmda_derived::metrics::{Metric, Metrics};

use crate::recorded::{Descs, Recorded, Step, Wanted};

/// Instance domains of the new archive, by the domains of the old archive that they replace.
type OwnInDoms = BTreeMap<InDom, InDom>;

/// Items of a cluster.
const ITEMS: usize = 1024;

/// Group of definitions that are evaluated together.
struct Part {
    evaluator: Evaluator,
    plan: Plan,
    metrics: Vec<(PmId, Metric)>,
}

/// Writes the metrics of a configuration to a new archive. Definitions that cannot be evaluated are reported and left
/// out.
pub(crate) fn write(
    config: Config,
    domain: Domain,
    archive: &Archive,
    output: &Path,
) -> Result<ExitCode, Box<dyn std::error::Error>> {
    for problem in &config.problems {
        escape::eprint(format_args!("{problem}\n"));
    }
    let parts = bind(&config.groups, domain, archive)?;
    let metrics: usize = parts.iter().map(|part| part.metrics.len()).sum();
    if metrics == 0 {
        return Err("no definition can be evaluated over the archive".into());
    }
    let mut writer = Create::with_label(archive.label()).create(output)?;
    match fill(&mut writer, parts, domain, archive) {
        Ok(written) => {
            writer.finish_or_discard()?;
            escape::print(format_args!("{}: {metrics} metrics, {written} records\n", output.display()));
            Ok(ExitCode::SUCCESS)
        }
        Err(e) => {
            // A part of the records must not be taken for all of them.
            match writer.discard() {
                Ok(()) => Err(e),
                Err(left) => Err(format!("{e}; the incomplete archive cannot be removed: {left}").into()),
            }
        }
    }
}

/// Writes the metrics and all records, and returns the number of records.
fn fill(
    writer: &mut Writer,
    parts: Vec<Part>,
    domain: Domain,
    archive: &Archive,
) -> Result<u64, Box<dyn std::error::Error>> {
    let mut indoms = OwnInDoms::new();
    for (pmid, metric) in parts.iter().flat_map(|part| &part.metrics) {
        let serial = indoms.len() as u32 + 1;
        let own = metric
            .desc
            .indom
            .map(|indom| *indoms.entry(indom).or_insert_with(|| InDom::new(domain, Serial::new(serial))));
        describe(writer, Desc { pmid: *pmid, indom: own, ..metric.desc }, metric)?;
    }
    match copy(parts, (archive, &indoms), writer)? {
        0 => Err("no definition has a value in the archive".into()),
        written => Ok(written),
    }
}

/// Binds the definitions of each group, and prints why some of them cannot be evaluated.
fn bind(groups: &[GroupConfig], domain: Domain, archive: &Archive) -> Result<Vec<Part>, &'static str> {
    let (mut parts, mut serial) = (Vec::new(), 0);
    for group in groups.iter().filter(|group| !group.definitions.is_empty()) {
        let evaluator = Evaluator::bind(&group.definitions, &mut Descs(archive), group.unknown_names());
        let found = Metrics::new(group, &evaluator);
        found.bad.iter().for_each(|bad| escape::eprint(format_args!("{}\n", bad.message)));
        let plan = evaluator.plan(found.good.iter().map(|metric| metric.id));
        let mut metrics = Vec::with_capacity(found.good.len());
        for metric in found.good {
            let cluster = u16::try_from(serial / ITEMS).ok().filter(|cluster| *cluster < 1 << 12);
            let item = Item::new(cluster.ok_or("there are more definitions than PMIDs")?, (serial % ITEMS) as u16);
            serial += 1;
            metrics.push((PmId::new(domain, item), metric));
        }
        parts.push(Part { evaluator, plan, metrics });
    }
    Ok(parts)
}

fn describe(writer: &mut Writer, desc: Desc, metric: &Metric) -> Result<(), Box<dyn std::error::Error>> {
    let pmid = desc.pmid;
    writer.metric(&desc.into(), &[metric.name.as_bytes()])?;
    writer.text(Subject::Metric(pmid), TextKind::OneLine, metric.oneline.as_bytes())?;
    if !metric.help.is_empty() {
        writer.text(Subject::Metric(pmid), TextKind::Help, metric.help.as_bytes())?;
    }
    let mut labels = LabelSet::default();
    for (name, value) in &metric.labels {
        labels.insert(name, serde_json::from_str::<serde_json::Value>(value)?)?;
    }
    if !labels.is_empty() {
        let start = writer.label().start;
        writer.labels(start, (LabelLevel::Item, pmid.word()), &[(None, &labels)])?;
    }
    Ok(())
}

/// Evaluates all records, and returns the number of records written.
fn copy(
    mut parts: Vec<Part>,
    (archive, indoms): (&Archive, &OwnInDoms),
    writer: &mut Writer,
) -> Result<u64, Box<dyn std::error::Error>> {
    let mut wanted = Wanted::default();
    parts.iter().for_each(|part| wanted.add(&part.evaluator, &part.plan));
    let mut domains = Domains::new(archive, indoms);
    let (mut recorded, mut values, mut written) = (Recorded::new(archive), ResultWriter::new(), 0);
    loop {
        match recorded.next(&wanted)? {
            Step::End => return Ok(written),
            Step::Mark => {
                for part in &mut parts {
                    part.evaluator.forget(&part.plan);
                }
                // An archive does not begin with a gap.
                if written > 0 {
                    writer.mark(recorded.time())?;
                }
            }
            Step::Values => {
                domains.until(recorded.time(), writer)?;
                values.begin();
                let mut count = 0;
                for part in &mut parts {
                    part.evaluator.evaluate(&part.plan, recorded.elapsed(), &mut recorded);
                    count += put(part, &mut values)?;
                }
                if count > 0 {
                    writer.values(recorded.time(), &mut values)?;
                    written += 1;
                }
            }
        }
    }
}

/// Adds the values of a group's metrics in a record, and returns the number of metrics that have values.
fn put(part: &Part, values: &mut ResultWriter) -> pmapi::Result<usize> {
    let mut count = 0;
    for (pmid, metric) in part.metrics.iter().filter(|(_, metric)| part.evaluator.is_current(metric.id)) {
        let Ok(column) = part.evaluator.values(metric.id) else { continue };
        if column.is_empty() {
            continue;
        }
        values.begin_set(Some(*pmid));
        column.try_each(|inst, atom| values.push(inst, metric.desc.ty, atom))?;
        values.end_set(Ok(()));
        count += 1;
    }
    Ok(count)
}

/// Instance domains of the new archive, copied from the archive that is read.
struct Domains<'a> {
    names: InstanceNames<'a>,
    start: Stamp,
    own: &'a OwnInDoms,
    /// Records that are not copied yet, the latest first.
    left: Vec<(InDom, InDomRecord)>,
}

impl<'a> Domains<'a> {
    fn new(archive: &'a Archive, own: &'a OwnInDoms) -> Domains<'a> {
        let meta = archive.metadata();
        let mut left: Vec<_> = own
            .keys()
            .flat_map(|indom| {
                meta.indom_records(*indom).into_iter().flatten().map(|record| (*indom, record)).collect::<Vec<_>>()
            })
            .collect();
        left.sort_by_key(|(indom, record)| std::cmp::Reverse((record.time, *indom)));
        Domains { names: meta.instance_names(), start: archive.label().start, own, left }
    }

    /// Copies the records of instance domains up to a time.
    fn until(&mut self, time: Stamp, writer: &mut Writer) -> Result<(), ArchiveError> {
        // Only the last record of each domain up to the time counts.
        let mut latest = HashMap::new();
        while self.left.last().is_some_and(|(_, record)| record.time <= time) {
            latest.extend(self.left.pop());
        }
        let mut latest: Vec<_> = latest.into_iter().collect();
        latest.sort_by_key(|(indom, record)| (record.time, *indom));
        for (indom, record) in latest {
            let Some(own) = self.own.get(&indom) else { continue };
            let list = self.names.instances_of(indom, record);
            let list: Vec<_> = list.iter().map(|instance| (Inst::new(instance.inst), instance.name)).collect();
            writer.instances(record.time.max(self.start), *own, &list)?;
        }
        Ok(())
    }
}
