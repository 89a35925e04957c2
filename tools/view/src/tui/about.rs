//! Page about a metric: its descriptor and its help.

use ratatui::style::Stylize as _;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Wrap};

use crate::model::{Metric, Shown};

/// Returns the page about a metric.
pub(super) fn page(shown: &Shown) -> Paragraph<'_> {
    let Shown { metric, values, .. } = shown;
    let mut lines = vec![Line::raw(&metric.name).bold(), Line::raw(&metric.oneline), Line::default()];
    lines.extend(facts(metric).into_iter().map(|(what, text)| Line::raw(format!("{what:<11}{text}"))));
    let values = match values {
        Ok(values) => values.len().to_string(),
        Err(code) => shown.text_of(*code),
    };
    lines.push(Line::raw(format!("{:<11}{values}", "values")));
    lines.push(Line::default());
    match &metric.help {
        Some(text) if text.is_empty() => lines.push(Line::raw("There is no help for this metric.")),
        Some(text) => lines.extend(text.lines().map(Line::raw)),
        None => lines.push(Line::raw("The help has been requested.")),
    }
    Paragraph::new(Text::from(lines)).wrap(Wrap { trim: false })
}

fn facts(metric: &Metric) -> Vec<(&'static str, String)> {
    let mut facts = vec![("PMID", metric.pmid.to_string())];
    match &metric.desc {
        Ok(desc) => {
            let units = desc.units.to_string();
            facts.push(("type", desc.ty.description().to_owned()));
            facts.push(("semantics", desc.semantics.to_string()));
            facts.push(("units", if units.is_empty() { "none".to_owned() } else { units }));
            facts.push(("instances", desc.indom.map_or("none".to_owned(), |indom| format!("domain {indom}"))));
        }
        Err(code) => facts.push(("error", code.to_string())),
    }
    facts
}
