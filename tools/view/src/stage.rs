//! Sources of the shown data: running agents, or a recording.

use std::time::Duration;

use pcp_pdu::event::Stamp;

use crate::fleet::{Agent, Fleet};

/// Order to a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Steer {
    Forward,
    Back,
    Faster,
    Slower,
}

/// Source of the shown data.
pub(crate) trait Stage {
    /// Requests a sample.
    fn tick(&mut self);

    /// Waits for the sample for at most `wait`. Returns whether it is complete.
    fn gather(&mut self, wait: Duration) -> bool;

    /// Requests the full help of a metric, by its number. The answer is in its [`Metric`](crate::model::Metric) some
    /// time later.
    fn ask_help(&mut self, agent: usize, metric: usize);

    /// Returns whether anything has changed since the last call.
    fn take_changed(&mut self) -> bool;

    /// Returns the values that are shown.
    fn agents(&self) -> &[Agent];

    /// Returns the time of the sample.
    fn time(&self) -> Stamp {
        Stamp::now()
    }

    /// Returns whether the samples are recorded.
    fn is_recorded(&self) -> bool {
        false
    }

    /// Returns direction and speed of a recording.
    fn state(&self) -> Option<String> {
        None
    }

    /// Returns whether there are no more samples.
    fn has_ended(&self) -> bool {
        self.agents().iter().all(|agent| agent.failure().is_some())
    }

    /// Returns whether samples are produced as fast as they are printed.
    fn is_immediate(&self) -> bool {
        false
    }

    /// Changes the course of a recording.
    fn steer(&mut self, _: Steer) {}

    /// Returns the error that ends the view.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Prints warnings since the last call to standard error.
    fn print_warnings(&self) {}
}

impl Stage for Fleet {
    fn tick(&mut self) {
        Fleet::tick(self);
    }

    fn is_recorded(&self) -> bool {
        Fleet::is_recorded(self)
    }

    fn gather(&mut self, wait: Duration) -> bool {
        Fleet::gather(self, wait)
    }

    fn ask_help(&mut self, agent: usize, metric: usize) {
        Fleet::ask_help(self, agent, metric);
    }

    fn take_changed(&mut self) -> bool {
        Fleet::take_changed(self)
    }

    fn agents(&self) -> &[Agent] {
        Fleet::agents(self)
    }

    fn failure(&self) -> Option<String> {
        self.recorder().and_then(|recorder| recorder.failure())
    }

    fn print_warnings(&self) {
        if let Some(recorder) = self.recorder() {
            recorder.print_warnings();
        }
    }
}
