//! The processor cores that threads run on.
//!
//! Where the cores of a virtual machine seem to share no cache, the scheduler looks for no idle core when it wakes a
//! thread. A daemon that was once woken on its client's core would stay there: they sleep by turns, so that the load
//! seems balanced, and an answer of 2 µs takes 17.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The core that the calling thread runs on; `u32::MAX` where the system does not say.
#[inline]
pub fn current() -> u32 {
    // The function of rustix reads the vDSO's headers, which valgrind does not map.
    // SAFETY: it takes no arguments and touches no memory of ours.
    #[cfg(not(miri))]
    return unsafe { libc::sched_getcpu() } as u32;
    #[cfg(miri)]
    u32::MAX
}

/// Moves the calling thread to another of the cores that it may run on. Nothing happens if there is no other.
///
/// # Errors
/// If the system forbids it.
pub fn leave(core: u32) -> std::io::Result<()> {
    let cores = sched_getaffinity(None)?;
    if core as usize >= CpuSet::MAX_CPU {
        return Ok(());
    }
    let mut others = cores;
    others.unset(core as usize);
    if others.count() == 0 {
        return Ok(());
    }
    sched_setaffinity(None, &others)?;
    Ok(sched_setaffinity(None, &cores)?)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_leaves_its_core_may_still_run_on_all_of_its_cores() {
        let cores = sched_getaffinity(None).unwrap();
        let (mut alone, here) = (cores, current());
        leave(here).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), cores);

        // On its only core, it stays.
        (0..CpuSet::MAX_CPU).filter(|core| *core != here as usize).for_each(|core| alone.unset(core));
        sched_setaffinity(None, &alone).unwrap();
        leave(here).unwrap();
        assert_eq!((current(), sched_getaffinity(None).unwrap()), (here, alone));

        // On one of two, it goes to the other, and has no reason to come back at once.
        let Some(other) = (0..CpuSet::MAX_CPU).find(|core| cores.is_set(*core) && *core != here as usize) else {
            return;
        };
        let mut both = alone;
        both.set(other);
        sched_setaffinity(None, &both).unwrap();
        let left = (0..100).any(|_| {
            let from = current();
            leave(from).unwrap();
            current() != from
        });
        assert!(left);
    }
}
