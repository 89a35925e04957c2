//! Each option of each agent means the same alone, and with any others in any order.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use pmda::clap::error::ErrorKind;
use pmda::clap::parser::ValueSource;
use pmda::clap::{Arg, ArgAction, ArgMatches, Command};
use pmda::prelude::*;
use pmda::{Agent, CommandLine};

/// Values on the command line, by the identifiers of their options.
type Meaning = BTreeMap<String, Vec<String>>;

thread_local! {
    static PARSED: RefCell<Option<Meaning>> = const { RefCell::new(None) };
}

/// An agent with the options of agent `A`, which records what they mean and does not start.
struct Probe<A>(A);

impl<A: Agent> Agent for Probe<A> {
    const NAME: &'static str = A::NAME;
    const DOMAIN: u16 = A::DOMAIN;

    fn options(command: Command) -> Command {
        A::options(command)
    }

    fn command_line(line: &mut CommandLine<'_>) -> Option<ExitCode> {
        PARSED.set(Some(meaning(&pmda::host::command::<Self>("x"), line.options())));
        Some(ExitCode::SUCCESS)
    }

    fn new(_: &mut Setup) -> Result<Self, BoxError> {
        Err("a probe does not start".into())
    }

    fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
        Ok(())
    }
}

fn meaning(command: &Command, matches: &ArgMatches) -> Meaning {
    let ids = command.get_arguments().map(|arg| arg.get_id().as_str());
    let given = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
    let values = |id: &str| matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy().into_owned());
    given.map(|id| (id.to_owned(), values(id).collect())).collect()
}

/// An option in one of its forms: the words of the command line, and the values that they stand for.
#[derive(Clone, Debug)]
struct Form {
    id: String,
    /// Every value counts; otherwise the last one.
    all: bool,
    words: Vec<String>,
    values: Vec<String>,
}

/// Values of which every option accepts one.
const VALUES: [&str; 9] =
    ["7", "1,-1,0,0,3,0", "allow:localhost:5", "names=5", "files=5", "pdu", "word", "local:", "10sec"];

fn forms(command: &Command, arg: &Arg) -> Vec<Form> {
    let option = arg.get_long().map_or_else(|| format!("-{}", arg.get_short().unwrap()), |name| format!("--{name}"));
    let parse = |words: &[&str]| command.clone().try_get_matches_from(["x", &option].iter().chain(words));
    let is_value = |value: &&&str| parse(&[value]).map_or_else(|e| e.kind() != ErrorKind::ValueValidation, |_| true);
    let value = VALUES.iter().find(is_value);
    let all = matches!(arg.get_action(), ArgAction::Append);
    let form = |words: &[&str], values: &[&str]| {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Form { id: arg.get_id().to_string(), all, words: owned(words), values: owned(values) }
    };
    let (short, long) = (arg.get_short().map(|c| format!("-{c}")), arg.get_long().map(|name| format!("--{name}")));
    let spelled = || short.iter().chain(&long);
    let range = arg.get_num_args().unwrap();
    if !range.takes_values() {
        return spelled().map(|option| form(&[option], &["true"])).collect();
    }
    let value = *value.unwrap_or_else(|| panic!("no value for {arg}"));
    if range.min_values() == 2 {
        return spelled().map(|option| form(&[option, value, value], &[value, value])).collect();
    }
    let mut forms: Vec<_> = spelled().map(|option| form(&[option, value], &[value])).collect();
    forms.extend(short.iter().map(|option| form(&[&format!("{option}{value}")], &[value])));
    forms.extend(long.iter().map(|option| form(&[&format!("{option}={value}")], &[value])));
    if range.min_values() == 0 {
        let alone = meaning(command, &parse(&[]).unwrap())[arg.get_id().as_str()].clone();
        let missing: Vec<_> = alone.iter().map(String::as_str).collect();
        forms.extend(spelled().map(|option| form(&[option], &missing)));
    }
    forms
}

/// Returns what a command line means; `None` if options in it exclude or need each other.
fn parse<A: Agent>(command: &Command, words: &[&str]) -> Option<Meaning> {
    match command.clone().try_get_matches_from(std::iter::once(&"x").chain(words)) {
        Err(e) => {
            let kind = e.kind();
            assert!(matches!(kind, ErrorKind::ArgumentConflict | ErrorKind::MissingRequiredArgument), "{words:?}: {e}");
            None
        }
        Ok(_) => {
            pmda::host::run::<Probe<A>>(std::iter::once(&"x").chain(words).map(OsString::from));
            Some(PARSED.take().unwrap_or_else(|| panic!("{} {words:?} is refused", A::NAME)))
        }
    }
}

