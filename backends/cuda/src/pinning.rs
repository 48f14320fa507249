//! Pinning of host memory, from and to which the device copies directly.
//!
//! The driver takes a tenth of a second to pin a gigabyte, in which a worker would serve nobody. So a thread pins
//! memory piece by piece; until a piece is pinned, transfers with it go through staging buffers.

use crate::driver::{self, Driver};
use gt_backend::HostRange;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes of a piece: a multiple of the page size, which takes some milliseconds.
const PIECE_BYTES: usize = 64 << 20;

/// The driver's calls, which tests replace.
trait PinCalls: Send + Sync {
    /// Pins a piece, which stays mapped until it is released.
    fn pin(&self, piece: HostRange) -> driver::Result<()>;
    /// Releases a piece that was pinned, and that no transfer uses.
    fn release(&self, piece: HostRange) -> driver::Result<()>;
}

impl PinCalls for Arc<dyn Driver> {
    fn pin(&self, piece: HostRange) -> driver::Result<()> {
        let Some(start) = NonNull::new(piece.as_ptr()) else { return Ok(()) };
        // SAFETY: `PinnedMemory::add` requires that the piece stays mapped until it is withdrawn, which waits for this.
        unsafe { self.register(start, piece.len()) }
    }

    fn release(&self, piece: HostRange) -> driver::Result<()> {
        let Some(start) = NonNull::new(piece.as_ptr()) else { return Ok(()) };
        // SAFETY: the piece was pinned, and `PinnedMemory::withdraw` requires that its transfers have ended.
        unsafe { self.unregister(start) }
    }
}

/// The host memory that is pinned, and that a thread is pinning.
pub(crate) struct PinnedMemory {
    shared: Arc<PinningShared>,
    /// Started for the first range.
    thread: Option<JoinHandle<()>>,
}

struct PinningShared {
    calls: Box<dyn PinCalls>,
    state: Mutex<PinningState>,
    changed: Condvar,
}

#[derive(Default)]
struct PinningState {
    wanted: VecDeque<HostRange>,
    /// The piece that the thread pins now.
    current: Option<HostRange>,
    pinned: Vec<HostRange>,
    is_stopping: bool,
}

impl PinnedMemory {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> PinnedMemory {
        PinnedMemory::with(Box::new(driver))
    }

    fn with(calls: Box<dyn PinCalls>) -> PinnedMemory {
        let shared = PinningShared { calls, state: Mutex::default(), changed: Condvar::new() };
        PinnedMemory { shared: Arc::new(shared), thread: None }
    }

    /// Pins a range soon.
    ///
    /// # Safety
    /// The range stays mapped until [`PinnedMemory::withdraw`] has returned, or this value is dropped.
    pub(crate) unsafe fn add(&mut self, range: HostRange) {
        self.shared.state().wanted.extend(pieces(range));
        self.shared.changed.notify_all();
        if self.thread.is_none() {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new().name("gt-pins".into()).spawn(move || shared.pin_all());
            match started {
                Ok(thread) => self.thread = Some(thread),
                // Transfers go through the staging buffers.
                Err(error) => tracing::warn!(target: "gtd::cuda", %error, "memory is not pinned"),
            }
        }
    }

