//! Frames: the units of a TCP connection. Each has a header of eight bytes and a payload of bounded length. Both sides
//! send [`MAGIC`] before their first frame.
//!
//! | bytes | header |
//! |---|---|
//! | 0 | kind |
//! | 1–3 | zero |
//! | 4–7 | length of the payload, little-endian |
//!
//! Decoding is a pure function of untrusted bytes: it never panics, never allocates, and rejects a header with an
//! invalid length before the payload arrives.

use gt_protocol::limits::MESSAGE_BYTES_MAX;
use gt_shm::broadcast::Record;
use gt_shm::{SLOT_BYTES, Slot};

/// The first bytes of both directions. They never change: the first message after them has the protocol version.
pub const MAGIC: [u8; 8] = *b"GT-TCP\r\n";
/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 8;
/// The most slots in one frame.
pub const SLOTS_MAX: usize = 256;
/// The most bytes of an arena in one frame: small enough that a frame is still in the cache when it is sent.
pub const DATA_BYTES_MAX: usize = 256 << 10;
/// The most records of the tape in one frame.
pub const RECORDS_MAX: usize = 1024;
/// Bytes of a record of the tape.
const RECORD_BYTES: usize = size_of::<Record>();
/// Bytes of a data frame's payload before the data: the number of the arena segment, and the offset in it.
const DATA_HEADER_BYTES: usize = 16;
/// The most bytes of a frame with its header.
pub const FRAME_BYTES_MAX: usize = HEADER_BYTES + DATA_HEADER_BYTES + DATA_BYTES_MAX;

const SLOTS: u8 = 1;
const DATA: u8 = 2;
const MESSAGE: u8 = 3;
const RECORDS: u8 = 4;

/// A decoded frame, which borrows the buffer that it was read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Slots of a ring: instructions from the client, completions from the daemon.
    Slots(&'a [u8]),
    /// Bytes of an arena. They precede the instruction that reads them, or the completion of the fetch that wrote them.
    Data {
        /// The number of the session's arena segment.
        segment: u64,
        /// The offset in the segment, bytes.
        offset: u64,
        /// The bytes at that offset.
        bytes: &'a [u8],
    },
    /// A message of the control socket: one JSON document.
    Message(&'a [u8]),
    /// Records of a copy of the tape, from a daemon that was asked for it.
    Records(&'a [u8]),
}

/// An invalid frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// An unknown kind, or padding that is not zero.
    #[error("bytes that begin no frame: {0:02x?}")]
    Kind([u8; 4]),
    /// An empty payload, one longer than its kind allows, or one that is not a whole number of slots or records.
    #[error("a frame of kind {kind} with {len} bytes")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// The payload's length, bytes.
        len: usize,
    },
}

/// The kind of a frame, the length of its payload, and the bytes behind the header that have come.
type FrameStart<'a> = (u8, usize, &'a [u8]);

/// The beginning of the frame at the start of `bytes`; `None` if not even the header has come.
fn decode_header(bytes: &[u8]) -> Result<Option<FrameStart<'_>>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [kind, a, b, c, l0, l1, l2, l3] = *header;
    if !(SLOTS..=RECORDS).contains(&kind) || [a, b, c] != [0; 3] {
        return Err(FrameError::Kind([kind, a, b, c]));
    }
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let fits = match kind {
        SLOTS => len.is_multiple_of(SLOT_BYTES) && (1..=SLOTS_MAX).contains(&(len / SLOT_BYTES)),
        DATA => (DATA_HEADER_BYTES + 1..=DATA_HEADER_BYTES + DATA_BYTES_MAX).contains(&len),
        RECORDS => len.is_multiple_of(RECORD_BYTES) && (1..=RECORDS_MAX).contains(&(len / RECORD_BYTES)),
        _ => (1..=MESSAGE_BYTES_MAX).contains(&len),
    };
    if !fits {
        return Err(FrameError::Length { kind, len });
    }
    Ok(Some((kind, len, rest)))
}

/// The segment and the offset at the beginning of a data frame's payload.
fn data_place(payload: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| payload.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    Some((word(0)?, word(8)?))
}

