//! The frames of a [`LastingLink`] between a node's agent and the daemon: messages, slots of workers' rings, and bytes
//! of arenas.

use crate::frame::slots_in;
use crate::frame_assembly::LINK_FRAME_BYTES_MAX;
use crate::lasting_link::{LastingLink, LinkEnd};
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
    /// Slots of several workers' rings, as [`push_shared_slots`] writes them; [`read_shared_slots`] reads them.
    SharedSlots(&'a [u8]),
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
const SHARED_SLOTS: u8 = 3;
/// The bytes before the slots of a piece: the set of its workers, and the number of its slots.
const SHARED_HEADER_BYTES: usize = 20;
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
            SHARED_SLOTS => Ok(LinkFrame::SharedSlots(rest)),
            _ => Err(invalid()),
        }
    }
}

/// Appends slots that several workers get to the bytes of a frame. `workers` is a set of workers, one bit each.
pub fn push_shared_slots(frame: &mut Vec<u8>, workers: [u64; 2], slots: &[Slot]) {
    frame.reserve(SHARED_HEADER_BYTES + slots.len() * SLOT_BYTES);
    workers.iter().for_each(|word| frame.extend_from_slice(&word.to_le_bytes()));
    frame.extend_from_slice(&(slots.len() as u32).to_le_bytes());
    slots.iter().flatten().for_each(|word| frame.extend_from_slice(&word.to_le_bytes()));
}

/// Calls `take` for each slot of such a frame, in order, with the set of the workers that get it.
///
/// # Errors
/// The bytes are not those of such a frame. The slots before were taken.
pub fn read_shared_slots(mut frame: &[u8], mut take: impl FnMut([u64; 2], Slot)) -> Result<(), String> {
    while !frame.is_empty() {
        let cut = || format!("{} bytes of shared slots are too few", frame.len());
        let (header, rest) = frame.split_first_chunk::<SHARED_HEADER_BYTES>().ok_or_else(cut)?;
        let long = |at: usize| header[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let count = header[16..].iter().rev().fold(0, |word, byte| word << 8 | usize::from(*byte));
        let bytes = count.saturating_mul(SLOT_BYTES);
        let (slots, rest) = rest.split_at_checked(bytes).ok_or_else(cut)?;
        let workers = [long(0), long(8)];
        slots_in(slots).for_each(|slot| take(workers, slot));
        frame = rest;
    }
    Ok(())
}

/// Sends a frame of shared slots, without waiting while much is not acknowledged: the steps in flight are limited.
///
/// # Errors
/// The link has ended.
///
/// # Panics
/// If the frame is not shorter than [`LINK_FRAME_BYTES_MAX`].
pub fn send_shared_slots(link: &LastingLink, frame: &[u8]) -> Result<(), LinkEnd> {
    link.answer(&[&[SHARED_SLOTS], frame])
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
    fn shared_slots_arrive_with_their_workers_in_order() {
        let (mut frame, mut came) = (vec![SHARED_SLOTS], Vec::new());
        push_shared_slots(&mut frame, [1 | 1 << 63, 1 << 62], &[[7; 8], [8; 8]]);
        push_shared_slots(&mut frame, [2, 0], &[[9, 0, 0, 0, 0, 0, 0, u64::MAX]]);
        let Ok(LinkFrame::SharedSlots(bytes)) = LinkFrame::decode(&frame) else { panic!("another frame") };
        read_shared_slots(bytes, |workers, slot| came.push((workers, slot))).unwrap();
        let first = [1 | 1 << 63, 1 << 62];
        assert_eq!(came, [(first, [7; 8]), (first, [8; 8]), ([2, 0], [9, 0, 0, 0, 0, 0, 0, u64::MAX])]);
        for cut in (1..bytes.len()).filter(|cut| *cut != SHARED_HEADER_BYTES + 2 * SLOT_BYTES) {
            let told = read_shared_slots(&bytes[..cut], |_, _| {}).unwrap_err();
            assert!(told.ends_with("bytes of shared slots are too few"), "{told}");
        }
        let mut huge = vec![0; SHARED_HEADER_BYTES];
        huge[16..].fill(0xff);
        assert!(read_shared_slots(&huge, |_, _| {}).is_err());
    }

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
