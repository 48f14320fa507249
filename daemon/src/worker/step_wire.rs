//! The slots between dispatcher and worker: a header at the beginning of each step, and a report of its end.
//!
//! A header names the session and the request. The slots of a command follow the header of a
//! [`StepKind::Run`]; every other step is its header alone. A report is a [`Completion`] whose spare bits carry
//! measurements.

use super::step::SessionSlot;
use gt_ops::failure::{Fault, WorkerEnd, WorkerName};
use gt_ops::wire::{Completion, Slot};
use gt_ops::{TensorId, Workers};

/// The first slot of a step.
///
/// | word | meaning |
/// |---|---|
/// | 0 | the number of the kind; in the upper half, how many slots of a command follow |
/// | 1 | [`SessionSlot::slot`] |
/// | 2 | [`SessionSlot::session`] |
/// | 3, 4 | the origin and the expected nanoseconds of a command |
/// | 5 to 7 | the fields of the kind |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepHeader {
    /// The session that the step belongs to; the default for a step that belongs to none.
    pub owner: SessionSlot,
    /// The request.
    pub kind: StepKind,
}

/// The request of a step to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Execute the command in the slots that follow.
    Run(RunHeader),
    /// Make room for the session's tensors. `loss` tells how it lost the tensors that it had before.
    Open {
        /// The end of the worker's last process, if that held tensors of the session.
        loss: Option<WorkerLoss>,
    },
    /// Drop the session's tensors and arenas.
    Close,
    /// Return memory that is only cached.
    Trim,
    /// End the worker.
    Stop,
    /// Take the next message from the socket.
    Message,
    /// Join the group of `workers` as the rank that the link assigns.
    Join {
        /// The group's members.
        workers: Workers,
    },
    /// Leave the group of `workers`.
    Leave {
        /// The group's members.
        workers: Workers,
        /// Members that are gone: reshards with them fail until a group with them is formed.
        gone: Workers,
    },
    /// Apply changed limits to the session's memory.
    Limit(MemoryLimits),
    /// Tell the user that new sessions compute on this worker, which has registered itself.
    Registered,
    /// Reset the session's peak of memory to the bytes that it holds.
    ResetPeak,
    /// Drop an arena that the session has returned.
    DropArena {
        /// The arena's number.
        number: u32,
    },
}

/// The header of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// How many slots of the command follow.
    pub command_slots: u32,
    /// The client's id of the result; the report repeats it.
    pub origin: TensorId,
    /// The expected time, nanoseconds.
    pub expected_ns: u64,
    /// The worker publishes its reports after steps of this many expected nanoseconds, so that more steps come before
    /// it is idle.
    pub unreported_ns_max: u64,
    /// Whether the command is [light](super::queue::LIGHT_NS_MAX): it may overtake steps of other sessions.
    pub is_light: bool,
}

/// The limits of a session's memory at one worker, bytes; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The session's own limit.
    pub session_bytes: u64,
    /// The session's user, whose sessions share a limit.
    pub user: u64,
    /// The user's limit.
    pub user_bytes: u64,
}

/// The loss of a worker's process, and with it of the tensors that it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerLoss {
    /// The worker's name.
    pub worker: WorkerName,
    /// How the process ended.
    pub end: WorkerEnd,
}

impl From<WorkerLoss> for Fault {
    fn from(WorkerLoss { worker, end }: WorkerLoss) -> Fault {
        Fault::WorkerLost { worker, end }
    }
}

/// A slot that is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no step begins with {0:#x}")]
pub struct UnknownStep(u64);

const COMMAND_SLOTS_SHIFT: u32 = 32;

impl StepHeader {
    /// The header as a slot.
    pub fn encode(&self) -> Slot {
        let (number, [origin, expected_ns, a, b, c]) = self.kind.words();
        let command_slots = if let StepKind::Run(run) = self.kind { run.command_slots } else { 0 };
        let first = number | u64::from(command_slots) << COMMAND_SLOTS_SHIFT;
        let SessionSlot { session, slot } = self.owner;
        [first, slot.into(), session, origin, expected_ns, a, b, c]
    }

