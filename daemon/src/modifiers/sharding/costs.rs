//! Estimated costs of placements and moves.

use crate::modifiers::links::{Links, MovedBytes};
use crate::table::{TensorEntry, TensorTable};
use gt_ops::mesh::{Mesh, MeshLayout, MeshLayouts};
use gt_ops::placement::ReduceOp;
use gt_ops::{Placement, Workers};

/// The parameters of all estimates.
#[derive(Clone, Debug)]
pub struct Costs {
    /// New tensors of at least this many bytes are sharded without a signal. `None` shards none of them; 0 shards all
    /// tensors and divides all instructions for which that is possible.
    pub shard_bytes_min: Option<u64>,
    /// The workers that are threads of one process: they hold replicas together, and compute from one memory.
    pub together: Workers,
    /// The links between the workers.
    pub links: Links,
}

/// The estimated time of a reshard of `bytes`, nanoseconds; infinite if there is no such move.
pub fn reshard_ns(from: &Placement, to: &Placement, bytes: u64, links: &Links) -> f64 {
    if satisfies(from, to) || is_local_slice(from, to) {
        return 0.0;
    }
    if let Placement::Partial { workers: among, reduce_op } = to {
        match from {
            // Only of a sum are there numbers that change nothing, which the other workers then have.
            _ if *reduce_op != ReduceOp::Sum => return f64::INFINITY,
            Placement::Replicated { workers } if workers.contains_all(*among) => return 0.0,
            _ => {}
        }
    }
    if let Some(next) = MeshMove::next(from, to) {
        return next.ns(bytes, links) + reshard_ns(&next.placement(), to, bytes, links);
    }
    links.move_ns(from.workers().with(to.workers()), moved_bytes(from, to, bytes as f64, links))
}

/// The bytes of a reshard between two placements without a mesh, as the workers send them.
fn moved_bytes(from: &Placement, to: &Placement, bytes: f64, links: &Links) -> MovedBytes {
    if links.are_together(from.workers().with(to.workers())) {
        MovedBytes { network: 0.0, local: moved_on_one_machine(from, to, bytes) }
    } else {
        moved_between_machines(from, to, bytes, links)
    }
}

fn moved_on_one_machine(from: &Placement, to: &Placement, bytes: f64) -> f64 {
    // A ring collective sends (n - 1) / n of the bytes per pass (Patarasuk and Yuan 2009).
    let ring = |workers: &Workers| (workers.len() - 1) as f64 / workers.len() as f64;
    match (from, to) {
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
    }
}

/// Between machines, the workers of one work together in a collective, so that what crosses the network is a matter of
/// the machines and not of their workers: of a sum, each of `M` machines sends `(M - 1) / M` to reduce it, and as much
/// to gather the result, and its workers do the same among themselves before and after.
fn moved_between_machines(from: &Placement, to: &Placement, bytes: f64, links: &Links) -> MovedBytes {
    let (holders, takers) = (from.workers(), to.workers());
    match (from, to) {
        (Placement::Partial { .. }, Placement::Sharded { .. }) if holders == takers => {
            reduced_or_gathered(holders, bytes, links)
        }
        (Placement::Sharded { .. }, Placement::Replicated { .. }) if holders == takers => {
            reduced_or_gathered(holders, bytes, links)
        }
        (Placement::Partial { .. }, Placement::Replicated { .. }) if holders == takers => summed(holders, bytes, links),
        (Placement::Partial { .. }, _) => {
            // It is reduced where it is, and moved then.
            let (sum, moved) = (summed(holders, bytes, links), from_copies(holders, to, bytes, links));
            MovedBytes { network: sum.network + moved.network, local: sum.local + moved.local }
        }
        (Placement::Sharded { .. }, _) => from_shards(holders, to, bytes, links),
        _ if holders.len() == 1 => broadcast(holders, to, bytes, links),
        _ => from_copies(holders, to, bytes, links),
    }
}

/// The bytes that each taker of a tensor gets.
fn bytes_each(to: &Placement, bytes: f64) -> f64 {
    match to {
        Placement::Sharded { workers, .. } => bytes / workers.len() as f64,
        _ => bytes,
    }
}

/// An all-reduce.
fn summed(workers: Workers, bytes: f64, links: &Links) -> MovedBytes {
    let members = links.members([workers]);
    let machines = members.len() as f64;
    let most = members.iter().map(|[count]| *count).max().unwrap_or(1) as f64;
    let passes = |count: f64| 2.0 * (count - 1.0) / count * bytes;
    MovedBytes { network: passes(machines), local: passes(most) }
}

