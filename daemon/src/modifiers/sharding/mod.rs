//! Sharding: placement and division of a session's instructions among its workers.
//!
//! A client's instruction names whole tensors. This modifier replaces it by steps that workers execute on their own
//! shards, and moves operands first where that is needed. Of the ways to divide an instruction that its op's class
//! allows ([`gt_ops::propagate`]), it takes the one that is estimated to finish first, moves included. An instruction
//! that cannot be divided is done whole, on operands that are gathered: so no instruction fails because of a placement.
//!
//! Partial tensors stay partial while the ops on them are views or linear, so that a gradient times a learning rate is
//! reduced once. A partial tensor is reduced into replicas rather than shards, unless a signal requests shards or
//! another operand is sharded: a reduce-scatter is cheaper than an all-reduce, but a consumer of the whole tensor pays
//! for both the reduce-scatter and an all-gather.
//!
//! - `planning` chooses a placement, by the estimates of [`costs`].
//! - `execution` makes the steps of a planned instruction, and `resharding` the moves between placements.
//! - `mesh` does both for instructions on a mesh of workers.
//! - `home_worker` keeps dataflow components ([`crate::affinity`]) together on one worker.
//! - `losses` and `affine_maps` replace an instruction by several ([`lowering`]): mean losses, and affine maps with
//!   divided terms.
//! - `transfers` divides uploads and fetches.

mod affine_maps;
pub mod costs;
mod execution;
mod home_worker;
mod losses;
mod lowering;
mod mesh;
mod operands;
mod planning;
mod resharding;
mod transfers;

use super::stream_modifier::{ModifierStats, Output, StreamModifier};
use crate::affinity::{Membership, WorkerLoads};
use crate::modifiers::links::Links;
use crate::table::WorkerTensor;
use crate::worker::step::Step;
use affine_maps::lower_divided_affine;
use costs::Costs;
use execution::PlacedInstruction;
use gt_ops::mesh::MeshLayout;
use gt_ops::wire::Command;
use gt_ops::{Operand, Placement, Workers};
use home_worker::{execute_at_home, home_worker};
use losses::lower_mean_loss;
use mesh::{execute_on_mesh, mesh_of};
use operands::PlacedOperand;
use planning::{Planner, inherited_request};
use transfers::{allocate, fetch, write};

/// The sharding modifier of sessions on the same workers.
pub struct Sharding {
    planner: Planner,
    loads: WorkerLoads,
    stats: ModifierStats,
}

impl StreamModifier for Sharding {
    fn name(&self) -> &'static str {
        "sharding"
    }

    fn process(&mut self, step: Step, out: &mut Output<'_>) {
        self.stats.seen += 1;
        match &step.command {
            Command::Op(_) => self.place_instruction(step, out),
            Command::Allocate { .. } => allocate(&self.planner, step, out),
            Command::Write { .. } => write(step, out),
            Command::Fetch { .. } => fetch(step, out),
            Command::Sync { .. } => out.push(Step { workers: self.planner.workers, ..step }),
            _ => out.push(step),
        }
    }

    fn links_changed(&mut self, links: &Links) {
        self.planner.costs.links = links.clone();
    }

    fn stats(&self) -> ModifierStats {
        self.stats
    }
}

impl Sharding {
    /// The modifier for sessions on `workers`.
    pub fn new(workers: Workers, costs: Costs) -> Sharding {
        let planner = Planner { workers, costs };
        Sharding { planner, loads: WorkerLoads::new(workers), stats: ModifierStats::default() }
    }

