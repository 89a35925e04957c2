//! Session: executes commands one after the other.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::Command as Process;
use std::thread;
use std::time::{Duration, Instant};

use crate::console::{Console, out};
use crate::grammar::{Arg, Meaning as _, Parser};
use crate::names::NoNames;
use crate::scanner::Scanner;
use crate::source::Source;
use crate::state::{Options, State};
use crate::token::Word;
use crate::{help, status};

/// Session of dbpmda: its input, and the state that commands change.
pub struct Session {
    source: Source,
    scanner: Scanner,
    state: State,
}

impl Session {
    /// Loads the name space and returns a session with commands from a source.
    ///
    /// # Errors
    /// [`NoNames`] if the name space cannot be loaded. The console has shown the reason.
    pub fn new(source: Source, console: Console, options: Options) -> Result<Self, NoNames> {
        Ok(Session { source, scanner: Scanner::default(), state: State::new(console, options)? })
    }

    /// Executes the commands up to `quit` or the end of the input.
    ///
    /// # Errors
    /// [`NoNames`] if `namespace` fails and the first name space cannot be loaded again. The console has shown the
    /// reason.
    pub fn run(mut self) -> Result<(), NoNames> {
        loop {
            let Session { source, scanner, state } = &mut self;
            match (Parser { source, scanner, meaning: state }).command() {
                Ok(Some((Word::Quit, args))) if args.is_empty() => return Ok(()),
                Ok(Some((word, args))) => self.execute(word, &args)?,
                // The parser has shown the error.
                Ok(None) | Err(_) => {}
            }
            if self.source.has_ended() {
                if self.source.is_interactive() {
                    out!(self.state.console, "\n");
                }
                return Ok(());
            }
        }
    }

    fn execute(&mut self, word: Word, args: &[Arg]) -> Result<(), NoNames> {
        let Session { source, state, .. } = self;
        // As in PCP's dbpmda, also if opening fails and the old agent stays.
        state.profile_changed |= word == Word::Open && !args.is_empty();
        match (word, args) {
            (Word::Help, []) => help::show(None, &state.console),
            (Word::Help, [Arg::Word(topic)]) => help::show(Some(*topic), &state.console),
            (Word::Status, _) => status::show(state),
            (Word::Close, _) if state.agent.is_some() => state.agent = None,
            (word, []) if word != Word::Close => help::usage(word, &state.console),
            (Word::Open, [Arg::Word(Word::Pipe), Arg::Text(program), arguments @ ..]) => {
                state.open_pipe(program, arguments.iter().filter_map(Arg::text));
            }
            (Word::Open, [_, Arg::Socket(address, name)]) => state.open_socket(address, name),
            (Word::Open, [_, Arg::Text(path), Arg::Text(init), domain @ ..]) => {
                let domain = domain.first().map_or(0, Arg::number);
                state.open_dso(path, &String::from_utf8_lossy(init), domain);
            }
            (Word::Profile, [Arg::InDom(indom), Arg::Word(change), inst @ ..]) => {
                state.change_profile(*indom, *change, inst.first().map(Arg::number), source);
            }
            (Word::Watch, [Arg::Text(path)]) => watch(path),
            (Word::NameSpace, [Arg::Text(path)]) => state.names.replace(PathBuf::from(OsStr::from_bytes(path)))?,
            (Word::Debug, [Arg::Word(all)]) => _ = state.debug(if *all == Word::All { "all" } else { "-all" }),
            // The parser has set these options.
            (Word::Debug, _) => {}
            (Word::Timer, [Arg::Word(on)]) => state.timer = *on == Word::On,
            (Word::GetDesc, [Arg::Word(on)]) => state.getdesc = *on == Word::On,
            (Word::GetIname, [Arg::Word(on)]) => state.getiname = *on == Word::On,
            (Word::Wait, [Arg::Number(seconds)]) => {
                state.console.flush();
                thread::sleep(Duration::from_secs((*seconds as u32).into()));
            }
            _ if state.agent.is_none() => source.warn("No PMDA currently opened"),
            _ => state.request(word, args),
        }
        Ok(())
    }
}

impl State {
    /// Sends a request to the agent. With `timer on`, shows its duration unless the request failed.
    fn request(&mut self, word: Word, args: &[Arg]) {
        let start = Instant::now();
        let asked = match (word, args) {
            (Word::Desc, [Arg::Metric(pmid)]) => self.show_desc(*pmid),
            (Word::Fetch, metrics) => self.fetch(&metrics.iter().filter_map(Arg::metric).collect::<Vec<_>>()),
            (Word::Store, [Arg::Metric(pmid), Arg::Text(value)]) => self.store(*pmid, value),
            (Word::Text, subject) => self.text(subject),
            (Word::Instance, [Arg::InDom(indom), which @ ..]) => self.instance(*indom, which.first()),
            (Word::Label, subject) => self.labels(subject),
            (Word::Attr, _) if self.is_too_old(6, "authentication") => Ok(()),
            (Word::Attr, [Arg::Number(key), value @ ..]) => self.attribute(*key, value.first().and_then(Arg::text)),
            _ if self.is_too_old(4, "dynamic metric names") => Ok(()),
            (Word::Name, [Arg::Metric(pmid)]) => self.names_of(*pmid),
            (Word::PmId, [Arg::Text(name)]) => self.pmid_of(name),
            (Word::Children, [Arg::Text(name)]) => self.children(name),
            (Word::Traverse, [Arg::Text(name)]) => self.traverse(name),
            _ => return,
        };
        // The end of the agent and an answer of the wrong type are no failures here.
        if matches!(asked, Ok(()) | Err(0..)) && self.timer {
            out!(self.console, "Timer: {:.6} seconds\n", start.elapsed().as_secs_f64());
        }
    }
}

/// Shows the end of a file in a terminal window.
fn watch(path: &[u8]) {
    let script = "xterm -hold -title \"dbpmda watch $1\" -geometry 80x16 -e tail -f \"$1\" &";
    // The shell reports errors itself.
    let _ = Process::new("sh").args(["-c", script, "sh"]).arg(OsStr::from_bytes(path)).status();
}
