//! Errors that only the device can find: an index out of range, a division by zero.
//!
//! A kernel that may find an error gets a [`Slot`] in memory that the device shares with the host, and reports there.
//! Its result, and every tensor computed from it, carries the [`Check`]; a read of such a tensor looks at the slot once
//! the device is done. The CUDA context survives, since a kernel that finds an error reports it and goes on instead of
//! trapping. Tensors drop checks that have passed.

use crate::driver::{DevicePtr, Driver};
use crate::moves::Arrival;
use gt_backend::ExecError;
use gt_ops::Op;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// The most checks that are pending at one time.
pub const SLOTS: usize = 4096;

/// A kernel's report: `struct Found` of `checks.cuh`.
#[repr(C)]
struct CheckFinding {
    /// 0 for no error; else one of the constants below.
    kind: AtomicI32,
    axis: AtomicI32,
    index: AtomicI64,
    size: AtomicI64,
    /// The element's position in the instruction, and the lock of this report; only the device uses them.
    position: AtomicI64,
    lock: AtomicI32,
    unused: AtomicI32,
}

const INDEX_OUT_OF_RANGE: i32 = 1;
const ZERO_DIVISION: i32 = 2;

/// The device address of a kernel's report.
#[derive(Clone, Copy, Debug)]
pub struct Slot(pub DevicePtr);

/// The slots of one device.
pub struct CheckBoard {
    shared: Arc<SharedChecks>,
    /// Checks that may still own their slot.
    open: Vec<Weak<Check>>,
}

struct SharedChecks {
    driver: Arc<dyn Driver>,
    slots: NonNull<CheckFinding>,
    /// Free slots, each with the step that must be done before the slot is reused.
    free: Mutex<VecDeque<(usize, u64)>>,
}

// SAFETY: the host accesses slots only as atomics, and they are freed when this is dropped.
unsafe impl Send for SharedChecks {}
// SAFETY: the host accesses slots only as atomics.
unsafe impl Sync for SharedChecks {}

/// A pending check.
pub struct Check {
    source: CheckSource,
    /// The step whose kernel may find the error; see [`crate::progress`].
    step: u64,
    /// The label of the instruction; see [`gt_backend::Backend::label`].
    label: u64,
    op: Option<Op>,
    /// The outcome, once it has been read: the error, or `None` if the check passed. The slot is free from then on.
    verdict: OnceLock<Option<ExecError>>,
}

/// Where a check's error comes from.
enum CheckSource {
    /// A kernel that reports in this slot.
    Slot(Arc<SharedChecks>, usize),
    /// A transfer between devices.
    Move(Arc<Arrival>),
}

/// The checks that a tensor depends on, sorted by key.
#[derive(Clone, Default)]
pub struct Checks(Option<Arc<Vec<Arc<Check>>>>);

impl CheckBoard {
    /// The slots of a device, all free.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(driver: Arc<dyn Driver>) -> crate::driver::Result<CheckBoard> {
        let slots = driver.allocate_host(SLOTS * size_of::<CheckFinding>())?.cast();
        let free = Mutex::new((0..SLOTS).map(|slot| (slot, 0)).collect());
        Ok(CheckBoard { shared: Arc::new(SharedChecks { driver, slots, free }), open: Vec::new() })
    }

    /// A check for a kernel of step `step`, which computes `op` of the instruction `label`; none if all slots are in
    /// use until the device has done more than step `done`.
    pub fn begin(&mut self, step: u64, done: u64, (label, op): (u64, Op)) -> Option<(Slot, Checks)> {
        let slot = self.shared.take(done).or_else(|| {
            self.open.retain(|check| check.upgrade().is_some_and(|check| !check.is_settled(done)));
            self.shared.take(done)
        })?;
        let source = CheckSource::Slot(self.shared.clone(), slot);
        let check = Arc::new(Check { source, step, label, op: Some(op), verdict: OnceLock::new() });
        self.open.push(Arc::downgrade(&check));
        if self.open.len() > 2 * SLOTS {
            self.open.retain(|check| check.strong_count() > 0);
        }
        let place = std::ptr::from_ref(self.shared.found(slot)) as DevicePtr;
        Some((Slot(place), Checks(Some(Arc::new(vec![check])))))
    }
}

#[cfg(test)]
impl CheckBoard {
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }
}

impl SharedChecks {
    fn found(&self, slot: usize) -> &CheckFinding {
        // SAFETY: `slots` holds `SLOTS` reports, `slot` is below that, and they live as long as `self`.
        unsafe { self.slots.add(slot).as_ref() }
    }

    fn take(&self, done: u64) -> Option<usize> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.front().filter(|(_, step)| *step <= done)?;
        let (slot, _) = free.pop_front()?;
        self.found(slot).kind.store(0, Release);
        Some(slot)
    }

    fn give(&self, slot: usize, step: u64) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push_back((slot, step));
    }
}

