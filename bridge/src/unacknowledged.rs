//! The bytes of a lasting link's stream that this side has sent or will send, until the other side has them.

use crate::frame_assembly::{LENGTH_BYTES, LENT_BIT, LENT_HEAD_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The capacity of a piece of small frames.
const PIECE_BYTES_MIN: usize = 4 << 10;

/// Bytes of a stream, one after another.
#[derive(Clone)]
pub(crate) enum StreamPiece {
    /// Copied.
    Kept(Arc<Vec<u8>>),
    /// Lent by their owner.
    Lent(*const [u8]),
}

// SAFETY: by the contract of `Unacknowledged::push_lent`, any thread may read lent bytes while they are in a link.
unsafe impl Send for StreamPiece {}

impl StreamPiece {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            StreamPiece::Kept(bytes) => bytes,
            // SAFETY: by the contract of `Unacknowledged::push_lent`, these bytes can be read and nobody writes them
            // while there is a piece of them.
            StreamPiece::Lent(bytes) => unsafe { &**bytes },
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            StreamPiece::Kept(bytes) => bytes.len(),
            StreamPiece::Lent(bytes) => bytes.len(),
        }
    }
}

/// Bytes of a stream that are not acknowledged, in pieces that are sent from where they lie.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    pieces: VecDeque<StreamPiece>,
    /// Bytes of the first piece that are acknowledged.
    settled: usize,
    /// Bytes of all pieces that are not.
    pub(crate) len: usize,
    /// Bytes of all pieces that were copied.
    pub(crate) kept: usize,
    pub(crate) lent_pieces: usize,
    /// The next byte to send: its piece, and its offset there.
    next: (usize, usize),
}

impl Unacknowledged {
    /// Adds a frame of `bytes` bytes.
    pub(crate) fn push(&mut self, bytes: usize, parts: &[&[u8]]) {
        self.push_kept(LENGTH_BYTES + bytes, |piece| {
            piece.extend_from_slice(&(bytes as u32).to_le_bytes());
            parts.iter().for_each(|part| piece.extend_from_slice(part));
        });
    }

    fn push_kept(&mut self, whole: usize, append: impl FnOnce(&mut Vec<u8>)) {
        self.len += whole;
        self.kept += whole;
        // A piece that is being sent is shared, and has to stay as it is.
        let last = match self.pieces.back_mut() {
            Some(StreamPiece::Kept(last)) => Arc::get_mut(last),
            _ => None,
        };
        match last.filter(|last| last.len() + whole <= last.capacity()) {
            Some(last) => append(last),
            None => {
                let mut piece = Vec::with_capacity(whole.max(PIECE_BYTES_MIN));
                append(&mut piece);
                self.pieces.push_back(StreamPiece::Kept(Arc::new(piece)));
            }
        }
    }

    /// Adds lent bytes.
    ///
    /// # Safety
    /// Any thread can read the bytes, and nobody writes them, until [`settle`](Self::settle) or
    /// [`keep_lent`](Self::keep_lent) has removed their piece and those that were [taken](Self::take) are dropped.
    pub(crate) unsafe fn push_lent(&mut self, head: &[u8; LENT_HEAD_BYTES], bytes: *const [u8]) {
        self.push_kept(LENGTH_BYTES + LENT_HEAD_BYTES, |piece| {
            piece.extend_from_slice(&(bytes.len() as u32 | LENT_BIT).to_le_bytes());
            piece.extend_from_slice(head);
        });
        if bytes.len() > 0 {
            self.len += bytes.len();
            self.lent_pieces += 1;
            self.pieces.push_back(StreamPiece::Lent(bytes));
        }
    }

    /// Copies all lent bytes.
    pub(crate) fn keep_lent(&mut self) {
        for piece in self.pieces.iter_mut().filter(|piece| matches!(piece, StreamPiece::Lent(_))) {
            let bytes = piece.bytes().to_vec();
            self.kept += bytes.len();
            *piece = StreamPiece::Kept(Arc::new(bytes));
        }
        self.lent_pieces = 0;
    }

