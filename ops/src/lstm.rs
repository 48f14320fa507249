//! Steps of a long short-term memory ([`Op::LstmCell`], Hochreiter and Schmidhuber 1997): their derivatives, and the
//! same by other instructions.

use crate::error::Result;
use crate::expr::{Builder, Expr};
use crate::graph::{Graph, Val};
use crate::infer::{InputMeta, infer};
use crate::instruction::Attrs;
use crate::op::Op;

/// The derivatives of a step of a long short-term memory, for any number of rows.
pub struct LstmSlopes<'g> {
    /// The new hidden state's with respect to the new cell state, `(…, n)`.
    pub hidden: Expr<'g>,
    /// The new cell state's with respect to the cell state, `(…, n)`.
    pub cell: Expr<'g>,
    /// With respect to the sums of the gates, `(…, 4 n)`: the new cell state's for the first three gates, the new
    /// hidden state's for the output gate.
    pub gates: Expr<'g>,
}

impl<'g> LstmSlopes<'g> {
    /// From the sums of the gates, `(…, 4 n)`, and the cell states before and after the step, `(…, n)`.
    pub fn new(gates: Expr<'g>, before: Expr<'g>, after: Expr<'g>, size: i64) -> LstmSlopes<'g> {
        let opened = gates.sigmoid();
        let part = |gates: Expr<'g>, index: i64| gates.narrow(-1, index * size, size);
        let [input, forget, output] = [0, 1, 3].map(|index| part(opened, index));
        let (candidate, squashed) = (part(gates, 2).tanh(), after.tanh());
        let of_sigmoid = |x: Expr<'g>| x * (1.0 - x);
        let of_tanh = |x: Expr<'g>| 1.0 - x.square();
        let parts = [
            candidate * of_sigmoid(input),
            before * of_sigmoid(forget),
            input * of_tanh(candidate),
            squashed * of_sigmoid(output),
        ];
        LstmSlopes { hidden: output * of_tanh(squashed), cell: forget, gates: gates.builder().cat(&parts, -1) }
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