    /// Pins nothing more of a range, and releases what was pinned of it. No transfer uses the range.
    pub(crate) fn withdraw(&mut self, range: HostRange) {
        let mut state = self.shared.state();
        state.wanted.retain(|piece| !is_within(piece, &range));
        while self.thread.is_some() && state.current.is_some_and(|piece| is_within(&piece, &range)) {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (withdrawn, kept) = state.pinned.iter().partition(|piece| is_within(piece, &range));
        state.pinned = kept;
        drop(state);
        let withdrawn: Vec<HostRange> = withdrawn;
        for piece in withdrawn {
            if let Err(error) = self.shared.calls.release(piece) {
                tracing::warn!(target: "gtd::cuda", %error, "memory could not be unregistered");
            }
        }
    }

    /// The lengths of the parts of a range, each of which lies in one pinned piece; none unless all of it is pinned.
    pub(crate) fn parts(&self, range: HostRange) -> Option<Vec<usize>> {
        let state = self.shared.state();
        let (mut at, end) = (range.as_ptr() as usize, range.as_ptr() as usize + range.len());
        let mut parts = Vec::new();
        while at < end {
            let piece = state.pinned.iter().find(|piece| {
                let start = piece.as_ptr() as usize;
                (start..start + piece.len()).contains(&at)
            })?;
            let part = end.min(piece.as_ptr() as usize + piece.len()) - at;
            parts.push(part);
            at += part;
        }
        Some(parts)
    }

    /// Waits until the thread has nothing left to pin.
    pub(crate) fn settle(&self) {
        let mut state = self.shared.state();
        while self.thread.is_some() && (state.current.is_some() || !state.wanted.is_empty()) {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        self.shared.state().is_stopping = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

impl PinningShared {
    fn state(&self) -> MutexGuard<'_, PinningState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pins what is wanted until it is told to stop.
    fn pin_all(&self) {
        let mut state = self.state();
        while !state.is_stopping {
            let Some(piece) = state.wanted.pop_front() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.current = Some(piece);
            drop(state);
            let pinned = self.calls.pin(piece);
            state = self.state();
            state.current = None;
            match pinned {
                Ok(()) => state.pinned.push(piece),
                // Transfers with this piece then go through the staging buffers.
                Err(error) => tracing::debug!(target: "gtd::cuda", %error, "memory could not be registered"),
            }
            self.changed.notify_all();
        }
    }
}

/// The pieces of a range.
fn pieces(range: HostRange) -> impl Iterator<Item = HostRange> {
    (0..range.len()).step_by(PIECE_BYTES).filter_map(move |at| {
        // SAFETY: `at` is less than `range.len()`, so the piece lies in the range.
        let start = NonNull::new(unsafe { range.as_ptr().add(at) })?;
        // SAFETY: the piece lies in the range, which is mapped while this is in use.
        Some(unsafe { HostRange::new(start, PIECE_BYTES.min(range.len() - at)) })
    })
}

fn is_within(piece: &HostRange, range: &HostRange) -> bool {
    let (start, from) = (piece.as_ptr() as usize, range.as_ptr() as usize);
    from <= start && start + piece.len() <= from + range.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::DriverError;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Calls that tell of each pin, and return once the test lets them.
    struct Gated {
        told: Mutex<Sender<(&'static str, usize, usize)>>,
        allowed: Mutex<Receiver<bool>>,
    }

    impl PinCalls for Gated {
        fn pin(&self, piece: HostRange) -> driver::Result<()> {
            self.tell("pin", piece);
            let allowed = self.allowed.lock().unwrap().recv().unwrap_or(false);
            if allowed { Ok(()) } else { Err(DriverError::OutOfMemory) }
        }

        fn release(&self, piece: HostRange) -> driver::Result<()> {
            self.tell("release", piece);
            Ok(())
        }
    }

    impl Gated {
        fn tell(&self, what: &'static str, piece: HostRange) {
            let _ = self.told.lock().unwrap().send((what, piece.as_ptr() as usize, piece.len()));
        }
    }

    struct Pinning {
        memory: PinnedMemory,
        told: Receiver<(&'static str, usize, usize)>,
        allow: Sender<bool>,
    }

    fn pinning() -> Pinning {
        let ((told_to, told), (allow, allowed)) = (channel(), channel());
        let calls = Gated { told: Mutex::new(told_to), allowed: Mutex::new(allowed) };
        Pinning { memory: PinnedMemory::with(Box::new(calls)), told, allow }
    }

    /// Where the ranges of the tests begin. Nobody accesses them.
    const START: usize = 1 << 40;

    fn range(from: usize, to: usize) -> HostRange {
        let start = NonNull::new(std::ptr::without_provenance_mut(START + from)).unwrap();
        // SAFETY: the calls of the tests do not access the range.
        unsafe { HostRange::new(start, to - from) }
    }

    #[test]
    fn memory_is_pinned_piece_by_piece_while_the_worker_goes_on() {
        let Pinning { mut memory, told, allow } = pinning();
        let whole = range(0, 2 * PIECE_BYTES + 100);
        // SAFETY: nobody accesses the range.
        unsafe { memory.add(whole) };
        for (piece, bytes) in [(0, PIECE_BYTES), (1, PIECE_BYTES), (2, 100)] {
            assert_eq!(told.recv(), Ok(("pin", START + piece * PIECE_BYTES, bytes)));
            // The piece is not used before it is pinned; those before it are.
            assert_eq!(memory.parts(range(piece * PIECE_BYTES, piece * PIECE_BYTES + 10)), None);
            if piece > 0 {
                assert_eq!(memory.parts(range(7, 17)), Some(vec![10]));
            }
            allow.send(true).unwrap();
        }
        memory.settle();
        assert_eq!(memory.parts(whole), Some(vec![PIECE_BYTES, PIECE_BYTES, 100]));
        assert_eq!(memory.parts(range(PIECE_BYTES - 3, PIECE_BYTES + 4)), Some(vec![3, 4]));
        assert_eq!(memory.parts(range(0, 0)), Some(Vec::new()));
        assert_eq!(memory.parts(range(10, whole.len() + 1)), None);
        memory.withdraw(whole);
        let released: Vec<_> = told.try_iter().collect();
        assert_eq!(released.iter().map(|(what, ..)| *what).collect::<Vec<_>>(), ["release"; 3]);
        assert_eq!(memory.parts(range(0, 10)), None);
    }

    #[test]
    fn memory_that_goes_while_it_is_pinned_is_waited_for_and_released() {
        let Pinning { mut memory, told, allow } = pinning();
        let (first, second) = (range(0, 2 * PIECE_BYTES), range(4 * PIECE_BYTES, 4 * PIECE_BYTES + 50));
        // SAFETY: nobody accesses the ranges.
        unsafe {
            memory.add(first);
            memory.add(second);
        }
        assert_eq!(told.recv(), Ok(("pin", START, PIECE_BYTES)));
        let shared = memory.shared.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| memory.withdraw(first));
            while shared.state().wanted.len() > 1 {
                std::thread::yield_now();
            }
            allow.send(true).unwrap();
        });
        // The piece that was being pinned is released, and the second of the range never pinned.
        allow.send(true).unwrap();
        memory.settle();
        let mut said: Vec<_> = told.try_iter().collect();
        said.sort_unstable();
        assert_eq!(said, [("pin", START + 4 * PIECE_BYTES, 50), ("release", START, PIECE_BYTES)]);
        assert_eq!(memory.parts(second), Some(vec![50]));
    }

    #[test]
    fn what_cannot_be_pinned_is_not_used() {
        let Pinning { mut memory, allow, .. } = pinning();
        let whole = range(0, 2 * PIECE_BYTES);
        for is_allowed in [false, true] {
            allow.send(is_allowed).unwrap();
        }
        // SAFETY: nobody accesses the range.
        unsafe { memory.add(whole) };
        memory.settle();
        assert_eq!(memory.parts(whole), None);
        assert_eq!(memory.parts(range(PIECE_BYTES, 2 * PIECE_BYTES)), Some(vec![PIECE_BYTES]));
    }
}
