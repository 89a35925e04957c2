//! For programs that run agents themselves, in place of [`main`](fn@crate::main): tests, tools, daemons with other
//! transports.
//!
//! An agent needs none of this. [`Engine::builder`] starts an agent, and [`Engine::handle`] answers a PDU without input
//! or output. [`Session`] moves the PDUs over a pipe or socket. [`Program`] has the log, user and connection of an agent
//! for a program that answers pmcd without one. Crate `pcp-collector` sends the requests.
//!
//! ```
//! use pmda::host::{Engine, Schema};
//! # use pmda::prelude::*;
//! # struct Mine;
//! # impl Agent for Mine {
//! #     const NAME: &'static str = "mine";
//! #     const DOMAIN: u16 = 400;
//! #     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
//! #         setup.gauge("mine.answer", Item::new(0, 0), |_: &Mine| 42_u32);
//! #         Ok(Mine)
//! #     }
//! # }
//!
//! assert_eq!(Schema::of::<Mine>()?.metrics()[0].name(), "mine.answer");
//! let engine: Engine<Mine> = Engine::builder().name("yours").build()?;
//! assert_eq!(engine.schema().name(), "yours");
//! # Ok::<(), pmda::host::SetupError>(())
//! ```

#[cfg(feature = "daemon")]
pub use crate::command_line::TransportOptions;
#[cfg(feature = "daemon")]
pub use crate::daemon::run;
pub use crate::engine::{Engine, EngineBuilder, Reply, SetupError, Startup};
#[cfg(feature = "daemon")]
pub use crate::options::{command, print_clap_error};
pub use crate::program::Program;
pub use crate::schema::{Mistakes, Schema};
pub use crate::session::{Session, SessionError};
pub use crate::transport::{Address, inet_port};
pub use crate::user::{UserError, change_user};