    /// The header in a slot.
    ///
    /// # Errors
    /// The slot has an unknown number of a kind, or an index of a session that does not fit in 32 bits.
    pub fn decode(slot: &Slot) -> Result<StepHeader, UnknownStep> {
        let [first, index, session, origin, expected_ns, a, b, c] = *slot;
        let command_slots = (first >> COMMAND_SLOTS_SHIFT) as u32;
        let kind = match first as u32 {
            1 => {
                let is_light = b != 0;
                StepKind::Run(RunHeader { command_slots, origin, expected_ns, unreported_ns_max: a, is_light })
            }
            2 => {
                let worker = WorkerName::from_words([a, b]);
                StepKind::Open { loss: (c != 0).then(|| WorkerLoss { worker, end: WorkerEnd::from_word(c) }) }
            }
            3 => StepKind::Close,
            4 => StepKind::Trim,
            5 => StepKind::Stop,
            6 => StepKind::Message,
            7 => StepKind::Join { workers: Workers::from_words([a, b]) },
            8 => StepKind::Leave {
                workers: Workers::from_words([a, b]),
                gone: Workers::from_words([origin, expected_ns]),
            },
            9 => StepKind::Limit(MemoryLimits { session_bytes: a, user: b, user_bytes: c }),
            10 => StepKind::Registered,
            11 => StepKind::ResetPeak,
            12 => StepKind::DropArena { number: u32::try_from(a).map_err(|_| UnknownStep(first))? },
            _ => return Err(UnknownStep(first)),
        };
        let slot = u32::try_from(index).map_err(|_| UnknownStep(first))?;
        Ok(StepHeader { owner: SessionSlot { session, slot }, kind })
    }

    /// The number of slots of the step whose header is `slot`, including the header.
    pub fn step_slots(slot: &Slot) -> usize {
        1 + (slot[0] >> COMMAND_SLOTS_SHIFT) as usize
    }

    /// The client's id of a command's result; 0 for other steps.
    pub fn origin(&self) -> TensorId {
        if let StepKind::Run(run) = self.kind { run.origin } else { 0 }
    }

    /// The expected time of a command, nanoseconds; 0 for other steps.
    pub fn expected_ns(&self) -> u64 {
        if let StepKind::Run(run) = self.kind { run.expected_ns } else { 0 }
    }
}

impl StepKind {
    /// The number of the kind, and words 3 to 7.
    fn words(self) -> (u64, [u64; 5]) {
        match self {
            StepKind::Run(RunHeader { origin, expected_ns, unreported_ns_max, is_light, .. }) => {
                (1, [origin, expected_ns, unreported_ns_max, is_light.into(), 0])
            }
            StepKind::Open { loss: None } => (2, [0; 5]),
            StepKind::Open { loss: Some(WorkerLoss { worker, end }) } => {
                let [low, high] = worker.words();
                (2, [0, 0, low, high, end.word()])
            }
            StepKind::Close => (3, [0; 5]),
            StepKind::Trim => (4, [0; 5]),
            StepKind::Stop => (5, [0; 5]),
            StepKind::Message => (6, [0; 5]),
            StepKind::Join { workers } => {
                let [low, high] = workers.words();
                (7, [0, 0, low, high, 0])
            }
            StepKind::Leave { workers, gone } => {
                let ([low, high], [gone_low, gone_high]) = (workers.words(), gone.words());
                (8, [gone_low, gone_high, low, high, 0])
            }
            StepKind::Limit(MemoryLimits { session_bytes, user, user_bytes }) => {
                (9, [0, 0, session_bytes, user, user_bytes])
            }
            StepKind::Registered => (10, [0; 5]),
            StepKind::ResetPeak => (11, [0; 5]),
            StepKind::DropArena { number } => (12, [0, 0, number.into(), 0, 0]),
        }
    }
}

