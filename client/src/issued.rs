//! The tensors that a session has issued: where each was issued, and which are alive.
//!
//! The newest tensors lie in a ring by their id, 16 bytes each. Issuing a tensor stores both words, and freeing one
//! stores the second, under the lock that the session holds for either; a chain of small operations stays within the
//! cache lines of its newest results. A tensor that is alive when the ring comes round to its entry moves to a table.

use crate::origin::CallSite;
use gt_ops::TensorId;
use std::collections::HashMap;

/// The number of newest instructions whose lines a session knows: more than a step of training issues.
pub const LINES_KEPT: usize = 1 << 16;

/// A tensor that is alive: the session has issued it and not freed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveTensor {
    /// The tensor's id in the session, which is the number of its instruction.
    pub id: TensorId,
    /// Where it was issued.
    pub site: CallSite,
    /// The bytes of its elements.
    pub bytes: u64,
}

/// Where a tensor was issued; and twice its bytes, and one if it is alive. The allocator has zeros for free.
type IssuedTensor = [u64; 2];

fn is_alive([_, bytes_and_life]: IssuedTensor) -> bool {
    bytes_and_life & 1 == 1
}

fn live(id: TensorId, tensor: IssuedTensor) -> Option<LiveTensor> {
    let [site, bytes_and_life] = tensor;
    is_alive(tensor).then_some(LiveTensor { id, site, bytes: bytes_and_life / 2 })
}

/// The tensors of a session.
#[derive(Default)]
pub(crate) struct IssuedTensors {
    /// The newest tensors, by the lowest bits of their ids; empty if nothing is kept.
    ring: Vec<IssuedTensor>,
    /// The tensors that are alive and have left the ring.
    older: HashMap<TensorId, IssuedTensor>,
    newest: TensorId,
}

impl IssuedTensors {
    /// Tensors of which the newest `kept` are known, a power of two.
    pub(crate) fn new(kept: usize) -> IssuedTensors {
        IssuedTensors { ring: vec![[0; 2]; kept.next_power_of_two()], ..IssuedTensors::default() }
    }

    #[inline]
    fn position(&self, id: TensorId) -> usize {
        id as usize & (self.ring.len() - 1)
    }

    fn is_in_ring(&self, id: TensorId) -> bool {
        id <= self.newest && self.newest - id < self.ring.len() as u64
    }

    /// Notes tensor `id`, the one after the last.
    #[inline]
    pub(crate) fn issued(&mut self, id: TensorId, site: CallSite, bytes: usize) {
        if self.ring.is_empty() {
            return;
        }
        let at = self.position(id);
        let left = std::mem::replace(&mut self.ring[at], [site, 2 * bytes as u64 + 1]);
        if is_alive(left) {
            self.outlived(id - self.ring.len() as u64, left);
        }
        self.newest = id;
    }

    #[cold]
    fn outlived(&mut self, id: TensorId, tensor: IssuedTensor) {
        self.older.insert(id, tensor);
    }

    /// Notes that tensor `id` was freed. Its line stays known while it is in the ring.
    #[inline]
    pub(crate) fn freed(&mut self, id: TensorId) {
        if self.ring.is_empty() {
            return;
        }
        if self.is_in_ring(id) {
            let at = self.position(id);
            self.ring[at][1] &= !1;
        } else {
            self.older.remove(&id);
        }
    }

    /// Where instruction `id` was issued; none if that is no longer known.
    pub(crate) fn site(&self, id: TensorId) -> Option<CallSite> {
        if self.is_in_ring(id) {
            return Some(self.ring[self.position(id)][0]);
        }
        self.older.get(&id).map(|[site, _]| *site)
    }

    /// The tensors that are alive, in no order.
    pub(crate) fn live(&self) -> Vec<LiveTensor> {
        let first = self.newest.saturating_sub(self.ring.len() as u64) + 1;
        let newer = (first..=self.newest).filter_map(|id| live(id, self.ring[self.position(id)]));
        newer.chain(self.older.iter().filter_map(|(id, tensor)| live(*id, *tensor))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_that_outlives_the_ring_is_still_known() {
        let mut issued = IssuedTensors::new(4);
        issued.issued(1, 10, 100);
        for id in 2..=9 {
            issued.issued(id, 10 * id, 8);
            issued.freed(id);
        }
        assert_eq!(issued.live(), [LiveTensor { id: 1, site: 10, bytes: 100 }]);
        assert_eq!((issued.site(1), issued.site(5), issued.site(6)), (Some(10), None, Some(60)));
        issued.freed(1);
        assert!(issued.live().is_empty());
        assert_eq!(issued.site(1), None);
    }

    #[test]
    fn the_line_of_a_freed_tensor_stays_known_for_its_error() {
        let mut issued = IssuedTensors::new(4);
        issued.issued(1, 7, 8);
        issued.freed(1);
        assert_eq!((issued.site(1), issued.site(2)), (Some(7), None));
    }

    #[test]
    fn nothing_is_kept_where_nobody_tells_lines() {
        let mut issued = IssuedTensors::default();
        issued.issued(1, 0, 8);
        issued.freed(1);
        assert!(issued.live().is_empty());
        assert_eq!(issued.site(1), None);
    }
}
