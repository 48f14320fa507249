//! Readers of the daemon's tape, and of copies of it.
//!
//! The tape is a broadcast ring whose records are numbered by their positions. A copy of it, in another ring or on its
//! way by TCP, may lack records. So it has one more kind of record: the number of the record that follows, from which
//! a reader knows how many are missing before it. Copies begin with one, and have more now and then.

use gt_shm::broadcast::{BroadcastMem, MappedBroadcast, Reader, Record};

/// The second word of a record that is the number of the next one. As an event's, its kind would be 255.
const POSITION_MARK: u64 = u64::MAX;
/// A copy has the number of a record at least before each so many.
pub const NUMBERED_EVERY: u64 = 1024;

/// A record with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedRecord {
    /// The number: the position on the tape.
    pub number: u64,
    /// The record, which this crate does not interpret.
    pub record: Record,
}

/// The record that says that the next one has `number`.
fn position_record(number: u64) -> Record {
    let mut record = Record::default();
    (record[0], record[1]) = (number, POSITION_MARK);
    record
}

fn position_in(record: &Record) -> Option<u64> {
    (record[1] == POSITION_MARK).then_some(record[0])
}

/// The number of the next record of a copy.
#[derive(Clone, Copy, Debug)]
struct CopyPosition {
    next: u64,
    /// False after a gap, until the copy says the number again.
    is_known: bool,
}

/// An observer of the tape or of a copy of it.
pub struct TapeReader<M = MappedBroadcast> {
    reader: Reader<M>,
    /// The records that the ring overwrote before they were read, which need not all be the tape's.
    overwritten: u64,
    copy: Option<CopyPosition>,
    /// The number of the record after the last one; none before the first of a copy.
    expected: Option<u64>,
    lost: u64,
}

impl<M: BroadcastMem> TapeReader<M> {
    /// An observer that reads the tape, or a copy of it, with `reader`.
    pub fn new(reader: Reader<M>) -> TapeReader<M> {
        let expected = Some(reader.position());
        TapeReader { reader, overwritten: 0, copy: None, expected, lost: 0 }
    }

    /// The next record; none if there is no newer one.
    #[inline]
    pub fn read(&mut self) -> Option<NumberedRecord> {
        loop {
            let record = self.reader.read()?;
            let has_gap = self.reader.lost() != self.overwritten;
            self.overwritten = self.reader.lost();
            if let Some(next) = position_in(&record) {
                if self.copy.is_none() {
                    self.expected = None;
                }
                self.copy = Some(CopyPosition { next, is_known: true });
                continue;
            }
            let number = match &mut self.copy {
                None => self.reader.position() - 1,
                Some(copy) => {
                    copy.is_known &= !has_gap;
                    if !copy.is_known {
                        // The next number tells how many are missing, this one included.
                        continue;
                    }
                    copy.next = copy.next.wrapping_add(1);
                    copy.next.wrapping_sub(1)
                }
            };
            self.lost = self.lost.saturating_add(number.saturating_sub(self.expected.unwrap_or(number)));
            self.expected = Some(number.wrapping_add(1));
            return Some(NumberedRecord { number, record });
        }
    }

    /// Whether this is a copy of the tape, which comes later than the tape. A copy says so before its first record.
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// The number of records that are missing before the last one that was read, since this observer began.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// The writing side of a copy: adds the numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct TapeCopy {
    next: Option<u64>,
    since_number: u64,
}

impl TapeCopy {
    /// Passes the number of the next record to `write`, so that readers know a copy before it has any.
    pub fn begin(&mut self, number: u64, mut write: impl FnMut(&Record)) {
        write(&position_record(number));
        (self.next, self.since_number) = (Some(number), 0);
    }

    /// Passes `numbered` to `write`, after its number where that is needed.
    pub fn add(&mut self, numbered: &NumberedRecord, mut write: impl FnMut(&Record)) {
        let NumberedRecord { number, record } = numbered;
        if self.next != Some(*number) || self.since_number >= NUMBERED_EVERY {
            self.begin(*number, &mut write);
        }
        write(record);
        self.since_number += 1;
        self.next = Some(number.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_shm::broadcast::{HeapBroadcast, Writer};

    fn record(n: u64) -> Record {
        [n, 0, 0, 0, 0, 0, 0]
    }

    fn read_all(reader: &mut TapeReader<HeapBroadcast>) -> Vec<u64> {
        std::iter::from_fn(|| {
            let NumberedRecord { number, record: found } = reader.read()?;
            assert_eq!(found, record(number));
            Some(number)
        })
        .collect()
    }

    #[test]
    fn the_tape_numbers_its_records_by_position() {
        let mem = HeapBroadcast::new(8);
        let (mut writer, mut reader) = (Writer::new(mem.clone()), TapeReader::new(Reader::from_start(mem)));
        (0..3).for_each(|n| writer.write(&record(n)));
        assert_eq!(read_all(&mut reader), [0, 1, 2]);
        (3..20).for_each(|n| writer.write(&record(n)));
        assert_eq!(read_all(&mut reader), [16, 17, 18, 19]);
        assert_eq!(reader.lost(), 13);
    }

    #[test]
    fn a_copy_keeps_the_numbers_and_tells_what_it_lacks() {
        let mem = HeapBroadcast::new(64);
        let (mut writer, mut reader) = (Writer::new(mem.clone()), TapeReader::new(Reader::from_start(mem)));
        assert!(!reader.is_copy());
        let mut copy = TapeCopy::default();
        copy.begin(5, |record| writer.write(record));
        assert_eq!((reader.read(), reader.is_copy()), (None, true));
        let numbers: Vec<u64> = (5..9).chain(20..22).collect();
        for number in &numbers {
            copy.add(&NumberedRecord { number: *number, record: record(*number) }, |record| writer.write(record));
        }
        assert_eq!(writer.written(), 6 + 2, "two numbers");
        assert_eq!(read_all(&mut reader), numbers);
        assert_eq!(reader.lost(), 11);
    }

    #[test]
    fn a_reader_of_a_copy_that_is_too_slow_counts_exactly() {
        let mem = HeapBroadcast::new(256);
        let (mut writer, mut reader) = (Writer::new(mem.clone()), TapeReader::new(Reader::from_start(mem)));
        let mut copy = TapeCopy::default();
        let mut add =
            |number| copy.add(&NumberedRecord { number, record: record(number) }, |record| writer.write(record));
        add(100);
        assert_eq!(read_all(&mut reader), [100]);
        (101..5000).for_each(&mut add);
        let late = read_all(&mut reader);
        let last = 5000 + NUMBERED_EVERY;
        (5000..=last).for_each(|number| {
            add(number);
            assert!(read_all(&mut reader).iter().all(|read| *read == number));
        });
        assert!(late.is_empty() || late.last() == Some(&4999));
        assert_eq!(reader.expected, Some(last + 1));
        let read = (last - 100 + 1) - reader.lost();
        assert!(read > 0 && reader.lost() > 4000, "{} lost", reader.lost());
    }

    #[test]
    fn any_records_can_be_read() {
        let mem = HeapBroadcast::new(8);
        let (mut writer, mut reader) = (Writer::new(mem.clone()), TapeReader::new(Reader::from_start(mem)));
        for number in [u64::MAX, 3, u64::MAX, 0] {
            writer.write(&position_record(number));
            writer.write(&record(number));
            writer.write(&record(number));
        }
        while reader.read().is_some() {}
        assert!(reader.lost() > 0);
    }
}
