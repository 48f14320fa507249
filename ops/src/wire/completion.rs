//! Completions: how commands with a token end.

use crate::failure::{Failure, Fault, MemoryScope, WorkerEnd, WorkerName};
use crate::op::Op;
use crate::packing::PackedLayout;
use crate::wire::layouts::{CompletionSlot, Slot, fault};

/// The end of a fetch, write or sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token of the command.
    pub token: u64,
    /// Success, or the failure of the command or of an instruction that it depends on.
    pub result: Result<(), Failure>,
}

impl Completion {
    /// Encodes the completion as a slot.
    pub fn encode(&self) -> Slot {
        let (fault, instruction, op, detail) = match &self.result {
            Ok(()) => (0, 0, 0, [0; 3]),
            Err(failure) => {
                let (code, detail) = encode_fault(&failure.fault);
                (code, failure.instruction, failure.op.map_or(0, |op| op as u16), detail)
            }
        };
        let mut slot = [0; 8];
        CompletionSlot { token: self.token, fault, instruction, op, detail }.write(&mut slot);
        slot
    }

    /// Decodes a slot. Codes of a newer daemon read as [`Fault::Internal`].
    pub fn decode(slot: &Slot) -> Completion {
        let Ok(CompletionSlot { token, fault, instruction, op, detail }) = CompletionSlot::read(slot) else {
            unreachable!("its fields take any bits");
        };
        let result = match fault {
            0 => Ok(()),
            code => Err(Failure { fault: decode_fault(code, detail), instruction, op: Op::from_wire(op) }),
        };
        Completion { token, result }
    }
}

fn encode_fault(fault: &Fault) -> (u64, [u64; 3]) {
    match *fault {
        Fault::OutOfMemory { requested, held, limit, scope } => {
            let code = match scope {
                MemoryScope::Worker => fault::WORKER_OUT_OF_MEMORY,
                MemoryScope::Session => fault::SESSION_OUT_OF_MEMORY,
                MemoryScope::User => fault::USER_OUT_OF_MEMORY,
            };
            (code, [requested, held, limit])
        }
        Fault::TooManyTensors { held, limit } => (fault::TOO_MANY_TENSORS, [held, limit, 0]),
        Fault::IndexOutOfRange { index, axis, size } => (fault::INDEX_OUT_OF_RANGE, [index as u64, axis, size]),
        Fault::ZeroDivision => (fault::ZERO_DIVISION, [0; 3]),
        Fault::WorkerLost { worker, end } => {
            let [low, high] = worker.words();
            (fault::WORKER_LOST, [low, high, end.word()])
        }
        Fault::Interrupted => (fault::INTERRUPTED, [0; 3]),
        Fault::TooLong { estimate_ms, limit_ms } => (fault::TOO_LONG, [estimate_ms, limit_ms, 0]),
        Fault::Internal => (fault::INTERNAL, [0; 3]),
    }
}

fn decode_fault(code: u64, [first, second, third]: [u64; 3]) -> Fault {
    let out_of_memory = |scope| Fault::OutOfMemory { requested: first, held: second, limit: third, scope };
    match code {
        fault::WORKER_OUT_OF_MEMORY => out_of_memory(MemoryScope::Worker),
        fault::SESSION_OUT_OF_MEMORY => out_of_memory(MemoryScope::Session),
        fault::USER_OUT_OF_MEMORY => out_of_memory(MemoryScope::User),
        fault::TOO_MANY_TENSORS => Fault::TooManyTensors { held: first, limit: second },
        fault::INDEX_OUT_OF_RANGE => Fault::IndexOutOfRange { index: first as i64, axis: second, size: third },
        fault::ZERO_DIVISION => Fault::ZeroDivision,
        fault::WORKER_LOST => {
            let worker = WorkerName::from_words([first, second]);
            Fault::WorkerLost { worker, end: WorkerEnd::from_word(third) }
        }
        fault::INTERRUPTED => Fault::Interrupted,
        fault::TOO_LONG => Fault::TooLong { estimate_ms: first, limit_ms: second },
        _ => Fault::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_survive_the_wire() {
        let failure = |fault| Err(Failure { fault, instruction: 12, op: Some(Op::Gather) });
        for result in [
            Ok(()),
            failure(Fault::OutOfMemory { requested: 1, held: 2, limit: 3, scope: MemoryScope::Worker }),
            failure(Fault::OutOfMemory { requested: 1, held: 2, limit: 3, scope: MemoryScope::Session }),
            failure(Fault::OutOfMemory { requested: 1, held: 2, limit: 3, scope: MemoryScope::User }),
            failure(Fault::TooManyTensors { held: 4, limit: 3 }),
            failure(Fault::IndexOutOfRange { index: -7, axis: 1, size: 3 }),
            failure(Fault::ZeroDivision),
            failure(Fault::WorkerLost { worker: WorkerName::new("cpu:3"), end: WorkerEnd::Signal(9) }),
            failure(Fault::Interrupted),
            failure(Fault::TooLong { estimate_ms: 3_600_000, limit_ms: 600_000 }),
            failure(Fault::Internal),
        ] {
            let completion = Completion { token: 4, result };
            assert_eq!(Completion::decode(&completion.encode()), completion);
        }
    }
}
