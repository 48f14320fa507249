//! Estimated costs of placements and moves.

use crate::modifiers::links::{LinkSpeed, Links};
use crate::table::{TensorEntry, TensorTable};
use gt_ops::{Placement, Workers};

/// The parameters of all estimates.
#[derive(Clone, Debug)]
pub struct Costs {
    /// New tensors of at least this many bytes are sharded without a signal. `None` shards none of them; 0 shards all
    /// tensors and divides all instructions for which that is possible.
    pub shard_bytes_min: Option<u64>,
    /// The links between the workers.
    pub links: Links,
}

/// The estimated time of a reshard of `bytes`, nanoseconds.
pub fn reshard_ns(from: &Placement, to: &Placement, bytes: u64, links: &Links) -> f64 {
    if satisfies(from, to) || is_local_slice(from, to) {
        return 0.0;
    }
    if let (Placement::Replicated { workers }, Placement::Partial { workers: among, .. }) = (from, to)
        && workers.and(*among) == *among
    {
        return 0.0;
    }
    let bytes = bytes as f64;
    // A ring collective sends (n - 1) / n of the bytes per pass (Patarasuk and Yuan 2009).
    let ring = |workers: &Workers| (workers.len() - 1) as f64 / workers.len() as f64;
    let moved = match (from, to) {
        (Placement::Partial { workers, .. }, Placement::Sharded { workers: same, .. }) if workers == same => {
            ring(workers) * bytes
        }
        (Placement::Partial { workers, .. }, Placement::Replicated { workers: same }) if workers == same => {
            2.0 * ring(workers) * bytes
        }
        (Placement::Partial { workers, .. }, _) => 2.0 * ring(workers) * bytes + bytes,
        (Placement::Sharded { workers, .. }, Placement::Sharded { workers: same, .. }) if workers == same => {
            bytes / workers.len() as f64
        }
        (Placement::Sharded { workers, .. }, Placement::Replicated { workers: same }) if workers == same => {
            ring(workers) * bytes
        }
        (_, Placement::Replicated { workers }) => bytes * workers.without(from.workers()).len().max(1) as f64,
        _ => bytes,
    };
    let LinkSpeed { bytes_per_ns, collective_ns } = links.among(from.workers().with(to.workers()));
    collective_ns + moved / bytes_per_ns
}

/// True if a tensor placed as `placement` can be read as if it were placed as `wanted`.
pub fn satisfies(placement: &Placement, wanted: &Placement) -> bool {
    match (placement, wanted) {
        (Placement::Replicated { workers }, Placement::Replicated { workers: wanted }) => workers.contains_all(*wanted),
        _ => placement == wanted,
    }
}

/// True if each worker's shard of `to` is a slice of what that worker has: no bytes move between workers.
pub fn is_local_slice(from: &Placement, to: &Placement) -> bool {
    match (from, to) {
        (Placement::Replicated { workers }, Placement::Sharded { workers: wanted, .. }) => {
            workers.contains_all(*wanted)
        }
        _ => false,
    }
}

/// The copy of a tensor, or the tensor itself, whose reshard to `to` is estimated cheapest, and that estimate,
/// nanoseconds.
pub fn nearest_copy(tensor: &TensorEntry, to: &Placement, links: &Links, tensors: &TensorTable) -> (TensorEntry, f64) {
    let cost = |tensor: &TensorEntry| reshard_ns(&tensor.placement, to, tensor.bytes, links);
    let mut nearest = (*tensor, cost(tensor));
    for copy in tensors.copies(tensor).skip(1) {
        let cost = cost(copy);
        if cost < nearest.1 || satisfies(&copy.placement, to) {
            nearest = (*copy, cost);
        }
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Content;
    use gt_ops::{DType, Meta, Shape};

    const BYTES: u64 = 1 << 20;

    /// Workers 0 and 1 are on one machine, 2 and 3 on another.
    fn two_machines() -> Links {
        let near = Workers::first_of(2);
        Links { local_bytes_per_ns: 10.0, machines: vec![near, Workers::first_of(4).without(near)] }
    }

    #[test]
    fn a_move_between_machines_takes_longer_than_one_within_a_machine() {
        let one = Links { machines: Vec::new(), ..two_machines() };
        let ns = |links: &Links, from, to| reshard_ns(&Placement::on(from), &Placement::on(to), BYTES, links);
        assert_eq!(ns(&two_machines(), 2, 3), ns(&one, 2, 3));
        assert_eq!(ns(&one, 1, 2), ns(&one, 2, 3));
        // A mebibyte takes 0.1 ms by memory, and 1.1 ms by the network.
        assert!(ns(&two_machines(), 1, 2) > 8.0 * ns(&one, 1, 2));
    }

    #[test]
    fn the_copy_on_the_same_machine_is_the_nearest() {
        let mut tensors = TensorTable::new(0);
        let meta = Meta::new(Shape::new(&[1 << 18]).unwrap(), DType::F32);
        let mut add = |id, worker| {
            let at = tensors.insert(id, meta, Content::Defined);
            tensors.set_placement(at, Placement::on(worker));
            at
        };
        let (original, copy) = (add(1, 0), add(2, 2));
        tensors.get_at_mut(original).unwrap().copy = 2;
        let original = *tensors.get_at(original).unwrap();
        let nearest = |to| nearest_copy(&original, &Placement::on(to), &two_machines(), &tensors).0.at;
        assert_eq!([nearest(1), nearest(3)], [original.at, copy]);
    }
}
