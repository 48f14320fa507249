//! Sets of workers.

use std::fmt;

/// Maximum number of workers of a daemon, those of all its machines together.
pub const WORKERS_MAX: usize = u128::BITS as usize;

/// A set of workers, ordered by their numbers. A worker's *rank* is its position in that order.
///
/// Its bits are two words, since a `u128` would have every tensor's entry in a table begin at a multiple of 16 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Workers([u64; 2]);

impl Workers {
    /// The empty set.
    pub const NONE: Workers = Workers([0; 2]);

    /// The workers whose bits are set.
    pub const fn from_bits(bits: u128) -> Workers {
        Workers([bits as u64, (bits >> 64) as u64])
    }
    /// Bit `w` is set for worker `w`.
    pub const fn bits(self) -> u128 {
        self.0[0] as u128 | (self.0[1] as u128) << 64
    }
    /// The set whose [words](Workers::words) these are.
    pub const fn from_words(words: [u64; 2]) -> Workers {
        Workers(words)
    }
    /// Bit `w % 64` of word `w / 64` is set for worker `w`.
    pub const fn words(self) -> [u64; 2] {
        self.0
    }
    /// The set of one worker.
    pub const fn one(worker: usize) -> Workers {
        Workers::from_bits(1 << worker)
    }
    /// The workers numbered from 0 to `count` − 1.
    pub const fn first_of(count: usize) -> Workers {
        Workers::from_bits(if count >= WORKERS_MAX { u128::MAX } else { (1 << count) - 1 })
    }
    /// The number of workers.
    pub const fn len(self) -> usize {
        self.bits().count_ones() as usize
    }
    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.bits() == 0
    }
    /// Whether `worker` is in the set.
    pub const fn contains(self, worker: usize) -> bool {
        worker < WORKERS_MAX && self.bits() >> worker & 1 == 1
    }
    /// Whether all of `others` are in the set.
    pub const fn contains_all(self, others: Workers) -> bool {
        others.without(self).is_empty()
    }
    /// The union of both sets.
    pub const fn with(self, others: Workers) -> Workers {
        Workers::from_bits(self.bits() | others.bits())
    }
    /// The intersection of both sets.
    pub const fn and(self, others: Workers) -> Workers {
        Workers::from_bits(self.bits() & others.bits())
    }
    /// The workers that are not in `others`.
    pub const fn without(self, others: Workers) -> Workers {
        Workers::from_bits(self.bits() & !others.bits())
    }
    /// The worker with the smallest number.
    pub const fn first(self) -> Option<usize> {
        if self.is_empty() { None } else { Some(self.bits().trailing_zeros() as usize) }
    }
    /// The rank of `worker`, if it is in the set.
    pub fn rank_of(self, worker: usize) -> Option<usize> {
        self.contains(worker).then(|| (self.bits() & ((1 << worker) - 1)).count_ones() as usize)
    }
    /// The workers of `all` whose ranks in `all` are in this set.
    #[must_use]
    pub fn among(self, all: Workers) -> Workers {
        let named = all.iter().enumerate().filter(|(rank, _)| self.contains(*rank));
        named.fold(Workers::NONE, |found, (_, worker)| found.with(Workers::one(worker)))
    }
    /// The workers by ascending number.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.bits();
        std::iter::from_fn(move || {
            let next = Workers::from_bits(left).first()?;
            left &= left - 1;
            Some(next)
        })
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers{self}")
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_ranked_by_number() {
        let workers = Workers::from_bits(0b10110);
        assert_eq!(workers.iter().collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!([0, 1, 2, 3, 4].map(|w| workers.rank_of(w)), [None, Some(0), Some(1), None, Some(2)]);
        assert_eq!(Workers::first_of(64).len(), 64);
        assert_eq!(Workers::from_bits(1 << 127).rank_of(127), Some(0));
        assert_eq!(workers.to_string(), "[1, 2, 4]");
    }
}
