//! A recording of two agents, one of which changes in ways that an archive cannot hold.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::unistd::dup2_stdout;
use pcp_archive::{Archive, Check};
use pcp_view::{Plan, ViewOptions, show};
use pmapi::{Domain, PmId};
use pmda::Catalog;
use pmda::prelude::*;

/// What the test program does, if it has been started by the test.
const ROLE: &str = "VIEW_TEST_ROLE";
/// Base name of the archive.
const ARCHIVE: &str = "VIEW_TEST_ARCHIVE";
const TEST: &str = "the_rest_of_an_agent_with_refused_metadata_is_recorded";
const SAMPLES: u64 = 5;

const CHANGING: Item = Item::new(0, 0);
const LISTED: Item = Item::new(0, 1);
const COUNT: Item = Item::new(0, 2);
const LIST: Serial = Serial::new(0);

/// Agent with one metric.
struct Steady(u32);

impl Agent for Steady {
    const NAME: &'static str = "steady";
    const DOMAIN: u16 = 60;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.metric("steady.count", COUNT, Type::U32);
        Ok(Steady(0))
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        self.0 += 1;
        out.put(self.0)
    }
}

/// Agent with a metric that has another type from the second sample on, and with an instance domain that has an
/// instance twice from the third sample on.
struct Odd {
    names: Dynamic,
    list: List,
}

/// Instances, and the number of samples so far.
struct List(u32);

impl Instances for List {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        f(Inst::new(0), "zero");
        if self.0 >= 3 {
            f(Inst::new(1), "one");
            f(Inst::new(1), "one again");
        }
    }
}

impl Agent for Odd {
    const NAME: &'static str = "odd";
    const DOMAIN: u16 = 61;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let mut names = setup.dynamic(["odd"]);
        names.insert(&MetricDef::new("odd.changing", CHANGING, Type::U32))?;
        names.insert(MetricDef::new("odd.listed", LISTED, Type::U32).indom(LIST))?;
        names.insert(&MetricDef::new("odd.count", COUNT, Type::U32))?;
        Ok(Odd { names, list: List(0) })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if matches!(request, Request::Fetch(_)) {
            self.list.0 += 1;
            if self.list.0 == 2 {
                self.names.remove("odd.changing");
                let changed = MetricDef::new("odd.changing", CHANGING, Type::String);
                self.names.insert(&changed).map_err(|_| Error::GENERIC)?;
            }
        }
        Ok(())
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.names as &dyn Catalog]
    }

    fn instances(&self, _: Serial) -> Option<&dyn Instances> {
        Some(&self.list)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match (item, self.list.0) {
            (CHANGING, 1) => out.put(1u32),
            (CHANGING, _) => out.put("text"),
            (LISTED, samples) => (0..=u32::from(samples >= 3)).try_for_each(|inst| out.put_inst(Inst::new(inst), inst)),
            (_, samples) => out.put(samples),
        }
    }
}

/// Returns the command that starts this program in a role. Descriptor 3 is standard output: the test harness writes to
/// descriptor 1 before the test begins.
fn command(role: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$0" "$@" 3>&1 >/dev/null"#]).arg(std::env::current_exe().unwrap());
    command.args([TEST, "--exact", "--nocapture"]).env(ROLE, role);
    command
}

/// Runs an agent over standard input and output.
fn serve<A: Agent>() -> ExitCode {
    dup2_stdout(File::options().write(true).open("/dev/fd/3").unwrap()).unwrap();
    pmda::host::run::<A>([A::NAME, "-l", "-"].map(Into::into))
}

/// Records both agents.
fn record(base: &Path) -> ExitCode {
    let mut options = ViewOptions::default();
    options.interval = Duration::from_millis(50);
    options.samples = Some(SAMPLES);
    options.plain = true;
    options.record = Some(base.to_owned());
    let shown = show(&options, |scratch| {
        let (mut steady, mut odd) = (pmns::Tree::new(), pmns::Tree::new());
        steady.insert("steady.count", PmId::new(Domain::new(Steady::DOMAIN).unwrap(), COUNT)).unwrap();
        odd.insert("odd", pmns::dynamic_root(Domain::new(Odd::DOMAIN).unwrap())).unwrap();
        Ok(vec![
            Plan::new(Odd::NAME, command(Odd::NAME), odd, scratch)?,
            Plan::new(Steady::NAME, command(Steady::NAME), steady, scratch)?,
        ])
    });
    shown.unwrap()
}

#[test]
fn the_rest_of_an_agent_with_refused_metadata_is_recorded() {
    if let Ok(role) = std::env::var(ROLE) {
        let code = match role.as_str() {
            Steady::NAME => serve::<Steady>(),
            Odd::NAME => serve::<Odd>(),
            _ => record(std::env::var_os(ARCHIVE).unwrap().as_ref()),
        };
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let output = command("record").env(ARCHIVE, &base).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let warnings: Vec<_> = said.lines().collect();
    let [changed, twice] = warnings.as_slice() else { panic!("{said}") };
    assert!(changed.starts_with("Warning: odd: the recording leaves out metric 61.0.0: "), "{said}");
    assert!(changed.ends_with(": metric 61.0.0 is in the archive with another type"), "{said}");
    assert!(twice.starts_with("Warning: odd: the recording leaves out a change of instance domain 61.0: "), "{said}");
    assert!(twice.ends_with(": instance 1 of domain 61.0 is in the list twice"), "{said}");

    assert_eq!(Check::new().run(&base, |finding| println!("{finding}")), None);
    let archive = Archive::open(&base).unwrap();
    let names = archive.metadata().names();
    // Number of samples with a metric, and number of its values.
    let count = |name: &str| {
        let pmid = names.pmid(name.as_bytes()).unwrap();
        let (mut cursor, mut samples, mut values) = (archive.cursor(), 0, 0);
        while let Some(record) = cursor.forward().unwrap() {
            for set in record.values.iter().filter(|set| set.pmid == Some(pmid)) {
                samples += 1;
                values += set.len();
            }
        }
        (samples, values)
    };
    assert_eq!(count("steady.count"), (SAMPLES, SAMPLES as usize));
    assert_eq!(count("odd.count"), (SAMPLES, SAMPLES as usize));
    assert_eq!(count("odd.listed"), (SAMPLES, 8));
    // The second sample has the new type, of which the view did not know yet.
    assert_eq!(count("odd.changing"), (2, 1));
}