impl Check {
    /// A unique key: a step uses each slot at most once.
    fn key(&self) -> (u64, usize) {
        match self.source {
            CheckSource::Slot(_, slot) => (self.step, slot),
            // A transfer is the only check of its step.
            CheckSource::Move(_) => (self.step, usize::MAX),
        }
    }

    /// The error that the check found, if any. The device must have done a kernel's step before; a transfer that has
    /// not ended has no error yet.
    fn verdict(&self) -> Option<&ExecError> {
        let (shared, slot) = match &self.source {
            CheckSource::Slot(shared, slot) => (shared, *slot),
            CheckSource::Move(arrival) => return arrival.failure(),
        };
        let look = || {
            let found = shared.found(slot);
            let error = match found.kind.load(Acquire) {
                0 => None,
                INDEX_OUT_OF_RANGE => Some(ExecError::IndexOutOfRange {
                    index: found.index.load(Relaxed),
                    axis: found.axis.load(Relaxed) as usize,
                    size: found.size.load(Relaxed) as usize,
                }),
                ZERO_DIVISION => Some(ExecError::ZeroDivision),
                other => Some(ExecError::internal(format!("a kernel found {other}"))),
            };
            shared.give(slot, self.step);
            error
        };
        self.verdict.get_or_init(look).as_ref()
    }

    /// Whether the outcome is known, given that the device has done step `done`.
    fn is_settled(&self, done: u64) -> bool {
        if let CheckSource::Move(arrival) = &self.source {
            return arrival.is_known();
        }
        if self.step <= done {
            self.verdict();
        }
        self.verdict.get().is_some()
    }

    /// Whether the check has passed, given that the device has done step `done`.
    fn has_passed(&self, done: u64) -> bool {
        self.is_settled(done) && self.verdict().is_none()
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        if let (CheckSource::Slot(shared, slot), None) = (&self.source, self.verdict.get()) {
            shared.give(*slot, self.step);
        }
    }
}

impl Drop for SharedChecks {
    fn drop(&mut self) {
        // SAFETY: `slots` came from this driver's `allocate_host`, and `drop` means that no check refers to them.
        unsafe { self.driver.free_host(self.slots.cast()) };
    }
}

/// Whether `all` contains `some`; both are sorted.
fn has_all(all: &[Arc<Check>], some: &[Arc<Check>]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|check| rest.any(|other| Arc::ptr_eq(check, other)))
}

impl Checks {
    /// The check of a transfer between devices, step `step` of the instruction `label`.
    pub fn of_move(arrival: Arc<Arrival>, step: u64, label: u64) -> Checks {
        let check = Check { source: CheckSource::Move(arrival), step, label, op: None, verdict: OnceLock::new() };
        Checks(Some(Arc::new(vec![Arc::new(check)])))
    }

    /// The last step whose kernel may still find an error.
    pub fn last_step(&self, done: u64) -> Option<u64> {
        let open = self.0.iter().flat_map(|checks| checks.iter());
        let open = open.filter(|check| matches!(check.source, CheckSource::Slot(..)) && !check.is_settled(done));
        open.map(|check| check.step).max()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |checks| checks.len())
    }

    /// Whether there are no checks.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds the checks of `other`, and drops those that passed by step `done`, the last that the device is known to
    /// have done.
    pub fn join(&mut self, other: &Checks, done: u64) {
        let Some(theirs) = &other.0 else { return };
        let ours = self.0.as_deref().map_or(&[][..], Vec::as_slice);
        let is_open = |check: &&Arc<Check>| !check.has_passed(done);
        // Nearly always one list contains the other and is kept as it is.
        if !ours.is_empty() && has_all(ours, theirs) {
            return;
        }
        if has_all(theirs, ours) && theirs.iter().all(|check| is_open(&check)) {
            self.0 = Some(theirs.clone());
            return;
        }
        let mut all: Vec<Arc<Check>> = ours.iter().chain(theirs.iter()).filter(is_open).cloned().collect();
        all.sort_unstable_by_key(|check| check.key());
        all.dedup_by_key(|check| check.key());
        self.0 = (!all.is_empty()).then(|| Arc::new(all));
    }

    /// Checks that no error was found. The device must have done the steps of all checks.
    ///
    /// # Errors
    /// [`ExecError::Earlier`] with the first error.
    pub fn wait(&self) -> Result<(), ExecError> {
        let failed = self.0.iter().flat_map(|checks| checks.iter()).filter(|check| check.verdict().is_some());
        match failed.min_by_key(|check| check.step).and_then(|check| Some((check, check.verdict()?.clone()))) {
            Some((_, lost @ ExecError::Lost(_))) => Err(lost),
            Some((check, error)) => {
                Err(ExecError::Earlier { label: check.label, op: check.op, error: Box::new(error) })
            }
            None => Ok(()),
        }
    }
}