/// The report of a step's end.
///
/// It is a [`Completion`] whose token is the step's origin, with measurements in bits that a completion leaves zero:
/// the time from bit 16 of word 1 on, the session's bytes from bit 16 of word 3 on, the session's peak in word 4
/// (unless the step failed: a failure needs the word for itself), and the worker's bytes in the lower 48 bits of word
/// 7. The other 16 say how many older steps the step has overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportWords {
    /// The step's end, with the step's origin as its token.
    pub completion: Completion,
    /// How long the step took, nanoseconds.
    pub took_ns: u64,
    /// Bytes that the session's tensors take.
    pub held_bytes: u64,
    /// The most bytes that the session's tensors took at one time; unknown in the report of a failure.
    pub peak_bytes: Option<u64>,
    /// Bytes that the tensors of all sessions take.
    pub memory_bytes: u64,
    /// The number of steps that were queued before this one and have not ended.
    pub overtaken: u16,
}

const TOOK_WORD: usize = 1;
const HELD_WORD: usize = 3;
const PEAK_WORD: usize = 4;
const MEMORY_WORD: usize = 7;
/// The lower bits of [`TOOK_WORD`] and [`HELD_WORD`] belong to the completion.
const MEASURED_SHIFT: u32 = 16;
/// The upper bits of [`MEMORY_WORD`] belong to [`ReportWords::overtaken`].
const OVERTAKEN_SHIFT: u32 = 48;
/// The longest time of a step that a report can state, nanoseconds: an hour.
const TOOK_NS_MAX: u64 = 3600 * 1_000_000_000;

impl ReportWords {
    /// The report as a slot.
    pub fn encode(&self) -> Slot {
        let mut slot = self.completion.encode();
        slot[TOOK_WORD] |= self.took_ns.min(TOOK_NS_MAX) << MEASURED_SHIFT;
        slot[HELD_WORD] |= self.held_bytes << MEASURED_SHIFT;
        if self.completion.result.is_ok() {
            slot[PEAK_WORD] = self.peak_bytes.unwrap_or(0);
        }
        let memory_bytes = self.memory_bytes.min((1 << OVERTAKEN_SHIFT) - 1);
        slot[MEMORY_WORD] = memory_bytes | u64::from(self.overtaken) << OVERTAKEN_SHIFT;
        slot
    }

