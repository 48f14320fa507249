//! The steps that ended, by worker and operation: those of a session, and those of all.

use gt_ops::event::{StepTime, Subject};
use gt_ops::op::WIRE_ID_MAX;
use gt_protocol::OperationCount;
use gt_tape::work_kind::WorkKind;
use std::collections::BTreeMap;

/// Counts of steps. A worker's are made when its first step ends.
#[derive(Clone, Default)]
pub struct OperationCounts {
    /// By worker, then by wire id; empty for a worker without steps.
    workers: Vec<Box<[OperationCount]>>,
}

impl OperationCounts {
    /// Counts a step that ended at `worker`.
    #[inline]
    pub fn add(&mut self, worker: usize, subject: Subject, bytes: u64, time: StepTime) {
        if cfg!(feature = "unobserved") {
            return;
        }
        let done = self.of(worker, subject);
        done.count += 1;
        done.time_ns = done.time_ns.wrapping_add(time.ns());
        done.bytes = done.bytes.wrapping_add(bytes);
    }

    /// Counts the failure of a step.
    pub fn add_error(&mut self, worker: usize, subject: Subject) {
        self.of(worker, subject).errors += 1;
    }

    #[inline]
    fn of(&mut self, worker: usize, subject: Subject) -> &mut OperationCount {
        if worker >= self.workers.len() || self.workers[worker].is_empty() {
            self.add_worker(worker);
        }
        // A worker has a count for each wire id.
        &mut self.workers[worker][usize::from(subject.code()) % WIRE_ID_MAX]
    }

    #[cold]
    fn add_worker(&mut self, worker: usize) {
        let count = self.workers.len().max(worker + 1);
        self.workers.resize_with(count, Box::default);
        self.workers[worker] = vec![OperationCount::default(); WIRE_ID_MAX].into_boxed_slice();
    }

    /// Forgets the counts of a worker, whose number another one gets.
    pub fn forget(&mut self, worker: usize) {
        if let Some(counts) = self.workers.get_mut(worker) {
            *counts = Box::default();
        }
    }

    /// The operations of a worker that have ended steps or failures, by wire id.
    pub fn of_worker(&self, worker: usize) -> impl Iterator<Item = (Subject, OperationCount)> {
        let counts = self.workers.get(worker).into_iter().flatten().enumerate();
        counts
            .filter(|(_, done)| done.count + done.errors > 0)
            .map(|(code, done)| (Subject::from_code(code as u16), *done))
    }

    /// The time of a worker's steps by the position of their kind in [`WorkKind::ALL`], nanoseconds.
    pub fn ns_by_kind(&self, worker: usize) -> [u64; WorkKind::ALL.len()] {
        let mut kinds = [0u64; WorkKind::ALL.len()];
        for (subject, done) in self.of_worker(worker) {
            let kind = &mut kinds[WorkKind::of(subject).index()];
            *kind = kind.saturating_add(done.time_ns);
        }
        kinds
    }

    /// The counts of a worker by operation, at most `most`: those that took longest.
    pub fn report(&self, worker: usize, most: usize) -> BTreeMap<String, OperationCount> {
        let mut done: Vec<(Subject, OperationCount)> = self.of_worker(worker).collect();
        done.sort_by_key(|(_, done)| std::cmp::Reverse(done.time_ns));
        done.truncate(most);
        done.into_iter().map(|(subject, done)| (subject.name().to_owned(), done)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::Op;

    #[test]
    fn steps_are_counted_by_worker_and_operation() {
        let mut counts = OperationCounts::default();
        for (worker, subject, ns) in [(1, Subject::Op(Op::Add), 5), (1, Subject::Op(Op::Add), 7), (0, Subject::Sync, 0)]
        {
            counts.add(worker, subject, 64, StepTime::Measured(ns));
        }
        counts.add_error(1, Subject::Op(Op::Matmul));
        let add = OperationCount { count: 2, time_ns: 12, bytes: 128, errors: 0 };
        let failed = OperationCount { errors: 1, ..OperationCount::default() };
        assert_eq!(counts.report(1, 9), BTreeMap::from([("add".into(), add), ("matmul".into(), failed)]));
        assert_eq!(counts.report(1, 1), BTreeMap::from([("add".into(), add)]));
        assert_eq!(counts.report(0, 9).into_keys().collect::<Vec<_>>(), ["sync"]);
        assert!(counts.report(2, 9).is_empty());
    }
}
