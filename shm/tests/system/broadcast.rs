//! The broadcast ring over a segment.

use gt_shm::broadcast::{self, Reader, Record};
use gt_shm::{Access, Error, Segment};

#[test]
fn an_observer_reads_what_is_written_and_cannot_write() {
    let (mut writer, fd) = broadcast::create("gt-tape", 64).unwrap();
    let mut early = Reader::attach(fd.try_clone().unwrap(), 64).unwrap();
    for n in 0..100 {
        writer.write(&[n; 7]);
    }
    let mut late = Reader::attach(fd.try_clone().unwrap(), 64).unwrap();
    let all: Vec<Record> = std::iter::from_fn(|| late.read()).collect();
    assert_eq!(all, (68..100).map(|n| [n; 7]).collect::<Vec<_>>());
    let some = std::iter::from_fn(|| early.read()).count() as u64;
    assert_eq!((some, early.lost()), (32, 68));
    assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
}

#[test]
fn a_ring_of_another_size_or_that_others_can_write_is_refused() {
    let (_writer, fd) = broadcast::create("gt-tape", 64).unwrap();
    for capacity in [0, 1, 65, 128, 1 << 63] {
        assert!(Reader::attach(fd.try_clone().unwrap(), capacity).is_err(), "{capacity} records");
    }
    let len = 4096 + 64 * 64;
    let (_, fd) = Segment::create("gt-tape", len, Access::ReadWrite, Access::ReadWrite).unwrap().detach();
    assert!(matches!(Reader::attach(fd, 64), Err(Error::SegmentSeals { .. })));
}
