//! The frames of a lasting link's stream, put together from the blocks in which its bytes come.
//!
//! In the stream, a frame is its length in four bytes and its bytes. Lent bytes are their number with [`LENT_BIT`], a
//! head, and the bytes themselves, which are no part of a frame: their receiver reads each part to where it belongs.

/// The most bytes of a frame.
pub const LINK_FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of a frame's length before it.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Bytes of the head of lent bytes, which tells their receiver where they belong.
pub const LENT_HEAD_BYTES: usize = 13;
/// The most bytes that are lent at one time.
pub const LENT_BYTES_MAX: usize = LENT_BIT as usize - 1;
/// The bit of a length that says that it is of lent bytes.
pub(crate) const LENT_BIT: u32 = 1 << 31;

/// The frames of the stream, whose bytes come in blocks.
#[derive(Default)]
pub struct FrameAssembly {
    /// The bytes of the frame's length that have come, and of the head of lent bytes.
    head: Vec<u8>,
    /// The bytes of the frame that have come.
    frame: Vec<u8>,
    /// Whether the frame was returned.
    is_whole: bool,
    /// The lent bytes that are still to come.
    lent: usize,
}

impl FrameAssembly {
    /// The next frame, whose last bytes are taken from the beginning of `bytes`; none if these do not complete it, or
    /// if [lent bytes](Self::lent) are next.
    ///
    /// # Errors
    /// The frame is longer than [`LINK_FRAME_BYTES_MAX`].
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<&mut Vec<u8>>, String> {
        if self.lent > 0 {
            return Ok(None);
        }
        loop {
            if std::mem::take(&mut self.is_whole) {
                self.head.clear();
                self.frame.clear();
            }
            let take = |to: &mut Vec<u8>, length: usize, bytes: &mut &[u8]| {
                let (taken, rest) = bytes.split_at(bytes.len().min(length - to.len()));
                to.extend_from_slice(taken);
                *bytes = rest;
            };
            if self.head.len() < LENGTH_BYTES {
                take(&mut self.head, LENGTH_BYTES, bytes);
            }
            let Some(length) = self.head.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
            let length = u32::from_le_bytes(*length);
            if length & LENT_BIT == 0 {
                let length = length as usize;
                if length > LINK_FRAME_BYTES_MAX {
                    return Err(format!("a frame of {length} bytes"));
                }
                self.frame.reserve(length - self.frame.len());
                take(&mut self.frame, length, bytes);
                self.is_whole = self.frame.len() == length;
                return Ok(self.is_whole.then_some(&mut self.frame));
            }
            let whole = LENGTH_BYTES + LENT_HEAD_BYTES;
            take(&mut self.head, whole, bytes);
            if self.head.len() < whole {
                return Ok(None);
            }
            self.is_whole = true;
            self.lent = (length & !LENT_BIT) as usize;
            if self.lent > 0 {
                return Ok(None);
            }
        }
    }

    /// The head of the lent bytes that are next in the stream, and the number of those that are still to come; none if
    /// a frame is next.
    pub fn lent(&self) -> Option<([u8; LENT_HEAD_BYTES], usize)> {
        let head = self.head.get(LENGTH_BYTES..)?.first_chunk()?;
        (self.lent > 0).then_some((*head, self.lent))
    }

    /// Notes that lent bytes have come.
    ///
    /// # Panics
    /// If they are more than those that are still to come.
    pub fn note_lent(&mut self, bytes: usize) {
        assert!(bytes <= self.lent, "{bytes} bytes of {}", self.lent);
        self.lent -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_the_same_however_its_bytes_come() {
        let mut frames = FrameAssembly::default();
        let bytes = [&[2, 0, 0, 0, 7, 8], &[0, 0, 0, 0][..], &[1, 0, 0, 0, 9]].concat();
        let mut found = Vec::new();
        for byte in bytes {
            let mut rest = &[byte][..];
            while let Some(frame) = frames.next(&mut rest).unwrap() {
                found.push(frame.clone());
            }
        }
        assert_eq!(found, [vec![7, 8], vec![], vec![9]]);
        let mut rest = &i32::MAX.to_le_bytes()[..];
        assert!(frames.next(&mut rest).unwrap_err().starts_with("a frame of 2147483647 bytes"));
    }

    #[test]
    fn lent_bytes_are_left_to_their_reader() {
        let mut frames = FrameAssembly::default();
        let none = [&[0, 0, 0, 0x80][..], &[4; LENT_HEAD_BYTES], &[3, 0, 0, 0x80], &[5; LENT_HEAD_BYTES]].concat();
        for byte in &none {
            assert_eq!(frames.lent(), None);
            assert_eq!(frames.next(&mut std::slice::from_ref(byte)).unwrap(), None);
        }
        assert_eq!(frames.lent(), Some(([5; LENT_HEAD_BYTES], 3)));
        let mut rest = &[1, 2][..];
        assert!(frames.next(&mut rest).unwrap().is_none() && rest.len() == 2, "they are no frame");
        frames.note_lent(1);
        assert_eq!(frames.lent(), Some(([5; LENT_HEAD_BYTES], 2)));
        frames.note_lent(2);
        assert_eq!(frames.lent(), None);
        assert_eq!(frames.next(&mut &[1, 0, 0, 0, 9][..]).unwrap(), Some(&mut vec![9]));
    }
}
