//! The sequences of a session: the instructions between two fetches of its program, and how often they repeat.
//!
//! A program that trains issues the same instructions again and again. Two sequences are the same if their operations,
//! dtypes and sizes are; numbers such as a learning rate may differ. Each instruction costs a few machine instructions:
//! it is mixed into a hash (FxHash, as rustc has it), and the table is asked once a sequence.

use gt_protocol::SequenceCounts;
use std::collections::HashMap;

/// The sequences that a session remembers; later ones are counted as new each time.
const SEQUENCES_MAX: usize = 1 << 12;
/// A sequence is hot once it was seen this often.
const HOT_MIN: u64 = 3;
/// The multiplier of FxHash: 2^64 divided by the golden ratio, odd.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The sequences of one session.
#[derive(Default)]
pub struct Sequences {
    /// The hash of the present sequence.
    hash: u64,
    /// Its instructions.
    length: u64,
    /// By hash, how often each was seen.
    seen: HashMap<u64, u64>,
    counts: SequenceCounts,
}

impl Sequences {
    /// Adds an instruction to the present sequence: its operation, and the words of its result's dtype and sizes.
    #[inline]
    pub fn add(&mut self, operation: u16, [low, high]: [u64; 2]) {
        if cfg!(feature = "unobserved") {
            return;
        }
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
        self.hash = mix(mix(self.hash, low ^ u64::from(operation) << 48), high);
        self.length += 1;
    }

    /// Ends the present sequence: the program fetches a value.
    #[inline]
    pub fn end(&mut self) {
        if self.length > 0 {
            self.count();
        }
    }

    fn count(&mut self) {
        let (hash, length) = (std::mem::take(&mut self.hash), std::mem::take(&mut self.length));
        let counts = &mut self.counts;
        let times = match self.seen.get_mut(&hash) {
            Some(times) => {
                *times += 1;
                counts.hits += 1;
                *times
            }
            None => {
                counts.misses += 1;
                if self.seen.len() < SEQUENCES_MAX {
                    self.seen.insert(hash, 1);
                    counts.unique_sequences += 1;
                }
                1
            }
        };
        counts.hot_sequences += u64::from(times == HOT_MIN);
        counts.hot_instructions += if times >= HOT_MIN { length } else { 0 };
    }

    /// The counts so far, without the present sequence.
    pub fn counts(&self) -> SequenceCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_between_fetches_is_a_hot_sequence() {
        let mut sequences = Sequences::default();
        for step in 0..5 {
            for operation in [7, 8, 9] {
                sequences.add(operation, [3, 4]);
            }
            sequences.end();
            // A fetch without instructions is no sequence.
            sequences.end();
            if step == 0 {
                sequences.add(7, [3, 5]);
                sequences.end();
            }
        }
        let expected =
            SequenceCounts { unique_sequences: 2, hot_sequences: 1, hot_instructions: 9, hits: 4, misses: 2 };
        assert_eq!(sequences.counts(), expected);
    }

    #[test]
    fn the_order_of_operations_makes_another_sequence() {
        let mut sequences = Sequences::default();
        for order in [[1, 2], [2, 1]] {
            order.into_iter().for_each(|operation| sequences.add(operation, [0, 0]));
            sequences.end();
        }
        assert_eq!(sequences.counts().unique_sequences, 2);
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let mut sequences = Sequences::default();
        for size in 0..2 * SEQUENCES_MAX as u64 {
            sequences.add(1, [size, 0]);
            sequences.end();
        }
        let counts = sequences.counts();
        assert_eq!((counts.unique_sequences, counts.misses), (SEQUENCES_MAX as u64, 2 * SEQUENCES_MAX as u64));
    }
}
