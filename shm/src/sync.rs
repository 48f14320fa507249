//! The atomics every shared word is made of: `std`'s, or loom's under `--cfg loom`.
//!
//! Each fence of the protocols has a name, a [`FenceSite`]. In a real build the name costs nothing; under
//! loom a model can switch one site off and show what breaks without it.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};

/// Where an ordering that a protocol depends on is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceSite {
    /// Producer: the release of the tail, which makes the slots before it visible.
    PublishTail,
    /// Producer: between the tail store and the look at the consumer's sleep flag.
    PublishFence,
    /// Consumer: between the tail load and the copy of the slots.
    AcquireSlots,
    /// Consumer: the release of the head, which lets the producer overwrite the slots.
    ReleaseHead,
    /// Producer: between the head load and the overwriting of slots.
    AcquireHead,
    /// Consumer: between raising the sleep flag and the last look at the tail.
    SleepFence,
    /// Broadcast writer: between marking a slot as being written and writing it.
    BroadcastMark,
    /// Broadcast writer: the release that marks a slot as whole.
    BroadcastPublish,
    /// Broadcast reader: between reading the mark and copying.
    BroadcastAcquire,
    /// Broadcast reader: between copying and reading the mark again.
    BroadcastRecheck,
    /// Collectives: the release of a count, which makes what was written before it visible.
    SignalRelease,
    /// Collectives: between the change of a count and the look at who sleeps on it.
    SignalFence,
    /// Collectives: between the entry among the sleepers and the futex's look at the count.
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

/// Tells the processor that this is a spin loop; under loom, lets another thread run.
#[inline(always)]
pub fn spin_hint() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Switching sites off, for models that show what each one is for.
#[cfg(loom)]
pub mod model {
    use crate::sync::FenceSite;
    use std::cell::Cell;

    thread_local! {
        // loom runs all threads of a model on the OS thread that called it.
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