    /// Forgets the oldest `bytes` bytes.
    pub(crate) fn settle(&mut self, bytes: usize) {
        self.len -= bytes;
        self.settled += bytes;
        while let Some(first) = self.pieces.front().filter(|first| first.len() <= self.settled) {
            self.settled -= first.len();
            match self.pieces.pop_front() {
                Some(StreamPiece::Kept(first)) => self.kept -= first.len(),
                Some(StreamPiece::Lent(_)) => self.lent_pieces -= 1,
                None => {}
            }
            self.next = self.next.0.checked_sub(1).map_or((0, 0), |piece| (piece, self.next.1));
        }
    }

    /// Makes the oldest byte the next one to send.
    pub(crate) fn rewind(&mut self) {
        self.next = (0, self.settled);
    }

    /// Takes at most `bytes_max` bytes to be sent, as ranges of pieces; returns their number.
    pub(crate) fn take(&mut self, bytes_max: usize, slices: &mut Vec<(StreamPiece, Range<usize>)>) -> usize {
        let mut count = 0;
        while let Some(piece) = self.pieces.get(self.next.0) {
            let start = self.next.1;
            let end = piece.len().min(start + bytes_max - count);
            if start < end {
                slices.push((piece.clone(), start..end));
                (count, self.next.1) = (count + end - start, end);
            }
            // The last piece may still grow.
            if end < piece.len() || self.next.0 + 1 == self.pieces.len() {
                break;
            }
            self.next = (self.next.0 + 1, 0);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_until_they_are_acknowledged_and_sent_again_after_a_break() {
        let mut kept = Unacknowledged::default();
        let large = vec![9; 2 * (64 << 10)];
        kept.push(1, &[&[7]]);
        kept.push(large.len(), &[&large]);
        let whole = 2 * LENGTH_BYTES + 1 + large.len();
        let send = |kept: &mut Unacknowledged, bytes_max: usize| {
            let mut slices = Vec::new();
            let count = kept.take(bytes_max, &mut slices);
            let bytes: Vec<u8> =
                slices.iter().flat_map(|(piece, range)| piece.bytes()[range.clone()].to_vec()).collect();
            assert_eq!((bytes.len(), bytes.len() <= bytes_max), (count, true));
            (bytes, slices)
        };
        let (first, sending) = send(&mut kept, 8);
        assert_eq!(first, [1, 0, 0, 0, 7, 0, 0, 2]);
        // Bytes that are on their way stay as they are, whatever comes behind them.
        kept.push(1, &[&[8]]);
        assert_eq!(sending.iter().map(|(_, range)| range.len()).sum::<usize>(), 8);
        drop(sending);
        let rest: usize = std::iter::from_fn(|| Some(send(&mut kept, 64 << 10).0.len()).filter(|n| *n > 0)).sum();
        assert_eq!(first.len() + rest, whole + LENGTH_BYTES + 1);
        kept.settle(6);
        kept.rewind();
        assert_eq!(send(&mut kept, 4).0, [0, 2, 0, 9]);
        kept.settle(4);
        kept.rewind();
        let left = kept.len;
        kept.settle(left);
        assert_eq!((kept.len, kept.pieces.len()), (0, 0));
        kept.push(2, &[&[1], &[2]]);
        assert_eq!(send(&mut kept, 100).0, [2, 0, 0, 0, 1, 2]);
        // Lent bytes count as none that were copied, until they are taken back.
        let before = kept.kept;
        // SAFETY: the bytes live until the end of the test, and nobody writes them.
        unsafe { kept.push_lent(&[6; LENT_HEAD_BYTES], &raw const *large) };
        let head = LENGTH_BYTES + LENT_HEAD_BYTES;
        assert_eq!((kept.kept - before, kept.len, kept.lent_pieces), (head, 6 + head + large.len(), 1));
        assert_eq!(send(&mut kept, head + 1).0[head - 1..], [6, 9]);
        kept.keep_lent();
        assert_eq!((kept.kept - before, kept.lent_pieces), (head + large.len(), 0));
        kept.settle(6 + head + 1);
        assert_eq!(send(&mut kept, usize::MAX / 2).0.len(), large.len() - 1);
        kept.settle(large.len() - 1);
        assert_eq!((kept.len, kept.kept, kept.pieces.len()), (0, 0, 0));
    }
}
