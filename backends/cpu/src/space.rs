//! An allocator over a shared segment: other processes map the segment too, and read blocks in it in place.

use gt_shm::Segment;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A segment with its free ranges: first fit by address, and freed ranges are merged with their neighbours.
///
/// The segment may be far longer than the machine's memory, since its free ranges have no pages.
pub struct SharedSpace {
    segment: Arc<Segment>,
    /// The length of each free range by its start; no two of them are adjacent.
    free: BTreeMap<usize, usize>,
}

impl SharedSpace {
    /// A whole segment as one free range; nothing else may allocate from it.
    pub fn new(segment: Arc<Segment>) -> SharedSpace {
        let free = BTreeMap::from([(0, segment.len())]);
        SharedSpace { segment, free }
    }

    /// Takes the first free range of `bytes` bytes at a multiple of `align`; its bytes are zero.
    pub fn take(&mut self, bytes: usize, align: usize) -> Option<*mut u8> {
        let (start, at, len) = self.free.iter().find_map(|(&start, &len)| {
            let at = start.next_multiple_of(align);
            (at - start + bytes <= len).then_some((start, at, len))
        })?;
        self.free.remove(&start);
        for (start, end) in [(start, at), (at + bytes, start + len)] {
            if start < end {
                self.free.insert(start, end - start);
            }
        }
        Some(self.segment.as_ptr().wrapping_add(at))
    }

    /// Frees a range that was taken, and returns its pages to the system.
    pub fn give(&mut self, data: *mut u8, bytes: usize) {
        let mut start = data.addr() - self.segment.as_ptr().addr();
        let mut end = start + bytes;
        if self.segment.punch(start as u64, bytes as u64).is_err() {
            // The pages stay, so they are cleared here: the next user of the range must not see the data.
            // SAFETY: `take` returned this range of the segment, and its user just freed it.
            unsafe { data.write_bytes(0, bytes) };
        }
        if let Some((&before, &len)) = self.free.range(..start).next_back()
            && before + len == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use gt_shm::Access;

    const PAGE: usize = 4096;

    fn space(pages: usize) -> SharedSpace {
        let segment = Segment::create("test", (pages * PAGE) as u64, Access::ReadWrite, Access::ReadWrite);
        SharedSpace::new(Arc::new(segment.expect("a segment")))
    }

    #[test]
    fn ranges_freed_in_any_order_merge_into_one() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 3, 0, 2]] {
            let mut space = space(4);
            let taken: Vec<_> = (0..4).map(|_| space.take(PAGE, 1).unwrap()).collect();
            assert_eq!(space.take(1, 1), None);
            order.into_iter().for_each(|i| space.give(taken[i], PAGE));
            assert_eq!(space.take(4 * PAGE, 1), Some(taken[0]));
        }
    }

    #[test]
    fn a_freed_range_has_no_pages_and_is_zero_again() {
        let mut space = space(1 << 20);
        let data = space.take(8 * PAGE, PAGE).unwrap();
        // SAFETY: `take` returned these 8 pages, which only this test uses.
        unsafe { data.write_bytes(7, 8 * PAGE) };
        assert_eq!(space.segment.resident_bytes(), 8 * PAGE as u64);
        space.give(data, 8 * PAGE);
        assert_eq!(space.segment.resident_bytes(), 0);
        // SAFETY: `take` returned a range of 8 pages, which is in the mapped segment.
        assert_eq!(unsafe { space.take(8 * PAGE, PAGE).unwrap().read() }, 0);
    }

    #[test]
    fn a_range_has_the_alignment_that_was_asked_for() {
        let mut space = space(16);
        let first = space.take(PAGE, PAGE).unwrap();
        let aligned = space.take(PAGE, 4 * PAGE).unwrap();
        assert_eq!(aligned.addr() - first.addr(), 4 * PAGE);
        assert_eq!(
            space.take(3 * PAGE, PAGE).unwrap().addr() - first.addr(),
            PAGE,
            "the gap before an aligned range stays free"
        );
    }
}