/// A reduce-scatter or an all-gather: of one the other, backwards.
fn reduced_or_gathered(workers: Workers, bytes: f64, links: &Links) -> MovedBytes {
    let members = links.members([workers]);
    let (machines, all) = (members.len() as f64, workers.len() as f64);
    let most = members.iter().map(|[count]| *count).max().unwrap_or(1) as f64;
    // One way, a machine's own pieces, once for each other machine; the other way, those of all others.
    let crossing = |count: f64| (count / all * (machines - 1.0)).max((all - count) / all);
    let busiest = members.iter().map(|[count]| crossing(*count as f64)).fold(0.0, f64::max);
    MovedBytes { network: busiest * bytes, local: (most - 1.0) / most * bytes }
}

/// An all-to-all from shards: each holder sends a part of its own to each taker.
fn from_shards(holders: Workers, to: &Placement, bytes: f64, links: &Links) -> MovedBytes {
    let takers = to.workers();
    let (all_holders, all_takers) = (holders.len() as f64, takers.len() as f64);
    let part = bytes_each(to, bytes) / all_holders;
    let mut moved = MovedBytes::default();
    for counts in links.members([holders, takers]) {
        let [holders, takers] = counts.map(|count| count as f64);
        let crossing = (holders * (all_takers - takers)).max(takers * (all_holders - holders));
        moved.network = moved.network.max(part * crossing);
        moved.local = moved.local.max(if takers > 0.0 { part * holders } else { 0.0 });
    }
    moved
}

/// A broadcast from one worker: its machine sends the tensor once to each other machine, whose workers pass it on.
fn broadcast(holder: Workers, to: &Placement, bytes: f64, links: &Links) -> MovedBytes {
    if !matches!(to, Placement::Replicated { .. }) {
        return from_copies(holder, to, bytes, links);
    }
    let members = links.members([holder, to.workers().without(holder)]);
    let others = members.iter().filter(|[holders, takers]| *holders == 0 && *takers > 0).count();
    let passed_on = |[holders, takers]: &[usize; 2]| takers.saturating_sub(usize::from(*holders == 0));
    let most = members.iter().map(passed_on).max().unwrap_or(0);
    MovedBytes { network: others as f64 * bytes, local: most as f64 * bytes }
}

/// An all-to-all from copies: each taker that has none gets its part from one of the holders, in turn.
fn from_copies(holders: Workers, to: &Placement, bytes: f64, links: &Links) -> MovedBytes {
    let (takers, part) = (to.workers(), bytes_each(to, bytes));
    let group = holders.with(takers);
    let mut crossing = vec![(0.0, 0.0); links.machines.len().max(1)];
    let mut local = vec![0.0; crossing.len()];
    for taker in takers.without(holders).iter() {
        let rank = group.rank_of(taker).unwrap_or(0);
        let Some(holder) = holders.iter().nth(rank % holders.len().max(1)) else { continue };
        let [from, to] = [holder, taker].map(|worker| links.machine_of(worker));
        if from == to {
            local[to] += part;
        } else {
            crossing[from].0 += part;
            crossing[to].1 += part;
        }
    }
    let network = crossing.iter().map(|(sent, received)| f64::max(*sent, *received)).fold(0.0, f64::max);
    MovedBytes { network, local: local.into_iter().fold(0.0, f64::max) }
}

/// One of the moves of a tensor to a placement on a mesh or from one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeshMove {
    /// Within each group of a dimension.
    Along {
        /// The mesh.
        mesh: Mesh,
        /// The dimension.
        dimension: usize,
        /// The layouts before.
        layouts: MeshLayouts,
        /// The dimension's layout afterwards.
        layout: MeshLayout,
    },
    /// Between two placements without a mesh. The first is that of all of a tensor's workers, or of those of its mesh
    /// that take part.
    Flat {
        /// The placement before.
        from: Placement,
        /// The placement afterwards.
        to: Placement,
    },
}

