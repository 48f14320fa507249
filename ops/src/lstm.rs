//! Steps of a long short-term memory ([`Op::LstmCell`], Hochreiter and Schmidhuber 1997) and their gradients by other
//! instructions.

use crate::error::Result;
use crate::expr::{Builder, Expr};
use crate::graph::{Graph, Val};
use crate::infer::{InputMeta, infer};
use crate::instruction::Attrs;
use crate::op::Op;

/// The gates of a step, and the squashed cell state after it, `(…, n)`.
pub struct LstmGates<'g> {
    /// n.
    pub size: i64,
    /// How much of the candidate is added to the cell state.
    pub input: Expr<'g>,
    /// How much of the cell state is kept.
    pub forget: Expr<'g>,
    /// The new content of the cell state.
    pub candidate: Expr<'g>,
    /// How much of the squashed cell state is the hidden state.
    pub output: Expr<'g>,
    /// The hyperbolic tangent of the new cell state.
    pub squashed: Expr<'g>,
}

impl<'g> LstmGates<'g> {
    /// From the sums of the gates, `(…, 4 n)`, and the new cell state, `(…, n)`.
    pub fn new(sums: Expr<'g>, after: Expr<'g>) -> LstmGates<'g> {
        let size = after.size(-1).unwrap_or(0);
        let part = |index: i64| sums.narrow(-1, index * size, size);
        let [input, forget, output] = [0, 1, 3].map(|index| part(index).sigmoid());
        LstmGates { size, input, forget, candidate: part(2).tanh(), output, squashed: after.tanh() }
    }
}

/// `Op::LstmCell` by several instructions, for daemons that do not know it.
///
/// # Errors
/// Operands that do not fit each other.
pub fn lstm_cell_by_steps(g: &mut dyn Graph, gates: Val, cell: Val) -> Result<Val> {
    let inputs = [gates, cell].map(|v| InputMeta::Tensor(g.meta(v)));
    let out = infer(Op::LstmCell, &inputs, &Attrs::None)?;
    let builder = Builder::new(g);
    let [gates, cell] = [gates, cell].map(|v| builder.tensor(v).upcast());
    let size = cell.size(-1)?;
    let [input, forget, candidate, output] = [0, 1, 2, 3].map(|index| gates.narrow(-1, index * size, size));
    let after = forget.sigmoid() * cell + input.sigmoid() * candidate.tanh();
    let result = builder.cat(&[output.sigmoid() * after.tanh(), after], -1).to(out.dtype);
    builder.finish(result)
}

/// `Op::LstmCellBackward` by several instructions, for daemons that do not know it.
///
/// # Errors
/// Operands that do not fit each other.
pub fn lstm_cell_backward_by_steps(g: &mut dyn Graph, operands: [Val; 5]) -> Result<Val> {
    let inputs = operands.map(|v| InputMeta::Tensor(g.meta(v)));
    let out = infer(Op::LstmCellBackward, &inputs, &Attrs::None)?;
    let builder = Builder::new(g);
    let [of_hidden, of_cell, sums, before, after] = operands.map(|v| builder.tensor(v).upcast());
    let LstmGates { input, forget, candidate, output, squashed, .. } = LstmGates::new(sums, after);
    let of_cell = of_cell + of_hidden * output * (1.0 - squashed.square());
    let parts = [
        of_cell * candidate * input * (1.0 - input),
        of_cell * before * forget * (1.0 - forget),
        of_cell * input * (1.0 - candidate.square()),
        of_hidden * squashed * output * (1.0 - output),
        of_cell * forget,
    ];
    let result = builder.cat(&parts, -1).to(out.dtype);
    builder.finish(result)
}
