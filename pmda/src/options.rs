//! The command line of an agent (pmdaGetOptions(3)).

use std::error::Error as _;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Id, Parser};

use pcp_base::escape::{self, Escaped};
use pmapi::debug;

use crate::agent::Agent;
use crate::command_line::{Options, TransportOptions, name};

const AFTER_HELP: &str = "As the first option, --install or --remove makes root install the agent into the PCP of this host, or \
                          remove it; --install --help and --remove --help list what follows.";

/// The options of every agent.
#[derive(Parser, Debug)]
#[command(about = None, long_about = None, args_override_self = true, after_help = AFTER_HELP)]
#[command(disable_help_flag = true, disable_version_flag = true, infer_long_args = true, group = ArgGroup::new("task"))]
#[command(version = format!("(pcp-pmda {})", pcp_base::build::version(env!("CARGO_PKG_VERSION"))))]
struct Given {
    /// Set debug options: names separated by commas, see pmdbg(1)
    #[arg(short = 'D', long, value_name = "DBG", allow_negative_numbers = true)]
    debug: Vec<debug::Debug>,
    /// Use domain NUM (1 to 510) for the metrics
    #[arg(short, long, value_name = "NUM", value_parser = clap::value_parser!(u16).range(1..=510))]
    domain: Option<u16>,
    /// Name of the agent in PCP: of its metrics, directory and log
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Answer help requests from the compiled files FILE.dir and FILE.pag
    #[arg(short = 'h', long, value_name = "FILE")]
    helpfile: Option<PathBuf>,
    /// Write the log to FILE, - for stderr
    #[arg(short, long, alias = "logfile", value_name = "FILE")]
    log: Option<PathBuf>,
    /// Run as USER
    #[arg(short = 'U', long, value_name = "USER")]
    username: Option<String>,
    #[command(flatten)]
    transport: TransportOptions,
    /// Notify pmcd when the agent is ready, for a notready line in pmcd.conf
    #[arg(long)]
    notready: bool,
    /// Let all clients store restricted metrics, not only administrators
    #[arg(long)]
    open_control: bool,
    /// Write the agent's PCP directory to DIR and exit
    #[arg(long, value_name = "DIR", group = "task")]
    write_pmda: Option<PathBuf>,
    /// Write the compiled help to BASE.dir and BASE.pag and exit
    #[arg(long, value_name = "BASE", group = "task")]
    write_help: Option<PathBuf>,
    /// Show this help and exit
    #[arg(short = '?', long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Show the version of the framework and exit
    #[arg(long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// Returns the command line of the agent's program: the options of every agent, and the agent's own. Man pages,
/// completions and the output of `--help` are generated from it. `program` is the program's name.
pub fn command<A: Agent>(program: &str) -> Command {
    let given = Given::command();
    let ids: Vec<Id> = given.get_arguments().map(|arg| arg.get_id().clone()).collect();
    let mut command = A::options(given).name(program.to_owned()).bin_name(program.to_owned());
    let own = command.get_arguments().filter(|arg| !ids.contains(arg.get_id()));
    let letters: Vec<char> = own.flat_map(|arg| arg.get_short().into_iter().chain(aliases(arg))).collect();
    for id in ids {
        command = command.mut_arg(id, |arg| match arg.get_short() {
            Some(letter) if letters.contains(&letter) => arg.short(None),
            _ => arg,
        });
    }
    match A::USAGE {
        Some(usage) => command.override_help(usage),
        None => command,
    }
}

fn aliases(arg: &Arg) -> Vec<char> {
    arg.get_all_short_aliases().unwrap_or_default()
}

/// Returns an option of the framework as Install writes it: its letter, or its name if the letter is that of an option of
/// the agent.
pub(crate) fn spelling<A: Agent>(id: &str) -> String {
    let command = command::<A>(A::NAME);
    let short = command.get_arguments().find(|arg| *arg.get_id() == id).and_then(Arg::get_short);
    short.map_or_else(|| format!("--{id}"), |letter| format!("-{letter}"))
}

const OPERANDS: &str = "operands";

impl Options {
    /// Parses a command line, whose first argument is the program.
    pub(crate) fn parse<A: Agent>(args: impl IntoIterator<Item = OsString>) -> Result<Options, Refused> {
        let mut args = args.into_iter();
        let path = PathBuf::from(args.next().unwrap_or_default());
        let program = Escaped(path.file_name().unwrap_or("pmda".as_ref()).to_string_lossy()).to_string();
        let args: Vec<_> = std::iter::once(OsString::from(&program)).chain(args).collect();
        // As in getopt(3), the word after an option is its value, also if it begins with `-`.
        let mut command = command::<A>(&program).mut_args(|arg| {
            let takes_one = arg.get_num_args().is_none_or(|count| (count.min_values(), count.max_values()) == (1, 1));
            let takes_one = takes_one && arg.get_action().takes_values() && !arg.is_positional();
            if takes_one { arg.allow_hyphen_values(true) } else { arg }
        });
        let takes_operands = command.get_positionals().next().is_some();
        if !takes_operands {
            command = command.arg(operands());
        }
        let refused = |mut error: clap::Error| {
            if !takes_operands {
                // clap would advise to pass an unknown option as an operand, which the agent ignores.
                error.remove(ContextKind::Suggested);
            }
            Refused { program: program.clone(), error, usage: A::USAGE }
        };
        let matches = command.clone().try_get_matches_from(&args).map_err(refused)?;
        let given = Given::from_arg_matches(&matches).map_err(refused)?;
        let repeated = given.write_pmda.as_ref().and_then(|_| repeated(&command, &args));
        let operands = matches.try_get_many(OPERANDS).ok().flatten().unwrap_or_default().cloned().collect();
        Ok(Options { repeated, ..Options::new(program, given, operands, matches) })
    }

