//! Finds the sequences that a stream of instructions repeats, wherever they begin.
//!
//! An instruction is a fingerprint here, a hash of what its repetitions have in common. The detector keeps the last
//! fingerprints, and for each run of [`ANCHOR`] of them where it last was (by a rolling hash, Karp and Rabin 1987).
//! When such a run comes again, the distance between the two may be a period: from then on, each fingerprint is
//! compared with the one a period before. Once a whole period has come twice, it is a sequence that repeats. Where the
//! stream differs, the next run that came before tells the next possible period. So a loop inside a loop is found
//! first, and then the outer one, whose period is longer.

use super::hash::{MULTIPLIER, scatter};

/// The fingerprints that are kept, a power of two. A period is half of it at most.
const HISTORY: usize = 1 << 15;
/// The longest sequence.
pub const PERIOD_MAX: usize = HISTORY / 2;
/// The instructions that must be the same for a distance to be tried as a period.
pub const ANCHOR: usize = 8;
/// The places of anchors that are kept, a power of two.
const ANCHORS_KEPT: usize = 1 << 12;
/// A sequence is found when it has come twice, but not before so many instructions were the same.
pub const REPEATED_MIN: usize = 16;

/// `MULTIPLIER` to the power of [`ANCHOR`]: the factor of the fingerprint that leaves the rolling hash.
const LEAVING: u64 = {
    let (mut power, mut n) = (1u64, 0);
    while n < ANCHOR {
        power = power.wrapping_mul(MULTIPLIER);
        n += 1;
    }
    power
};

/// The hash of a run of fingerprints, as [`Detector::anchor`] has that of the last [`ANCHOR`].
pub fn anchor_of(fingerprints: impl IntoIterator<Item = u32>) -> u64 {
    fingerprints.into_iter().fold(0, rolled)
}

#[inline]
fn rolled(hash: u64, fingerprint: u32) -> u64 {
    hash.wrapping_mul(MULTIPLIER).wrapping_add(u64::from(fingerprint) + 1)
}

/// The last fingerprints of a stream, and the period with which they may repeat.
#[derive(Default)]
pub struct Detector {
    /// The fingerprint of instruction `n` is at `n % HISTORY`. It grows up to that length.
    history: Vec<u32>,
    /// The instructions so far.
    count: u64,
    /// The rolling hash of the last [`ANCHOR`] fingerprints; none after [`follow`](Self::follow) until the next
    /// [`add`](Self::add).
    anchor: Option<u64>,
    /// By bits of the hash of an anchor, other bits of it, and the number of instructions up to its end where it last
    /// was, modulo 2^32.
    anchors: Vec<(u32, u32)>,
    /// The possible period; 0 for none.
    period: usize,
    /// How many fingerprints were the same as the one a period before, without a difference in between.
    repeated: usize,
}

impl Detector {
    #[inline]
    fn at(&self, number: u64) -> u32 {
        self.history[number as usize & (HISTORY - 1)]
    }

    #[inline]
    fn push(&mut self, fingerprint: u32) {
        if self.period > 0 {
            if self.at(self.count - self.period as u64) == fingerprint {
                self.repeated += 1;
            } else {
                (self.period, self.repeated) = (0, 0);
            }
        }
        match self.history.get_mut(self.count as usize & (HISTORY - 1)) {
            Some(kept) => *kept = fingerprint,
            None => self.history.push(fingerprint),
        }
        self.count += 1;
    }

    /// Adds an instruction. True if the stream repeats a sequence from here on: the last [`period`](Self::period)
    /// instructions are the same as those before, or with `at_once`, the last [`ANCHOR`] are.
    pub fn add(&mut self, fingerprint: u32, at_once: bool) -> bool {
        self.push(fingerprint);
        if self.count < ANCHOR as u64 {
            return false;
        }
        let first = self.count - ANCHOR as u64;
        let hash = match self.anchor {
            Some(before) => {
                rolled(before, fingerprint).wrapping_sub(LEAVING.wrapping_mul(u64::from(self.at(first - 1)) + 1))
            }
            None => anchor_of((first..self.count).map(|number| self.at(number))),
        };
        self.anchor = Some(hash);
        if self.anchors.is_empty() {
            self.anchors.resize(ANCHORS_KEPT, (0, 0));
        }
        // Hashes of fingerprints that count up are evenly spaced, and would all replace each other.
        let mixed = scatter(hash);
        let kept = &mut self.anchors[(mixed >> 32) as usize & (ANCHORS_KEPT - 1)];
        let (other_bits, count) = (mixed as u32, self.count as u32);
        let (earlier_bits, earlier) = std::mem::replace(kept, (other_bits, count));
        if self.period == 0 && earlier_bits == other_bits {
            self.try_period(count.wrapping_sub(earlier) as usize);
        }
        let wanted = if at_once { ANCHOR } else { self.period.max(REPEATED_MIN) };
        self.period > 0 && self.repeated == wanted
    }

