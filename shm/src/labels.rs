//! Labels: a word for each of the newest numbered records, and a text for each word, which others can read at any time.
//! A record that the writer waits for has a second label, of the wait.
//!
//! A writer numbers its records one after the other, and gives each a word: its label. A ring keeps the labels of the
//! newest [`LABELS_KEPT`] records. The text of a label is written once, before its first use, to a region that only
//! grows; when it is full, later labels have no text. Neither side waits. A reader trusts nothing that it finds.
//!
//! The label of record `n` stands where that of `n - LABELS_KEPT` stood. The writer stores the label, then the number
//! `n` as the newest, and both with release. So a reader that loads the label with acquire and is told of a newest
//! record below `n + LABELS_KEPT - 1` afterwards has the label of `n`. Waits are few, and each entry has its
//! record's number.
//!
//! ```
//! use gt_shm::labels::{LabelReader, LabelWriter, create};
//!
//! let (fd, bytes) = create()?; // the daemon; the descriptor is sent by socket
//! let writer = LabelWriter::map(fd.try_clone().unwrap(), bytes)?;
//! writer.define(7, "train.py:12 in step");
//! writer.set(1, 7);
//!
//! let mut reader = LabelReader::map(fd, bytes)?;
//! assert_eq!(reader.text(1).as_deref(), Some("train.py:12 in step"));
//! assert_eq!(reader.text(2), None);
//! # Ok::<(), gt_shm::Error>(())
//! ```

use crate::error::{Error, Result};
use crate::segment::{Access, PAGE_BYTES, Segment};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};

/// The newest records whose labels are kept.
pub const LABELS_KEPT: u64 = 1 << 16;
/// The longest text, bytes; of a longer one the beginning is kept.
pub const TEXT_BYTES_MAX: usize = 512;

/// The newest waits whose labels are kept, if their records' numbers are consecutive.
pub const WAITS_KEPT: u64 = 1 << 12;

const WORD_BYTES: usize = size_of::<u64>();
const RING_BYTES: usize = LABELS_KEPT as usize * WORD_BYTES;
/// The region of texts, bytes: some ten thousand lines of a program.
const TEXTS_BYTES: usize = 1 << 20;
const TEXTS_WORDS: usize = TEXTS_BYTES / WORD_BYTES;
/// A wait's entry has two words: the record's number, and the label.
const WAITS_BYTES: usize = WAITS_KEPT as usize * 2 * WORD_BYTES;
const SEGMENT_BYTES: u64 = (PAGE_BYTES + RING_BYTES + TEXTS_BYTES + WAITS_BYTES) as u64;
/// Words before the bytes of a text: its label and its length.
const TEXT_HEADER_WORDS: usize = 2;

/// Creates the memory of labels. Returns its descriptor and its length. Only the pages that are used take memory.
///
/// # Errors
/// The system refuses the memory or a descriptor.
pub fn create() -> Result<(OwnedFd, u64)> {
    let (_, fd) = Segment::create("gt-labels", SEGMENT_BYTES, Access::ReadOnly, Access::ReadWrite)?.detach();
    Ok((fd, SEGMENT_BYTES))
}

/// The words of a segment of labels.
struct LabelMemory {
    newest: NonNull<AtomicU64>,
    ring: NonNull<AtomicU64>,
    texts: NonNull<AtomicU64>,
    waits: NonNull<[AtomicU64; 2]>,
    _segment: Segment,
}

// SAFETY: `_segment` keeps the mapping of the pointers alive on any thread, and they are only used as references to
// atomics.
unsafe impl Send for LabelMemory {}
// SAFETY: all accesses are atomic.
unsafe impl Sync for LabelMemory {}

impl LabelMemory {
    fn map(fd: OwnedFd, bytes: u64, access: Access) -> Result<LabelMemory> {
        if bytes != SEGMENT_BYTES {
            return Err(Error::SegmentSize { bytes });
        }
        let segment = match access {
            Access::ReadOnly => Segment::map_peer_for_reading(fd, bytes)?,
            Access::ReadWrite => Segment::map_peer(fd, bytes, access)?,
        };
        Ok(LabelMemory {
            newest: segment.at(0, WORD_BYTES, WORD_BYTES).cast(),
            ring: segment.at(PAGE_BYTES, RING_BYTES, WORD_BYTES).cast(),
            texts: segment.at(PAGE_BYTES + RING_BYTES, TEXTS_BYTES, WORD_BYTES).cast(),
            waits: segment.at(PAGE_BYTES + RING_BYTES + TEXTS_BYTES, WAITS_BYTES, WORD_BYTES).cast(),
            _segment: segment,
        })
    }

