//! Results that the ranks of a group make together, in memory that they all reach.
//!
//! Threads of one process need no copy each of a result that is the same on all ranks. One of them allocates it, and
//! they [share](crate::Communicator::share) it. Each rank writes its own part, and after a barrier the result is
//! complete. With `n` ranks that writes `1/n` of the bytes that as many copies have, and takes `1/n` of the memory.
//!
//! After an error a rank returns while others may still write their parts: each rank keeps the memory by a value of its
//! own.

use crate::copy::copy;
use crate::local::share;
use crate::reduce::{Reduce, reduce};
use gt_ops::DType;
use std::ops::Range;

/// The bytes of a result that several ranks make together.
#[derive(Debug)]
pub struct JointResult {
    start: *mut u8,
    bytes: usize,
}

impl JointResult {
    /// The `bytes` bytes at `start`.
    ///
    /// # Safety
    /// They are initialized, and valid for reads and writes as long as the value lives. Until the barrier that
    /// completes the result, nothing else accesses them except through values of this type, whose callers write parts
    /// that do not overlap.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> JointResult {
        JointResult { start, bytes }
    }

    /// Writes `input` to the bytes `columns` of every row, in the order of rows of `row_bytes` bytes.
    ///
    /// # Panics
    /// If the rows have more or fewer columns than the input has bytes, or do not fill the result.
    pub fn write_columns(&mut self, input: &[u8], row_bytes: usize, columns: Range<usize>) {
        if columns.is_empty() {
            return;
        }
        assert!(columns.end <= row_bytes && self.bytes.is_multiple_of(row_bytes), "columns outside of the rows");
        let rows = self.bytes / row_bytes;
        assert_eq!(input.len(), rows * columns.len(), "an input of other rows");
        for (row, from) in input.chunks_exact(columns.len()).enumerate() {
            let to = self.start.wrapping_add(row * row_bytes + columns.start);
            // SAFETY: the assertions found the columns of all rows within the result, which `new` requires to be valid
            // and not to be accessed otherwise: it does not overlap the borrowed input.
            unsafe { copy(from.as_ptr(), to, from.len(), self.bytes) };
        }
    }

    /// Reduces the share of rank `rank` of the operands of all ranks, element by element. One of them may lie in the
    /// result.
    ///
    /// # Safety
    /// Every operand has as many bytes as the result, and is valid for reads. No other rank than `rank` writes its
    /// share of them.
    ///
    /// # Panics
    /// If the result is not a whole number of elements.
    pub unsafe fn reduce_share(&mut self, operands: &[*const u8], rank: usize, dtype: DType, how: Reduce) {
        let element = dtype.size();
        assert!(self.bytes.is_multiple_of(element), "a part of an element");
        let share = share(self.bytes / element, element, operands.len(), rank);
        let at = share.start * element;
        let sources: Vec<*const u8> = operands.iter().map(|operand| operand.wrapping_add(at)).collect();
        // SAFETY: the share lies within the result and within each operand, by this function's contract. No other rank
        // writes this share of the result, by the contract of `new`, nor of an operand.
        unsafe { reduce(dtype, how, &sources, &[self.start.wrapping_add(at)], share.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::LocalGroup;
    use crate::{Communicator, SharedValue};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU8;

    const RANKS: usize = 3;
    /// Bytes of a result: more than one cache line for each rank, and not a multiple of the ranks.
    const BYTES: usize = 200;

    /// Memory that threads share.
    struct Memory([AtomicU8; BYTES]);

    impl Memory {
        fn start(&self) -> *mut u8 {
            self.0.as_ptr().cast_mut().cast()
        }
        fn bytes(&self) -> Vec<u8> {
            self.0.iter().map(|byte| byte.load(std::sync::atomic::Ordering::Relaxed)).collect()
        }
    }

    /// Runs `run` on every rank with the memory of every rank.
    fn on_ranks(run: impl Fn(&mut dyn Communicator, &[Arc<Memory>]) + Sync) {
        let run = &run;
        std::thread::scope(|scope| {
            for mut rank in LocalGroup::threads(RANKS).unwrap() {
                scope.spawn(move || {
                    let number = rank.rank() as u8;
                    let own = Arc::new(Memory(std::array::from_fn(|_| AtomicU8::new(number + 1))));
                    let given = (0..RANKS).map(|_| Box::new(own.clone()) as SharedValue).collect();
                    let shared = rank.share(given).unwrap().into_iter();
                    let all: Vec<_> = shared.map(|value| *value.downcast::<Arc<Memory>>().unwrap()).collect();
                    run(&mut rank, &all);
                });
            }
        });
    }

    #[test]
    fn ranks_write_the_columns_of_one_result() {
        on_ranks(|rank, memories| {
            let number = rank.rank();
            let columns = [0..7, 7..7, 7..20][number].clone();
            // SAFETY: the memory lives until the end, and the ranks write columns that do not overlap.
            let mut result = unsafe { JointResult::new(memories[1].start(), BYTES) };
            result.write_columns(&vec![number as u8 + 10; 10 * columns.len()], 20, columns);
            rank.barrier().unwrap();
            let row = [[10; 7].as_slice(), &[12; 13]].concat();
            assert_eq!(memories[1].bytes(), row.repeat(10));
        });
    }

    #[test]
    fn ranks_reduce_their_shares_into_the_operand_of_one_of_them() {
        on_ranks(|rank, memories| {
            let operands: Vec<*const u8> = memories.iter().map(|memory| memory.start().cast_const()).collect();
            // SAFETY: the memory lives until the end, and the ranks write their shares, which do not overlap.
            let mut result = unsafe { JointResult::new(memories[2].start(), BYTES) };
            // SAFETY: all operands have as many bytes, and live until the end; only the result's is written.
            unsafe { result.reduce_share(&operands, rank.rank(), DType::U8, Reduce::Sum) };
            rank.barrier().unwrap();
            assert_eq!([0, 1, 2].map(|i| memories[i].bytes()[BYTES - 1]), [1, 2, 6]);
            assert_eq!(memories[2].bytes(), [6; BYTES]);
            rank.barrier().unwrap();
        });
    }
}
