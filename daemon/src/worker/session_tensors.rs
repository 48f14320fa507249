//! A session's tensors at one worker, and the session's state that dispatcher and worker share.

use super::exec_failure::defect;
use crate::table::WorkerTensor;
use gt_backend::{Cancellation, HostRange, MemoryUsage};
use gt_ops::failure::{Failure, Fault};
use gt_ops::wire::ArenaRange;
use gt_ops::{Op, TensorId};
use gt_protocol::limits::ARENAS_PER_SESSION_MAX;
use gt_shm::Arena;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

/// The state of a session that its dispatcher and its worker share.
#[derive(Debug)]
pub struct SessionShared {
    /// Counts the memory of the session's tensors at the worker.
    pub usage: Arc<MemoryUsage>,
    /// Bytes of the tensors at the last report.
    pub held_bytes: AtomicUsize,
    /// The instructions that are cancelled, by the client's ids of their results. When the session has ended it covers
    /// all, and the queued steps are skipped.
    pub cancellation: Arc<Cancellation>,
    /// Why tensors from before the worker's last start are missing.
    lost: Option<Fault>,
    pub(super) arenas: Mutex<Vec<Arena>>,
}

impl SessionShared {
    /// The state of a session without arenas. `lost` tells why its earlier tensors are missing, if it had any.
    pub fn new(usage: Arc<MemoryUsage>, lost: Option<Fault>) -> SessionShared {
        SessionShared::with(usage, lost, Arc::default())
    }

    /// As [`new`](Self::new), with instructions that `cancellation` cancels.
    pub fn with(usage: Arc<MemoryUsage>, lost: Option<Fault>, cancellation: Arc<Cancellation>) -> SessionShared {
        SessionShared { usage, held_bytes: AtomicUsize::new(0), cancellation, lost, arenas: Mutex::default() }
    }

    /// The failure of an instruction that names a tensor which the worker does not have. That is a defect, unless the
    /// tensor was lost, or the session has ended and the step that makes the tensor was skipped. (Reshards are never
    /// skipped, as other workers wait for them.)
    #[cold]
    pub fn missing(&self, what: &'static str, instruction: TensorId, op: Option<Op>) -> Failure {
        match self.lost {
            Some(fault) => Failure { fault, instruction, op },
            None if self.cancellation.covers_all() => Failure { fault: Fault::Internal, instruction, op },
            None => defect(what, instruction, op),
        }
    }

    /// Adds the next arena.
    pub fn add_arena(&self, arena: Arena) {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(arena);
    }

    /// The memory of each arena, which stays mapped as long as `self` lives.
    pub fn arenas(&self) -> impl Iterator<Item = HostRange> + use<> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let ranges: Vec<HostRange> =
            arenas.iter().filter_map(|arena| Some(host_range(&arena.range(0, arena.len()).ok()?))).collect();
        ranges.into_iter()
    }

    /// The bytes that `range` names, which stay mapped as long as the result lives.
    pub fn range(&self, range: &ArenaRange) -> Option<gt_shm::ArenaSlice> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let segment =
            usize::try_from(range.segment).ok().filter(|segment| *segment < ARENAS_PER_SESSION_MAX as usize)?;
        arenas.get(segment)?.range(range.offset_bytes, range.len_bytes).ok()
    }
}

/// A range of an arena, for a backend to copy from or to.
pub fn host_range(range: &gt_shm::ArenaSlice) -> HostRange {
    let start = NonNull::new(range.as_ptr()).unwrap_or(NonNull::dangling());
    // SAFETY: `Arena::range` checked that the range lies in the arena, which is mapped for reading and writing and
    // stays so while `range` lives; callers keep `range` until the transfer has ended (`InFlightTransfer`). No Rust
    // reference into an arena is ever made.
    unsafe { HostRange::new(start, range.len()) }
}

enum Cell<T> {
    Vacant,
    Holds(WorkerTensor, Result<T, Failure>),
}

/// The tensors of one session at a worker: values, or the failures that poisoned them.
pub struct SessionTensors<T> {
    cells: Vec<Cell<T>>,
    /// The state that the dispatcher sees, too.
    pub shared: Arc<SessionShared>,
    /// How many of the session's arenas are registered with the device.
    pub arenas_registered: usize,
}

impl<T> SessionTensors<T> {
    /// A table without tensors.
    pub fn new(shared: Arc<SessionShared>) -> SessionTensors<T> {
        SessionTensors { cells: Vec::new(), shared, arenas_registered: 0 }
    }

    /// The value of `id`; none if the worker does not have it.
    #[inline]
    pub fn get(&self, id: TensorId) -> Option<&Result<T, Failure>> {
        let at = WorkerTensor::from_id(id);
        match self.cells.get(at.slot()) {
            Some(Cell::Holds(found, value)) if *found == at => Some(value),
            _ => None,
        }
    }

    /// The value of `id`, to change it.
    pub fn get_mut(&mut self, id: TensorId) -> Option<&mut Result<T, Failure>> {
        let at = WorkerTensor::from_id(id);
        match self.cells.get_mut(at.slot()) {
            Some(Cell::Holds(found, value)) if *found == at => Some(value),
            _ => None,
        }
    }

    /// Stores the value of `id`.
    #[inline]
    pub fn put(&mut self, id: TensorId, value: Result<T, Failure>) {
        let at = WorkerTensor::from_id(id);
        if at.slot() >= self.cells.len() {
            self.cells.resize_with(at.slot() + 1, || Cell::Vacant);
        }
        self.cells[at.slot()] = Cell::Holds(at, value);
    }

    /// Drops the value of `id`, if there is one.
    #[inline]
    pub fn take(&mut self, id: TensorId) {
        let at = WorkerTensor::from_id(id);
        if let Some(cell @ Cell::Holds(..)) = self.cells.get_mut(at.slot())
            && matches!(cell, Cell::Holds(found, _) if *found == at)
        {
            *cell = Cell::Vacant;
        }
    }

    /// Returns the memory of vacant cells at the end of the table.
    pub fn trim(&mut self) {
        while matches!(self.cells.last(), Some(Cell::Vacant)) {
            self.cells.pop();
        }
        self.cells.shrink_to_fit();
    }

    /// Whether the table has no cells, vacant or not.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}
