//! Moves to and from other devices, on a stream of their own.
//!
//! A move begins when computation has come to where it was issued, and computation goes on beside it. A tensor that a
//! move makes has its number: the first kernel that reads one waits for the move, in the device, and with it for all
//! before. Until then the memory of both sides stays as it is; from then on it is used again in the order of
//! computation like any other. Whether a move went well is a check ([`crate::checks`]) of what it made.

use crate::checks::Checks;
use crate::driver::{self, Driver, DriverError, Event, Stream};
use crate::memory::Loan;
use crate::{CudaBackend, Result, Tensor, failed};
use gt_backend::{ExecError, Link, OnDevice, UnderWay};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// Moves whose memory nothing has waited for: past this, computation waits for the oldest.
const MOVES_MAX: usize = 64;

/// The end of a move.
pub(crate) struct Arrival {
    driver: Arc<dyn Driver>,
    event: Event,
    link: Arc<dyn Link>,
    outcome: OnceLock<Option<ExecError>>,
}

impl Arrival {
    /// Whether its end has been seen.
    pub(crate) fn is_known(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// Why it failed, if it has ended so.
    pub(crate) fn failure(&self) -> Option<&ExecError> {
        self.has_ended();
        self.outcome.get()?.as_ref()
    }
}

impl UnderWay for Arrival {
    fn has_ended(&self) -> bool {
        let ended = self.is_known()
            || match self.driver.has_passed(self.event) {
                Ok(passed) => passed,
                // Whatever else is asked of a lost device says so.
                Err(error) => matches!(error, DriverError::Lost { .. }),
            };
        if ended {
            self.outcome.get_or_init(|| self.link.failure());
        }
        ended
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.driver.drop_event(self.event);
    }
}

/// A move that computation has not waited for, and the memory that is its own until then.
struct Move {
    number: u64,
    arrival: Arc<Arrival>,
    lent: [Option<Loan>; 2],
}

/// The moves of a device.
pub(crate) struct Moves {
    stream: Stream,
    /// The last move that was issued, and the last that computation waits for.
    begun: u64,
    awaited: u64,
    /// Those in between, oldest first.
    open: VecDeque<Move>,
}

impl Moves {
    pub(crate) fn new(driver: &dyn Driver) -> driver::Result<Moves> {
        Ok(Moves { stream: driver.new_stream()?, begun: 0, awaited: 0, open: VecDeque::new() })
    }
}

impl CudaBackend {
    /// Lets computation wait for `tensor`, if a move makes it.
    #[inline]
    pub(crate) fn arrive(&mut self, tensor: &Tensor) -> Result<()> {
        if tensor.arrival > self.moves.awaited { self.wait_for_moves(tensor.arrival) } else { Ok(()) }
    }

    /// Lets computation wait for a move, and with it for those before.
    #[cold]
    fn wait_for_moves(&mut self, number: u64) -> Result<()> {
        let count = self.moves.open.iter().take_while(|open| open.number <= number).count();
        self.moves.awaited = number;
        let Some(last) = count.checked_sub(1).map(|last| &self.moves.open[last].arrival) else { return Ok(()) };
        if !last.is_known() {
            self.progress.wait_for(last.event).map_err(failed)?;
        }
        // What they had is now used again in the order of computation.
        for loan in self.moves.open.drain(..count).flat_map(|open| open.lent).flatten() {
            self.memory.take_back(&loan);
        }
        Ok(())
    }

    /// See [`gt_backend::Backend::communicate`].
    pub(crate) fn give_to_link(
        &mut self,
        link: &Arc<dyn Link>,
        input: Option<&Tensor>,
        output: Option<&mut Tensor>,
        enqueue: &mut dyn FnMut(OnDevice) -> Result<()>,
    ) -> Result<()> {
        if self.moves.open.len() >= MOVES_MAX {
            self.wait_for_moves(self.moves.open[MOVES_MAX / 2].number)?;
        }
        let stream = self.moves.stream;
        self.driver.enter().map_err(failed)?;
        let event = self.driver.new_event().map_err(failed)?;
        let (driver, to) = (self.driver.clone(), link.clone());
        let arrival = Arc::new(Arrival { driver, event, link: to, outcome: OnceLock::new() });
        self.progress.let_wait(stream).map_err(failed)?;
        let at = |tensor: Option<&Tensor>| tensor.filter(|t| t.meta.bytes() > 0).map_or(0, Tensor::ptr);
        let (input_at, output_at) = (at(input), at(output.as_deref()));
        let enqueued = enqueue(OnDevice { input: input_at, output: output_at, stream: self.driver.raw(stream) });
        // Also what was enqueued in part has its memory until it has ended.
        self.driver.record(event, stream).map_err(failed)?;
        link.begun(arrival.clone());
        self.moves.begun += 1;
        let number = self.moves.begun;
        let lend = |tensor: &Tensor| self.memory.lend(&tensor.buffer, event);
        let lent = [input.map(lend), output.as_deref().map(lend)];
        self.moves.open.push_back(Move { number, arrival: arrival.clone(), lent });
        if let Some(output) = output {
            let (step, done) = (self.progress.step(), self.progress.done());
            output.arrival = number;
            output.checks.join(&Checks::of_move(arrival, step, self.label), done);
            if let Some(input) = input {
                output.checks.join(&input.checks, done);
            }
        }
        enqueued
    }
}
