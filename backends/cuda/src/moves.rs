//! The state of transfers to and from other devices; see [`crate::peer`].

use crate::driver::{self, CudaEvent, CudaStream, Driver, DriverError};
use crate::memory::Loan;
use gt_backend::{EnqueuedTransfer, ExecError, Link};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// The end of a transfer between devices.
pub(crate) struct Arrival {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) event: CudaEvent,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) outcome: OnceLock<Option<ExecError>>,
}

impl Arrival {
    /// Whether the end has been observed.
    pub(crate) fn is_known(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// The error of a transfer that has failed.
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
                // Other calls to a lost device report the loss.
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

/// A transfer that computation has not waited for, with the memory that it uses.
pub(crate) struct Move {
    pub(crate) number: u64,
    pub(crate) arrival: Arc<Arrival>,
    pub(crate) lent: [Option<Loan>; 2],
}

/// The transfers of a device.
pub(crate) struct Moves {
    pub(crate) stream: CudaStream,
    /// The numbers of the last transfer issued, and of the last that computation waits for.
    pub(crate) begun: u64,
    pub(crate) awaited: u64,
    /// The transfers in between, oldest first.
    pub(crate) open: VecDeque<Move>,
}

impl Moves {
    pub(crate) fn new(driver: &dyn Driver) -> driver::Result<Moves> {
        Ok(Moves { stream: driver.new_stream()?, begun: 0, awaited: 0, open: VecDeque::new() })
    }
}
