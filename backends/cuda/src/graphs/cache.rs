//! The cache of graphs.

use super::work::{GraphWork, Kept};
use crate::driver::{CudaGraph, Driver, GraphNode, Result};
use std::collections::HashMap;

/// A graph is dropped once its misses exceed this number plus twice its hits.
const MISSES_MAX: u32 = 8;

/// A graph and its work.
pub struct CachedGraph {
    /// The captured graph.
    pub graph: CudaGraph,
    /// Its work, with hashes.
    pub steps: Vec<(u64, Kept)>,
    /// The launches in it whose numbers may differ, by their place among the steps, and whether the graph has others
    /// than the step has now.
    numbered: Vec<NumberedLaunch>,
    used: u64,
    hits: u32,
    misses: u32,
    /// The graph that followed it last, and how often in a row.
    next: (usize, u32),
}

/// A launch in a graph whose numbers may differ.
#[derive(Clone, Copy)]
struct NumberedLaunch {
    step: usize,
    node: GraphNode,
    is_stale: bool,
}

impl CachedGraph {
    /// Gives the launches whose numbers have changed the present ones; returns how many there were.
    ///
    /// # Safety
    /// The contract of each step's call holds again.
    pub unsafe fn update(&mut self, driver: &dyn Driver) -> Result<u64> {
        let mut updated = 0;
        for launch in self.numbered.iter_mut().filter(|launch| launch.is_stale) {
            // SAFETY: the caller fulfils the contract of the step, which has the captured kernel and grid.
            unsafe { self.steps[launch.step].1.update(driver, self.graph, launch.node) }?;
            launch.is_stale = false;
            updated += 1;
        }
        Ok(updated)
    }
}

/// Graphs by id, and by the hash of their first work.
#[derive(Default)]
pub struct GraphCache {
    entries: Vec<Option<CachedGraph>>,
    by_start: HashMap<u64, Vec<usize>>,
    clock: u64,
    count: usize,
    steps: usize,
}

impl GraphCache {
    /// The graph of this id.
    #[inline]
    pub fn get(&self, id: usize) -> &CachedGraph {
        self.entries[id].as_ref().expect("a graph that is followed is there")
    }

    /// The graph of this id, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: usize) -> &mut CachedGraph {
        self.entries[id].as_mut().expect("a graph that is followed is there")
    }

    /// Notes that a step of a graph recurred as `work`, with the same numbers or others.
    #[inline]
    pub fn recur(&mut self, id: usize, step: usize, work: &GraphWork<'_>) {
        let entry = self.get_mut(id);
        if !entry.steps[step].1.has_numbers_of(work) {
            entry.steps[step].1.keep(work);
            entry.numbered.iter_mut().filter(|launch| launch.step == step).for_each(|launch| launch.is_stale = true);
        }
    }

    /// The number of graphs.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The amount of work in all graphs together.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The longest graph that begins with this work and has at most `longest` steps.
    #[inline]
    pub fn starting(&self, hash: u64, work: &GraphWork<'_>, longest: usize) -> Option<(usize, usize)> {
        let fits = |id: &usize| {
            let steps = &self.get(*id).steps;
            (steps.len() <= longest && steps[0].1.is(work)).then_some((*id, steps.len()))
        };
        self.by_start.get(&hash)?.iter().filter_map(fits).max_by_key(|(_, len)| *len)
    }

    /// The longest graph that equals steps of graph `id` from `at` on, and ends by `end`.
    pub fn within(&self, id: usize, at: usize, end: usize) -> Option<(usize, usize)> {
        let steps = &self.get(id).steps[at..end];
        let fits = |other: &usize| {
            let there = &self.get(*other).steps;
            (there.len() <= steps.len() && there[..] == steps[..there.len()]).then_some((*other, there.len()))
        };
        self.by_start.get(&steps.first()?.0)?.iter().filter_map(fits).max_by_key(|(_, len)| *len)
    }

    /// Another graph whose first `at` steps equal those of graph `id`, and whose next step is `work`.
    pub fn like(&self, id: usize, at: usize, work: &GraphWork<'_>) -> Option<usize> {
        let followed = &self.get(id).steps;
        let fits = |other: &usize| {
            let steps = &self.get(*other).steps;
            let same = |(a, b): (&(u64, Kept), &(u64, Kept))| a.0 == b.0 && a.1 == b.1;
            steps.len() > at && steps[at].1.is(work) && steps.iter().zip(&followed[..at]).all(same)
        };
        self.by_start.get(&followed[0].0)?.iter().copied().find(fits)
    }

    /// Whether there is a graph whose work has exactly these hashes.
    pub fn has(&self, hashes: impl Iterator<Item = u64> + Clone) -> bool {
        let Some(start) = hashes.clone().next() else { return true };
        let same = |id: &usize| self.get(*id).steps.iter().map(|(hash, _)| *hash).eq(hashes.clone());
        self.by_start.get(&start).is_some_and(|ids| ids.iter().any(same))
    }

    /// Notes that graph `next` followed `id`; returns whether it did so at least twice in a row.
    #[inline]
    pub fn followed(&mut self, id: usize, next: usize) -> bool {
        let Some(entry) = &mut self.entries[id] else { return false };
        entry.next = if entry.next.0 == next { (next, entry.next.1.saturating_add(1)) } else { (next, 1) };
        entry.next.1 > 1
    }

    /// Adds a graph; `nodes` are those of the steps that have numbers.
    pub fn put(&mut self, graph: CudaGraph, steps: Vec<(u64, Kept)>, nodes: &[GraphNode]) {
        self.clock += 1;
        self.count += 1;
        self.steps += steps.len();
        let start = steps[0].0;
        let with_numbers = steps.iter().enumerate().filter(|(_, (_, kept))| kept.has_numbers());
        let numbered =
            with_numbers.zip(nodes).map(|((step, _), node)| NumberedLaunch { step, node: *node, is_stale: false });
        let numbered = numbered.collect();
        let entry = CachedGraph { graph, steps, numbered, used: self.clock, hits: 0, misses: 0, next: (usize::MAX, 0) };
        let id = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        if id == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[id] = Some(entry);
        self.by_start.entry(start).or_default().push(id);
    }

    /// Removes a graph.
    pub fn take(&mut self, id: usize) -> Option<CudaGraph> {
        let entry = self.entries.get_mut(id)?.take()?;
        self.count -= 1;
        self.steps -= entry.steps.len();
        let start = entry.steps[0].0;
        if let Some(ids) = self.by_start.get_mut(&start) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_start.remove(&start);
            }
        }
        Some(entry.graph)
    }

    /// Removes the least recently used graph.
    pub fn take_oldest(&mut self) -> Option<CudaGraph> {
        let used = |id: &usize| self.entries[*id].as_ref().map(|entry| entry.used);
        let oldest = (0..self.entries.len()).filter(|id| self.entries[*id].is_some()).min_by_key(used)?;
        self.take(oldest)
    }

    /// Notes that graph `id` was completed.
    #[inline]
    pub fn hit(&mut self, id: usize) {
        self.clock += 1;
        if let Some(entry) = &mut self.entries[id] {
            entry.used = self.clock;
            entry.hits += 1;
        }
    }

    /// Notes that graph `id` was abandoned. Returns the driver's graph if it is not worth keeping.
    pub fn miss(&mut self, id: usize) -> Option<CudaGraph> {
        let entry = self.entries[id].as_mut()?;
        entry.misses += 1;
        if entry.misses > MISSES_MAX + 2 * entry.hits { self.take(id) } else { None }
    }
}
