//! The last steps of a session, by the daemon's tape.

use gt_ops::event::{Event, Subject};
use gt_shm::broadcast::{BroadcastMem, Reader};
use gt_tape::work_kind::WorkKind;
use serde::Serialize;
use std::collections::BTreeMap;

/// The steps that are told, the last ones.
pub const STEPS_MAX: usize = 2000;

/// A step that ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineStep {
    /// The worker's number.
    pub worker: u16,
    /// The operation.
    pub operation: &'static str,
    /// Its kind.
    pub kind: WorkKind,
    /// Its begin, nanoseconds since the daemon started.
    pub begun_ns: u64,
    /// Its time, nanoseconds.
    pub took_ns: u64,
}

/// The steps of a session among the events that a tape still has, oldest first. A fused group is one step.
pub fn last_steps<M: BroadcastMem>(mut tape: Reader<M>, session: u64) -> Vec<TimelineStep> {
    let records = std::iter::from_fn(|| tape.read());
    let own = |event: &Event| event.session == session && event.kind.ends_step();
    let events: Vec<Event> = records.filter_map(|record| Event::decode(&record)).filter(own).collect();
    // The daemon hears of several ends at one time, and a worker runs one step at a time: each ended before the next
    // one began.
    let mut next_begun_ns: BTreeMap<u16, u64> = BTreeMap::new();
    let mut steps = Vec::new();
    for event in events.iter().rev() {
        let took_ns = event.step_time().map_or(0, |time| time.ns());
        if took_ns == 0 || event.subject == Subject::Nothing {
            continue;
        }
        let next = next_begun_ns.entry(event.worker).or_insert(u64::MAX);
        let begun_ns = event.time_ns.min(*next).saturating_sub(took_ns);
        *next = begun_ns;
        let (operation, kind) = (event.subject.name(), WorkKind::of(event.subject));
        steps.push(TimelineStep { worker: event.worker, operation, kind, begun_ns, took_ns });
        if steps.len() == STEPS_MAX {
            break;
        }
    }
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::Op;
    use gt_ops::event::{EventKind, StepTime};
    use gt_shm::broadcast::{HeapBroadcast, Writer};

    #[test]
    fn steps_of_one_session_lie_one_after_the_other() {
        let memory = HeapBroadcast::new(64);
        let mut writer = Writer::new(memory.clone());
        for (session, worker, took_ns) in [(1, 0, 30), (2, 0, 500), (1, 0, 0), (1, 0, 50), (1, 1, 100)] {
            let [left, right] = StepTime::Measured(took_ns).words();
            let (kind, subject) = (EventKind::WorkerRecv, Subject::Op(Op::Matmul));
            let event =
                Event { time_ns: 1000, kind, subject, worker, session, bytes: 0, result: 3, left, right, run_ns: 0 };
            writer.write(&event.encode());
        }
        let steps = last_steps(Reader::from_oldest(memory.clone()), 1);
        let told: Vec<_> = steps.iter().map(|step| (step.worker, step.begun_ns, step.took_ns)).collect();
        assert_eq!(told, [(0, 920, 30), (0, 950, 50), (1, 900, 100)]);
        assert_eq!((steps[0].operation, steps[0].kind), ("matmul", WorkKind::Matmul));
        assert!(last_steps(Reader::from_oldest(memory), 3).is_empty());
    }
}
