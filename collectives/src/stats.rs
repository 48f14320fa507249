//! Counts of operations and bytes, the same for every communicator.

use crate::operation::Operation;

/// How often a rank took part in each operation, and the bytes that it sent and received.
///
/// Bytes are those of the bandwidth-optimal algorithm (for all-reduce, the ring of Patarasuk and Yuan 2009), even if
/// the communicator uses another. With `n` ranks and buffers of `b` bytes:
///
/// | operation | sent | received |
/// |---|---|---|
/// | all-reduce | `2 (n-1)/n · b`, rounded down | the same |
/// | all-gather | `(n-1) ·` own piece | all pieces but its own |
/// | reduce-scatter | all pieces but its own | `(n-1) ·` own piece |
/// | broadcast | `(n-1) · b` by the root | `b` by each other |
/// | all-to-all, send, recv | all bytes to other ranks | all bytes from other ranks |
///
/// Only operations that succeeded are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommStats {
    calls: [u64; Operation::ALL.len()],
    /// Bytes that this rank sent.
    pub sent_bytes: u64,
    /// Bytes that this rank received.
    pub received_bytes: u64,
}

impl CommStats {
    /// How often this rank took part in `operation`.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.calls[operation as usize]
    }

    pub(crate) fn count(&mut self, operation: Operation, sent_bytes: u64, received_bytes: u64) {
        self.calls[operation as usize] += 1;
        self.sent_bytes += sent_bytes;
        self.received_bytes += received_bytes;
    }

    /// As [`CommStats::count`], from the bytes to and from each rank.
    pub(crate) fn count_pieces(
        &mut self,
        operation: Operation,
        rank: usize,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) {
        let of_others = |pieces: &[usize]| {
            let others = pieces.iter().enumerate().filter(|(peer, _)| *peer != rank);
            others.map(|(_, bytes)| *bytes as u64).sum::<u64>()
        };
        match operation {
            Operation::AllReduce => {
                let n = send_counts.len() as u128;
                let moved = (2 * (n - 1) * send_counts[0] as u128 / n) as u64;
                self.count(operation, moved, moved);
            }
            _ => self.count(operation, of_others(send_counts), of_others(recv_counts)),
        }
    }
}
