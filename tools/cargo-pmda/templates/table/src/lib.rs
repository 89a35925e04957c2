//! Agent `template`: a table. Each network interface is a row, an instance of an instance domain,
//! and each metric is a column.

use std::fs;

use pmda::prelude::*;

const INTERFACE: Serial = Serial::new(0);

/// A column of the table: a metric, and the position of its values in a line of /proc/net/dev.
struct Column {
    name: &'static str,
    item: Item,
    units: Units,
    /// Place of the number after the interface's name.
    place: usize,
    help: &'static str,
}

// Archives refer to metrics by number, so do not reuse or change a number when you add or remove columns.
#[rustfmt::skip]
const COLUMNS: [Column; 4] = [
    Column { name: "template.in.bytes", item: Item::new(0, 0), units: Units::BYTES, place: 0, help: "Bytes received" },
    Column { name: "template.in.packets", item: Item::new(0, 1), units: Units::COUNT, place: 1, help: "Packets received" },
    Column { name: "template.out.bytes", item: Item::new(0, 2), units: Units::BYTES, place: 8, help: "Bytes sent" },
    Column { name: "template.out.packets", item: Item::new(0, 3), units: Units::COUNT, place: 9, help: "Packets sent" },
];

/// The numbers of a row, in the order of the file.
type Row = Vec<u64>;

/// The agent, with the table that it has read last.
#[derive(Debug)]
pub struct Template {
    rows: Cache<Row>,
}

impl Agent for Template {
    const NAME: &'static str = "template";
    // From 1 to 510. Each agent of a host has its own.
    const DOMAIN: u16 = 510;

    fn new(setup: &mut Setup) -> Start<Self> {
        // Install adds the domain to `stdpmid`, the host's list of domains.
        setup.reserve_domain();
        setup.indom(INTERFACE).help(
            "Network interfaces",
            "The interfaces that the kernel knows.",
        );
        for column in &COLUMNS {
            let metric = setup
                .metric(column.name, column.item, Type::U64)
                .indom(INTERFACE);
            // PCP's tools show a counter as a rate: here, the amount received or sent per second.
            metric.counter().units(column.units);
            metric.help(
                column.help,
                "Counted since the interface exists, in /proc/net/dev.",
            );
        }
        // An interface that reappears keeps its number. To keep numbers over restarts as well, use Cache::open(id,
        // setup.config()), and save() after changes.
        Ok(Template {
            rows: Cache::new(setup.indom_id(INTERFACE)),
        })
    }

    /// Reads the table once for all metrics of a request. After values, a client requests the names of their instances,
    /// so other requests do not change the table.
    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if matches!(request, Request::Fetch(_)) || self.rows.is_empty() {
            let text = fs::read_to_string("/proc/net/dev")?;
            self.rows.hide_all();
            for (name, row) in parse(&text) {
                self.rows.store(name, row).map_err(|_| Error::INST)?;
            }
        }
        Ok(())
    }

    fn instances(&self, _: Serial) -> Option<&dyn Instances> {
        Some(&self.rows)
    }

    /// Supplies the values of a metric: one for each interface that the client requests.
    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        let column = COLUMNS
            .iter()
            .find(|column| column.item == item)
            .ok_or(Error::PMID)?;
        out.put_each(&self.rows, |row| row[column.place])
    }
}

/// Returns the rows of the file, except rows without a number in one of the columns.
fn parse(text: &str) -> impl Iterator<Item = (&str, Row)> {
    let needed = COLUMNS
        .iter()
        .map(|column| column.place + 1)
        .max()
        .unwrap_or(0);
    let rows = text.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let row: Row = numbers
            .split_whitespace()
            .map_while(|number| number.parse().ok())
            .collect();
        Some((name.trim(), row))
    });
    rows.filter(move |(_, row)| row.len() >= needed)
}

// Lets pmcd load the agent as a shared object: cargo pmda install --dso.
pmda::dso!(template_init, Template);

#[cfg(test)]
mod tests {
    use pcp_collector::Local;

    use super::*;

    #[test]
    fn lines_become_rows() {
        let text =
            "Inter-| Receive\n face |bytes packets\n  eth0: 1 2 3 4 5 6 7 8 9 10 11\n lo: 1 2\n";
        let rows: Vec<_> = parse(text).collect();
        assert_eq!(rows, [("eth0", (1..=11).collect())]);
    }

    #[test]
    fn every_interface_has_values() {
        let mut agent = Local::<Template>::collector().unwrap();
        let columns = COLUMNS.map(|column| agent.metric(column.name).unwrap());
        for column in columns {
            // A host without a network may have no interface.
            let count = agent.values(column).unwrap().iter().count();
            let rows = &agent.channel_mut().engine_mut().agent_mut().rows;
            assert_eq!(count, rows.active_len());
        }
    }
}
