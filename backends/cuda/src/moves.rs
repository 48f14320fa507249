//! The state of transfers to and from other devices; see [`crate::peer`].

use crate::driver::{self, CudaEvent, CudaStream, Driver, DriverError};
use crate::memory::Loan;
use gt_backend::{EnqueuedTransfer, ExecError, Link};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// The end of a move.
pub(crate) struct Arrival {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) event: CudaEvent,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) outcome: OnceLock<Option<ExecError>>,
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

impl EnqueuedTransfer for Arrival {
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
pub(crate) struct Move {
    pub(crate) number: u64,
    pub(crate) arrival: Arc<Arrival>,
    pub(crate) lent: [Option<Loan>; 2],
}

/// The moves of a device.
pub(crate) struct Moves {
    pub(crate) stream: CudaStream,
    /// The last move that was issued, and the last that computation waits for.
    pub(crate) begun: u64,
    pub(crate) awaited: u64,
    /// Those in between, oldest first.
    pub(crate) open: VecDeque<Move>,
}

impl Moves {
    pub(crate) fn new(driver: &dyn Driver) -> driver::Result<Moves> {
        Ok(Moves { stream: driver.new_stream()?, begun: 0, awaited: 0, open: VecDeque::new() })
    }
}
