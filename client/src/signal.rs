//! Signals: names under which a thread issues instructions, so that the daemon knows where their results should lie.
//!
//! A thread is under one signal at a time, or under none. The session says so in its stream where that changes, and
//! before the first instruction under a signal what it asks for. A recorded op remembers under which signal its
//! gradient is computed.

use crate::error::Result;
use crate::lock::BriefLock;
use gt_ops::OpError;
use gt_ops::placement::{RequestedLayout, RequestedPlacement, Workers};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// No signal.
pub const NONE: u32 = 0;
/// The gradient of what was recorded under no signal is computed under that of whoever asks for it.
const CALLERS: u32 = u32::MAX;

/// What a thread's instructions are under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Under {
    /// The signal of the instructions.
    signal: u32,
    /// The signal of the gradients of what is recorded now.
    backward: u32,
}

impl Under {
    /// No signal.
    pub const NOTHING: Under = Under { signal: NONE, backward: CALLERS };
    /// The host language knows, and is asked each time: it may run several tasks on a thread.
    pub const ASK: Under = Under { signal: u32::MAX, backward: CALLERS };

    /// Under `signal`, with the gradients under `backward`, or where what is known of the signal says.
    pub fn new(signal: u32, backward: Option<u32>) -> Under {
        Under { signal, backward: backward.unwrap_or_else(|| backward_of(signal)) }
    }
    /// The signal.
    #[inline]
    pub fn signal(self) -> u32 {
        self.signal
    }
    /// The signal of gradients.
    #[inline]
    pub(crate) fn backward(self) -> u32 {
        self.backward
    }
    /// As one word.
    pub fn bits(self) -> u64 {
        (self.backward as u64) << 32 | self.signal as u64
    }
    /// From one word.
    pub fn from_bits(bits: u64) -> Under {
        Under { signal: bits as u32, backward: (bits >> 32) as u32 }
    }
}

/// Whether any thread was ever under a signal: who uses none pays for one load.
static USED: AtomicBool = AtomicBool::new(false);
thread_local! {
    static CURRENT: Cell<Under> = const { Cell::new(Under::NOTHING) };
}

/// What the host language says of the task that runs on this thread now.
pub type LookupHook = fn() -> Under;
static LOOKUP: OnceLock<LookupHook> = OnceLock::new();

/// Tells how to find out what a thread is under that was set to [`Under::ASK`].
pub fn set_lookup_hook(hook: LookupHook) {
    let _ = LOOKUP.set(hook);
}

/// What this thread's instructions are under.
#[inline]
pub fn current() -> Under {
    if USED.load(Relaxed) { looked_up() } else { Under::NOTHING }
}

fn looked_up() -> Under {
    match CURRENT.get() {
        Under::ASK => LOOKUP.get().map_or(Under::NOTHING, |hook| hook()),
        under => under,
    }
}

/// Puts this thread under `under`; returns what it was set to.
pub fn set(under: Under) -> Under {
    USED.store(true, Relaxed);
    CURRENT.replace(under)
}

/// Puts the thread back to what it was set to.
pub(crate) struct Guard(Option<Under>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(under) = self.0 {
            CURRENT.set(under);
        }
    }
}

/// Until the guard is dropped, what is issued is the gradient of what was recorded with `backward`, asked for by
/// somebody under `caller`.
pub(crate) fn for_gradient(backward: u32, caller: Under) -> Guard {
    if !USED.load(Relaxed) {
        return Guard(None);
    }
    Guard(Some(set(match backward {
        CALLERS => caller,
        NONE => Under::NOTHING,
        signal => Under::new(signal, None),
    })))
}

/// What is known of a signal.
struct Known {
    requested: RequestedPlacement,
    backward: u32,
    /// Where a person wrote which workers.
    written: String,
    /// Grows with every definition.
    version: u64,
}

static KNOWN: BriefLock<BTreeMap<u32, Known>> = BriefLock::new(BTreeMap::new());

/// What is said of a signal.
pub struct Definition {
    /// Its number.
    pub signal: u32,
    /// What it asks for.
    pub requested: RequestedPlacement,
    /// Under which signal the gradients of what is recorded under it are computed.
    pub backward: Option<u32>,
    /// Where a person wrote which workers: an error about them begins with it.
    pub written: String,
}

/// Says what signals ask for: all of them, or none if one names a worker that is not among `workers`, if that is known.
///
/// # Errors
/// The first such worker.
pub fn define(definitions: Vec<Definition>, workers: Option<usize>) -> Result<()> {
    if let Some(count) = workers {
        definitions.iter().try_for_each(|definition| check(&definition.requested, &definition.written, count))?;
    }
    let mut known = KNOWN.lock();
    for Definition { signal, requested, backward, written } in definitions {
        let version = known.get(&signal).map_or(1, |known| known.version + 1);
        known.insert(signal, Known { requested, backward: backward.unwrap_or(NONE), written, version });
    }
    Ok(())
}

/// From now on no signal asks for anything.
pub fn forget() {
    for known in KNOWN.lock().values_mut() {
        let version = known.version + 1;
        let requested = RequestedPlacement { workers: Workers::NONE, layout: RequestedLayout::Any };
        *known = Known { requested, backward: NONE, written: String::new(), version };
    }
}

/// What `signal` asks for, and the version of that; none if it was never defined.
pub(crate) fn requested_by(signal: u32) -> Option<(RequestedPlacement, u64)> {
    KNOWN.lock().get(&signal).map(|known| (known.requested, known.version))
}

fn backward_of(signal: u32) -> u32 {
    KNOWN.lock().get(&signal).map_or(NONE, |known| known.backward)
}

/// Whether the workers that signals name are among `count`.
///
/// # Errors
/// One that is not, with where it was written.
pub(crate) fn check_workers(count: usize) -> Result<()> {
    KNOWN.lock().values().try_for_each(|known| check(&known.requested, &known.written, count))
}

fn check(requested: &RequestedPlacement, written: &str, count: usize) -> Result<()> {
    let Some(worker) = requested.workers.without(Workers::first_of(count)).iter().last() else { return Ok(()) };
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
    fn what_a_thread_is_under_survives_a_word() {
        for under in [Under::NOTHING, Under::ASK, Under { signal: 7, backward: NONE }, Under { signal: 7, backward: 9 }]
        {
            assert_eq!(Under::from_bits(under.bits()), under);
        }
    }

    #[test]
    fn a_gradient_is_under_its_signal_until_the_guard_is_dropped() {
        let caller = Under { signal: 5, backward: NONE };
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
    fn workers_that_are_not_there_are_named_with_where_they_were_written() {
        let requested = RequestedPlacement { workers: Workers::from_bits(0b1001), layout: RequestedLayout::Replicated };
        assert!(check(&requested, "here", 4).is_ok());
        let text = check(&requested, "here", 2).unwrap_err().to_string();
        assert!(text.starts_with("here: there is no worker 3: the daemon has workers 0 to 1;"), "{text}");
        assert!(text.contains("gt.gpu_workers(4)"), "{text}");
    }
}
