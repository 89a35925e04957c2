//! The probes for each agent.

use pcp_pdu::instance::InstanceReq;
use pcp_pdu::label::LabelReq;
use pcp_pdu::metadata::{DescReq, TextReq};
use pmapi::{Atom, Type};

use crate::host::Host;
use crate::probe::{Answer, CLIENT, Probe};
use crate::spec::Spec;
use crate::{Outcome, honest};

/// Returns the probes for an agent. Their values come from the campaign itself.
pub(crate) fn probes(spec: &Spec, host: &mut dyn Host) -> Outcome<Vec<Probe>> {
    let new = Probe::default;
    let pmid = |cluster, item| spec.pmid(cluster, item);
    let mut all = match spec.name {
        "trivial" => vec![new().fetch(pmid(0, 0), Answer::Time)?],
        // The fetch follows the store immediately, so that no other request changes the value between them.
        "simple" => vec![new().store(pmid(0, 0), Atom::U32(40))?.fetch(pmid(0, 0), Answer::Number(Type::U32, 41.0))?],
        "showcase" => vec![
            new().fetch(pmid(3, 14), Answer::Number(Type::U32, 1e6))?,
            new().fetch(pmid(3, 53), Answer::Number(Type::Double, 100.0))?,
        ],
        "mmv" => {
            let (item, value) = honest::FIXED;
            vec![new().fetch(pmid(honest::CLUSTER, item), Answer::Number(Type::U64, value as f64))?]
        }
        "trace" => {
            let inst = honest::instance(spec, host, "honest")?;
            let points = Answer::Number(Type::U64, honest::POINTS as f64);
            vec![new().fetch_one(pmid(0, 6), spec.indom(1), inst, points)?]
        }
        "replay" => vec![new().fetch(pmid(1, 0), Answer::Number(Type::U32, 12_345.0))?],
        "openmetrics" => {
            let count = Probe::lookup_when_bound(host, "openmetrics.honest.count")?;
            vec![new().fetch(count, Answer::Number(Type::Double, 12_345.0))?]
        }
        _ => {
            let twice = Probe::lookup_when_bound(host, "derived.twice")?;
            vec![new().fetch(twice, Answer::Number(Type::U32, 2e6))?]
        }
    };
    let known = match spec.name {
        "showcase" => pmid(3, 14),
        "mmv" => pmid(5, 7),
        "trace" => pmid(0, 6),
        "derived" => pmid(0, 5),
        "openmetrics" | "replay" => pmid(1, 1),
        _ => pmid(0, 0),
    };
    let about = new()
        .recorded(host, |out| DescReq { pmid: Some(known) }.encode(out, CLIENT))?
        .recorded(host, |out| TextReq { ident: known.word(), bits: 4 | 1 }.encode(out, CLIENT))?
        .recorded(host, |out| LabelReq { ident: known.word(), bits: 16 }.encode(out, CLIENT))?;
    all.push(about);
    let indom = match spec.name {
        "simple" => Some(spec.indom(0)),
        "mmv" => Some(spec.indom(u32::from(honest::CLUSTER) << 11 | honest::ROWS.0)),
        "showcase" => Some(spec.indom(2)),
        "derived" => Some(spec.indom(0)),
        "openmetrics" => Some(spec.indom(2)),
        _ => None,
    };
    if let Some(indom) = indom {
        let request = InstanceReq { indom: Some(indom), inst: None, name: None };
        all.push(new().recorded(host, |out| request.encode(out, CLIENT))?);
    }
    Ok(all)
}
