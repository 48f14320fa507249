//! Instructions of a component with a home worker: their bookkeeping, and the moves of their operands to that worker.

use super::costs::Costs;
use super::execution::PlacedInstruction;
use super::operands::PlacedOperand;
use super::planning::ExecutionPlan;
use super::resharding::{fetch_to, materialize};
use crate::affinity::{InstructionWork, Membership, WorkerLoads};
use crate::modifiers::stream_modifier::Output;
use crate::table::{TensorEntry, TensorTable, WorkerTensor};
use gt_ops::{Class, Placement, Workers};

/// The home worker of the component of an instruction, after its operands' components are merged; none if the component
/// has no home. `is_placed` says that a signal or the size of the result decides its placement.
pub fn home_worker(
    placed: &PlacedInstruction<'_>,
    is_placed: bool,
    costs: &Costs,
    loads: &mut WorkerLoads,
    tensors: &mut TensorTable,
) -> Option<usize> {
    if matches!(costs.shard_bytes_min, None | Some(0)) {
        return None;
    }
    let result = WorkerTensor::from_id(placed.instruction.out);
    let mut work = InstructionWork { cost_ns: placed.step.cost_ns, operands: 0, operand_bytes: 0 };
    let mut component = None;
    let mut common = None;
    let mut has_no_home = is_placed;
    // Tensors of one element are made on every worker and connect nothing.
    let operands =
        || placed.operands.iter().filter_map(PlacedOperand::tensor).filter(|tensor| tensor.meta.shape.numel() > 1);
    for tensor in operands() {
        if let Membership::Member(own) = tensor.membership {
            component = Some(tensors.components().union(component.unwrap_or(own), own));
        }
        has_no_home |= matches!(tensor.membership, Membership::Placed | Membership::Requested(_))
            || tensor.placement.sole().is_none();
        common = if work.operands == 0 { tensor.placement.sole() } else { common };
        common = common.filter(|_| common == tensor.placement.sole());
        work.operands += 1;
        work.operand_bytes += tensor.bytes;
    }
    if has_no_home {
        component.into_iter().for_each(|component| tensors.components().clear_home(component));
        let result = tensors.get_at_mut(result)?;
        if !matches!(result.membership, Membership::Requested(_)) {
            result.membership = Membership::Placed;
        }
        return None;
    }
    if work.operands == 0 || component.is_none() && placed.instruction.op.row().class == Class::Movement {
        return None;
    }
    let component = component.unwrap_or_else(|| tensors.add_component(common));
    for operand in operands() {
        let Some(TensorEntry { membership, bytes, .. }) = tensors.get_at(operand.at).copied() else { continue };
        let membership = match membership {
            Membership::None => Membership::LeafOf(component),
            Membership::LeafOf(other) if tensors.components().find(other) != component => Membership::SharedLeaf,
            _ => continue,
        };
        tensors.components().add_leaf(component, bytes);
        tensors.get_at_mut(operand.at)?.membership = membership;
    }
    tensors.get_at_mut(result)?.membership = Membership::Member(component);
    tensors.components().schedule(component, work, costs.links.among(loads.workers()).bytes_per_ns, loads)
}

/// Pushes an instruction on its home worker, with moves of the operands that are elsewhere. Operands that no other
/// component uses move for good, others get a copy.
pub fn execute_at_home(placed: &PlacedInstruction<'_>, home: usize, out: &mut Output<'_>) {
    for tensor in placed.operands.iter().filter_map(PlacedOperand::tensor) {
        let Some(tensor) = out.tensors().get(tensor.id).copied() else { continue };
        if tensor.meta.shape.numel() > 1 && matches!(tensor.membership, Membership::Member(_) | Membership::LeafOf(_)) {
            let at = fetch_to(&tensor, &Placement::on(home), placed.step, out);
            materialize(tensor.id, at, placed.step, out);
        }
    }
    let plan = ExecutionPlan { workers: Workers::one(home), split: None };
    placed.execute(&plan, None, out);
}
