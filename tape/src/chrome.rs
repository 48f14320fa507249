//! A timeline in the trace-event format (JSON), which <https://ui.perfetto.dev> and `chrome://tracing` load.
//!
//! Three processes: the sessions, each a thread with its instructions; the dispatcher; and the workers, each a thread
//! with its steps, and one more for its transfers where these have a stream. A flow leads from each instruction to its
//! execution. Counters show queues and memory.

use crate::event_lines::EventLines;
use crate::timeline::{SliceOutcome, Timeline, WorkSlice};
use crate::work_kind::WorkKind;
use gt_ops::event::StepTime;
use gt_ops::result_meta::ResultMeta;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

const SESSIONS_PID: u32 = 1;
const DISPATCHER_PID: u32 = 2;
const WORKERS_PID: u32 = 3;
const DISPATCHER_TID: u64 = 1;
/// Threads of workers: two for each.
const WORKER_TID_MIN: u64 = 10;
/// Threads of sessions.
const SESSION_TID_MIN: u64 = 1_000_000;

/// The names of what a timeline knows by number.
#[derive(Clone, Debug, Default)]
pub struct TimelineNames {
    /// Names of workers, by number.
    pub workers: Vec<String>,
    /// Descriptions of sessions: `digits of ana, process 7`.
    pub sessions: BTreeMap<u64, String>,
}

impl TimelineNames {
    /// The name of a worker.
    pub fn worker(&self, number: usize) -> String {
        self.workers.get(number).cloned().unwrap_or_else(|| format!("worker {number}"))
    }
    /// The name of a session.
    pub fn session(&self, number: u64) -> String {
        match self.sessions.get(&number) {
            Some(description) => format!("session {number}: {description}"),
            None => format!("session {number}"),
        }
    }
}

/// Memory at one time.
#[derive(Clone, Debug, Default)]
pub struct MemorySample {
    /// The time on the tape's clock, nanoseconds.
    pub time_ns: u64,
    /// Bytes held on each worker, by number.
    pub workers: Vec<u64>,
    /// Bytes held by each session.
    pub sessions: Vec<(u64, u64)>,
}