    /// The number of the newest record.
    #[inline]
    fn newest(&self) -> &AtomicU64 {
        // SAFETY: `map` took the pointer from `Segment::at`, which checked bounds and alignment.
        unsafe { self.newest.as_ref() }
    }

    /// The number of words of the region of texts that are written.
    fn texts_end(&self) -> &AtomicU64 {
        // SAFETY: the second word of the page at which `newest` is the first.
        unsafe { self.newest.add(1).as_ref() }
    }

    #[inline]
    fn label(&self, number: u64) -> &AtomicU64 {
        // SAFETY: the remainder is below `LABELS_KEPT`, and `Segment::at` checked that so many words are inside.
        unsafe { self.ring.add((number % LABELS_KEPT) as usize).as_ref() }
    }

    /// The number and the label of the wait for record `number`.
    fn wait(&self, number: u64) -> &[AtomicU64; 2] {
        // SAFETY: the remainder is below `WAITS_KEPT`, and `Segment::at` checked that so many entries are inside.
        unsafe { self.waits.add((number % WAITS_KEPT) as usize).as_ref() }
    }

    fn text_word(&self, word: usize) -> Option<&AtomicU64> {
        // SAFETY: the index is below `TEXTS_WORDS`, and `Segment::at` checked that so many words are inside.
        (word < TEXTS_WORDS).then(|| unsafe { self.texts.add(word).as_ref() })
    }
}

/// The writer of labels. A segment must have only one.
pub struct LabelWriter {
    memory: LabelMemory,
    /// The end of the texts, words; held while one is added.
    end: Mutex<usize>,
}

impl LabelWriter {
    /// Maps a segment that the daemon has sent and announced as `bytes` long.
    ///
    /// # Errors
    /// The segment differs from the announcement; an error of the system.
    pub fn map(fd: OwnedFd, bytes: u64) -> Result<LabelWriter> {
        Ok(LabelWriter { memory: LabelMemory::map(fd, bytes, Access::ReadWrite)?, end: Mutex::new(0) })
    }

    /// Labels record `number`, the one after the last. One thread at a time calls this.
    #[inline]
    pub fn set(&self, number: u64, label: u64) {
        self.memory.label(number).store(label, Release);
        self.memory.newest().store(number, Release);
    }

    /// Labels a wait for record `number`. One thread at a time calls this.
    pub fn set_wait(&self, number: u64, label: u64) {
        let [waited, shared] = self.memory.wait(number);
        waited.store(0, Release);
        shared.store(label, Release);
        waited.store(number, Release);
    }

