//! The part of an archive that has been read: a range of time that grows at both ends.

use std::collections::VecDeque;

use pcp_pdu::event::Stamp;

use super::Marks;
use super::clock::seconds_between;
use super::table::{Place, Table};
use crate::cursor::{Cursor, Direction, Step};
use crate::error::Result;
use crate::window::Extent;

/// Range of time that has been read.
#[derive(Debug)]
pub(super) struct Reach<'a> {
    ahead: Cursor<'a>,
    behind: Cursor<'a>,
    start: Stamp,
    marks_mean: Marks,
    /// Time at which reading began.
    from: Stamp,
    /// Times of the latest and of the earliest record that was read.
    high: f64,
    low: f64,
    /// Whether all records ahead have been read, and whether all records behind have.
    is_end: bool,
    is_start: bool,
    /// Times of the `<mark>`s in the range.
    pub(super) marks: VecDeque<f64>,
    /// Number of the part of the archive that ends at the first of `marks`.
    epoch: i64,
}

impl<'a> Reach<'a> {
    pub(super) fn new(ahead: Cursor<'a>, marks_mean: Marks) -> Reach<'a> {
        let start = ahead.archive().label().start;
        let behind = ahead.another();
        Reach {
            ahead,
            behind,
            start,
            marks_mean,
            from: start,
            high: f64::NEG_INFINITY,
            low: f64::INFINITY,
            is_end: false,
            is_start: false,
            marks: VecDeque::new(),
            epoch: 0,
        }
    }

    pub(super) fn cursor(&self) -> &Cursor<'a> {
        &self.ahead
    }

    /// Returns the seconds from the start of the archive to a time.
    pub(super) fn seconds(&self, time: Stamp) -> f64 {
        seconds_between(self.start, time)
    }

    /// Starts again at a time, from which a grid goes in a direction.
    ///
    /// # Errors
    /// Errors of [`Archive::end`](crate::Archive::end).
    pub(super) fn seek(&mut self, time: Stamp, direction: Direction) -> Result {
        self.ahead.seek(time);
        self.behind.seek(time);
        (self.high, self.low) = (f64::NEG_INFINITY, f64::INFINITY);
        (self.is_end, self.is_start) = (false, false);
        self.marks.clear();
        (self.epoch, self.from) = (0, time);
        let mark = self.ahead.archive().mark_behind(time, direction)?;
        if let Some(mark) = mark.filter(|_| self.marks_mean == Marks::Separate) {
            self.add_mark(self.seconds(mark), direction.opposite());
        }
        Ok(())
    }

    /// Adds a `<mark>` at an end of the range.
    fn add_mark(&mut self, time: f64, direction: Direction) {
        match direction {
            Direction::Forward => self.marks.push_back(time),
            Direction::Backward => {
                self.marks.push_front(time);
                self.epoch -= 1;
            }
        }
    }

    /// Allows reading on in an archive that has grown.
    pub(super) fn has_grown(&mut self) {
        self.is_end = false;
    }

    /// Returns whether all records in a direction have been read.
    pub(super) fn is_done(&self, direction: Direction) -> bool {
        match direction {
            Direction::Forward => self.is_end,
            Direction::Backward => self.is_start,
        }
    }

    /// Returns whether all records at a time have been read, and one beyond it in the direction.
    pub(super) fn is_beyond(&self, time: f64, direction: Direction) -> bool {
        match direction {
            Direction::Forward => self.is_end || self.high > time,
            Direction::Backward => self.is_start || self.low < time,
        }
    }

    /// Returns the number of the part of the archive, between two `<mark>`s, that a time is in. With `is_before`, a
    /// `<mark>` of this time is after it.
    pub(super) fn epoch(&self, time: f64, is_before: bool) -> i64 {
        self.epoch + self.marks.partition_point(|mark| *mark < time || (*mark == time && !is_before)) as i64
    }

    /// Returns whether there is a `<mark>` beyond a time in the range.
    pub(super) fn has_mark(&self, time: f64, direction: Direction) -> bool {
        match direction {
            Direction::Forward => self.marks.back().is_some_and(|mark| *mark > time),
            Direction::Backward => self.marks.front().is_some_and(|mark| *mark <= time),
        }
    }

    /// Returns whether there is a `<mark>` at a time or before it with respect to the direction, and removes the
    /// `<mark>`. With `is_before`, a `<mark>` of this time is after it.
    pub(super) fn passes_mark(&mut self, time: f64, direction: Direction, is_before: bool) -> bool {
        let before = self.marks.len();
        match direction {
            Direction::Forward => {
                while self.marks.front().is_some_and(|mark| *mark < time || (*mark == time && !is_before)) {
                    self.marks.pop_front();
                    self.epoch += 1;
                }
            }
            Direction::Backward => {
                while self.marks.back().is_some_and(|mark| *mark >= time) {
                    self.marks.pop_back();
                }
            }
        }
        self.marks.len() < before
    }

    /// Reads the next record in a direction.
    ///
    /// # Errors
    /// Errors of [`Cursor::forward`]; `PM_ERR_LOGREC` for a damaged value of a wanted metric.
    pub(super) fn read(&mut self, direction: Direction, limit: Option<f64>, table: &mut Table) -> Result {
        let cursor = match direction {
            Direction::Forward => &mut self.ahead,
            Direction::Backward => &mut self.behind,
        };
        let (span, stamp) = match cursor.find(direction, Extent::Few)? {
            Step::Record(span, time) => (Some(span), time),
            Step::Mark(time) => (None, time),
            Step::End => {
                match direction {
                    Direction::Forward => self.is_end = true,
                    Direction::Backward => self.is_start = true,
                }
                return Ok(());
            }
        };
        let time = seconds_between(self.start, stamp);
        match direction {
            // Reading forward includes the records of exactly this time.
            Direction::Backward if stamp >= self.from => return Ok(()),
            Direction::Forward => self.high = time,
            Direction::Backward => self.low = time,
        }
        if let Some(span) = span {
            table.begin();
            let count = match cursor.look(span, table.metrics.len(), |word, at| table.take(word, at)) {
                Ok(count) => count,
                Err(e) => return cursor.leave(e),
            };
            if count > 0 {
                let epoch = match direction {
                    Direction::Forward => self.epoch + self.marks.len() as i64,
                    Direction::Backward => self.epoch,
                };
                let added = table.add(cursor.sets(span)?, &Place { time, epoch, direction, limit });
                return added.or_else(|reason| cursor.leave(cursor.damage(span, reason)));
            }
        }
        if self.marks_mean == Marks::Separate {
            self.add_mark(time, direction);
        }
        Ok(())
    }
}