    fn new(program: String, given: Given, operands: Vec<OsString>, matches: ArgMatches) -> Options {
        let mut debug = debug::Debug::default();
        for options in given.debug {
            debug.set(options);
        }
        Options {
            program,
            debug,
            domain: given.domain,
            name: given.name,
            helpfile: given.helpfile,
            log: given.log,
            username: given.username,
            address: given.transport.address(),
            not_ready: given.notready,
            open_control: given.open_control,
            write_pmda: given.write_pmda,
            write_help: given.write_help,
            operands,
            repeated: None,
            matches,
        }
    }

    /// Returns the reason why Install must not write this command line to pmcd's configuration, as a part of which the
    /// options of Install itself come first.
    pub(crate) fn unfit_for_install(&self) -> Option<String> {
        let operand = || Some(format!("unexpected argument {:?}", self.operands.first()?));
        let repeated = |option| format!("--{option} is there twice; Install has an option for it, before --");
        self.repeated.map(repeated).or_else(operand)
    }
}

/// Returns which of the options that Install writes itself is there more than once.
fn repeated(command: &Command, args: &[OsString]) -> Option<&'static str> {
    ["domain", "name"].into_iter().find(|id| {
        let counting = command.clone().mut_arg(id, |arg| arg.action(ArgAction::Append));
        let matches = counting.try_get_matches_from(args).ok();
        matches.is_some_and(|matches| matches.get_raw(id).is_some_and(|values| values.count() > 1))
    })
}

fn operands() -> Arg {
    Arg::new(OPERANDS).num_args(0..).hide(true).value_parser(clap::value_parser!(OsString))
}

/// Returns the default values of an agent's own options, for hosts without a command line.
pub(crate) fn none<A: Agent>() -> Result<ArgMatches, clap::Error> {
    command::<A>(A::NAME).try_get_matches_from([A::NAME])
}

/// Prints clap's answer to a command line: the help that it asks for, or what is wrong with it. The text may be that of a
/// stranger, as a shell makes arguments of the names of files, and is escaped. Returns the exit code: 0 for help, `wrong`
/// otherwise.
pub fn print_clap_error(error: clap::Error, wrong: u8) -> ExitCode {
    if error.use_stderr() {
        escape::eprint(escaped(error));
        return wrong.into();
    }
    // If the help cannot be printed, nothing is left to do.
    let _ = error.print();
    ExitCode::SUCCESS
}

