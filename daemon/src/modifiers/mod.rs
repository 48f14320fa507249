//! The pipeline: what rewrites the stream of validated steps between a session and its worker.
//!
//! Each modifier is a file here and a line in [`standard`]. A modifier sees one step at a time, in the worker's names,
//! and may pass it on, change it, hold it back or send others; it must not change what the client computes. With no
//! modifier a step goes straight to its worker.

pub mod collectives;
pub mod families;
mod losses;
pub mod sharding;
pub mod signals;
mod transfers;

use crate::table::{Content, TensorTable, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::{Meta, TensorId, Workers};
pub use sharding::{Costs, Sharding, machine_bytes_per_ns};

/// What a modifier has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModifierStats {
    /// Steps it was shown.
    pub seen: u64,
    /// Steps it changed, added or took away.
    pub changed: u64,
}

/// A transformer of the stream.
pub trait StreamModifier {
    /// Its name, as users see it.
    fn name(&self) -> &'static str;

    /// Puts what should happen instead of `step` into `out`.
    fn process(&mut self, step: Step, out: &mut Output<'_>);

    /// What it has done so far.
    fn stats(&self) -> ModifierStats;
}

/// Where a modifier puts steps.
pub struct Output<'a> {
    steps: &'a mut Vec<Step>,
    tensors: &'a mut TensorTable,
    next_id: &'a mut TensorId,
}

impl Output<'_> {
    /// The next step.
    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// A name for a new tensor of the session: the one to give it back with, and the workers'.
    pub fn allocate(&mut self, meta: Meta) -> (TensorId, WorkerTensor) {
        *self.next_id += 1;
        (*self.next_id, self.tensors.insert(*self.next_id, meta, Content::Defined))
    }

    /// The session's tensors.
    pub fn tensors(&mut self) -> &mut TensorTable {
        self.tensors
    }

    /// Gives a name back, after a step that frees the tensor was pushed.
    pub fn release(&mut self, id: TensorId) {
        self.tensors.remove(id);
    }
}

/// Ids from here on belong to modifiers; a client's ids are smaller.
pub const MODIFIER_IDS: TensorId = 1 << 63;

/// All modifiers, in order.
pub struct Pipeline {
    modifiers: Vec<Box<dyn StreamModifier>>,
    next_id: TensorId,
}

/// The modifiers of this version. Whoever has one worker from the beginning needs none. `devices` reach each other past
/// the host, so many gigabytes a second.
pub fn standard(shard_bytes_min: Option<u64>, devices: Option<(Workers, f64)>) -> Pipelines {
    Pipelines::new(move |Present { workers, of_several }| {
        let link_bytes_per_ns = || match devices {
            Some((devices, gbytes_per_s)) if workers.without(devices).is_empty() => gbytes_per_s,
            _ => machine_bytes_per_ns(),
        };
        let costs = || Costs { shard_bytes_min, link_bytes_per_ns: link_bytes_per_ns() };
        if of_several { vec![Box::new(Sharding::new(workers, costs()))] } else { Vec::new() }
    })
}

/// What a session has of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// Those that are still there.
    pub workers: Workers,
    /// Whether it had more than one when it began.
    pub of_several: bool,
}

/// What makes the modifiers of sessions that have the same workers.
type Make = Box<dyn FnMut(Present) -> Vec<Box<dyn StreamModifier>> + Send>;

/// The pipelines of all sessions: those that have the same workers share one.
pub struct Pipelines {
    make: Make,
    made: Vec<(Present, Pipeline)>,
    /// So many were made.
    count: u64,
}

/// So many ids has each pipeline: a session that gets another when a worker leaves meets no id twice.
const IDS_EACH: TensorId = 1 << 40;

impl Pipelines {
    /// Pipelines whose modifiers `make` makes, the first one first.
    pub fn new(make: impl FnMut(Present) -> Vec<Box<dyn StreamModifier>> + Send + 'static) -> Pipelines {
        Pipelines { make: Box::new(make), made: Vec::new(), count: 0 }
    }

    /// The one of sessions that have these workers.
    pub fn of(&mut self, present: Present) -> &mut Pipeline {
        let at = self.made.iter().position(|(of, _)| *of == present).unwrap_or_else(|| {
            let mut pipeline = Pipeline::new((self.make)(present));
            pipeline.next_id += self.count * IDS_EACH;
            self.count += 1;
            self.made.push((present, pipeline));
            self.made.len() - 1
        });
        &mut self.made[at].1
    }

    /// Forgets those of which `used` says that no session has such workers.
    pub fn retain(&mut self, used: impl Fn(Present) -> bool) {
        self.made.retain(|(present, _)| used(*present));
    }
}

impl Pipeline {
    /// A pipeline of `modifiers`, the first one first.
    pub fn new(modifiers: Vec<Box<dyn StreamModifier>>) -> Pipeline {
        Pipeline { modifiers, next_id: MODIFIER_IDS }
    }

    /// True if steps go through unchanged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.modifiers.is_empty()
    }

    /// Puts what becomes of `step` into `steps`, which are empty.
    pub fn process(&mut self, step: Step, tensors: &mut TensorTable, steps: &mut Vec<Step>) {
        let next_id = &mut self.next_id;
        let Some((first, others)) = self.modifiers.split_first_mut() else { return steps.push(step) };
        first.process(step, &mut Output { steps, tensors, next_id });
        for modifier in others {
            for step in std::mem::take(steps) {
                modifier.process(step, &mut Output { steps, tensors, next_id });
            }
        }
    }

    /// Every modifier's name and what it has done so far.
    pub fn stats(&self) -> impl Iterator<Item = (&'static str, ModifierStats)> + '_ {
        self.modifiers.iter().map(|modifier| (modifier.name(), modifier.stats()))
    }
}
