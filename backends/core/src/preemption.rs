//! Cooperative preemption: a long call of a backend lets its caller run something short in between.
//!
//! The caller gives a hook to [`preemptible`]. The backend calls [`preemption_point`] where a call can pause, as an
//! operating system's kernel calls `cond_resched`. A backend that has no such points is right too: the hook then never
//! runs. At a preemption point the backend itself is in use, so the hook works with the backend's
//! [companion](crate::Backend::companion).

use std::cell::Cell;
use std::ptr::NonNull;

thread_local! {
    /// The hook of the call that this thread makes; none outside of such calls, and while the hook runs.
    static HOOK: Cell<Option<NonNull<dyn FnMut()>>> = const { Cell::new(None) };
}

/// Restores the hook of this thread when it is dropped.
struct Restore(Option<NonNull<dyn FnMut()>>);

impl Drop for Restore {
    fn drop(&mut self) {
        HOOK.set(self.0);
    }
}

/// Does `work`, and calls `hook` at the preemption points that `work` passes on this thread. Inside `hook`, preemption
/// points do nothing.
pub fn preemptible<R>(hook: &mut dyn FnMut(), work: impl FnOnce() -> R) -> R {
    let hook = NonNull::from(hook);
    // SAFETY: only the lifetime changes, and `Restore` removes the pointer before this function returns or unwinds,
    // while `hook` is still borrowed.
    let hook = unsafe { std::mem::transmute::<NonNull<dyn FnMut() + '_>, NonNull<dyn FnMut()>>(hook) };
    let _restore = Restore(HOOK.replace(Some(hook)));
    work()
}

/// Whether a [`preemption_point`] would call a hook.
#[inline(always)]
pub fn is_preemptible() -> bool {
    HOOK.get().is_some()
}

/// Lets the caller of [`preemptible`] run its hook, if there is one on this thread.
#[cold]
#[inline(never)]
pub fn preemption_point() {
    if let Some(hook) = HOOK.get() {
        let _restore = Restore(HOOK.replace(None));
        // SAFETY: `preemptible` set the pointer and is still running on this thread, where it keeps the hook borrowed.
        // No other reference to the hook is in use: it was taken out of `HOOK`, so that it is not entered again.
        unsafe { (*hook.as_ptr())() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_hook_runs_at_preemption_points_of_its_own_call_and_does_not_nest() {
        preemption_point();
        let mut count = 0;
        let mut hook = || {
            count += 1;
            assert!(!is_preemptible());
            preemption_point();
        };
        preemptible(&mut hook, || {
            assert!(is_preemptible());
            preemption_point();
            std::thread::spawn(|| assert!(!is_preemptible())).join().unwrap();
            let mut inner = 0;
            preemptible(&mut || inner += 1, preemption_point);
            assert_eq!(inner, 1);
            preemption_point();
        });
        preemption_point();
        assert_eq!(count, 2);
    }

    #[test]
    fn a_hook_is_removed_when_its_call_or_the_hook_unwinds() {
        let unwinds = |work: &mut dyn FnMut()| assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        unwinds(&mut || preemptible(&mut || (), || std::panic::resume_unwind(Box::new(()))));
        assert!(!is_preemptible());
        let mut count = 0;
        let mut hook = || {
            count += 1;
            std::panic::resume_unwind(Box::new(()));
        };
        preemptible(&mut hook, || {
            unwinds(&mut || preemption_point());
            assert!(is_preemptible());
            unwinds(&mut || preemption_point());
        });
        assert_eq!((count, is_preemptible()), (2, false));
    }
}
