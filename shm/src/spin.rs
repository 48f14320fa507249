//! Adaptive spinning before a sleep, as in adaptive mutexes.
//!
//! A wake-up costs tens of microseconds, so a short spin pays where the peer answers at once on a core of its own.
//! Where cores are few and busy, spinning takes the core that the peer would answer on, and uses up the spinner's
//! scheduler slice: when the answer comes, the kernel makes the spinner wait, for milliseconds. Success tells the two
//! cases apart: each spin in vain halves the next one, and after many in a row one spin has the full duration again.

use std::time::{Duration, Instant};

/// The shortest spin.
const LOOK_MIN: Duration = Duration::from_nanos(500);
/// After this many spins in vain, the next has the full duration.
const TRY_AGAIN_AFTER: u32 = 64;

/// The adaptive duration of a spin: see the module's documentation.
#[derive(Debug)]
pub struct Spin {
    look: Duration,
    look_max: Duration,
    /// The number of spins in vain in a row that do not shorten the next.
    patience: u32,
    in_vain: u32,
}

impl Spin {
    /// Creates the state for spins of at most `look_max`. Up to `patience` spins in vain in a row do not shorten the
    /// next: they may be chance.
    pub fn new(look_max: Duration, patience: u32) -> Spin {
        Spin { look: look_max, look_max, patience, in_vain: 0 }
    }

    /// The duration of the next spin.
    #[inline]
    pub fn look(&self) -> Duration {
        self.look
    }

    /// Records that a spin saw the answer.
    #[inline]
    pub fn found(&mut self) {
        self.look = self.look_max;
        self.in_vain = 0;
    }

    /// Records a spin in vain.
    pub fn found_nothing(&mut self) {
        self.in_vain += 1;
        if self.in_vain >= TRY_AGAIN_AFTER {
            self.found();
        } else if self.in_vain > self.patience {
            self.look = (self.look / 2).max(LOOK_MIN);
        }
    }
}

/// The longest wait: the peer may die without waking the waiter.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A spin that is longer offers its core to other threads.
const SPIN_ALONE: Duration = Duration::from_micros(2);

/// Pauses between two looks of a spin that has lasted for `spun`. True if it has lasted so long that the pause offered
/// the core to other threads.
///
/// The thread that it waits for may have been started on the same core: see [`cores`](crate::cores).
#[inline]
pub fn pause(spun: Duration) -> bool {
    let yields = spun >= SPIN_ALONE;
    if yields {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
    yields
}

/// Spins until `ready` or for `spin`. True if ready.
pub(crate) fn spin_until(spin: Duration, ready: impl Fn() -> bool) -> bool {
    // Reading the clock costs as much as several reads of a ring's cursor.
    const LOOKS_PER_CLOCK: u32 = 16;
    if spin.is_zero() {
        return ready();
    }
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        let elapsed = start.elapsed();
        if elapsed >= spin {
            return false;
        }
        pause(elapsed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(10);

    #[test]
    fn spins_get_short_in_vain_and_long_after_success() {
        let mut spin = Spin::new(LONGEST, 0);
        for _ in 0..10 {
            spin.found_nothing();
        }
        assert_eq!(spin.look(), LOOK_MIN);
        spin.found();
        assert_eq!(spin.look(), LONGEST);
        let looks: Vec<Duration> = (0..1000)
            .map(|_| {
                spin.found_nothing();
                spin.look()
            })
            .collect();
        assert!(looks.contains(&LONGEST), "it tries again");
        assert!(looks.iter().sum::<Duration>() < 1000 * LONGEST / 8, "but seldom");
    }

    #[test]
    fn a_spin_in_vain_now_and_then_does_not_shorten_the_next() {
        let mut spin = Spin::new(LONGEST, 2);
        for _ in 0..100 {
            spin.found_nothing();
            spin.found_nothing();
            assert_eq!(spin.look(), LONGEST);
            spin.found();
        }
        (0..3).for_each(|_| spin.found_nothing());
        assert_eq!(spin.look(), LONGEST / 2);
    }
}
