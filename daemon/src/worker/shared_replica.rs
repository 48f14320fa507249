//! Replicas that the workers of one process hold together.
//!
//! Workers that are threads of one process reach each other's memory, and a tensor never changes once it is made. So a
//! reshard into replicas makes one tensor, of which every worker gets a handle: each worker writes its part
//! ([`gt_collectives::JointResult`]), which takes a part of the time and of the memory of as many copies. What keeps
//! this sound is that a backend writes in a tensor's memory only if its handle is the only one
//! ([`gt_backend::Backend::shares_tensors`]): of workers that all update a shared replica in place, at most the last
//! one does so, and the others get memory of their own.
//!
//! The memory of a shared replica counts once, in the memory of the worker that made it, and against that worker's
//! limit, until the last worker has freed it. The workers of a group take turns by bytes, so that none of them holds
//! much more than its part.

use gt_backend::Backend;
use gt_collectives::{CollectiveError, Communicator, SharedValue};
use std::any::TypeId;

/// The number of size classes of replicas.
const SIZE_CLASSES: usize = 64 * 8;

/// A worker's view of the replicas that a group holds together.
pub struct SharedReplicas {
    /// The bytes of the replicas that each rank has made; the same on all ranks, which see the same reshards.
    made_bytes: Vec<u64>,
    /// The rank that made the last replica, by [`size_class`].
    last_maker: Vec<Option<usize>>,
}

/// A rank's contribution to a replica, or what the others see of it.
pub struct Part<T> {
    /// The rank's shard or partial tensor, in row-major order.
    pub operand: Option<T>,
    /// The memory of the replica, on the rank that makes it.
    pub result: Option<T>,
}

impl SharedReplicas {
    /// No replicas so far; none if the ranks cannot hold tensors together. All ranks must call this at the same time.
    ///
    /// # Errors
    /// The group is broken.
    pub fn agree<B: Backend>(
        backend: &B,
        group: &mut dyn Communicator,
    ) -> Result<Option<SharedReplicas>, CollectiveError> {
        if !group.shares_values() {
            return Ok(None);
        }
        let own = backend.shares_tensors().then(TypeId::of::<B::Tensor>);
        let given = (0..group.size()).map(|_| Box::new(own) as SharedValue).collect();
        let all = group.share(given)?;
        let shares = |value: &SharedValue| value.downcast_ref::<Option<TypeId>>().is_some_and(|other| *other == own);
        Ok((own.is_some() && all.iter().all(shares)).then(|| SharedReplicas::new(group.size())))
    }

    fn new(ranks: usize) -> SharedReplicas {
        SharedReplicas { made_bytes: vec![0; ranks], last_maker: vec![None; SIZE_CLASSES] }
    }

    /// The rank of `ranks` that makes the next replica, of `bytes` bytes. Replicas of one size are made in turn, so a
    /// rank finds a free block of that size from the last step of training; the first one is made by the rank that has
    /// made the fewest bytes.
    pub fn next_maker(&mut self, ranks: &[usize], bytes: u64) -> Option<usize> {
        let last = &mut self.last_maker[size_class(bytes)];
        let after_last = last.and_then(|last| ranks.iter().find(|rank| **rank > last));
        let fewest = ranks.iter().min_by_key(|rank| self.made_bytes.get(**rank).copied().unwrap_or(u64::MAX));
        let maker = match *last {
            None => *fewest?,
            Some(_) => *after_last.or(ranks.first())?,
        };
        *last = Some(maker);
        let made = self.made_bytes.get_mut(maker)?;
        *made = made.saturating_add(bytes);
        Some(maker)
    }
}

/// The class of a size: eight per power of two, as an allocator rounds sizes.
fn size_class(bytes: u64) -> usize {
    let power = bytes.max(1).ilog2();
    (power * 8 + (bytes << 3 >> power & 7) as u32) as usize
}

/// Shows all ranks the parts of all, in the order of ranks.
///
/// # Errors
/// As [`Communicator::share`].
pub fn show<T: Clone + Send + 'static>(
    group: &mut dyn Communicator,
    part: &Part<T>,
) -> Result<Vec<Part<T>>, CollectiveError> {
    let handles = || Part { operand: part.operand.clone(), result: part.result.clone() };
    let given = (0..group.size()).map(|_| Box::new(handles()) as SharedValue).collect();
    let shown = group.share(given)?;
    let parts = shown.into_iter().map(|value| value.downcast::<Part<T>>().map(|part| *part));
    parts.collect::<Result<_, _>>().map_err(|_| CollectiveError::Setup {
        what: "make a replica together".into(),
        why: "another worker has tensors of another type".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_of_a_size_are_made_in_turn_and_the_first_by_the_worker_that_made_the_fewest_bytes() {
        let mut replicas = SharedReplicas::new(3);
        let makers = [7, 3, 3, 1, 2, 9].map(|bytes| replicas.next_maker(&[0, 1, 2], bytes).unwrap());
        assert_eq!(makers, [0, 1, 2, 1, 2, 1]);
        assert_eq!(replicas.next_maker(&[0, 2], 1), Some(2), "only workers that hold the replica make it");
    }
}
