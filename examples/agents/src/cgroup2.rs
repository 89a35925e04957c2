//! Agent `cgroup2`: the control groups of this host (cgroup v2), which come and go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;

/// Depth at which the walk ends.
const DEEPEST: usize = 16;

#[derive(clap::Args, Debug)]
struct Options {
    /// Where the cgroup file system is mounted
    #[arg(long, default_value = "/sys/fs/cgroup")]
    root: PathBuf,
}

/// A control group. A controller that is off leaves no value.
#[derive(Debug)]
struct Group {
    cpu: Option<Duration>,
    memory: Option<u64>,
    tasks: Option<u64>,
    killed: Option<u64>,
}

/// Agent cgroup2.
#[derive(Debug)]
pub struct Cgroup2 {
    root: PathBuf,
    groups: Table<Group>,
}

impl Agent for Cgroup2 {
    const NAME: &'static str = "cgroup2";
    const DOMAIN: u16 = 491;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let Options { root } = Options::from_arg_matches(setup.options())?;
        let mut groups = setup.table(Serial::new(0), |agent: &Cgroup2| &agent.groups).whole_names();
        groups.help("Control groups", "By their paths below the mount point.");
        let cpu = groups.counter("cgroup2.cpu", Item::new(0, 0), |group| group.cpu);
        cpu.units(Units::SECONDS).help("Processor time", "Of all tasks, also those that have ended.");
        let memory = groups.gauge("cgroup2.memory", Item::new(0, 1), |group| group.memory);
        memory.units(Units::BYTES).help("Memory in use", "With the page cache of files that the group has read.");
        let tasks = groups.gauge("cgroup2.tasks", Item::new(0, 2), |group| group.tasks);
        tasks.units(Units::COUNT).help("Tasks", "Processes and threads.");
        let killed = groups.counter("cgroup2.oom_kills", Item::new(0, 3), |group| group.killed);
        killed.units(Units::COUNT).help("Processes that were killed for lack of memory", "");
        let count = groups.total("cgroup2.count", Item::new(1, 0), |groups| groups.active_len());
        count.units(Units::COUNT).help("Control groups", "");
        let groups = groups.finish(setup);
        Ok(Cgroup2 { root, groups })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        let root = &self.root;
        self.groups.refresh(request, |rows| {
            walk(root, Path::new("/"), DEEPEST, &mut |path, group| _ = rows.add(path, group));
            Ok(())
        });
        Ok(())
    }
}

/// Gives the group of a path below the root, and all below it.
fn walk(root: &Path, path: &Path, depth: usize, give: &mut dyn FnMut(&str, Group)) {
    let dir = root.join(path.strip_prefix("/").unwrap_or(path));
    give(&path.to_string_lossy(), group(&dir));
    // A group may vanish at any time.
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(root, &path.join(entry.file_name()), depth - 1, give);
        }
    }
}

fn group(dir: &Path) -> Group {
    let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
    let named = |file: &str, name: &str| {
        read(file).lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Group {
        cpu: named("cpu.stat", "usage_usec ").map(Duration::from_micros),
        memory: read("memory.current").trim().parse().ok(),
        tasks: read("pids.current").trim().parse().ok(),
        killed: named("memory.events", "oom_kill "),
    }
}