    /// The report in a slot that a worker wrote. Every slot can be decoded, so the measurements may be wrong; a time of
    /// more than an hour reads as an hour.
    #[inline]
    pub fn decode(slot: &Slot) -> ReportWords {
        let mut slot = *slot;
        let (took_ns, held_bytes) = (slot[TOOK_WORD] >> MEASURED_SHIFT, slot[HELD_WORD] >> MEASURED_SHIFT);
        slot[TOOK_WORD] &= (1 << MEASURED_SHIFT) - 1;
        slot[HELD_WORD] &= (1 << MEASURED_SHIFT) - 1;
        let completion = Completion::decode(&slot);
        ReportWords {
            completion,
            took_ns: took_ns.min(TOOK_NS_MAX),
            held_bytes,
            peak_bytes: completion.result.is_ok().then_some(slot[PEAK_WORD]),
            memory_bytes: slot[MEMORY_WORD] & ((1 << OVERTAKEN_SHIFT) - 1),
            overtaken: (slot[MEMORY_WORD] >> OVERTAKEN_SHIFT) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::Op;
    use gt_ops::failure::Failure;

    const OWNER: SessionSlot = SessionSlot { session: 77, slot: 5 };

    #[test]
    fn headers_are_these_words() {
        let run =
            RunHeader { command_slots: 3, origin: 9, expected_ns: 1000, unreported_ns_max: 500_000, is_light: true };
        let loss = WorkerLoss { worker: WorkerName::new("cpu:0"), end: WorkerEnd::Signal(9) };
        let [first, both] = [1, 2].map(Workers::first_of);
        let limits = MemoryLimits { session_bytes: 1 << 30, user: 1000, user_bytes: 1 << 31 };
        let golden: [(StepKind, Slot); 13] = [
            (StepKind::Run(run), [1 | 3 << 32, 5, 77, 9, 1000, 500_000, 1, 0]),
            (StepKind::Open { loss: None }, [2, 5, 77, 0, 0, 0, 0, 0]),
            (StepKind::Open { loss: Some(loss) }, [2, 5, 77, 0, 0, 0x30_3a75_7063, 0, 1 | 9 << 8]),
            (StepKind::Close, [3, 5, 77, 0, 0, 0, 0, 0]),
            (StepKind::Trim, [4, 5, 77, 0, 0, 0, 0, 0]),
            (StepKind::Stop, [5, 5, 77, 0, 0, 0, 0, 0]),
            (StepKind::Message, [6, 5, 77, 0, 0, 0, 0, 0]),
            (StepKind::Join { workers: both }, [7, 5, 77, 0, 0, 3, 0, 0]),
            (StepKind::Leave { workers: both, gone: first }, [8, 5, 77, 1, 0, 3, 0, 0]),
            (StepKind::Limit(limits), [9, 5, 77, 0, 0, 1 << 30, 1000, 1 << 31]),
            (StepKind::Registered, [10, 5, 77, 0, 0, 0, 0, 0]),
            (StepKind::ResetPeak, [11, 5, 77, 0, 0, 0, 0, 0]),
            (StepKind::DropArena { number: 3 }, [12, 5, 77, 0, 0, 3, 0, 0]),
        ];
        for (kind, slot) in golden {
            let header = StepHeader { owner: OWNER, kind };
            assert_eq!(header.encode(), slot, "{kind:?}");
            assert_eq!(StepHeader::decode(&slot), Ok(header));
            assert_eq!(StepHeader::step_slots(&slot), if matches!(kind, StepKind::Run(_)) { 4 } else { 1 });
        }
    }

    #[test]
    fn a_slot_that_is_no_header_is_an_error() {
        for number in [0, 13, u32::MAX.into()] {
            assert_eq!(StepHeader::decode(&[number, 5, 77, 0, 0, 0, 0, 0]), Err(UnknownStep(number)));
        }
        assert_eq!(StepHeader::decode(&[3, 1 << 32, 77, 0, 0, 0, 0, 0]), Err(UnknownStep(3)));
    }

    #[test]
    fn reports_are_these_words() {
        let failure = Failure { fault: Fault::ZeroDivision, instruction: 9, op: Some(Op::Add) };
        let report = |result, peak_bytes| ReportWords {
            completion: Completion { token: 9, result },
            took_ns: 1500,
            held_bytes: 4096,
            peak_bytes,
            memory_bytes: 1 << 20,
            overtaken: 2,
        };
        let ok: Slot = [9, 1500 << 16, 0, 4096 << 16, 8192, 0, 0, 1 << 20 | 2 << 48];
        assert_eq!(report(Ok(()), Some(8192)).encode(), ok);
        assert_eq!(ReportWords::decode(&ok), report(Ok(()), Some(8192)));
        let failed: Slot = [9, 3 | 1500 << 16, 9, Op::Add as u64 | 4096 << 16, 0, 0, 0, 1 << 20 | 2 << 48];
        assert_eq!(report(Err(failure), None).encode(), failed);
        assert_eq!(ReportWords::decode(&failed), report(Err(failure), None));
    }

    #[test]
    fn no_step_took_longer_than_an_hour() {
        let report = ReportWords::decode(&[9, u64::MAX << 16, 0, 0, 0, 0, 0, 0]);
        assert_eq!((report.took_ns, report.completion.result), (TOOK_NS_MAX, Ok(())));
    }
}
