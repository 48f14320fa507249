//! The interface of stream modifiers.

use super::links::Links;
use crate::table::{Content, TensorTable, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::{Meta, TensorId};

/// Tensor ids from here on are the modifiers'; clients' ids are smaller.
pub const MODIFIER_ID_MIN: TensorId = 1 << 63;

/// Counters of a modifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModifierStats {
    /// Steps that the modifier was given.
    pub seen: u64,
    /// Steps that it changed, added or removed.
    pub changed: u64,
}

/// A rewriter of the stream of steps between a session and its workers.
///
/// A modifier sees one step at a time, with the workers' tensor ids. It may pass the step on, change it, hold it back
/// or add others, but must not change what the client computes.
pub trait StreamModifier {
    /// The modifier's name, as users see it.
    fn name(&self) -> &'static str;

    /// Pushes the steps that replace `step` to `out`.
    fn process(&mut self, step: Step, out: &mut Output<'_>);

    /// Takes note of links that were measured.
    fn links_changed(&mut self, _links: &Links) {}

    /// The modifier's counters.
    fn stats(&self) -> ModifierStats;
}

/// The steps that replace a step, and the session's tensors.
pub struct Output<'a> {
    pub(super) steps: &'a mut Vec<Step>,
    pub(super) tensors: &'a mut TensorTable,
    pub(super) next_id: &'a mut TensorId,
    pub(super) links: &'a Links,
}

impl<'a> Output<'a> {
    /// Appends a step.
    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// The links between the session's workers.
    pub fn links(&self) -> &'a Links {
        self.links
    }

    /// Adds a tensor to the session's table. Returns its id, for [`release`](Self::release), and its id at workers.
    pub fn allocate(&mut self, meta: Meta) -> (TensorId, WorkerTensor) {
        *self.next_id += 1;
        (*self.next_id, self.tensors.insert(*self.next_id, meta, Content::Defined))
    }

    /// The session's tensors.
    pub fn tensors(&mut self) -> &mut TensorTable {
        self.tensors
    }

    /// Removes a tensor from the table, after a step that frees it was pushed.
    pub fn release(&mut self, id: TensorId) {
        self.tensors.remove(id);
    }
}