impl MeshMove {
    /// The next move of a tensor from one placement to another; none if that is where it is, or neither is on a mesh.
    pub fn next(from: &Placement, to: &Placement) -> Option<MeshMove> {
        let along = |mesh: Mesh, layouts: MeshLayouts, wanted: MeshLayouts| {
            let (dimension, layout) = Mesh::next_move(layouts, wanted)?;
            Some(MeshMove::Along { mesh, dimension, layouts, layout })
        };
        let (mesh, wanted) = match (from, to) {
            (_, Placement::Mesh { mesh, layouts }) => (*mesh, Some(*layouts)),
            (Placement::Mesh { mesh, .. }, _) if to.workers() == mesh.workers() => (*mesh, mesh.layouts_of(to)),
            (Placement::Mesh { mesh, .. }, _) => (*mesh, None),
            _ => return None,
        };
        if let (Some(layouts), Some(wanted)) = (mesh.layouts_of(from), wanted) {
            return along(mesh, layouts, wanted);
        }
        let everywhere = |mesh: &Mesh| Placement::Replicated { workers: mesh.workers() };
        let Placement::Mesh { mesh, layouts } = *from else {
            return Some(MeshMove::Flat { from: *from, to: everywhere(&mesh) });
        };
        let replicated = layouts.iter().position(|layout| *layout == MeshLayout::Replicated);
        if let Some(dimension) = replicated.filter(|dimension| !layouts[1 - dimension].is_partial()) {
            // One group has the whole tensor: that of the first worker that needs it, if it is on the mesh.
            let near = to.workers().first().and_then(|worker| mesh.coordinates(worker));
            let group = mesh.group(1 - dimension, near.map_or(0, |coordinates| coordinates[dimension]));
            let to = match (to, to.workers().first()) {
                (Placement::Partial { .. }, Some(first)) => Placement::on(first),
                (Placement::Mesh { mesh, .. }, _) => everywhere(mesh),
                _ => *to,
            };
            return Some(MeshMove::Flat { from: layouts[1 - dimension].on(group), to });
        }
        let dimension = usize::from(layouts[1].is_partial());
        let mut wanted = layouts;
        wanted[dimension] = MeshLayout::Replicated;
        along(mesh, layouts, wanted)
    }

    /// The placement afterwards.
    pub fn placement(&self) -> Placement {
        match *self {
            MeshMove::Along { mesh, dimension, mut layouts, layout } => {
                layouts[dimension] = layout;
                mesh.placement(layouts)
            }
            MeshMove::Flat { to, .. } => to,
        }
    }

    /// The estimated time for a tensor of `bytes`, nanoseconds.
    fn ns(&self, bytes: u64, links: &Links) -> f64 {
        match *self {
            MeshMove::Along { mesh, dimension, layouts, layout } => {
                let parts = match layouts[1 - dimension] {
                    MeshLayout::Sharded { .. } => mesh.size(1 - dimension) as u64,
                    _ => 1,
                };
                let slowest =
                    |group| reshard_ns(&layouts[dimension].on(group), &layout.on(group), bytes / parts, links);
                mesh.groups(dimension).map(slowest).fold(0.0, f64::max)
            }
            MeshMove::Flat { from, to } => reshard_ns(&from, &to, bytes, links),
        }
    }
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
    use crate::modifiers::links::{Machine, MachineLink};
    use crate::table::Content;
    use gt_ops::{DType, Meta, Shape};

    const BYTES: u64 = 1 << 20;

    /// Workers 0 and 1 are on one machine, 2 and 3 on another.
    fn two_machines() -> Links {
        let near = Workers::first_of(2);
        let far = Workers::first_of(4).without(near);
        let machine = |workers, link| Machine { workers, link, between: Vec::new() };
        Links::new(10.0, vec![machine(near, MachineLink::Own), machine(far, MachineLink::Unmeasured)])
    }

    fn one_machine() -> Links {
        Links::new(10.0, Vec::new())
    }

    #[test]
    fn what_crosses_the_network_is_a_matter_of_the_machines() {
        let all = Workers::first_of(4);
        let sum = Placement::Partial { workers: all, reduce_op: ReduceOp::Sum };
        let shards = Placement::Sharded { workers: all, axis: 0, granule: 1 };
        let across = Placement::Sharded { workers: all, axis: 1, granule: 1 };
        let (copies, one) = (Placement::Replicated { workers: all }, Placement::on(0));
        let near = Placement::Replicated { workers: Workers::first_of(2) };
        for (from, to, network, local, local_of_one) in [
            // Half to reduce and half to gather, of which the two workers of a machine do the same.
            (sum, copies, 1.0, 1.0, 1.5),
            (sum, shards, 0.5, 0.5, 0.75),
            (shards, copies, 0.5, 0.5, 0.75),
            // Each of two workers sends a sixteenth to each of the other machine's two, and of its own.
            (shards, across, 0.25, 0.125, 0.25),
            // Once to the other machine, and on one machine to each worker.
            (one, copies, 1.0, 1.0, 3.0),
            (shards, one, 0.5, 0.5, 1.0),
            (near, copies, 2.0, 0.0, 2.0),
        ] {
            let moved = |links: &Links| {
                let MovedBytes { network, local } = moved_bytes(&from, &to, 1.0, links);
                (network, local)
            };
            assert_eq!(moved(&two_machines()), (network, local), "{from} to {to}");
            assert_eq!(moved(&one_machine()), (0.0, local_of_one), "{from} to {to}");
        }
    }

