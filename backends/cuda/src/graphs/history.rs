//! The history of issued work, and which of it repeats.

use super::work::{GraphWork, Kept};
use std::ops::Range;

/// The length of the history: a training step has fewer launches.
const LENGTH: usize = 8192;
/// Size of the table of last occurrences, which is indexed by the low bits of a hash.
const LAST: usize = 2 * LENGTH;

/// Issued work by sequence number.
pub struct History {
    ring: Vec<(u64, Kept)>,
    /// For each value of a hash's low bits, one more than the sequence number of the last work whose hash has these
    /// bits. That work may have another hash, or be older than the history.
    last: Vec<u64>,
    next: u64,
    /// The earlier occurrence that the newest work repeats, if any.
    earlier: Option<u64>,
    /// The sequence number from which the work repeats earlier work in the same order.
    start: u64,
}

impl History {
    /// An empty history.
    pub fn new() -> History {
        History { ring: Vec::new(), last: vec![0; LAST], next: 0, earlier: None, start: 0 }
    }

    /// Adds work. If it ends a repetition, returns the repeated stretch, which may be empty.
    pub fn push(&mut self, hash: u64, work: &GraphWork<'_>) -> Range<u64> {
        let at = self.next;
        let mut ended = at..at;
        if self.goes_on(hash) {
            self.earlier = self.earlier.map(|earlier| earlier + 1);
        } else {
            ended = self.start..at;
            let slot = hash as usize % LAST;
            self.earlier = self.last[slot].checked_sub(1).filter(|earlier| self.hash(*earlier) == Some(hash));
            self.start = at + u64::from(self.earlier.is_none());
        }
        self.last[hash as usize % LAST] = at + 1;
        match self.ring.get_mut(at as usize % LENGTH) {
            Some(place) => {
                place.0 = hash;
                place.1.keep(work);
            }
            None => self.ring.push((hash, Kept::from(work))),
        }
        self.next += 1;
        ended
    }

    /// Whether this work would continue the current repetition.
    #[inline]
    pub fn goes_on(&self, hash: u64) -> bool {
        self.earlier.is_some_and(|earlier| self.hash(earlier + 1) == Some(hash))
    }

    fn hash(&self, number: u64) -> Option<u64> {
        let is_there = number < self.next && number + LENGTH as u64 >= self.next;
        is_there.then(|| self.ring[number as usize % LENGTH].0)
    }

    /// The stretch that has repeated until now.
    #[inline]
    pub fn stretch(&self) -> Range<u64> {
        self.start.min(self.next)..self.next
    }

    /// Ends the stretch: the next work begins another.
    pub fn cut(&mut self) {
        self.start = self.next;
    }

    /// Ends the repetition, because work was issued that the history does not contain.
    pub fn interrupt(&mut self) {
        self.earlier = None;
        self.start = self.next;
    }

    /// The work with these sequence numbers, which are among the last [`LENGTH`], with hashes.
    pub fn get(&self, numbers: Range<u64>) -> impl Iterator<Item = &(u64, Kept)> + Clone {
        numbers.map(|number| &self.ring[number as usize % LENGTH])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(history: &mut History, what: &str) -> Vec<Range<u64>> {
        what.bytes().map(|byte| history.push(u64::from(byte), &GraphWork::Fill { to: 0, byte, bytes: 1 })).collect()
    }

    #[test]
    fn a_stretch_repeats_what_came_earlier_in_the_same_order() {
        let mut history = History::new();
        pushed(&mut history, "abcd");
        assert!(history.stretch().is_empty());
        pushed(&mut history, "abc");
        assert_eq!(history.stretch(), 4..7);
        assert!(history.goes_on(u64::from(b'd')) && !history.goes_on(u64::from(b'a')));
        assert_eq!(pushed(&mut history, "x").pop(), Some(4..7));
        assert!(history.stretch().is_empty());
        // Among several earlier occurrences, the newest predicts what follows.
        pushed(&mut history, "bcx");
        assert_eq!(history.stretch(), 8..11);
    }

    #[test]
    fn one_thing_again_and_again_repeats_itself() {
        let mut history = History::new();
        pushed(&mut history, "aaaaa");
        assert_eq!(history.stretch(), 1..5);
        history.cut();
        assert!(history.stretch().is_empty() && history.goes_on(u64::from(b'a')));
        history.interrupt();
        assert!(!history.goes_on(u64::from(b'a')));
    }

    #[test]
    fn what_is_long_gone_does_not_repeat() {
        let mut history = History::new();
        pushed(&mut history, "a");
        for number in 0..LENGTH as u64 {
            history.push(1000 + number, &GraphWork::Fill { to: number, byte: 0, bytes: 1 });
        }
        pushed(&mut history, "a");
        assert!(history.stretch().is_empty());
    }
}
