//! Counts, times and bytes by operation.

use crate::work_kind::WorkKind;
use gt_ops::event::{Event, EventKind, LogLine, StepTime, Subject};
use serde::Serialize;
use std::collections::HashMap;

/// The work of one operation at one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationTotal {
    /// The worker's number.
    #[serde(skip)]
    pub worker: u16,
    /// The operation, as in the instruction log: `matmul`.
    pub operation: &'static str,
    /// Its kind.
    pub kind: WorkKind,
    /// The number of steps that ended.
    pub count: u64,
    /// Their time, nanoseconds. The first of several fused steps carries the time of all.
    pub time_ns: u64,
    /// The part of that time which is estimated and not measured, nanoseconds.
    pub estimated_ns: u64,
    /// Bytes of the instructions on the wire, or of the data moved.
    pub bytes: u64,
    /// Steps that failed.
    pub errors: u64,
}

/// The work of all operations.
#[derive(Clone, Debug, Default)]
pub struct OperationTotals {
    totals: HashMap<(u16, Subject), OperationTotal>,
}

impl OperationTotals {
    /// Adds a line of the tape.
    pub fn take(&mut self, line: &LogLine) {
        if let LogLine::Event(_, event) = line {
            self.add(event);
        }
    }

    fn add(&mut self, event: &Event) {
        if !event.kind.ends_step() && event.kind != EventKind::Error {
            return;
        }
        let Event { worker, subject, .. } = *event;
        let total = self.totals.entry((worker, subject)).or_insert_with(|| OperationTotal {
            worker,
            operation: subject.name(),
            kind: WorkKind::of(subject),
            count: 0,
            time_ns: 0,
            estimated_ns: 0,
            bytes: 0,
            errors: 0,
        });
        let Some(time) = event.step_time() else {
            total.errors += 1;
            return;
        };
        total.count += 1;
        total.bytes = total.bytes.saturating_add(event.bytes);
        total.time_ns = total.time_ns.saturating_add(time.ns());
        if let StepTime::Estimated(ns) = time {
            total.estimated_ns = total.estimated_ns.saturating_add(ns);
        }
    }

    /// The totals, those that took longest first.
    pub fn sorted(&self) -> Vec<OperationTotal> {
        let mut all: Vec<OperationTotal> = self.totals.values().cloned().collect();
        all.sort_by(|a, b| {
            let order = b.time_ns.cmp(&a.time_ns).then(b.count.cmp(&a.count));
            order.then(a.operation.cmp(b.operation)).then(a.worker.cmp(&b.worker))
        });
        all
    }
}
