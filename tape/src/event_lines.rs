//! The lines of the programs that issued instructions, beside the events of a tape.
//!
//! A Python program shares the lines of its newest instructions with observers ([`gt_shm::labels`]). They are looked up
//! as events are read, while they are kept, and written beside the events.

use gt_ops::event::{Event, EventKind, LogLine, SOURCE, Subject};
use gt_shm::labels::LabelReader;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write;

/// The lines of a stretch of the tape, as `train.py:12 in step`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLines {
    /// The lines, each once.
    texts: Vec<String>,
    /// The numbers of events, ascending, each with the position of its line in `texts`.
    events: Vec<(u64, u32)>,
}

impl EventLines {
    /// The line of event `number`: of an instruction that issued it, of a fetch that waits for it.
    pub fn line(&self, number: u64) -> Option<&str> {
        let found = self.events.binary_search_by_key(&number, |(of, _)| *of).ok()?;
        self.texts.get(self.events[found].1 as usize).map(String::as_str)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

/// The text of a line of the tape, with the line of the program behind a `#`, if that is known.
pub fn line_text(line: &LogLine, sources: &EventLines) -> String {
    let source = match line {
        LogLine::Event(number, _) => sources.line(*number),
        _ => None,
    };
    source.map_or_else(|| line.to_string(), |source| format!("{line}{SOURCE}{source}"))
}

/// Writes a line of the tape as [`line_text`] has it.
///
/// # Errors
/// The writer's.
pub fn write_line(out: &mut impl Write, line: &LogLine, sources: &EventLines) -> std::io::Result<()> {
    writeln!(out, "{}", line_text(line, sources))
}

/// Looks up the lines of events as they are read.
#[derive(Default)]
pub struct LineCollector {
    readers: HashMap<u64, Option<LabelReader>>,
    /// The position in the lines' texts of a session's labels; none for a label without a text.
    positions: HashMap<(u64, u64), Option<u32>>,
    lines: EventLines,
}

impl LineCollector {
    /// Looks up the line of event `number`, whose numbers ascend. `attach` gives the labels of a session that was not
    /// met before.
    pub fn take(&mut self, number: u64, event: &Event, attach: impl FnOnce(u64) -> Option<LabelReader>) {
        let Event { session, result, .. } = *event;
        if event.kind != EventKind::Recv || matches!(event.subject, Subject::Free | Subject::Sync) {
            return;
        }
        let reader = self.readers.entry(session).or_insert_with(|| attach(session));
        let Some(reader) = reader else { return };
        let label = if event.subject == Subject::Fetch { reader.wait_label(result) } else { reader.label(result) };
        let Some(label) = label else { return };
        let texts = &mut self.lines.texts;
        let position = *self.positions.entry((session, label)).or_insert_with(|| {
            texts.push(reader.text_of(label)?.to_owned());
            Some(texts.len() as u32 - 1)
        });
        if let Some(position) = position {
            self.lines.events.push((number, position));
        }
    }

    /// The lines that were found.
    pub fn finish(self) -> EventLines {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::event;
    use gt_ops::Op;
    use gt_ops::event::NO_WORKER;
    use gt_shm::labels::{LabelWriter, create};

    #[test]
    fn an_instruction_has_the_line_that_issued_it_and_a_fetch_that_of_the_wait() {
        let (fd, bytes) = create().unwrap();
        let writer = LabelWriter::map(fd.try_clone().unwrap(), bytes).unwrap();
        writer.define(70, "train.py:1 in f");
        writer.define(80, "train.py:2 in g");
        writer.set(1, 70);
        writer.set(2, 99);
        writer.set_wait(1, 80);
        let mut reader = Some(LabelReader::map(fd, bytes).unwrap());
        let issued = event(0, EventKind::Recv, NO_WORKER, 5, Op::Add, 1);
        let fetched = Event { subject: Subject::Fetch, ..issued };
        let mut collector = LineCollector::default();
        let events = [issued, Event { session: 6, ..issued }, Event { result: 2, ..issued }, fetched];
        for (number, event) in (10..).zip(events) {
            collector.take(number, &event, |session| if session == 5 { reader.take() } else { None });
        }
        let lines = collector.finish();
        assert_eq!(
            [10, 11, 12, 13].map(|number| lines.line(number)),
            [Some("train.py:1 in f"), None, None, Some("train.py:2 in g")]
        );
    }
}
