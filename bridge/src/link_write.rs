//! One write to a lasting link's connection: acknowledgements and bytes of the stream, sent from where they lie.

use crate::channel::TcpChannel;
use crate::frame::{push_data_header, push_slots};
use crate::unacknowledged::{StreamPiece, Unacknowledged};
use gt_shm::Slot;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Up to so many bytes are copied together to be sent; more are sent from where they lie.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// The room in which a write collects its bytes, kept from one write to the next.
#[derive(Default)]
pub(crate) struct WriteRoom {
    out: Vec<u8>,
    slices: Vec<(StreamPiece, Range<usize>)>,
}

/// A write of which the network may have taken a part.
pub(crate) struct LinkWrite {
    connection: Arc<TcpChannel>,
    room: WriteRoom,
    /// How many bytes the network has taken.
    done: usize,
    /// Whether nothing more is written to the link.
    pub(crate) is_last: bool,
}

impl LinkWrite {
    /// A write without bytes.
    pub(crate) fn new(connection: &Arc<TcpChannel>, mut room: WriteRoom) -> LinkWrite {
        room.out.clear();
        LinkWrite { connection: connection.clone(), room, done: 0, is_last: false }
    }

    /// Adds a frame with a slot.
    pub(crate) fn push_slot(&mut self, kind: u64, position: u64) {
        push_slots(&mut self.room.out, &[slot(kind, position)]);
    }

    /// Adds a frame with the next bytes to send, at most `bytes_max`, from `position` of the stream on. Returns their
    /// number. It is called once at most.
    pub(crate) fn push_data(&mut self, position: u64, bytes: &mut Unacknowledged, bytes_max: usize) -> usize {
        let WriteRoom { out, slices } = &mut self.room;
        let count = bytes.take(bytes_max, slices);
        if count > 0 {
            push_data_header(out, 0, position, count);
        }
        if count <= COPIED_BYTES_MAX {
            slices.drain(..).for_each(|(piece, range)| out.extend_from_slice(&piece.bytes()[range]));
        }
        count
    }

    /// How many bytes the network has taken.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// Writes what is left: all of it if this thread `waits` for room, otherwise as much as the network takes now.
    /// Returns whether the write is whole.
    ///
    /// # Errors
    /// The connection has broken.
    pub(crate) fn go_on(&mut self, waits: bool) -> io::Result<bool> {
        let WriteRoom { out, slices } = &self.room;
        let parts: Vec<&[u8]> = std::iter::once(&out[..])
            .chain(slices.iter().map(|(piece, range)| &piece.bytes()[range.clone()]))
            .collect();
        let whole = parts.iter().map(|part| part.len()).sum();
        if waits {
            self.connection.write_rest_of_parts(&parts, self.done)?;
            self.done = whole;
        } else {
            self.connection.try_write_parts(&parts, &mut self.done)?;
        }
        Ok(self.done == whole)
    }

    /// Ends the write, whole or not: nothing of the stream is read for it any more. Returns its connection, whether it
    /// was the last, and the room for the next.
    pub(crate) fn finish(self) -> (Arc<TcpChannel>, bool, WriteRoom) {
        let LinkWrite { connection, mut room, is_last, .. } = self;
        room.slices.clear();
        (connection, is_last, room)
    }
}

/// A slot that says something of a position in a stream.
pub(crate) fn slot(kind: u64, position: u64) -> Slot {
    let mut slot = Slot::default();
    (slot[0], slot[1]) = (kind, position);
    slot
}
