//! Agent `template`: a table. Each network interface is a row, an instance of an instance domain,
//! and each metric is a column.

use std::fs;

use pmda::prelude::*;

/// The agent, with the table that it has read last: the numbers of each row, in the order of the
/// file.
#[derive(Debug)]
pub struct Template {
    rows: Table<Vec<u64>>,
}

impl Agent for Template {
    const NAME: &'static str = "template";
    // From 1 to 510. Each agent of a host has its own.
    const DOMAIN: u16 = 510;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        // Install adds the domain to `stdpmid`, the host's list of domains.
        setup.reserve_domain();
        // A row that reappears keeps its number. With `.persistent()` it does over restarts, too.
        let mut rows = setup.table(Serial::new(0), |agent: &Self| &agent.rows);
        rows.help("Network interfaces", "Those that the kernel knows.");
        // Archives refer to metrics by number, so do not reuse or change a number when you add or
        // remove columns. Each has its place in a line of the file.
        for (name, item, units, place, help) in [
            ("in.bytes", 0, Units::BYTES, 0, "Bytes received"),
            ("in.packets", 1, Units::COUNT, 1, "Packets received"),
            ("out.bytes", 2, Units::BYTES, 8, "Bytes sent"),
            ("out.packets", 3, Units::COUNT, 9, "Packets sent"),
        ] {
            let (name, item) = (format!("template.{name}"), Item::new(0, item));
            // PCP's tools show a counter as a rate. A row without the number has no value.
            let column = rows.counter(name, item, move |row| row.get(place).copied());
            column.units(units).help(help, "From /proc/net/dev.");
        }
        let rows = rows.finish(setup);
        Ok(Template { rows })
    }

    /// Reads the rows once for all metrics of a request, if the request needs them.
    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        self.rows.refresh(request, |rows| {
            let text = fs::read_to_string("/proc/net/dev")?;
            for (name, numbers) in text.lines().filter_map(|line| line.split_once(':')) {
                let numbers = numbers.split_whitespace().map_while(|n| n.parse().ok());
                rows.add(name.trim(), numbers.collect());
            }
            Ok(())
        });
        Ok(())
    }
}

// Lets pmcd load the agent as a shared object: cargo pmda install --dso.
pmda::dso!(template_init, Template);

#[cfg(test)]
mod tests {
    use pcp_collector::Local;

    use super::*;

    #[test]
    fn every_interface_has_values() {
        let mut agent = Local::<Template>::collector().unwrap();
        for name in ["in.bytes", "in.packets", "out.bytes", "out.packets"] {
            let column = agent.metric(&format!("template.{name}")).unwrap();
            // A host without a network may have no interface.
            let count = agent.values(column).unwrap().iter().count();
            let rows = &agent.agent_mut().rows;
            assert_eq!(count, rows.active_len());
        }
    }

    #[test]
    fn the_loopback_interface_keeps_its_number() {
        let mut agent = Local::<Template>::collector().unwrap();
        let column = agent.metric("template.in.bytes").unwrap();
        let numbers = [(); 2].map(|()| {
            let values = agent.values(column).unwrap();
            let numbers: Vec<_> = values.iter().map(|(inst, _)| inst).collect();
            numbers
        });
        assert_eq!(numbers[0], numbers[1]);
    }
}