    /// Pushes the steps of one instruction.
    fn place_instruction(&mut self, step: Step, out: &mut Output<'_>) {
        let (Command::Op(instruction), Some(meta)) = (&step.command, step.out) else { return out.push(step) };
        let mut operands = Vec::with_capacity(4);
        for operand in instruction.inputs.as_slice() {
            operands.push(match operand {
                Operand::Scalar(_) => PlacedOperand::Scalar,
                Operand::Tensor(id) => match out.tensors().get_at(WorkerTensor::from_id(*id)) {
                    Some(tensor) => PlacedOperand::Tensor(*tensor),
                    None => return out.push(step),
                },
            });
        }
        let result = WorkerTensor::from_id(instruction.out);
        let requested = self.planner.requested(instruction, &step, &meta, &operands);
        let inherited = if requested.is_none() { inherited_request(instruction, &operands, &meta) } else { None };
        if let (Some(placement), Some(result)) = (requested.or(inherited), out.tensors().get_at_mut(result)) {
            result.membership = Membership::Requested(placement);
        }
        let spread = out.tensors().is_spread();
        let target = requested.or_else(|| self.planner.creation_placement(instruction, &meta, spread));
        let on_mesh = self.planner.requested_on_mesh(instruction, &step, &meta, &operands, inherited.as_ref());
        let placed = PlacedInstruction { instruction, operands: &operands, meta: &meta, step: &step };
        let is_placed = target.is_some() || on_mesh.is_some();
        let home = home_worker(&placed, is_placed, &self.planner.costs, &mut self.loads, out.tensors());
        if let Some(home) = home
            && !operands.iter().all(|operand| operand.is_at(&Placement::on(home)))
        {
            self.stats.changed += 1;
            return execute_at_home(&placed, home, out);
        }
        if !is_placed
            && let Some(placement) = self.planner.placement_in_place(instruction, &operands, &meta, &step)
            && inherited.is_none_or(|inherited| inherited == placement)
        {
            out.tensors().set_placement(result, placement);
            let ways = parts_of(&placement);
            let divided = ways > 1;
            let (cost_ns, fused_ns) = (step.cost_ns / ways, step.fused_ns.map(|ns| ns / ways));
            return out.push(Step { workers: placement.workers(), divided, cost_ns, fused_ns, ..step });
        }
        let target = target.or(inherited);
        let in_parts = target.and_then(|target| self.planner.update_in_parts(instruction, &operands, &meta, &target));
        let target = in_parts.or(target);
        let place = &mut |step: Step, out: &mut Output<'_>| self.place_instruction(step, out);
        if lower_mean_loss(instruction, &step, &operands, target.as_ref(), out, place).is_some() {
            return;
        }
        if lower_divided_affine(instruction, &step, &operands, &meta, out, place).is_some() {
            return;
        }
        self.stats.changed += 1;
        if let Some(mesh) = mesh_of(on_mesh.as_ref(), target.as_ref(), &operands) {
            execute_on_mesh(&self.planner, &placed, mesh, on_mesh.as_ref(), target.as_ref(), out);
        } else if placed.write_shards(target.as_ref(), out) {
            return;
        } else {
            let plan = self.planner.plan(instruction, &operands, &meta, target.as_ref(), &step, out.tensors());
            placed.execute(&plan, target.as_ref(), out);
        }
        // If the result is on other workers, its component loses its home worker: consumers may be divided, too.
        if let (Some(_), Some(result)) = (home, out.tensors().get_at(result).copied())
            && result.placement.sole() != home
            && let Membership::Member(component) = result.membership
        {
            out.tensors().components().clear_home(component);
        }
    }
}

