//! A session's tensors at one worker, and the session's state that dispatcher and worker share.

use super::exec_failure::defect;
use crate::table::WorkerTensor;
use gt_backend::{Cancellation, HostRange, MemoryUsage};
use gt_ops::failure::{Failure, Fault};
use gt_ops::wire::ArenaRange;
use gt_ops::{Op, TensorId};
use gt_protocol::limits::ARENAS_NUMBERED_MAX;
use gt_shm::Arena;
use std::collections::{BTreeSet, HashMap};
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
    /// By number; none for an arena that was returned.
    pub(super) arenas: Mutex<Vec<Option<Arena>>>,
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
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(Some(arena));
    }

    /// Adds the arena of this number.
    pub fn set_arena(&self, number: u32, arena: Arena) {
        let mut arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let number = number.min(ARENAS_NUMBERED_MAX) as usize;
        if number >= arenas.len() {
            arenas.resize(number + 1, None);
        }
        arenas[number] = Some(arena);
    }

    /// Removes an arena that the session has returned.
    pub fn drop_arena(&self, number: u32) -> Option<Arena> {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number as usize)?.take()
    }

    /// The memory of an arena, which stays mapped until the arena is removed.
    pub fn arena(&self, number: u32) -> Option<HostRange> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let arena = arenas.get(number as usize)?.as_ref()?;
        Some(host_range(&arena.range(0, arena.len()).ok()?))
    }

    /// The number of the next arena.
    pub fn arenas_end(&self) -> u32 {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).len() as u32
    }

    /// The bytes that `range` names, which stay mapped as long as the result lives.
    pub fn range(&self, range: &ArenaRange) -> Option<gt_shm::ArenaSlice> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let number = usize::try_from(range.segment).ok()?;
        arenas.get(number)?.as_ref()?.range(range.offset_bytes, range.len_bytes).ok()
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
    /// The elements that in-place operations which failed have left as they were, by the ids of their results. The
    /// results are poisoned until a fetch has reported the failure.
    kept: HashMap<TensorId, T>,
    /// The state that the dispatcher sees, too.
    pub shared: Arc<SessionShared>,
    /// The numbers of the session's arenas that are registered with the device.
    pub arenas_registered: BTreeSet<u32>,
}

impl<T> SessionTensors<T> {
    /// A table without tensors.
    pub fn new(shared: Arc<SessionShared>) -> SessionTensors<T> {
        SessionTensors { cells: Vec::new(), kept: HashMap::new(), shared, arenas_registered: BTreeSet::new() }
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
            if !self.kept.is_empty() {
                self.kept.remove(&id);
            }
        }
    }

    /// The elements that `id` keeps though an in-place operation has failed, or has if none has.
    pub fn elements(&self, id: TensorId) -> Option<&T> {
        match self.get(id)? {
            Ok(tensor) => Some(tensor),
            Err(_) => self.kept.get(&id),
        }
    }

    /// Stores the failure of an in-place operation whose result keeps the elements `kept`.
    pub fn put_kept(&mut self, id: TensorId, failure: Failure, kept: T) {
        self.put(id, Err(failure));
        self.kept.insert(id, kept);
    }

    /// Gives the tensors that an in-place operation has left as they were back to the program, which hears of the
    /// failure now.
    pub fn restore(&mut self, failure: &Failure) {
        if self.kept.is_empty() {
            return;
        }
        let failed = |id: TensorId| matches!(self.get(id), Some(Err(own)) if own.instruction == failure.instruction);
        let ids: Vec<TensorId> = self.kept.keys().copied().filter(|id| failed(*id)).collect();
        for id in ids {
            if let Some(tensor) = self.kept.remove(&id) {
                self.put(id, Ok(tensor));
            }
        }
    }

    /// The tensors that there are, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let held = self.cells.iter_mut().filter_map(|cell| match cell {
            Cell::Holds(_, Ok(tensor)) => Some(tensor),
            _ => None,
        });
        held.chain(self.kept.values_mut())
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
