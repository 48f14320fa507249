//! How long to look for more work before sleeping.
//!
//! A wake-up costs tens of microseconds, so a moment of looking pays where the client answers at once on a core of its
//! own. Where cores are few and busy it costs the client the very core it would answer on. Which it is shows in whether
//! looking finds anything: each time in vain the next look is shorter, and now and then a long one tries again.

/// The longest look where cores are plenty, nanoseconds,
const LOOK_NS_MAX: u64 = 50_000;
/// and where they are few.
const LOOK_FEW_CORES_NS_MAX: u64 = 10_000;
/// The shortest look, nanoseconds.
const LOOK_NS_MIN: u64 = 500;
/// After so many looks in vain, a long one.
const TRY_AGAIN_AFTER: u32 = 64;

/// See the module.
#[derive(Debug)]
pub struct Spin {
    look_ns: u64,
    look_ns_max: u64,
    in_vain: u32,
}

impl Spin {
    /// For a machine of so many cores.
    pub fn new(cores: usize) -> Spin {
        let look_ns_max = if cores <= 2 { LOOK_FEW_CORES_NS_MAX } else { LOOK_NS_MAX };
        Spin { look_ns: look_ns_max, look_ns_max, in_vain: 0 }
    }

    /// How long to look, nanoseconds.
    #[inline]
    pub fn look_ns(&self) -> u64 {
        self.look_ns
    }

    /// Looking has found something.
    #[inline]
    pub fn found(&mut self) {
        self.look_ns = self.look_ns_max;
        self.in_vain = 0;
    }

    /// Looking has found nothing.
    pub fn found_nothing(&mut self) {
        self.in_vain += 1;
        self.look_ns = (self.look_ns / 2).max(LOOK_NS_MIN);
        if self.in_vain >= TRY_AGAIN_AFTER {
            self.found();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_get_short_where_they_find_nothing_and_long_where_they_do() {
        let mut spin = Spin::new(2);
        let longest = spin.look_ns();
        for _ in 0..10 {
            spin.found_nothing();
        }
        assert_eq!(spin.look_ns(), LOOK_NS_MIN);
        spin.found();
        assert_eq!(spin.look_ns(), longest);
        let looks: Vec<u64> = (0..1000)
            .map(|_| {
                spin.found_nothing();
                spin.look_ns()
            })
            .collect();
        assert!(looks.contains(&longest), "it tries again");
        assert!(looks.iter().sum::<u64>() < 1000 * longest / 8, "but seldom");
        assert!(Spin::new(8).look_ns() > longest);
    }
}