/// Writes `timeline` as a JSON document of trace events.
///
/// # Errors
/// The writer's.
pub fn write(
    out: &mut impl Write,
    timeline: &Timeline,
    names: &TimelineNames,
    memory: &[MemorySample],
    sources: &EventLines,
) -> std::io::Result<()> {
    let source = |event: u64| sources.line(event).map(|line| format!(",\"line\":{}", quoted(line))).unwrap_or_default();
    let mut events = EventWriter { out, is_first: true };
    write!(events.out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"lost_events\":{}}},", timeline.lost)?;
    write!(events.out, "\"traceEvents\":[")?;
    write_names(&mut events, timeline, names)?;
    for (session, lane) in &timeline.sessions {
        let tid = session_tid(*session);
        for issued in &lane.issued {
            let (name, ts) = (issued.subject.name(), Micros(issued.time_ns));
            let flow = issued.number;
            events.put(format_args!(
                "\"ph\":\"X\",\"cat\":\"instruction\",\"name\":\"{name}\",\"pid\":{SESSIONS_PID},\"tid\":{tid},\
                 \"ts\":{ts},\"dur\":0,\"bind_id\":\"{flow:#x}\",\"flow_out\":true,\"args\":{{\"event\":{flow},\
                 \"result\":{},\"operands\":[{},{}],\"bytes\":{}{}}}",
                issued.result,
                issued.operands[0],
                issued.operands[1],
                issued.bytes,
                source(flow)
            ))?;
        }
        for (number, stretch) in lane.hot.iter().enumerate() {
            let [followed, hits] = stretch.followed.unwrap_or_default();
            for (phase, ts) in [("b", Micros(stretch.begin_ns)), ("e", Micros(stretch.end_ns))] {
                events.put(format_args!(
                    "\"ph\":\"{phase}\",\"cat\":\"hot path\",\"name\":\"sequence {}\",\"id\":{number},\
                     \"pid\":{SESSIONS_PID},\"tid\":{tid},\"ts\":{ts},\"args\":{{\"length\":{},\
                     \"followed\":{followed},\"hits\":{hits}}}",
                    stretch.sequence, stretch.length
                ))?;
            }
        }
        for awaited in &lane.awaited {
            let name = awaited.subject.name();
            for (phase, ts) in [("b", Micros(awaited.begin_ns)), ("e", Micros(awaited.end_ns))] {
                events.put(format_args!(
                    "\"ph\":\"{phase}\",\"cat\":\"waits\",\"name\":\"waits for {name}\",\"id\":{},\
                     \"pid\":{SESSIONS_PID},\"tid\":{tid},\"ts\":{ts},\"args\":{{\"bytes\":{}{}}}",
                    awaited.number,
                    awaited.bytes,
                    source(awaited.number)
                ))?;
            }
        }
    }
    for visit in &timeline.visits {
        let (ts, dur) = (Micros(visit.begin_ns), Micros(visit.end_ns - visit.begin_ns));
        events.put(format_args!(
            "\"ph\":\"X\",\"cat\":\"dispatcher\",\"name\":\"session {}\",\"pid\":{DISPATCHER_PID},\
             \"tid\":{DISPATCHER_TID},\"ts\":{ts},\"dur\":{dur},\"args\":{{\"received\":{},\"handed_over\":{},\
             \"ended\":{}}}",
            visit.session, visit.received, visit.handed_over, visit.ended
        ))?;
    }
    for (time_ns, lost) in &timeline.gaps {
        events.put(format_args!(
            "\"ph\":\"i\",\"s\":\"g\",\"cat\":\"tape\",\"name\":\"{lost} events lost\",\"pid\":{DISPATCHER_PID},\
             \"tid\":{DISPATCHER_TID},\"ts\":{}",
            Micros(*time_ns)
        ))?;
    }
    for (number, lane) in timeline.workers.iter().enumerate() {
        let tid = worker_tid(number);
        let line = |slice: &WorkSlice| slice.issued.map(source).unwrap_or_default();
        lane.slices.iter().try_for_each(|slice| write_slice(&mut events, slice, tid, &line(slice)))?;
        lane.copies.iter().try_for_each(|slice| write_slice(&mut events, slice, tid + 1, &line(slice)))?;
        for (time_ns, session, subject) in &lane.failures {
            events.put(format_args!(
                "\"ph\":\"i\",\"s\":\"t\",\"cat\":\"error\",\"name\":\"{} failed\",\"pid\":{WORKERS_PID},\"tid\":{tid},\
                 \"ts\":{},\"args\":{{\"session\":{session}}}",
                subject.name(),
                Micros(*time_ns)
            ))?;
        }
        let counter = quoted(&format!("queue of {}", names.worker(number)));
        for change in &lane.depths {
            events.counter(&counter, change.time_ns, "steps", change.depth as u64)?;
        }
    }
    for sample in memory {
        for (number, bytes) in sample.workers.iter().enumerate() {
            let counter = quoted(&format!("memory of {}", names.worker(number)));
            events.counter(&counter, sample.time_ns, "bytes", *bytes)?;
        }
        for (session, bytes) in &sample.sessions {
            let counter = quoted(&format!("memory of session {session}"));
            events.counter(&counter, sample.time_ns, "bytes", *bytes)?;
        }
    }
    write!(events.out, "]}}")
}

fn session_tid(session: u64) -> u64 {
    SESSION_TID_MIN.saturating_add(session)
}

fn worker_tid(number: usize) -> u64 {
    WORKER_TID_MIN + 2 * number as u64
}

fn write_names<W: Write>(
    events: &mut EventWriter<'_, W>,
    timeline: &Timeline,
    names: &TimelineNames,
) -> std::io::Result<()> {
    for (pid, name) in [(SESSIONS_PID, "sessions"), (DISPATCHER_PID, "dispatcher"), (WORKERS_PID, "workers")] {
        events.metadata(pid, DISPATCHER_TID, "process_name", json!({"name": name}))?;
        events.metadata(pid, DISPATCHER_TID, "process_sort_index", json!({"sort_index": pid}))?;
    }
    events.metadata(DISPATCHER_PID, DISPATCHER_TID, "thread_name", json!({"name": "dispatcher"}))?;
    for session in timeline.sessions.keys() {
        let name = names.session(*session);
        events.metadata(SESSIONS_PID, session_tid(*session), "thread_name", json!({"name": name}))?;
    }
    for (number, lane) in timeline.workers.iter().enumerate() {
        let name = names.worker(number);
        events.metadata(WORKERS_PID, worker_tid(number), "thread_name", json!({"name": name}))?;
        if !lane.copies.is_empty() {
            let name = format!("{name} copies");
            events.metadata(WORKERS_PID, worker_tid(number) + 1, "thread_name", json!({"name": name}))?;
        }
    }
    Ok(())
}

