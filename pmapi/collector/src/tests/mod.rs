//! The collector with scripted agents, with programs that are not agents, and with PCP's C agents.

mod c_agents;
mod fake;
mod launch;
mod local;
mod requests;
mod rubbish;
mod supervisor;