    /// Takes the distance to an earlier anchor for the period, if its fingerprints are those of the last one.
    fn try_period(&mut self, period: usize) {
        if period == 0 || period > PERIOD_MAX || (period + ANCHOR) as u64 > self.count {
            return;
        }
        let mut numbers = self.count - ANCHOR as u64..self.count;
        if numbers.all(|number| self.at(number) == self.at(number - period as u64)) {
            (self.period, self.repeated) = (period, ANCHOR);
        }
    }

    /// Adds an instruction that a known sequence foretold: it is not looked for in the rest. True as for
    /// [`add`](Self::add).
    #[inline]
    pub fn follow(&mut self, fingerprint: u32) -> bool {
        self.push(fingerprint);
        self.anchor = None;
        self.period > 0 && self.repeated == self.period.max(REPEATED_MIN)
    }

    /// The period with which the stream repeats.
    pub fn period(&self) -> usize {
        self.period
    }

    /// The hash of the last [`ANCHOR`] fingerprints, for [`anchor_of`] others; none if there are fewer.
    pub fn anchor(&self) -> Option<u64> {
        self.anchor
    }

    /// The last `count` fingerprints, the oldest first; at most as many as are kept.
    pub fn last(&self, count: usize) -> impl Iterator<Item = u32> {
        let count = count.min(self.history.len()) as u64;
        (self.count - count..self.count).map(|number| self.at(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The periods that are found in a stream, each with the number of instructions until then.
    fn found(stream: impl IntoIterator<Item = u32>) -> Vec<(usize, usize)> {
        let mut detector = Detector::default();
        let mut found = Vec::new();
        for (n, fingerprint) in stream.into_iter().enumerate() {
            if detector.add(fingerprint, false) {
                found.push((detector.period(), n + 1));
            }
        }
        found
    }

    fn repeated(sequence: impl Iterator<Item = u32> + Clone, times: usize) -> Vec<u32> {
        std::iter::repeat_n(sequence, times).flatten().collect()
    }

    #[test]
    fn a_sequence_is_found_when_it_has_come_twice() {
        assert_eq!(found(repeated(0..100, 5)), [(100, 200)]);
        // Wherever it begins.
        let stream = (500..530).chain(repeated(0..100, 5));
        assert_eq!(found(stream), [(100, 230)]);
        assert_eq!(found(repeated(0..1, 100)), [(1, ANCHOR + 1 + REPEATED_MIN - ANCHOR)]);
    }

    #[test]
    fn what_does_not_repeat_is_no_sequence() {
        assert_eq!(found(0..100_000), []);
        let mut random = 1u32;
        let stream = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 31
        });
        // Some runs of bits come twice.
        assert!(found(stream.take(100_000)).iter().all(|(period, _)| *period < 100));
    }

    #[test]
    fn the_inner_loop_is_found_first_and_then_the_outer_one() {
        let step = repeated(0..50, 4).into_iter().chain(100..130);
        let found = found(repeated(step, 6));
        assert_eq!(found[0], (50, 100));
        let outer = found.iter().position(|(period, _)| *period == 230);
        assert!(outer.is_some_and(|outer| found[outer].1 <= 3 * 230), "{found:?}");
    }

    #[test]
    fn long_periods_are_found_and_longer_ones_are_not() {
        let long = PERIOD_MAX as u32;
        let (period, count) = found(repeated(0..long, 3))[0];
        assert_eq!(period, PERIOD_MAX);
        assert!(count <= 2 * PERIOD_MAX + 2 * ANCHORS_KEPT, "{count}");
        assert_eq!(found(repeated(0..long + 1, 4)), []);
    }

    #[test]
    fn following_a_sequence_keeps_the_history() {
        let stream = repeated(repeated(0..20, 4).into_iter().chain(50..60), 8);
        let mut detector = Detector::default();
        let mut periods = Vec::new();
        for (n, fingerprint) in stream.into_iter().enumerate() {
            let repeats = if n > 40 && fingerprint < 50 {
                detector.follow(fingerprint)
            } else {
                detector.add(fingerprint, false)
            };
            if repeats {
                periods.push(detector.period());
            }
        }
        assert_eq!(periods.first(), Some(&20));
        assert!(periods.contains(&90), "{periods:?}");
        assert_eq!(detector.last(10).collect::<Vec<_>>(), (50..60).collect::<Vec<_>>());
    }
}
