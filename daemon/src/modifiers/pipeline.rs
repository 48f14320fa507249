//! Pipelines: the modifiers of sessions on the same workers, in order.

use super::links::{Links, Machine};
use super::stream_modifier::{MODIFIER_ID_MIN, ModifierStats, Output, StreamModifier};
use crate::table::TensorTable;
use crate::worker::step::Step;
use gt_ops::{TensorId, Workers};

/// The modifiers that a step passes through, in order.
pub struct Pipeline {
    modifiers: Vec<Box<dyn StreamModifier>>,
    next_id: TensorId,
    links: Links,
}

/// The workers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionWorkers {
    /// The session's workers that have not left.
    pub workers: Workers,
    /// True if the session had more than one worker when it began.
    pub several: bool,
}

/// Makes the pipeline of sessions on the same workers; the second argument are the machines, or none if all workers are
/// on one.
type MakePipeline = Box<dyn FnMut(SessionWorkers, &[Machine]) -> Pipeline + Send>;

/// The pipelines of all sessions: sessions on the same workers share one.
pub struct Pipelines {
    make: MakePipeline,
    made: Vec<(SessionWorkers, Pipeline)>,
    /// Pipelines made so far.
    count: u64,
}

/// Tensor ids of each pipeline. Pipelines have ranges of their own, so a session that gets another pipeline when a
/// worker leaves meets no id twice: the ranges come again after millions of pipelines.
const IDS_PER_PIPELINE: TensorId = 1 << 40;
/// The number of these ranges.
const RANGES: u64 = (u64::MAX - MODIFIER_ID_MIN) / IDS_PER_PIPELINE;
/// Unused pipelines are dropped when there are more than this. Sessions choose their workers, so there could be many.
const PIPELINES_KEPT: usize = 64;

impl Pipelines {
    /// An empty set of pipelines; `make` makes each.
    pub fn new(make: impl FnMut(SessionWorkers, &[Machine]) -> Pipeline + Send + 'static) -> Pipelines {
        Pipelines { make: Box::new(make), made: Vec::new(), count: 0 }
    }

    /// The pipeline for sessions on `workers`, made at the first call. `machines` are none if
    /// all workers are on one.
    pub fn of(&mut self, workers: SessionWorkers, machines: &[Machine]) -> &mut Pipeline {
        let at = self.made.iter().position(|(of, _)| *of == workers).unwrap_or_else(|| {
            let mut pipeline = (self.make)(workers, machines);
            pipeline.next_id += self.count % RANGES * IDS_PER_PIPELINE;
            self.count += 1;
            self.made.push((workers, pipeline));
            self.made.len() - 1
        });
        &mut self.made[at].1
    }

    /// Tells all pipelines that links between these machines were measured.
    pub fn set_machines(&mut self, machines: &[Machine]) {
        for (_, pipeline) in &mut self.made {
            pipeline.links.set_machines(machines);
            pipeline.modifiers.iter_mut().for_each(|modifier| modifier.links_changed(&pipeline.links));
        }
    }

    /// True if there are so many that unused ones are to be dropped.
    pub fn are_many(&self) -> bool {
        self.made.len() > PIPELINES_KEPT
    }

    /// Drops the pipelines for which `used` is false: no session has these workers.
    pub fn retain(&mut self, used: impl Fn(SessionWorkers) -> bool) {
        self.made.retain(|(workers, _)| used(*workers));
    }
}

impl Pipeline {
    /// A pipeline of `modifiers`, in order, between workers with these links.
    pub fn new(modifiers: Vec<Box<dyn StreamModifier>>, links: Links) -> Pipeline {
        Pipeline { modifiers, next_id: MODIFIER_ID_MIN, links }
    }

    /// True if steps pass unchanged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.modifiers.is_empty()
    }

    /// Appends the steps that replace `step` to `steps`, which is empty.
    pub fn process(&mut self, step: Step, tensors: &mut TensorTable, steps: &mut Vec<Step>) {
        let (next_id, links) = (&mut self.next_id, &self.links);
        let Some((first, others)) = self.modifiers.split_first_mut() else { return steps.push(step) };
        first.process(step, &mut Output { steps, tensors, next_id, links });
        for modifier in others {
            for step in std::mem::take(steps) {
                modifier.process(step, &mut Output { steps, tensors, next_id, links });
            }
        }
    }

    /// Every modifier's name and counters.
    pub fn stats(&self) -> impl Iterator<Item = (&'static str, ModifierStats)> + '_ {
        self.modifiers.iter().map(|modifier| (modifier.name(), modifier.stats()))
    }
}
