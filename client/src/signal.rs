//! Signals: a thread issues instructions under a signal, whose definition tells the daemon where to place their
//! results.
//!
//! A thread is under one signal at a time, or under none. The session sends a command to the daemon where the signal
//! changes and, before the first instruction under a signal, its definition. A recorded op remembers the signal under
//! which its gradient is computed.

use crate::error::Result;
use crate::lock::SpinLock;
use crate::visible_workers::VisibleWorkers;
use gt_ops::OpError;
use gt_ops::placement::{RequestedLayout, RequestedPlacement, Workers};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// No signal.
pub const NONE: u32 = 0;
/// Stands for the signal of the thread that calls `backward`: the gradients are computed under that.
const CALLERS: u32 = u32::MAX;

/// The signal that a thread's instructions are under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveSignal {
    /// The signal of the instructions.
    signal: u32,
    /// The signal under which the gradients of the ops recorded meanwhile are computed.
    backward: u32,
}

impl ActiveSignal {
    /// No signal.
    pub const NONE: ActiveSignal = ActiveSignal { signal: NONE, backward: CALLERS };
    /// Asks the lookup hook whenever the signal is needed: the host language may run several tasks on one thread.
    pub const ASK_HOST: ActiveSignal = ActiveSignal { signal: u32::MAX, backward: CALLERS };

    /// Instructions run under `signal`, their gradients under `backward`: by default, the one in `signal`'s definition.
    pub fn new(signal: u32, backward: Option<u32>) -> ActiveSignal {
        ActiveSignal { signal, backward: backward.unwrap_or_else(|| backward_of(signal)) }
    }
    /// The signal of the instructions.
    #[inline]
    pub fn signal(self) -> u32 {
        self.signal
    }
    #[inline]
    pub(crate) fn backward(self) -> u32 {
        self.backward
    }
    /// Both signals, packed into one word.
    pub fn bits(self) -> u64 {
        (self.backward as u64) << 32 | self.signal as u64
    }
    /// The signals that [`ActiveSignal::bits`] packed.
    pub fn from_bits(bits: u64) -> ActiveSignal {
        ActiveSignal { signal: bits as u32, backward: (bits >> 32) as u32 }
    }
}

/// Whether any thread was ever under a signal. Programs without signals pay for one load an instruction.
static USED: AtomicBool = AtomicBool::new(false);
thread_local! {
    static CURRENT: Cell<ActiveSignal> = const { Cell::new(ActiveSignal::NONE) };
}

/// Returns the signal of the host language's task that runs on this thread.
pub type LookupHook = fn() -> ActiveSignal;
static LOOKUP: OnceLock<LookupHook> = OnceLock::new();

/// Installs the hook for threads that were set to [`ActiveSignal::ASK_HOST`].
pub fn set_lookup_hook(hook: LookupHook) {
    let _ = LOOKUP.set(hook);
}

/// The signal that this thread's instructions are under.
#[inline]
pub fn current() -> ActiveSignal {
    if USED.load(Relaxed) { looked_up() } else { ActiveSignal::NONE }
}

fn looked_up() -> ActiveSignal {
    match CURRENT.get() {
        ActiveSignal::ASK_HOST => LOOKUP.get().map_or(ActiveSignal::NONE, |hook| hook()),
        active => active,
    }
}

/// Puts this thread under a signal; returns the previous setting.
pub fn set(signal: ActiveSignal) -> ActiveSignal {
    USED.store(true, Relaxed);
    CURRENT.replace(signal)
}

/// Restores the thread's previous setting when dropped.
pub(crate) struct SignalGuard(Option<ActiveSignal>);

impl Drop for SignalGuard {
    fn drop(&mut self) {
        if let Some(previous) = self.0 {
            CURRENT.set(previous);
        }
    }
}

/// Until the guard is dropped, the thread issues gradients of ops recorded with the signal `backward`, in a pass that a
/// thread under `caller` started.
pub(crate) fn for_gradient(backward: u32, caller: ActiveSignal) -> SignalGuard {
    if !USED.load(Relaxed) {
        return SignalGuard(None);
    }
    SignalGuard(Some(set(match backward {
        CALLERS => caller,
        NONE => ActiveSignal::NONE,
        signal => ActiveSignal::new(signal, None),
    })))
}

struct DefinedSignal {
    requested: RequestedPlacement,
    compile: Option<bool>,
    backward: u32,
    /// The place in the user's file or program that names the workers.
    written: String,
    /// Grows with every definition.
    version: u64,
}