/// Checks that a command line means what its options mean, and returns whether the options can be combined.
fn check<A: Agent>(command: &Command, forms: &[&Form]) -> bool {
    let words: Vec<&str> = forms.iter().flat_map(|form| form.words.iter().map(String::as_str)).collect();
    let mut expected = Meaning::new();
    for form in forms {
        let values = expected.entry(form.id.clone()).or_default();
        values.truncate(if form.all { values.len() } else { 0 });
        values.extend(form.values.iter().cloned());
    }
    let parsed = parse::<A>(command, &words);
    if let Some(parsed) = &parsed {
        assert_eq!(*parsed, expected, "{} {words:?}", A::NAME);
    }
    parsed.is_some()
}

/// Tries all pairs of options in all orders, each form of the one with some form of the other, and a sample of triples.
fn all_combinations<A: Agent>() {
    let command = pmda::host::command::<Probe<A>>("x");
    let mut built = command.clone();
    built.build();
    let has_effect =
        |arg: &&Arg| !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version) && !arg.is_positional();
    let options: Vec<Vec<Form>> = built.get_arguments().filter(has_effect).map(|arg| forms(&built, arg)).collect();
    let mut turn = 0;
    let mut next = |of: usize| {
        turn += 1;
        turn % of
    };
    let mut combined = 0;
    for (at, one) in options.iter().enumerate() {
        for form in one {
            check::<A>(&command, &[form]);
        }
        for other in &options[at..] {
            let mut outcomes = Vec::new();
            for form in one {
                let second = &other[next(other.len())];
                outcomes.extend([[form, second], [second, form]].map(|pair| check::<A>(&command, &pair)));
                let third = &options[next(options.len())];
                let third = &third[next(third.len())];
                check::<A>(&command, &[form, third, second]);
            }
            assert!(outcomes.windows(2).all(|two| two[0] == two[1]), "{} {:?} {:?}", A::NAME, one[0], other[0]);
            combined += usize::from(outcomes[0]);
        }
    }
    assert!(combined > options.len(), "{combined} pairs of {} options", options.len());
}

#[test]
// Slow: all pairs of options of each agent.
fn options_mean_the_same_in_all_combinations() {
    all_combinations::<pmda_trivial::Trivial>();
    all_combinations::<pmda_simple::Simple>();
    all_combinations::<pmda_mmv::Mmv>();
    all_combinations::<pmda_derived::Derived>();
    all_combinations::<pmda_trace::Trace>();
    all_combinations::<pmda_showcase::Showcase>();
    all_combinations::<pmda_openmetrics::Openmetrics>();
    all_combinations::<pmda_replay::Replay>();
}

#[test]
fn command_lines_of_pcps_agents() {
    fn all<A: Agent>(lines: &[(&str, &[(&str, &str)])]) {
        let command = pmda::host::command::<Probe<A>>("x");
        for (line, expected) in lines {
            let expected = expected.iter().map(|(id, value)| ((*id).to_owned(), vec![(*value).to_owned()])).collect();
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(parse::<A>(&command, &words), Some(expected), "{} {line}", A::NAME);
        }
    }
    all::<pmda_trivial::Trivial>(&[(
        "-d 250 -l t.log -U pcp",
        &[("domain", "250"), ("log", "t.log"), ("username", "pcp")],
    )]);
    all::<pmda_simple::Simple>(&[
        ("-d 253 -i 2078", &[("domain", "253"), ("inet", "2078")]),
        ("-u /s -d 253", &[("unix", "/s"), ("domain", "253")]),
        ("-d 253 -p", &[("domain", "253"), ("pipe", "true")]),
    ]);
    all::<pmda_mmv::Mmv>(&[("-d 70 -U root", &[("domain", "70"), ("username", "root")])]);
    all::<pmda_trace::Trace>(&[
        ("-d 10 -U 0,1,0,0,3,0", &[("domain", "10"), ("observe", "0,1,0,0,3,0")]),
        ("-d 10 -U 0,1,0,0,3,0 -M root", &[("domain", "10"), ("observe", "0,1,0,0,3,0"), ("username", "root")]),
        ("-l t.log -V 1,0,0,0,0,0 -d 10", &[("log", "t.log"), ("counter", "1,0,0,0,0,0"), ("domain", "10")]),
        (
            "-A disallow:* -d 10 -I 4323 -N 5 -T 60",
            &[("access", "disallow:*"), ("domain", "10"), ("port", "4323"), ("buckets", "5"), ("period", "60")],
        ),
    ]);
    all::<pmda_openmetrics::Openmetrics>(&[
        ("-d 144 -u root -c dir", &[("domain", "144"), ("user", "root"), ("config", "dir")]),
        ("-D -l log -nr other", &[("debug", "appl0"), ("log", "log"), ("nosort", "true"), ("root", "other")]),
        ("-t 2 -R 10 -d 144", &[("timeout", "2"), ("refresh", "10"), ("domain", "144")]),
    ]);
}