    /// Writes the text of `label`, before the first record that has it. False if there is no room for more texts.
    pub fn define(&self, label: u64, text: &str) -> bool {
        let bytes = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let words = TEXT_HEADER_WORDS + bytes.len().div_ceil(WORD_BYTES);
        if *end + words > TEXTS_WORDS {
            return false;
        }
        let body = bytes.chunks(WORD_BYTES).map(|chunk| {
            let mut word = [0; WORD_BYTES];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        for (at, word) in [label, bytes.len() as u64].into_iter().chain(body).enumerate() {
            if let Some(shared) = self.memory.text_word(*end + at) {
                shared.store(word, Relaxed);
            }
        }
        *end += words;
        self.memory.texts_end().store(*end as u64, Release);
        true
    }
}

/// A reader of labels, which the writer does not notice.
pub struct LabelReader {
    memory: LabelMemory,
    texts: HashMap<u64, String>,
    /// The words of texts that were read.
    read: usize,
}

impl LabelReader {
    /// Maps a segment that the daemon has sent and announced as `bytes` long, for reading.
    ///
    /// # Errors
    /// The segment differs from the announcement; an error of the system.
    pub fn map(fd: OwnedFd, bytes: u64) -> Result<LabelReader> {
        let memory = LabelMemory::map(fd, bytes, Access::ReadOnly)?;
        Ok(LabelReader { memory, texts: HashMap::new(), read: 0 })
    }

    /// The label of record `number`; none if it is no longer kept, or still to be written.
    pub fn label(&self, number: u64) -> Option<u64> {
        let label = self.memory.label(number).load(Acquire);
        let newest = self.memory.newest().load(Acquire);
        let kept = number > 0 && number <= newest && newest - number < LABELS_KEPT - 1;
        kept.then_some(label).filter(|label| *label != 0)
    }

    /// The label of the last wait for record `number`; none if it is no longer kept, or there was none.
    pub fn wait_label(&self, number: u64) -> Option<u64> {
        let [waited, shared] = self.memory.wait(number);
        let before = waited.load(Acquire);
        let label = shared.load(Acquire);
        (before == number && number > 0 && waited.load(Relaxed) == before && label != 0).then_some(label)
    }

    /// The text of `label`, without control characters; none if it has none.
    pub fn text_of(&mut self, label: u64) -> Option<&str> {
        self.read_texts();
        self.texts.get(&label).map(String::as_str)
    }

    /// The text of record `number`.
    pub fn text(&mut self, number: u64) -> Option<String> {
        let label = self.label(number)?;
        self.text_of(label).map(str::to_owned)
    }

    /// Reads the texts that were added since the last time.
    fn read_texts(&mut self) {
        let end = (self.memory.texts_end().load(Acquire) as usize).min(TEXTS_WORDS);
        while self.read < end {
            let word = |at: usize| self.memory.text_word(self.read + at).map(|word| word.load(Relaxed));
            let (Some(label), Some(length)) = (word(0), word(1)) else { return };
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(TEXT_BYTES_MAX);
            let words = length.div_ceil(WORD_BYTES);
            let bytes: Vec<u8> = (0..words)
                .filter_map(|at| word(TEXT_HEADER_WORDS + at))
                .flat_map(u64::to_le_bytes)
                .take(length)
                .collect();
            let text = String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).collect();
            self.texts.entry(label).or_insert(text);
            self.read += TEXT_HEADER_WORDS + words;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (LabelWriter, LabelReader) {
        let (fd, bytes) = create().unwrap();
        let writer = LabelWriter::map(fd.try_clone().unwrap(), bytes).unwrap();
        (writer, LabelReader::map(fd, bytes).unwrap())
    }

    #[test]
    fn the_newest_records_have_labels() {
        let (writer, mut reader) = pair();
        assert_eq!(reader.label(1), None);
        assert!(writer.define(5, "first.py:1 in f") && writer.define(6, "second.py:2 in g"));
        for number in 1..=LABELS_KEPT + 10 {
            writer.set(number, 5 + number % 2);
        }
        assert_eq!(reader.text(LABELS_KEPT + 10).as_deref(), Some("first.py:1 in f"));
        assert_eq!(reader.text(LABELS_KEPT + 9).as_deref(), Some("second.py:2 in g"));
        assert_eq!(reader.label(10), None, "a newer record has its place");
        assert_eq!(reader.label(13), Some(6));
        assert_eq!(reader.label(LABELS_KEPT + 11), None, "it is still to be written");
    }

    #[test]
    fn a_record_may_have_no_label_and_a_label_no_text() {
        let (writer, mut reader) = pair();
        writer.set(1, 0);
        writer.set(2, 9);
        assert_eq!((reader.label(1), reader.label(2), reader.text(2)), (None, Some(9), None));
    }

    #[test]
    fn a_wait_has_a_label_of_its_own() {
        let (writer, reader) = pair();
        writer.set(9, 1);
        writer.set_wait(9, 2);
        assert_eq!((reader.label(9), reader.wait_label(9), reader.wait_label(8)), (Some(1), Some(2), None));
        writer.set_wait(9 + WAITS_KEPT, 3);
        assert_eq!((reader.wait_label(9), reader.wait_label(9 + WAITS_KEPT)), (None, Some(3)));
    }

    #[test]
    fn texts_end_where_the_room_ends() {
        let (writer, mut reader) = pair();
        let long = "x".repeat(2 * TEXT_BYTES_MAX);
        let defined = (1..).take_while(|label| writer.define(*label, &long)).count() as u64;
        assert_eq!(defined as usize, TEXTS_WORDS / (TEXT_HEADER_WORDS + TEXT_BYTES_MAX / WORD_BYTES));
        assert_eq!(reader.text_of(defined).map(str::len), Some(TEXT_BYTES_MAX));
        assert_eq!(reader.text_of(defined + 1), None);
    }

    #[test]
    fn a_reader_trusts_nothing() {
        let (writer, mut reader) = pair();
        writer.define(3, "a\u{1b}[31mb\nc");
        assert_eq!(reader.text_of(3), Some("a[31mbc"));
        // A hostile writer says that there are more texts than there is room, of any length.
        writer.memory.texts_end().store(u64::MAX, Release);
        for word in 8..TEXTS_WORDS {
            writer.memory.text_word(word).unwrap().store(u64::MAX, Relaxed);
        }
        writer.memory.newest().store(u64::MAX, Release);
        assert_eq!(reader.text_of(3), Some("a[31mbc"));
        assert!(reader.text_of(u64::MAX).is_some_and(|text| text.len() <= 3 * TEXT_BYTES_MAX));
        assert_eq!(reader.label(u64::MAX), None);
    }

    #[test]
    fn other_segments_are_refused() {
        let (fd, bytes) = create().unwrap();
        assert!(LabelReader::map(fd, bytes - 1).is_err());
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert!(LabelReader::map(file, bytes).is_err());
    }
}