static KNOWN: SpinLock<BTreeMap<u32, DefinedSignal>> = SpinLock::new(BTreeMap::new());

/// The definition of a signal.
pub struct SignalDefinition {
    /// The signal's number.
    pub signal: u32,
    /// The placement to request for the results of instructions under it.
    pub requested: RequestedPlacement,
    /// Whether its instructions are planned where they repeat; none leaves that to the daemon.
    pub compile: Option<bool>,
    /// The signal of the gradients of ops that are recorded under it.
    pub backward: Option<u32>,
    /// The place in the user's file or program that names the workers; errors about them begin with it.
    pub written: String,
}

/// Defines signals: all of them, or none if a definition is wrong. `workers` are those of the session, if it is open.
///
/// # Errors
/// A worker that the session does not have.
pub fn define(definitions: Vec<SignalDefinition>, workers: Option<&VisibleWorkers>) -> Result<()> {
    if let Some(workers) = workers {
        definitions.iter().try_for_each(|definition| check(&definition.requested, &definition.written, workers))?;
    }
    let mut known = KNOWN.lock();
    for SignalDefinition { signal, requested, compile, backward, written } in definitions {
        let version = known.get(&signal).map_or(1, |known| known.version + 1);
        known
            .insert(signal, DefinedSignal { requested, compile, backward: backward.unwrap_or(NONE), written, version });
    }
    Ok(())
}

/// Removes the placement requests of all signals.
pub fn forget() {
    for known in KNOWN.lock().values_mut() {
        let version = known.version + 1;
        let requested = RequestedPlacement { workers: Workers::NONE, layout: RequestedLayout::Any };
        *known = DefinedSignal { requested, compile: None, backward: NONE, written: String::new(), version };
    }
}

/// The placement that `signal` requests, what it says about plans, and the version of its definition; none if it was
/// never defined.
pub(crate) fn requested_by(signal: u32) -> Option<(RequestedPlacement, Option<bool>, u64)> {
    KNOWN.lock().get(&signal).map(|known| (known.requested, known.compile, known.version))
}

fn backward_of(signal: u32) -> u32 {
    KNOWN.lock().get(&signal).map_or(NONE, |known| known.backward)
}

/// Checks that a session has the workers that signals name.
///
/// # Errors
/// A worker that the session does not have, with the place that names it.
pub(crate) fn check_workers(workers: &VisibleWorkers) -> Result<()> {
    KNOWN.lock().values().try_for_each(|known| check(&known.requested, &known.written, workers))
}

fn check(requested: &RequestedPlacement, written: &str, visible: &VisibleWorkers) -> Result<()> {
    let count = visible.count;
    let Some(worker) = requested.workers.without(Workers::first_of(count)).iter().last() else { return Ok(()) };
    if let Some(pinned) = visible.pinned_text() {
        return Err(OpError::value(format!("{written}: there is no worker {worker}: {pinned}")).into());
    }
    let have = if count == 1 { "worker 0 alone".to_owned() } else { format!("workers 0 to {}", count - 1) };
    Err(OpError::value(format!(
        "{written}: there is no worker {worker}: the daemon has {have}; name others, or call gt.gpu_workers({}) before \
         the first operation",
        worker + 1
    ))
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_active_signal_survives_packing() {
        let with = |backward| ActiveSignal { signal: 7, backward };
        for signal in [ActiveSignal::NONE, ActiveSignal::ASK_HOST, with(NONE), with(9)] {
            assert_eq!(ActiveSignal::from_bits(signal.bits()), signal);
        }
    }

    #[test]
    fn a_gradient_is_under_its_signal_until_the_guard_is_dropped() {
        let caller = ActiveSignal { signal: 5, backward: NONE };
        let before = set(caller);
        for (backward, signal) in [(CALLERS, 5), (NONE, NONE), (3, 3)] {
            let guard = for_gradient(backward, caller);
            assert_eq!(current().signal(), signal);
            drop(guard);
            assert_eq!(current(), caller);
        }
        set(before);
    }

    #[test]
    fn an_unknown_worker_is_reported_with_the_place_that_names_it() {
        let requested = RequestedPlacement { workers: Workers::from_bits(0b1001), layout: RequestedLayout::Replicated };
        let visible = |count| VisibleWorkers { count, pinned: None };
        assert!(check(&requested, "here", &visible(4)).is_ok());
        let text = check(&requested, "here", &visible(2)).unwrap_err().to_string();
        assert!(text.starts_with("here: there is no worker 3: the daemon has workers 0 to 1;"), "{text}");
        assert!(text.contains("gt.gpu_workers(4)"), "{text}");
    }
}
