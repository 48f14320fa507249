//! A call of a collective, as a rank announces it to the others in one word.

use crate::operation::Operation;
use crate::reduce::Reduce;
use gt_ops::DType;
use std::fmt;

/// A call of a collective without its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub operation: Operation,
    pub dtype: DType,
    pub reduce: Option<Reduce>,
    pub root: usize,
    /// Whether the rank has wrong arguments and takes part only to tell the other ranks.
    pub refused: bool,
}

impl Call {
    pub fn new(operation: Operation, dtype: DType) -> Call {
        Call { operation, dtype, reduce: None, root: 0, refused: false }
    }

    /// The word that is announced, never 0.
    pub fn encode(&self) -> u64 {
        let reduce = self.reduce.map_or(0, |reduce| reduce as u64 + 1);
        let low = (self.operation as u64 + 1) | (self.dtype as u64) << 8 | reduce << 16 | u64::from(self.refused) << 24;
        low | (self.root as u64) << 32
    }

    pub fn decode(word: u64) -> Option<Call> {
        let byte = |index: u64| (word >> (8 * index)) as u8;
        Some(Call {
            operation: *Operation::ALL.get(byte(0).checked_sub(1)? as usize)?,
            dtype: DType::from_code(byte(1))?,
            reduce: match byte(2) {
                0 => None,
                code => Some(*Reduce::ALL.get(code as usize - 1)?),
            },
            root: (word >> 32) as usize,
            refused: byte(3) != 0,
        })
    }
}

/// For error messages: `all_reduce(sum) of float32`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation.name())?;
        match (self.operation, self.reduce) {
            (Operation::Barrier | Operation::Share, _) => return Ok(()),
            (Operation::Broadcast, _) => write!(f, "(root {})", self.root)?,
            (_, Some(reduce)) => write!(f, "({reduce})")?,
            _ => (),
        }
        write!(f, " of {}", self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_survives_its_word() {
        for operation in Operation::ALL {
            for dtype in DType::STORED {
                for reduce in Reduce::ALL.map(Some).into_iter().chain([None]) {
                    for root in [0, 63] {
                        for refused in [false, true] {
                            let call = Call { operation, dtype, reduce, root, refused };
                            assert_eq!(Call::decode(call.encode()), Some(call));
                        }
                    }
                }
            }
        }
        assert_eq!(Call::decode(0), None);
    }
}
