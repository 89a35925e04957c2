//! The collector against scripted agents, against programs that are no agents, and against PCP's C
//! agents.

mod c_agents;
mod fake;
mod launch;
mod requests;
mod rubbish;
