//! How far the device has come, how far the worker may run ahead of it, and how long it computes.
//!
//! What is issued is counted in steps, and points in the stream say which of them are done. This is the one place where
//! the stream of computation is marked and where other streams wait for it.

use crate::driver::{CudaEvent, CudaStream, Driver, Result};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Steps between two points at most.
const STEPS_PER_POINT: u64 = 128;
/// Points that the device may be behind: past this the worker waits for it.
const POINTS_MAX: usize = 64;

/// A place in the stream behind step `step`.
#[derive(Clone, Copy)]
struct Point {
    at: CudaEvent,
    step: u64,
    /// Where the time of the steps up to here begins: at the point before, or where the device had nothing to do.
    since: CudaEvent,
}

/// Counts steps, and marks the stream so that it is known which of them are done.
pub struct StreamProgress {
    driver: Arc<dyn Driver>,
    stream: CudaStream,
    step: u64,
    done: u64,
    /// Of the last point.
    pointed: u64,
    points: VecDeque<Point>,
    /// Where the time of the next point begins; none while the device has nothing to do.
    since: Option<CudaEvent>,
    computed_ns: u64,
    spare: Vec<CudaEvent>,
}

impl StreamProgress {
    /// Of a stream without work.
    pub fn new(driver: Arc<dyn Driver>, stream: CudaStream) -> StreamProgress {
        StreamProgress {
            driver,
            stream,
            step: 0,
            done: 0,
            pointed: 0,
            points: VecDeque::new(),
            since: None,
            computed_ns: 0,
            spare: Vec::new(),
        }
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

    /// Begins another step: whatever comes to the stream from now on. Waits for the device where it is too far behind.
    ///
    /// # Errors
    /// Those of the driver.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.step - self.pointed >= STEPS_PER_POINT {
            self.point()?;
            if self.points.len() > POINTS_MAX {
                self.reached(self.points[0].step, true)?;
            }
        }
        if self.since.is_none() {
            self.since = Some(self.record()?);
        }
        self.step += 1;
        Ok(())
    }

    fn record(&mut self) -> Result<CudaEvent> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => self.driver.new_timer()?,
        };
        self.driver.record(event, self.stream)?;
        Ok(event)
    }

    /// A point behind all steps so far, by the number of the last; none if they are known to be done.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn point(&mut self) -> Result<Option<u64>> {
        if self.step > self.pointed
            && let Some(since) = self.since
        {
            let at = self.record()?;
            self.points.push_back(Point { at, step: self.step, since });
            (self.pointed, self.since) = (self.step, Some(at));
        }
        Ok((self.step > self.done).then_some(self.step))
    }

    /// Lets what comes to `stream` from now on wait for all steps so far. Returns as [`StreamProgress::point`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn let_wait(&mut self, stream: CudaStream) -> Result<Option<u64>> {
        let point = self.point()?;
        if let (Some(_), Some(last)) = (point, self.points.back()) {
            self.driver.wait(stream, last.at)?;
        }
        Ok(point)
    }

    /// Lets the steps from the next on wait for `event` of another stream. The wait is no time of theirs.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn wait_for(&mut self, event: CudaEvent) -> Result<()> {
        self.point()?;
        self.driver.wait(self.stream, event)?;
        let begun = self.record()?;
        if let Some(since) = self.since.replace(begun)
            && self.points.back().is_none_or(|last| last.at != since)
        {
            self.spare.push(since);
        }
        self.next()
    }

    /// Waits until the device has done `step`, which has been issued.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn await_step(&mut self, step: u64) -> Result<()> {
        if self.pointed < step {
            self.point()?;
        }
        match self.points.iter().map(|point| point.step).find(|at| *at >= step) {
            Some(point) => self.reached(point, true).map(drop),
            None => Ok(()),
        }
    }

    /// Whether the device has come to a point; waits for it if `wait`.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn reached(&mut self, point: u64, wait: bool) -> Result<bool> {
        while let Some(Point { at, step, since }) = self.points.front().copied().filter(|first| first.step <= point) {
            if wait {
                self.driver.await_event(at)?;
            } else if !self.driver.has_passed(at)? {
                return Ok(false);
            }
            self.computed_ns += self.driver.elapsed_ns(since, at)?;
            self.done = step;
            self.points.pop_front();
            self.spare.push(since);
            let next = self.points.front().map(|next| next.since).or(self.since);
            if next != Some(at) {
                self.spare.push(at);
            } else if self.step == step {
                // Nothing to do: what comes next begins anew.
                self.spare.extend(self.since.take());
            }
        }
        Ok(true)
    }

    /// How long the device computed up to the points that have been reached since the last call, nanoseconds.
    pub fn take_computed_ns(&mut self) -> u64 {
        std::mem::take(&mut self.computed_ns)
    }
}

impl Drop for StreamProgress {
    fn drop(&mut self) {
        let points = self.points.drain(..).flat_map(|point| [point.at, point.since]);
        let events: HashSet<CudaEvent> = self.spare.drain(..).chain(points).chain(self.since).collect();
        events.into_iter().for_each(|event| self.driver.drop_event(event));
    }
}
