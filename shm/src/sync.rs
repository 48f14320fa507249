//! The atomics of shared words: `std`'s, or loom's under `--cfg loom`.
//!
//! Each ordering that a protocol depends on has a name, a [`FenceSite`]. In a normal build the name costs nothing.
//! Under loom a model can switch one site off and show the failure that it prevents.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};

/// A place in the code that establishes an ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceSite {
    /// Producer: the release of the tail, which makes the slots before it visible.
    PublishTail,
    /// Producer: between the store of the tail and the load of the consumer's sleep flag.
    PublishFence,
    /// Consumer: between the load of the tail and the copy of the slots.
    AcquireSlots,
    /// Consumer: the release of the head, which lets the producer overwrite the slots.
    ReleaseHead,
    /// Producer: between the load of the head and the overwriting of slots.
    AcquireHead,
    /// Consumer: between the store of the sleep flag and the last load of the tail.
    SleepFence,
    /// Seqlock writer: between the odd sequence number and the stores of the record.
    BroadcastMark,
    /// Seqlock writer: the release of the even sequence number.
    BroadcastPublish,
    /// Seqlock reader: between the first load of the sequence number and the copy.
    BroadcastAcquire,
    /// Seqlock reader: between the copy and the second load of the sequence number.
    BroadcastRecheck,
    /// Collectives: the release of a counter, which makes the stores before it visible.
    SignalRelease,
    /// Collectives: between the change of a counter and the load of its sleepers.
    SignalFence,
    /// Collectives: between the registration of a sleeper and the futex's load of the counter.
    SleeperFence,
}

/// A fence of `order` at `site`.
#[inline(always)]
pub fn fence_at(site: FenceSite, order: Ordering) {
    #[cfg(not(loom))]
    {
        let _ = site;
        std::sync::atomic::fence(order);
    }
    #[cfg(loom)]
    if !model::is_off(site) {
        loom::sync::atomic::fence(order);
    }
}

/// The ordering to use at `site`: `order`, unless a model has switched the site off.
#[inline(always)]
pub fn order_at(site: FenceSite, order: Ordering) -> Ordering {
    #[cfg(not(loom))]
    {
        let _ = site;
        order
    }
    #[cfg(loom)]
    if model::is_off(site) { Ordering::Relaxed } else { order }
}

/// The processor's spin-loop hint; under loom, a switch to another thread.
#[inline(always)]
pub fn spin_hint() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Switches sites off, for models that show the failure each one prevents.
#[cfg(loom)]
pub mod model {
    use crate::sync::FenceSite;
    use std::cell::Cell;

    thread_local! {
        // loom runs all threads of a model on one OS thread, so a thread-local holds for all of them.
        static OFF: Cell<Option<FenceSite>> = const { Cell::new(None) };
    }

    /// Runs `f` with the ordering at `site` left out.
    pub fn without(site: FenceSite, f: impl FnOnce()) {
        OFF.with(|off| off.set(Some(site)));
        f();
        OFF.with(|off| off.set(None));
    }

    pub(super) fn is_off(site: FenceSite) -> bool {
        OFF.with(|off| off.get() == Some(site))
    }
}
