//! How long to look for an answer before sleeping.
//!
//! A wake-up costs tens of microseconds, so a moment of looking pays where the other side answers at once on a core of
//! its own. Where cores are few and busy it costs the other side the very core it would answer on, and the looker the
//! favour of the kernel's scheduler, which lets those wait who have used up their part. Which it is shows in whether
//! looking finds anything: where it is in vain each next look is shorter, and now and then a long one tries again.

use std::time::{Duration, Instant};

/// The shortest look.
const LOOK_MIN: Duration = Duration::from_nanos(500);
/// After so many looks in vain, a long one.
const TRY_AGAIN_AFTER: u32 = 64;

/// See the module.
#[derive(Debug)]
pub struct Spin {
    look: Duration,
    look_max: Duration,
    /// Looks in vain, one after the other, that make the next no shorter.
    patience: u32,
    in_vain: u32,
}

impl Spin {
    /// Looks of at most `look_max`. So many in vain, one after the other, are taken for chance: each makes later looks
    /// no shorter.
    pub fn new(look_max: Duration, patience: u32) -> Spin {
        Spin { look: look_max, look_max, patience, in_vain: 0 }
    }

    /// How long to look.
    #[inline]
    pub fn look(&self) -> Duration {
        self.look
    }

    /// Looking has found something.
    #[inline]
    pub fn found(&mut self) {
        self.look = self.look_max;
        self.in_vain = 0;
    }

    /// Looking has found nothing.
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

/// Spins until `ready` or for `spin`. True if ready.
pub(crate) fn spin_until(spin: Duration, ready: impl Fn() -> bool) -> bool {
    // Reading the clock costs as much as several reads of a ring's cursor.
    const LOOKS_PER_CLOCK: u32 = 16;
    if spin.is_zero() {
        return ready();
    }
    let deadline = Instant::now() + spin;
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= deadline {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(10);

    #[test]
    fn looks_get_short_where_they_find_nothing_and_long_where_they_do() {
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
    fn a_look_in_vain_now_and_then_is_chance() {
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