/// The frame at the start of `bytes` and its length with the header, or `None` if the frame is incomplete.
///
/// # Errors
/// An invalid header.
pub fn decode(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some((kind, len, rest)) = decode_header(bytes)? else { return Ok(None) };
    let Some(payload) = rest.get(..len) else { return Ok(None) };
    let frame = match kind {
        SLOTS => Frame::Slots(payload),
        DATA => {
            let (segment, offset) = data_place(payload).ok_or(FrameError::Length { kind, len })?;
            Frame::Data { segment, offset, bytes: payload.get(DATA_HEADER_BYTES..).unwrap_or_default() }
        }
        RECORDS => Frame::Records(payload),
        _ => Frame::Message(payload),
    };
    Ok(Some((frame, HEADER_BYTES + len)))
}

/// The beginning of a data frame, whose data may not have come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// The number of the segment.
    pub segment: u64,
    /// The offset in the segment, bytes.
    pub offset: u64,
    /// The length of the data.
    pub bytes: usize,
}

impl DataHead {
    /// Bytes of a frame before its data.
    pub const BYTES: usize = HEADER_BYTES + DATA_HEADER_BYTES;

    /// The beginning of the data frame at the start of `bytes`; `None` if it has not come, or it is another frame.
    ///
    /// # Errors
    /// An invalid header.
    pub fn decode(bytes: &[u8]) -> Result<Option<DataHead>, FrameError> {
        let Some((DATA, len, rest)) = decode_header(bytes)? else { return Ok(None) };
        let place = data_place(rest);
        Ok(place.map(|(segment, offset)| DataHead { segment, offset, bytes: len - DATA_HEADER_BYTES }))
    }
}

/// The slots in the payload of [`Frame::Slots`].
pub fn slots_in(payload: &[u8]) -> impl Iterator<Item = Slot> + '_ {
    payload.as_chunks::<SLOT_BYTES>().0.iter().map(|bytes| words_in(bytes))
}

/// The records in the payload of [`Frame::Records`].
pub fn records_in(payload: &[u8]) -> impl Iterator<Item = Record> + '_ {
    payload.as_chunks::<RECORD_BYTES>().0.iter().map(|bytes| words_in(bytes))
}

fn words_in<const WORDS: usize>(bytes: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn header(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&(len as u32).to_le_bytes());
}

