//! Progress of the device: which steps are done, how far the worker may run ahead, and how long the device computes.
//!
//! Issued work is counted in steps. Events in the stream, called points, tell which steps are done. Other files
//! record events in the compute stream only to time products and kernels, and none makes other streams wait for it.

use crate::driver::{CudaEvent, CudaStream, Driver, Result};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// The most steps between two points.
const STEPS_PER_POINT: u64 = 128;
/// The most recorded points that the device may not have reached yet; with more, the worker waits.
const POINTS_MAX: usize = 64;

/// An event that the stream reaches when step `step` and all earlier ones are done.
#[derive(Clone, Copy)]
struct Point {
    at: CudaEvent,
    step: u64,
    /// The event from which the time of the point's steps counts: the point before, or the end of an idle period or of
    /// a wait for another stream.
    since: CudaEvent,
}

/// Counts steps, and records points in the stream.
pub struct StreamProgress {
    driver: Arc<dyn Driver>,
    stream: CudaStream,
    step: u64,
    done: u64,
    /// The step of the last recorded point.
    pointed: u64,
    points: VecDeque<Point>,
    /// The event from which the time of the next point's steps counts; `None` while the device is idle.
    since: Option<CudaEvent>,
    computed_ns: u64,
    spare: Vec<CudaEvent>,
}

impl StreamProgress {
    /// The progress of a stream without work.
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

    /// The last step that is known to be done.
    #[inline]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Begins another step for the work issued from here on. Waits for the device if it is too far behind.
    ///
    /// # Errors
    /// If a call to the driver fails.
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

    /// Records a point after all steps so far, and returns the last step's number; `None` if all steps are known to be
    /// done.
    ///
    /// # Errors
    /// If a call to the driver fails.
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

    /// Makes later work of `stream` wait for all steps so far. Returns the result of [`StreamProgress::point`].
    ///
    /// # Errors
    /// If a call to the driver fails.
    pub fn let_wait(&mut self, stream: CudaStream) -> Result<Option<u64>> {
        let point = self.point()?;
        if let (Some(_), Some(last)) = (point, self.points.back()) {
            self.driver.wait(stream, last.at)?;
        }
        Ok(point)
    }

    /// Makes the next step and all later ones wait for `event` of another stream. The wait does not count as computing.
    ///
    /// # Errors
    /// If a call to the driver fails.
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
    /// If a call to the driver fails.
    pub fn await_step(&mut self, step: u64) -> Result<()> {
        if self.pointed < step {
            self.point()?;
        }
        match self.points.iter().map(|point| point.step).find(|at| *at >= step) {
            Some(point) => self.reached(point, true).map(drop),
            None => Ok(()),
        }
    }

    /// True if the device has passed all recorded points up to step `point`; if `wait`, blocks until it has.
    ///
    /// # Errors
    /// If a call to the driver fails.
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
                // The device is idle: the next step records another event to count from.
                self.spare.extend(self.since.take());
            }
        }
        Ok(true)
    }

    /// Nanoseconds that the device computed up to the points passed since the last call.
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