/// Escapes the parts of an error that come from the command line: in an argument, a line end would begin a line of its own.
fn escaped(mut error: clap::Error) -> String {
    let word = |text: &str| Escaped(text).to_string();
    let is_plain = |text: &str| text.chars().all(|c| c == '\n' || escape::is_plain(c));
    let value = |error: &clap::Error| match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.clone(),
        _ => String::new(),
    };
    let is_strange = !value(&error).chars().all(escape::is_plain);
    let context: Vec<_> = error.context().map(|(kind, value)| (kind, value.clone())).collect();
    for (kind, value) in context {
        let value = match value {
            ContextValue::String(text) => ContextValue::String(word(&text)),
            ContextValue::Strings(texts) => ContextValue::Strings(texts.iter().map(|text| word(text)).collect()),
            // A usage or suggestion has lines of clap's own.
            other if is_plain(&other.to_string()) => other,
            _ => ContextValue::None,
        };
        error.insert(kind, value);
    }
    match error.source() {
        // The reason of the option's parser may have the value, too.
        Some(reason) if is_strange => {
            let option = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
            format!("error: invalid value '{}' for '{option}': {}\n", value(&error), word(&reason.to_string()))
        }
        _ => error.render().to_string(),
    }
}

/// A command line that does not start the agent: it is wrong, or asks for help.
#[derive(Debug)]
pub(crate) struct Refused {
    program: String,
    error: clap::Error,
    usage: Option<&'static str>,
}

