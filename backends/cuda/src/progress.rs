//! How far the device has come, and how far the worker may run ahead of it.

use crate::driver::{Driver, Event, Result, Stream};
use std::collections::VecDeque;
use std::sync::Arc;

/// Steps between two marks in the stream.
const STEPS_PER_MARK: u64 = 32;
/// Marks that the device may be behind: past this the worker waits for it.
const MARKS_MAX: usize = 32;

/// Counts steps, and marks the stream so that it is known which of them are done.
pub struct Progress {
    driver: Arc<dyn Driver>,
    stream: Stream,
    step: u64,
    done: u64,
    marks: VecDeque<(Event, u64)>,
    spare: Vec<Event>,
}

impl Progress {
    /// Of a stream without work.
    pub fn new(driver: Arc<dyn Driver>, stream: Stream) -> Progress {
        Progress { driver, stream, step: 0, done: 0, marks: VecDeque::new(), spare: Vec::new() }
    }

    /// The number of the step that is being issued.
    #[inline]
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The last step that the device is known to have done.
    #[inline]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Begins another step. Waits for the device where it is too far behind.
    ///
    /// # Errors
    /// Those of the driver.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.step += 1;
        if self.step.is_multiple_of(STEPS_PER_MARK) { self.mark() } else { Ok(()) }
    }

    fn mark(&mut self) -> Result<()> {
        while let Some((event, step)) = self.marks.front().copied() {
            if self.marks.len() >= MARKS_MAX {
                self.driver.await_event(event)?;
            } else if !self.driver.has_passed(event)? {
                break;
            }
            self.done = step;
            self.marks.pop_front();
            self.spare.push(event);
        }
        let event = match self.spare.pop() {
            Some(event) => event,
            None => self.driver.new_event()?,
        };
        self.driver.record(event, self.stream)?;
        // The step that has begun has not been issued yet.
        self.marks.push_back((event, self.step - 1));
        Ok(())
    }

    /// The device has done everything.
    pub fn all_done(&mut self) {
        self.done = self.step;
        self.spare.extend(self.marks.drain(..).map(|(event, _)| event));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        for event in self.spare.drain(..).chain(self.marks.drain(..).map(|(event, _)| event)) {
            self.driver.drop_event(event);
        }
    }
}