fn write_slice<W: Write>(
    events: &mut EventWriter<'_, W>,
    slice: &WorkSlice,
    tid: u64,
    line: &str,
) -> std::io::Result<()> {
    let (ts, dur) = (Micros(slice.begin_ns), Micros(slice.end_ns - slice.begin_ns));
    let flow = slice.issued.map(|issued| format!(",\"bind_id\":\"{issued:#x}\",\"flow_in\":true")).unwrap_or_default();
    let time = match slice.time {
        StepTime::Measured(0) => "\"fused_with_previous\":true".into(),
        StepTime::Measured(ns) => format!("\"took_ns\":{ns}"),
        StepTime::Estimated(ns) => format!("\"estimated_ns\":{ns}"),
    };
    let more = match slice.outcome {
        SliceOutcome::Done => "",
        SliceOutcome::Failed => ",\"failed\":true",
        SliceOutcome::Running => ",\"running\":true",
    };
    let describe = |out: ResultMeta| format!(",\"out\":\"{out}\",\"out_bytes\":{}", out.bytes());
    let out = slice.out.map(describe).unwrap_or_default();
    let queued_ns = slice.sent_ns.map_or(0, |sent_ns| slice.begin_ns.saturating_sub(sent_ns));
    events.put(format_args!(
        "\"ph\":\"X\",\"cat\":\"{}\",\"name\":\"{}\",\"pid\":{WORKERS_PID},\"tid\":{tid},\"ts\":{ts},\"dur\":{dur}{flow},\
         \"args\":{{\"session\":{},\"result\":{},\"bytes\":{},\"queued_ns\":{queued_ns},{time}{more}{out}{line}}}",
        WorkKind::of(slice.subject).name(),
        slice.subject.name(),
        slice.session,
        slice.result,
        slice.bytes,
    ))
}

/// Writes events, separated by commas.
struct EventWriter<'a, W> {
    out: &'a mut W,
    is_first: bool,
}

impl<W: Write> EventWriter<'_, W> {
    fn put(&mut self, fields: std::fmt::Arguments<'_>) -> std::io::Result<()> {
        let separator = if std::mem::replace(&mut self.is_first, false) { "" } else { "," };
        write!(self.out, "{separator}\n{{{fields}}}")
    }

    fn metadata(&mut self, pid: u32, tid: u64, what: &str, args: Value) -> std::io::Result<()> {
        self.put(format_args!("\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"ts\":0,\"args\":{args}"))
    }

    fn counter(&mut self, name: &str, time_ns: u64, unit: &str, value: u64) -> std::io::Result<()> {
        let ts = Micros(time_ns);
        self.put(format_args!(
            "\"ph\":\"C\",\"name\":{name},\"pid\":{WORKERS_PID},\"tid\":{DISPATCHER_TID},\"ts\":{ts},\
             \"args\":{{\"{unit}\":{value}}}"
        ))
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Nanoseconds as the microseconds of the format.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::{ended, sent};
    use crate::timeline::TimelineBuilder;
    use gt_ops::event::{Event, EventKind, LogLine, NO_WORKER};
    use gt_ops::{DType, Meta, Op, Shape};

    #[test]
    fn a_timeline_is_a_document_of_events() {
        let mut builder = TimelineBuilder::default();
        let LogLine::Event(number, sent) = sent(1500, 0, 7, Op::Matmul, 1) else { panic!("an event") };
        let issued = Event { kind: EventKind::Recv, worker: NO_WORKER, ..sent };
        let [left, right] = ResultMeta::words_of(&Meta::new(Shape::new(&[2, 3]).unwrap(), DType::F32));
        builder.take(&LogLine::Event(number - 1, issued));
        builder.take(&LogLine::Event(number, Event { left, right, ..sent }));
        builder.take(&ended(4500, 0, 7, Op::Matmul, 1, StepTime::Measured(2000)));
        builder.take(&LogLine::Lost(3));
        let timeline = builder.finish(5000, &[], &[]);
        let names = TimelineNames { workers: vec!["a \"quoted\" name".into()], ..TimelineNames::default() };
        let memory = [MemorySample { time_ns: 2000, workers: vec![5], sessions: vec![(7, 4)] }];
        let mut text = Vec::new();
        let sources = serde_json::from_value(json!({"texts": ["train.py:9 in \"f\""], "events": [[1499, 0]]})).unwrap();
        write(&mut text, &timeline, &names, &memory, &sources).unwrap();
        let document: Value = serde_json::from_slice(&text).unwrap();
        let events = document["traceEvents"].as_array().unwrap();
        let named =
            |category: &str| events.iter().find(|event| event["name"] == "matmul" && event["cat"] == category).unwrap();
        let slice = named("matmul");
        for event in [slice, named("instruction")] {
            assert_eq!(event["args"]["line"], "train.py:9 in \"f\"");
        }
        assert_eq!(slice["args"]["out"], "float32[2,3]");
        assert_eq!((slice["ts"].as_f64(), slice["dur"].as_f64()), (Some(2.5), Some(2.0)));
        assert_eq!(slice["args"]["queued_ns"], 1000);
        assert_eq!(document["otherData"]["lost_events"], 3);
        assert!(events.iter().any(|event| event["name"] == "memory of a \"quoted\" name"));
        assert!(events.iter().any(|event| event["name"] == "3 events lost"));
    }
}
