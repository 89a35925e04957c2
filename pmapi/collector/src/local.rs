//! An agent within this process, for tests and for programs that embed one.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::time::Duration;
use std::{fs, io};

use pcp_pdu::{Frames, Header};
use pmapi::{Config, Error, PmId, Result};
use tempfile::TempDir;

use pmda::Agent;
#[cfg(feature = "daemon")]
use pmda::clap::Command;
use pmda::host::{Engine, EngineBuilder, Reply, SetupError};

use crate::{Channel, Collector};

/// A channel to an agent in this process. Every request is encoded, answered and decoded as over a pipe.
///
/// Unless [the builder](EngineBuilder::config) of [`Local::start`] has a configuration, the agent has directories of its
/// own, as on a host where it is not installed. They are empty, and are removed with the channel. So a test does not depend
/// on the files of an installed agent, and does not write to them: `PCP_VAR_DIR` (instance numbers), `PCP_SYSCONF_DIR`
/// (configuration), `PCP_PMDAS_DIR`, `PCP_LOG_DIR`, `PCP_RUN_DIR` and `PCP_TMP_DIR`. The other variables are those of this
/// host.
///
/// A test that is about the installed configuration names it:
///
/// ```
/// # use pmda::prelude::*;
/// # struct Mine;
/// # impl Agent for Mine {
/// #     const NAME: &'static str = "mine";
/// #     const DOMAIN: u16 = 400;
/// #     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
/// #         setup.metric("mine.answer", Item::new(0, 0), Type::U32);
/// #         Ok(Mine)
/// #     }
/// #     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
/// #         out.put(42)
/// #     }
/// # }
/// use pcp_collector::{Collector, Local};
/// use pmda::host::Engine;
/// use pmda::pmapi::Config;
///
/// let mine = Collector::new(Local::<Mine>::start(Engine::builder().config(Config::load()))?);
/// # Ok::<(), pmda::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Local<A> {
    engine: Engine<A>,
    frames: Frames,
    replies: VecDeque<Vec<u8>>,
    open: bool,
    /// Directories of an agent without a configuration of its own. Removed after the agent, which may write when it is
    /// dropped.
    _scratch: Option<TempDir>,
}

/// Variables of the directories where agents read and write files.
const DIRECTORIES: [(&str, &str); 6] = [
    ("PCP_VAR_DIR", "var"),
    ("PCP_SYSCONF_DIR", "etc"),
    ("PCP_PMDAS_DIR", "pmdas"),
    ("PCP_LOG_DIR", "log"),
    ("PCP_RUN_DIR", "run"),
    ("PCP_TMP_DIR", "tmp"),
];

/// Creates the directories of an agent that is not installed, and its configuration.
fn scratch() -> io::Result<(TempDir, Config)> {
    let top = tempfile::Builder::new().prefix("pcp-local.").tempdir()?;
    for (_, name) in DIRECTORIES {
        fs::create_dir(top.path().join(name))?;
    }
    fs::create_dir_all(top.path().join("var/config/pmda"))?;
    let variables = DIRECTORIES.map(|(variable, name)| (OsString::from(variable), top.path().join(name).into()));
    let config = Config::load().with(variables);
    Ok((top, config))
}

impl<A: Agent> Local<A> {
    /// Starts an agent under its own name and domain, with directories of its own.
    ///
    /// # Errors
    /// The errors of [`Local::start`].
    pub fn new() -> Result<Self, SetupError> {
        Self::start(Engine::builder())
    }

    /// Starts the agent of a builder.
    ///
    /// # Errors
    /// A [`SetupError`]: the errors of [`Agent::new`] and [`Agent::open`], mistakes in the declarations, or no place for
    /// the agent's directories.
    pub fn start(mut builder: EngineBuilder<A>) -> Result<Self, SetupError> {
        let mut top = None;
        if !builder.has_config() {
            let failed = |e| SetupError::Agent(format!("no directories for the agent: {e}").into());
            let (dir, config) = scratch().map_err(failed)?;
            builder = builder.config(config);
            top = Some(dir);
        }
        let mut engine = builder.build()?;
        engine.trust_collector();
        engine.agent_mut().open()?;
        Ok(Local { engine, frames: Frames::new(), replies: VecDeque::new(), open: true, _scratch: top })
    }

    /// Starts an agent with [`Local::new`], and returns a collector that sends it requests.
    ///
    /// ```
    /// # use pmda::prelude::*;
    /// # struct Mine;
    /// # impl Agent for Mine {
    /// #     const NAME: &'static str = "mine";
    /// #     const DOMAIN: u16 = 400;
    /// #     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
    /// #         setup.metric("mine.answer", Item::new(0, 0), Type::U32);
    /// #         Ok(Mine)
    /// #     }
    /// #     fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
    /// #         out.put(42)
    /// #     }
    /// # }
    /// let mut mine = pcp_collector::Local::<Mine>::collector()?;
    /// let answer = mine.metric("mine.answer")?;
    /// assert_eq!(mine.value(answer)?, Atom::U32(42));
    /// # Ok::<(), pmda::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Local::new`].
    pub fn collector() -> Result<Collector<Self>, SetupError> {
        Ok(Collector::new(Self::new()?))
    }