    #[test]
    fn machines_with_one_worker_each_send_what_a_ring_sends() {
        let machine = |worker| Machine {
            workers: Workers::one(worker),
            link: if worker == 0 { MachineLink::Own } else { MachineLink::Unmeasured },
            between: Vec::new(),
        };
        let links = Links::new(10.0, (0..4).map(machine).collect());
        let workers = Workers::first_of(4);
        let sum = Placement::Partial { workers, reduce_op: ReduceOp::Sum };
        let moved = moved_bytes(&sum, &Placement::Replicated { workers }, 1.0, &links);
        assert_eq!(moved, MovedBytes { network: 1.5, local: 0.0 });
    }

    #[test]
    fn a_move_between_machines_takes_longer_than_one_within_a_machine() {
        let one = one_machine();
        let ns = |links: &Links, from, to| reshard_ns(&Placement::on(from), &Placement::on(to), BYTES, links);
        assert_eq!(ns(&two_machines(), 2, 3), ns(&one, 2, 3));
        assert_eq!(ns(&one, 1, 2), ns(&one, 2, 3));
        // A mebibyte takes 0.1 ms by memory, and 1.1 ms by the network.
        assert!(ns(&two_machines(), 1, 2) > 8.0 * ns(&one, 1, 2));
    }

    #[test]
    fn moves_lead_from_a_mesh_to_any_placement_and_back() {
        let links = one_machine();
        let all = Workers::first_of(4);
        let meshes = [all, Workers::from_bits(0b11_1100)].map(|workers| Mesh::new(workers, 2).unwrap());
        let sum = MeshLayout::Partial(ReduceOp::Sum);
        let layouts = [MeshLayout::Replicated, MeshLayout::Sharded { axis: 0 }, MeshLayout::Sharded { axis: 1 }, sum];
        let pairs = layouts.iter().flat_map(|one| layouts.iter().map(|other| [*one, *other]));
        let mut places: Vec<Placement> =
            pairs.flat_map(|pair| meshes.iter().map(move |mesh| mesh.placement(pair))).collect();
        places.extend([Placement::on(0), Placement::on(5), Placement::Replicated { workers: Workers::first_of(3) }]);
        places.push(Placement::Sharded { workers: all, axis: 0, granule: 1 });
        for from in &places {
            for to in &places {
                let (mut end, mut count) = (*from, 0);
                while let Some(next) = MeshMove::next(&end, to) {
                    (end, count) = (next.placement(), count + 1);
                    assert!(count < 20, "{from}, {to}");
                }
                let is_mesh = |placement: &Placement| matches!(placement, Placement::Mesh { .. });
                assert!(end == *to || !is_mesh(&end) && !is_mesh(to), "{from}, {to}");
                assert!(reshard_ns(from, to, BYTES, &links).is_finite(), "{from}, {to}");
            }
        }
    }

    #[test]
    fn rows_are_reduced_before_anything_moves_between_them() {
        let links = one_machine();
        let mesh = Mesh::new(Workers::first_of(4), 2).unwrap();
        let (sum, shard) = (MeshLayout::Partial(ReduceOp::Sum), MeshLayout::Sharded { axis: 1 });
        let ns = |from: [MeshLayout; 2], to: [MeshLayout; 2]| {
            reshard_ns(&mesh.placement(from), &mesh.placement(to), BYTES, &links)
        };
        let whole = MeshLayout::Replicated;
        // The gradient of a matrix that a row divides: the rows exchange half of it.
        assert!(ns([sum, shard], [whole, shard]) < ns([sum, whole], [whole, whole]));
        assert_eq!(ns([whole, whole], [whole, shard]), 0.0);
        // A sum has numbers that change nothing; a maximum of all dtypes has none.
        assert_eq!(ns([whole, whole], [sum, whole]), 0.0);
        assert_eq!(ns([whole, whole], [MeshLayout::Partial(ReduceOp::Max), whole]), f64::INFINITY);
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