/// The number of different parts of a tensor that its workers have.
fn parts_of(placement: &Placement) -> u64 {
    match placement {
        Placement::Sharded { workers, .. } => workers.len() as u64,
        Placement::Mesh { mesh, layouts } => {
            let sharded = |dimension: &usize| matches!(layouts[*dimension], MeshLayout::Sharded { .. });
            (0..2).filter(sharded).map(|dimension| mesh.size(dimension) as u64).product()
        }
        Placement::Replicated { .. } | Placement::Partial { .. } => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modifiers::pipeline::Pipeline;
    use crate::table::{Content, TensorTable};
    use crate::worker::step::SessionSlot;
    use gt_ops::placement::{RequestedLayout, RequestedPlacement};
    use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Scalar, Shape, TensorId};

    const WORKERS: Workers = Workers::first_of(4);

    /// A table of tensors of one shape, and the sharding modifier.
    struct Sharded {
        pipeline: Pipeline,
        tensors: TensorTable,
        meta: Meta,
        last: TensorId,
    }

    impl Sharded {
        fn new(link_bytes_per_ns: f64) -> Sharded {
            Sharded::together(link_bytes_per_ns, Workers::NONE, [64, 256])
        }

        /// Tensors of `dims` on workers of which some hold replicas `together`.
        fn together(link_bytes_per_ns: f64, together: Workers, dims: [usize; 2]) -> Sharded {
            let links = Links::new(link_bytes_per_ns, Vec::new());
            let costs = Costs { shard_bytes_min: Some(1 << 30), together, links: links.clone() };
            let meta = Meta::new(Shape::new(&dims).unwrap(), DType::F32);
            let pipeline = Pipeline::new(vec![Box::new(Sharding::new(WORKERS, costs))], links);
            Sharded { pipeline, tensors: TensorTable::new(0), meta, last: 0 }
        }

        fn run(
            &mut self,
            op: Op,
            operands: &[TensorId],
            attrs: Attrs,
            requested: Option<RequestedPlacement>,
        ) -> TensorId {
            self.last += 1;
            let made = self.tensors.insert(self.last, self.meta, Content::Defined);
            let tensors = operands.iter().map(|id| Operand::Tensor(self.tensors.get(*id).unwrap().at.id()));
            let number = (op == Op::Full).then_some(Operand::Scalar(Scalar::Int(0)));
            let operands: Vec<Operand> = tensors.chain(number).collect();
            let inputs = Inputs::from_slice(&operands);
            let step = Step {
                owner: SessionSlot { session: 1, slot: 0 },
                workers: Workers::one(0),
                divided: false,
                requested,
                origin: self.last,
                token: 0,
                command: Command::Op(Instruction {
                    op,
                    out: made.id(),
                    inputs,
                    last_use: 0,
                    attrs,
                    tf32: false,
                    replaces: None,
                }),
                out: Some(self.meta),
                fused_ns: None,
                cost_ns: 1000,
                expected_ns: 1000,
                bytes: 64,
            };
            self.pipeline.process(step, &mut self.tensors, &mut Vec::new());
            self.last
        }

        /// Creates a tensor that a signal places.
        fn full(&mut self, workers: Workers, layout: RequestedLayout) -> TensorId {
            let attrs = Attrs::Create { shape: self.meta.shape, dtype: self.meta.dtype };
            self.run(Op::Full, &[], attrs, Some(RequestedPlacement { workers, layout }))
        }

        fn placement(&self, id: TensorId) -> Placement {
            self.tensors.get(id).unwrap().placement
        }
    }

    #[test]
    fn an_updated_parameter_stays_where_a_signal_placed_it() {
        // This holds for any cost of moves.
        for link_bytes_per_ns in [0.01, 1.0, 100.0] {
            let mut session = Sharded::new(link_bytes_per_ns);
            let columns = Placement::sharded(WORKERS, 1, 1, &session.meta.shape);
            let mut parameter = session.full(WORKERS, RequestedLayout::Sharded { axis: 1 });
            let gradient = session.full(WORKERS, RequestedLayout::Sharded { axis: 0 });
            let root = session.run(Op::Sqrt, &[gradient], Attrs::None, None);
            for _ in 0..3 {
                // The other two operands are sharded by rows.
                parameter = session.run(Op::Addcmul, &[parameter, gradient, root], Attrs::None, None);
                assert_eq!(session.placement(parameter), columns);
                parameter = session.run(Op::Neg, &[parameter], Attrs::None, None);
                assert_eq!(session.placement(parameter), columns);
            }
            // When another signal moves the parameter, it stays at the new place.
            let requested = RequestedPlacement { workers: Workers::one(2), layout: RequestedLayout::Replicated };
            let moved = session.run(Op::Sub, &[parameter, gradient], Attrs::None, Some(requested));
            let updated = session.run(Op::Sub, &[moved, gradient], Attrs::None, None);
            assert_eq!([moved, updated].map(|id| session.placement(id)), [Placement::on(2); 2]);
        }
    }

    #[test]
    fn a_replicated_parameter_is_updated_only_where_a_signal_placed_it() {
        let mut session = Sharded::new(1.0);
        let parameter = session.full(Workers::one(1), RequestedLayout::Replicated);
        let everywhere = RequestedPlacement { workers: WORKERS, layout: RequestedLayout::Replicated };
        let gradient = session.run(Op::Neg, &[parameter], Attrs::None, Some(everywhere));
        assert_eq!(session.placement(gradient), Placement::Replicated { workers: WORKERS });
        let updated = session.run(Op::Sub, &[parameter, gradient], Attrs::None, None);
        assert_eq!(session.placement(updated), Placement::on(1));
    }

    #[test]
    fn a_large_update_of_replicas_is_divided_among_workers_that_hold_them_together() {
        let whole = Placement::Replicated { workers: WORKERS };
        let everywhere = RequestedPlacement { workers: WORKERS, layout: RequestedLayout::Replicated };
        let large = [1024, 256];
        for (together, dims, is_divided) in [
            (WORKERS, large, true),
            (WORKERS, [1023, 256], false),
            (Workers::first_of(3), large, false),
            (Workers::NONE, large, false),
        ] {
            let mut session = Sharded::together(1.0, together, dims);
            let shards = Placement::sharded(WORKERS, 0, 1, &session.meta.shape);
            let made = if is_divided { shards } else { whole };
            let parameter = session.full(WORKERS, RequestedLayout::Replicated);
            let gradient = session.full(WORKERS, RequestedLayout::Replicated);
            let moment = session.run(Op::Sqrt, &[gradient], Attrs::None, Some(everywhere));
            assert_eq!(session.placement(moment), made);
            // The moment is in parts already, and the request for the parameter's replica is inherited.
            let updated = session.run(Op::Addcmul, &[parameter, gradient, moment], Attrs::None, None);
            assert_eq!(session.placement(updated), made, "{together} {dims:?}");
            // An instruction of many operations an element is placed by the estimates of its time, and a view is not
            // an update.
            let view = session.run(Op::Reshape, &[gradient], Attrs::Shape(session.meta.shape), Some(everywhere));
            assert_eq!(session.placement(view), whole);
        }
    }
}