impl Refused {
    /// Prints the error, after the program's name, or the help. Returns the exit code: 0 for help, 1 for an error, as
    /// in PCP.
    pub(crate) fn complain(self) -> u8 {
        if let ErrorKind::DisplayHelp | ErrorKind::DisplayVersion = self.error.kind() {
            let _ = self.error.print();
            return 0;
        }
        if let Some(usage) = self.usage {
            let reason = self.error.source().map_or_else(|| self.error.kind().to_string(), ToString::to_string);
            escape::eprint(format_args!("{}: {}\n{usage}", self.program, Escaped(reason)));
            return 1;
        }
        let text = escaped(self.error);
        escape::eprint(format_args!("{}: {}", self.program, text.strip_prefix("error: ").unwrap_or(&text)));
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::transport::Address;

    /// An agent that adds an option.
    struct Own;

    impl Agent for Own {
        const NAME: &'static str = "own";
        const DOMAIN: u16 = 1;

        fn options(command: Command) -> Command {
            command.arg(clap::arg!(-n <N> "How many").default_value("5").value_parser(clap::value_parser!(u32)))
        }

        fn new(_: &mut Setup) -> Result<Self, BoxError> {
            Ok(Own)
        }

        fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> pmapi::Result {
            Ok(())
        }
    }

    #[test]
    fn a_store_that_the_agent_does_not_have_is_logged() {
        let lines = crate::log::testing::lines(|| {
            assert_eq!(Own.store(Item::new(3, 4), None, Atom::U32(1), Client::new(1)), Err(Error::PERMISSION));
        });
        assert_eq!(lines, ["own: metric 3.4 is storable, but the agent has no Agent::store"]);
    }

    fn n(options: &ArgMatches) -> Option<u32> {
        options.get_one("N").copied()
    }

    #[test]
    fn a_value_may_begin_with_a_dash() {
        let options = parse("pmdaown -l -x -h -y -U -z -d 9").unwrap();
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!((options.log, options.helpfile, options.domain), (path("-x"), path("-y"), Some(9)));
        assert_eq!(options.username.as_deref(), Some("-z"));
        assert_eq!(parse("pmdaown -l").unwrap_err().complain(), 1);
    }

    #[test]
    fn an_agents_own_options() {
        assert_eq!(n(&parse("pmdaown -n 7 -d 9").unwrap().matches), Some(7));
        assert_eq!(n(&parse("pmdaown").unwrap().matches), Some(5));
        assert_eq!(n(&none::<Own>().unwrap()), Some(5));
        assert_eq!(parse("pmdaown -n x").unwrap_err().complain(), 1);
    }

    fn parse(line: &str) -> Result<Options, Refused> {
        Options::parse::<Own>(line.split(' ').map(OsString::from))
    }

    #[test]
    fn short_and_long_options() {
        let o = parse("/x/pmdasimple -D pdu,libpmda -d 253 -h /h -l x.log -U nobody -i 2078").unwrap();
        assert_eq!((o.program.as_str(), o.domain), ("pmdasimple", Some(253)));
        assert_eq!(o.address, Some(Address::Inet(2078)));
        assert_eq!((o.helpfile, o.username), (Some("/h".into()), Some("nobody".into())));
        let o = parse("pmdasimple --domain=7 --logfile=- --unix /s").unwrap();
        assert_eq!((o.domain, o.log, o.address), (Some(7), Some("-".into()), Some(Address::Unix("/s".into()))));
        assert_eq!(parse("pmdasimple -6 80").unwrap().address, Some(Address::Ipv6(80)));
        assert_eq!(parse("pmdasimple -p").unwrap().address, None);
        for address in [Address::Inet(2078), Address::Ipv6(80), Address::Unix("/s".into())] {
            let [option, value] = address.option().map(|word| word.into_string().unwrap());
            assert_eq!(parse(&format!("pmdasimple {option} {value}")).unwrap().address, Some(address));
        }
        assert_eq!(parse("pmdasimple --name other").unwrap().name, Some("other".into()));
        assert_eq!(parse("pmdasimple --dom 9").unwrap().domain, Some(9));
    }

    #[test]
    fn what_c_agents_take() {
        assert_eq!(parse("x -D -1").unwrap().debug.names().count(), 29);
        assert_eq!(parse("x -D 5").unwrap().debug.to_string(), "pdu,profile");
        for line in ["x y -n 7 z", "x -n 7 -- y z", "x -n 7 y -- z"] {
            let options = parse(line).unwrap();
            assert_eq!((options.operands, n(&options.matches)), (vec!["y".into(), "z".into()], Some(7)), "{line}");
        }
        assert!(parse("x -n 7").unwrap().operands.is_empty());
    }

    #[test]
    fn command_lines_that_install_refuses() {
        let unfit = |line: &str| parse(line).unwrap().unfit_for_install();
        for line in ["x -d 9 -n 7 --write-pmda a", "x --name a --write-pmda a -D pdu -D libpmda", "x -d 9 -d 10", "x"] {
            assert_eq!(unfit(line), None, "{line}");
        }
        for (line, expected) in [
            ("x -d 9 -d 10 --write-pmda a", "--domain is there twice"),
            ("x -d9 -n 7 --dom=9 --write-pmda a", "--domain is there twice"),
            ("x --name a --name b --write-pmda a", "--name is there twice"),
            ("x -n 7 y z --write-pmda a", "unexpected argument \"y\""),
        ] {
            assert!(unfit(line).unwrap().starts_with(expected), "{line}: {:?}", unfit(line));
        }
    }

    /// An agent whose options have letters of the framework's.
    struct Letters;

    impl Agent for Letters {
        const NAME: &'static str = "letters";
        const DOMAIN: u16 = 1;

        fn options(command: Command) -> Command {
            let own = |letter: char| Arg::new(format!("own {letter}")).short(letter);
            command.args(['d', 'D', 'U', 'i', 'l', 'u', '6'].map(own)).arg(own('p').action(ArgAction::SetTrue))
        }

        fn new(_: &mut Setup) -> Result<Self, BoxError> {
            Ok(Letters)
        }

        fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> pmapi::Result {
            Ok(())
        }
    }

    #[test]
    fn the_agents_own_letters_are_not_the_frameworks() {
        let line = "x -d a -D b -U c -i d -p -l e -u f -6 g --domain 7 --debug pdu --username v --unix /s --log k -d z";
        let options = Options::parse::<Letters>(line.split(' ').map(OsString::from)).unwrap();
        for (letter, value) in "dDUilu6".chars().zip(["z", "b", "c", "d", "e", "f", "g"]) {
            let given: Option<&String> = options.matches.get_one(&format!("own {letter}"));
            assert_eq!(given.map(String::as_str), Some(value), "-{letter}");
        }
        assert_eq!((options.domain, options.username), (Some(7), Some("v".to_owned())));
        assert_eq!((options.address, options.log), (Some(Address::Unix("/s".into())), Some("k".into())));
        assert_eq!(options.debug.to_string(), "pdu");
        assert!(none::<Letters>().unwrap().get_one::<String>("own U").is_none());
        // Install uses what is left: `-d 7` would be the agent's own.
        let line = "x -d 7 -d 8 --domain 1 --write-pmda a";
        assert_eq!(Options::parse::<Letters>(line.split(' ').map(OsString::from)).unwrap().unfit_for_install(), None);
        let schema = crate::host::Engine::<Letters>::builder().schema().unwrap();
        let dir = tempfile::tempdir().unwrap();
        schema.write_dir(dir.path(), &std::env::current_exe().unwrap(), spelling::<Letters>).unwrap();
        let spelled = crate::install::About::read(dir.path()).unwrap().spelling;
        let spelled = [spelled.domain, spelled.inet, spelled.ipv6, spelled.unix, spelled.debug];
        assert_eq!(spelled, ["--domain", "--inet", "--ipv6", "--unix", "--debug="]);
        assert_eq!((spelling::<Own>("domain"), spelling::<Own>("ipv6")), ("-d".to_owned(), "-6".to_owned()));
    }

    /// A shell makes arguments of the names of files.
    #[test]
    fn errors_have_no_characters_of_strangers() {
        const STRANGE: &str = "\n[Sun Nov  1 00:00:00] pmdax(1) Info: forged\u{1b}[2J\u{202e}";
        for args in [
            ["--name", STRANGE],
            [STRANGE, "-Z"],
            ["--domain", STRANGE],
            ["-D", STRANGE],
            ["-i", STRANGE],
            [&format!("-{STRANGE}"), ""],
            [&format!("--{STRANGE}"), ""],
            [&format!("--pipe={STRANGE}"), ""],
            ["-n", STRANGE],
        ] {
            let line = [format!("/x/pmda{STRANGE}").as_str(), args[0], args[1]].map(OsString::from);
            let refused = Options::parse::<Own>(line).unwrap_err();
            assert!(escape::Escaped(&refused.program).to_string() == refused.program, "{refused:?}");
            let text = escaped(refused.error);
            assert!(text.chars().all(|c| c == '\n' || escape::is_plain(c)), "{text:?}");
            assert!(!text.contains("\n[Sun"), "{text}");
        }
    }

    #[test]
    fn an_unknown_option_is_no_operand() {
        let refused = parse("x --nosuch").unwrap_err().error.to_string();
        assert!(refused.contains("unexpected argument '--nosuch'") && !refused.contains("tip:"), "{refused}");
        let similar = parse("x --helpfle").unwrap_err().error.to_string();
        assert!(similar.contains("tip: a similar argument exists: '--helpfile'"), "{similar}");
    }

    #[test]
    fn mistakes() {
        for line in [
            "x --name a.b",
            "x --name ../a",
            "x --name 1a",
            "x --name",
            "x -d 0",
            "x -d 511",
            "x -d 5x",
            "x -i 1 -p",
            "x -u /s -6 1",
            "x -D nonsense",
            "x -Z",
            "x y -Z",
        ] {
            assert_eq!(parse(line).unwrap_err().complain(), 1, "{line}");
        }
        for line in ["x -?", "x --help", "x --version"] {
            assert_eq!(parse(line).unwrap_err().complain(), 0, "{line}");
        }
        assert!(parse("/x/pmdaown --version").unwrap_err().error.to_string().starts_with("pmdaown (pcp-pmda "));
    }
}