/// Appends `slots` as frames of at most [`SLOTS_MAX`] slots.
pub fn push_slots(out: &mut Vec<u8>, slots: &[Slot]) {
    for slots in slots.chunks(SLOTS_MAX) {
        header(out, SLOTS, slots.len() * SLOT_BYTES);
        for word in slots.iter().flatten() {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Appends `records` as frames of at most [`RECORDS_MAX`] records.
pub fn push_records(out: &mut Vec<u8>, records: &[Record]) {
    for records in records.chunks(RECORDS_MAX) {
        header(out, RECORDS, size_of_val(records));
        for word in records.iter().flatten() {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Appends a frame of `len` bytes of an arena, which `fill` writes.
///
/// # Panics
/// If `len` is 0 or exceeds [`DATA_BYTES_MAX`].
pub fn push_data(out: &mut Vec<u8>, segment: u64, offset: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
    push_data_header(out, segment, offset, len);
    let start = out.len();
    out.resize(start + len, 0);
    fill(&mut out[start..]);
}

/// Appends the beginning of a frame with `len` bytes of an arena, which the caller sends behind it.
///
/// # Panics
/// If `len` is 0 or exceeds [`DATA_BYTES_MAX`].
pub fn push_data_header(out: &mut Vec<u8>, segment: u64, offset: u64, len: usize) {
    assert!((1..=DATA_BYTES_MAX).contains(&len), "{len} bytes in a frame");
    header(out, DATA, DATA_HEADER_BYTES + len);
    out.extend_from_slice(&segment.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
}

/// Appends a frame with a message.
///
/// # Panics
/// If the message is empty or exceeds [`MESSAGE_BYTES_MAX`].
pub fn push_message(out: &mut Vec<u8>, message: &[u8]) {
    assert!((1..=MESSAGE_BYTES_MAX).contains(&message.len()), "a message of {} bytes", message.len());
    header(out, MESSAGE, message.len());
    out.extend_from_slice(message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The frames of `bytes`, as text, and the number of bytes after the last complete frame.
    fn all(mut bytes: &[u8]) -> Result<(Vec<String>, usize), FrameError> {
        let mut frames = Vec::new();
        while let Some((frame, len)) = decode(bytes)? {
            frames.push(format!("{frame:?}"));
            bytes = &bytes[len..];
        }
        Ok((frames, bytes.len()))
    }

    #[test]
    fn frames_follow_each_other() {
        let mut out = Vec::new();
        push_slots(&mut out, &[[1; 8], [2; 8]]);
        push_data(&mut out, 3, 4096, 5, |bytes| bytes.copy_from_slice(b"hello"));
        push_message(&mut out, b"{}");
        let (first, len) = decode(&out).unwrap().unwrap();
        let Frame::Slots(payload) = first else { panic!("{first:?}") };
        assert_eq!(slots_in(payload).collect::<Vec<_>>(), [[1; 8], [2; 8]]);
        let (second, more) = decode(&out[len..]).unwrap().unwrap();
        assert_eq!(second, Frame::Data { segment: 3, offset: 4096, bytes: b"hello" });
        let (third, rest) = decode(&out[len + more..]).unwrap().unwrap();
        assert_eq!(third, Frame::Message(b"{}"));
        assert_eq!(len + more + rest, out.len());
        out.clear();
        push_records(&mut out, &[[3; 7], [4; 7]]);
        let (Frame::Records(payload), len) = decode(&out).unwrap().unwrap() else { panic!("another frame") };
        assert_eq!((records_in(payload).collect::<Vec<_>>(), len), (vec![[3; 7], [4; 7]], out.len()));
    }

    #[test]
    fn many_slots_are_several_frames() {
        let slots: Vec<Slot> = (0..SLOTS_MAX as u64 + 1).map(|n| [n; 8]).collect();
        let mut out = Vec::new();
        push_slots(&mut out, &slots);
        assert_eq!(all(&out).unwrap().0.len(), 2);
    }

    #[test]
    fn an_invalid_header_is_refused_before_its_payload_arrives() {
        assert_eq!(decode(b"GET / HTTP/1.1"), Err(FrameError::Kind(*b"GET ")));
        assert_eq!(decode(&[0; 8]), Err(FrameError::Kind([0; 4])));
        let wrong = [(1, 0), (1, 63), (1, 64 * 257), (2, 16), (2, 17 + (256 << 10)), (3, 0), (3, 65537)];
        for (kind, len) in wrong.into_iter().chain([(4, 0), (4, 55), (4, 56 * 1025)]) {
            let [a, b, c, d] = (len as u32).to_le_bytes();
            assert_eq!(decode(&[kind, 0, 0, 0, a, b, c, d]), Err(FrameError::Length { kind, len }));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = all(&bytes);
        }

        #[test]
        fn bytes_that_look_like_frames_are_too(
            kind in 0u8..6, len in 0u32..300, rest in prop::collection::vec(any::<u8>(), 0..600)
        ) {
            let mut bytes = vec![kind, 0, 0, 0];
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&rest);
            if let Ok(Some((_, used))) = decode(&bytes) {
                prop_assert!(used == HEADER_BYTES + len as usize && used <= bytes.len());
            }
        }

        #[test]
        fn a_frame_is_the_same_however_its_bytes_arrive(
            slots in prop::collection::vec(any::<[u64; 8]>(), 1..20), data in prop::collection::vec(any::<u8>(), 1..200),
            cut in 0usize..2000
        ) {
            let mut out = Vec::new();
            push_slots(&mut out, &slots);
            push_data(&mut out, 1, 64, data.len(), |bytes| bytes.copy_from_slice(&data));
            push_message(&mut out, &data);
            let (frames, left) = all(&out).unwrap();
            prop_assert_eq!((frames.len(), left), (3, 0));
            let cut = cut.min(out.len());
            // A prefix decodes to a prefix of the frames, without an error.
            let (start, left) = all(&out[..cut]).unwrap();
            prop_assert_eq!(&frames[..start.len()], &start[..]);
            let (end, _) = all(&out[cut - left..]).unwrap();
            prop_assert_eq!(&frames[start.len()..], &end[..]);
        }
    }
}
