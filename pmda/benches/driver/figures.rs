//! The figures of one agent, and their output.

use std::time::Duration;

use super::Goal;

/// Round trips and CPU time of one agent for one kind of request.
#[derive(Default)]
pub(super) struct Figures {
    rounds: Vec<Duration>,
    /// Median of each block.
    blocks: Vec<Duration>,
    cpu: Duration,
    /// Values in a reply.
    pub(super) values: usize,
}

impl Figures {
    /// Adds a block of round trips, and the CPU time that the agent took for it.
    pub(super) fn add(&mut self, mut rounds: Vec<Duration>, cpu: Duration) {
        rounds.sort_unstable();
        self.blocks.push(quantile(&rounds, 0.5));
        self.rounds.append(&mut rounds);
        self.cpu += cpu;
    }

    fn micros(&self, q: f64) -> f64 {
        let mut sorted = self.rounds.clone();
        sorted.sort_unstable();
        micros(quantile(&sorted, q))
    }

    fn cpu(&self) -> f64 {
        micros(self.cpu) / self.rounds.len() as f64
    }

    /// Returns the median of the ratios of blocks that ran one after the other.
    fn ratio(&self, other: &Figures) -> f64 {
        let pairs = self.blocks.iter().zip(&other.blocks);
        let mut ratios: Vec<f64> = pairs.map(|(a, b)| a.as_secs_f64() / b.as_secs_f64()).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn quantile(sorted: &[Duration], q: f64) -> Duration {
    let at = (q * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}

/// Prints a line for each agent: the C peer, if there is one, then ours, then the floor.
pub(super) fn show(title: &str, goal: Option<Goal>, rows: &[(&str, Figures)]) {
    let c = rows.iter().find(|(label, _)| *label == "C").map(|(_, figures)| figures);
    let floor = rows.iter().find(|(label, _)| *label == "floor").map(|(_, figures)| figures);
    println!(
        "\n{title:<38} {:>9} {:>9} {:>9}  {:>7} {:>7}   {:>8} {:>8}  {:>8}",
        "p50 µs", "p99 µs", "CPU µs", "p50 / C", "CPU / C", "p50-flr", "CPU-flr", "CPU ns/v"
    );
    for (label, own) in rows {
        let ratios = c.filter(|_| *label == "Rust").map(|c| (own.ratio(c), own.cpu() / c.cpu()));
        print!("  {label:<36} {:>9.2} {:>9.2} {:>9.2}", own.micros(0.5), own.micros(0.99), own.cpu());
        match ratios {
            Some((p50, cpu)) => print!("  {p50:>7.3} {cpu:>7.3}"),
            None => print!("  {:>7} {:>7}", "", ""),
        }
        match floor {
            Some(floor) => print!("   {:>8.2} {:>8.2}", own.micros(0.5) - floor.micros(0.5), own.cpu() - floor.cpu()),
            None => print!("   {:>8} {:>8}", "", ""),
        }
        match own.values {
            0..100 => print!("  {:>8}", ""),
            values => print!("  {:>8.2}", own.cpu() * 1e3 / values as f64),
        }
        match (goal, ratios) {
            (Some(Goal::Time(most)), Some((ratio, _))) | (Some(Goal::Cpu(most)), Some((_, ratio))) => {
                println!("  goal {most:.2} {}", if ratio <= most { "met" } else { "MISSED" });
            }
            _ => println!(),
        }
    }
}