    /// Starts an agent as [`Local::collector`] does, with the agent's [own options](Agent::options), as they are on the
    /// command line.
    ///
    /// ```
    /// # use pmda::clap::{self, Args as _, FromArgMatches as _};
    /// # use pmda::prelude::*;
    /// # #[derive(clap::Args)]
    /// # struct Options {
    /// #     /// Number of processes to show
    /// #     #[arg(short = 'N', long, default_value_t = 10)]
    /// #     number: u32,
    /// # }
    /// # struct Top(Options);
    /// # impl Agent for Top {
    /// #     const NAME: &'static str = "top";
    /// #     const DOMAIN: u16 = 400;
    /// #     fn options(command: clap::Command) -> clap::Command {
    /// #         Options::augment_args(command)
    /// #     }
    /// #     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
    /// #         setup.discrete("top.number", Item::new(0, 0), |top: &Self| top.0.number);
    /// #         Ok(Top(Options::from_arg_matches(setup.options())?))
    /// #     }
    /// # }
    /// let mut top = pcp_collector::Local::<Top>::with_options(["-N", "5"])?;
    /// let number = top.metric("top.number")?;
    /// assert_eq!(top.value(number)?, Atom::U32(5));
    /// # Ok::<(), pmda::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Local::new`], and that of clap for invalid options.
    #[cfg(feature = "daemon")]
    pub fn with_options(options: impl IntoIterator<Item: Into<OsString>>) -> Result<Collector<Self>, SetupError> {
        let words = std::iter::once(A::NAME.into()).chain(options.into_iter().map(Into::into));
        let options = A::options(Command::new(A::NAME)).try_get_matches_from(words);
        let options = options.map_err(|e| SetupError::Agent(e.into()))?;
        Ok(Collector::new(Self::start(Engine::builder().options(options))?))
    }

    /// Returns the engine, which has the agent and its declarations.
    pub fn engine(&self) -> &Engine<A> {
        &self.engine
    }

    /// Returns the engine, mutably.
    pub fn engine_mut(&mut self) -> &mut Engine<A> {
        &mut self.engine
    }
}

impl<A: Agent> Collector<Local<A>> {
    /// Returns the PMID of a declared metric. [`Collector::pmid`] also finds dynamic names.
    ///
    /// # Errors
    /// `PM_ERR_NAME` for a name that the agent has not declared.
    pub fn metric(&self, name: &str) -> Result<PmId> {
        let schema = self.channel().engine().schema();
        let metric = schema.metrics().iter().find(|m| m.name() == name).ok_or(Error::NAME)?;
        Ok(PmId::new(schema.domain(), metric.item()))
    }

    /// Returns the agent.
    pub fn agent(&self) -> &A {
        self.channel().engine().agent()
    }

    /// Returns the agent, mutably. A test that lets time pass, or a source be readable, wakes the agent as a daemon does:
    ///
    /// ```
    /// # use pmda::prelude::*;
    /// use pmda::{PollSet, Wake};
    ///
    /// # #[derive(Default)]
    /// struct Clock {
    ///     ticks: u64,
    /// }
    ///
    /// impl Agent for Clock {
    /// #     const NAME: &'static str = "clock";
    /// #     const DOMAIN: u16 = 400;
    /// #     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
    /// #         setup.counter("clock.ticks", Item::new(0, 0), |clock: &Self| clock.ticks);
    /// #         Ok(Clock::default())
    /// #     }
    ///     // …
    ///     fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
    ///         set.at(std::time::Instant::now() + std::time::Duration::from_secs(1));
    ///     }
    ///
    ///     fn wake(&mut self, _: Wake) {
    ///         self.ticks += 1;
    ///     }
    /// }
    ///
    /// let mut clock = pcp_collector::Local::<Clock>::collector()?;
    /// clock.agent_mut().wake(Wake::Time);
    /// let ticks = clock.metric("clock.ticks")?;
    /// assert_eq!(clock.value(ticks)?, Atom::U64(1));
    /// # Ok::<(), pmda::BoxError>(())
    /// ```
    pub fn agent_mut(&mut self) -> &mut A {
        self.channel_mut().engine_mut().agent_mut()
    }
}

impl<A: Agent> Channel for Local<A> {
    fn send(&mut self, mut bytes: &[u8], _: Option<Duration>) -> crate::Result {
        if !self.open {
            return Err(crate::Error::Closed);
        }
        while !bytes.is_empty() {
            let space = self.frames.space();
            let n = space.len().min(bytes.len());
            space[..n].copy_from_slice(&bytes[..n]);
            self.frames.filled(n);
            bytes = &bytes[n..];
            while let Some((header, pdu)) = self.frames.next_pdu()? {
                self.engine.handle(header, pdu, |reply| {
                    if let Reply::Pdu(head, rest) = reply {
                        self.replies.push_back([head, rest].concat());
                    }
                });
            }
        }
        Ok(())
    }

    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> crate::Result<Header> {
        // `send` has already run the engine. If the answer is not here now, it never comes.
        let none = crate::Error::TimedOut(timeout.unwrap_or(Duration::MAX));
        *pdu = self.replies.pop_front().ok_or(none)?;
        Header::parse(pdu)?.ok_or(crate::Error::Closed)
    }

    fn close(&mut self) {
        self.open = false;
    }
}
