//! The frames of a [`LastingLink`] between a node's agent and the daemon: messages, slots of workers' rings, and bytes
//! of arenas.

use crate::frame::slots_in;
use crate::lasting_link::{LINK_FRAME_BYTES_MAX, LastingLink, LinkEnd};
use gt_shm::{SLOT_BYTES, Slot};
use serde::Serialize;

/// The most bytes of an arena in one frame.
pub const DATA_BYTES_MAX: usize = 256 << 10;
/// The most slots in one frame.
const SLOTS_MAX: usize = 1024;

/// A frame of a node's link.
#[derive(Debug)]
pub enum LinkFrame<'a> {
    /// A message as JSON.
    Message(&'a [u8]),
    /// Slots of a worker's ring: steps to the node, reports to the daemon.
    Slots {
        /// The worker.
        worker: u32,
        /// The slots.
        slots: Vec<Slot>,
    },
    /// Bytes of an arena.
    Data {
        /// The worker.
        worker: u32,
        /// The session's number.
        session: u64,
        /// The arena's number.
        arena: u32,
        /// The offset in the arena.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
}

const MESSAGE: u8 = 0;
const SLOTS: u8 = 1;
const DATA: u8 = 2;
const DATA_HEADER_BYTES: usize = 25;

impl LinkFrame<'_> {
    /// The frame in bytes that came.
    ///
    /// # Errors
    /// The bytes are no frame.
    pub fn decode(bytes: &[u8]) -> Result<LinkFrame<'_>, String> {
        let invalid = || format!("a frame of {} bytes", bytes.len());
        let (kind, rest) = bytes.split_first().ok_or_else(invalid)?;
        let word = |at: usize| rest.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
        let long = |at: usize| rest.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
        match *kind {
            MESSAGE => Ok(LinkFrame::Message(rest)),
            SLOTS => {
                let slots = rest.get(4..).filter(|slots| slots.len().is_multiple_of(SLOT_BYTES)).ok_or_else(invalid)?;
                Ok(LinkFrame::Slots { worker: word(0).ok_or_else(invalid)?, slots: slots_in(slots).collect() })
            }
            DATA => Ok(LinkFrame::Data {
                worker: word(0).ok_or_else(invalid)?,
                session: long(4).ok_or_else(invalid)?,
                arena: word(12).ok_or_else(invalid)?,
                offset: long(16).ok_or_else(invalid)?,
                bytes: rest.get(DATA_HEADER_BYTES - 1..).ok_or_else(invalid)?,
            }),
            _ => Err(invalid()),
        }
    }
}

/// Sends a message.
///
/// # Errors
/// The link has ended.
pub fn send_message<M: Serialize>(link: &LastingLink, message: &M) -> Result<(), LinkEnd> {
    let text = serde_json::to_vec(message).map_err(|error| LinkEnd::Broken(error.to_string()))?;
    if text.len() >= LINK_FRAME_BYTES_MAX {
        return Err(LinkEnd::Broken(format!("a message of {} bytes", text.len())));
    }
    link.send(&[&[MESSAGE], &text])
}

/// Sends slots of a worker's ring.
///
/// # Errors
/// The link has ended.
pub fn send_slots(link: &LastingLink, worker: u32, slots: &[Slot]) -> Result<(), LinkEnd> {
    slots.chunks(SLOTS_MAX).try_for_each(|slots| {
        let bytes: Vec<u8> = slots.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        link.send(&[&[SLOTS], &worker.to_le_bytes(), &bytes])
    })
}

/// Sends bytes of an arena, at most [`DATA_BYTES_MAX`].
///
/// # Errors
/// The link has ended.
pub fn send_data(
    link: &LastingLink,
    worker: u32,
    (session, arena, offset): (u64, u32, u64),
    bytes: &[u8],
) -> Result<(), LinkEnd> {
    let (worker, session) = (worker.to_le_bytes(), session.to_le_bytes());
    link.send(&[&[DATA], &worker, &session, &arena.to_le_bytes(), &offset.to_le_bytes(), bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        for bytes in [&[][..], &[9], &[SLOTS, 0, 0], &[SLOTS, 0, 0, 0, 0, 1], &[DATA; 20]] {
            assert!(LinkFrame::decode(bytes).is_err(), "{bytes:?}");
        }
        assert!(matches!(LinkFrame::decode(&[MESSAGE, b'{']), Ok(LinkFrame::Message(b"{"))));
        let mut data = vec![DATA];
        data.extend([3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 42]);
        let Ok(LinkFrame::Data { worker: 3, session: 7, arena: 1, offset: 64, bytes: [42] }) = LinkFrame::decode(&data)
        else {
            panic!("another frame");
        };
    }
}
