//! Stretches of a segment that other processes have mapped too: blocks in it can be reached from there.

use gt_shm::Segment;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A segment, cut into stretches that are taken and given back.
///
/// It may be far longer than the memory there is: what is not taken has none.
pub struct SharedSpace {
    segment: Arc<Segment>,
    /// Stretches that nobody has taken, by their start; no two of them touch.
    free: BTreeMap<usize, usize>,
}

impl SharedSpace {
    /// All of a segment, which nobody else takes stretches of.
    pub fn new(segment: Arc<Segment>) -> SharedSpace {
        let free = BTreeMap::from([(0, segment.len())]);
        SharedSpace { segment, free }
    }

    /// The first free stretch of `bytes` bytes that begins at a multiple of `align`. Its bytes are zero.
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

    /// Gives a stretch back that was taken, and its memory to the system.
    pub fn give(&mut self, data: *mut u8, bytes: usize) {
        let mut start = data.addr() - self.segment.as_ptr().addr();
        let mut end = start + bytes;
        if self.segment.punch(start as u64, bytes as u64).is_err() {
            // The memory stays, for whoever takes the stretch next, who must not see what was there.
            // SAFETY: the stretch lies in the segment, and whoever had it gives it back.
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
    fn stretches_given_back_in_any_order_are_one_again() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 3, 0, 2]] {
            let mut space = space(4);
            let taken: Vec<_> = (0..4).map(|_| space.take(PAGE, 1).unwrap()).collect();
            assert_eq!(space.take(1, 1), None);
            order.into_iter().for_each(|i| space.give(taken[i], PAGE));
            assert_eq!(space.take(4 * PAGE, 1), Some(taken[0]));
        }
    }

    #[test]
    fn what_is_given_back_takes_no_memory_and_is_zero_again() {
        let mut space = space(1 << 20);
        let data = space.take(8 * PAGE, PAGE).unwrap();
        // SAFETY: within the stretch, which is ours.
        unsafe { data.write_bytes(7, 8 * PAGE) };
        assert_eq!(space.segment.resident_bytes(), 8 * PAGE as u64);
        space.give(data, 8 * PAGE);
        assert_eq!(space.segment.resident_bytes(), 0);
        // SAFETY: as above; the same stretch again.
        assert_eq!(unsafe { space.take(8 * PAGE, PAGE).unwrap().read() }, 0);
    }

    #[test]
    fn a_stretch_begins_where_it_is_asked_to() {
        let mut space = space(16);
        let first = space.take(PAGE, PAGE).unwrap();
        let aligned = space.take(PAGE, 4 * PAGE).unwrap();
        assert_eq!(aligned.addr() - first.addr(), 4 * PAGE);
        assert_eq!(space.take(3 * PAGE, PAGE).unwrap().addr() - first.addr(), PAGE, "what lay between is not lost");
    }
}
