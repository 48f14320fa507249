//! A layer of a recurrent network over all steps of a sequence, with its gradient.

use crate::declaration::functions;
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{Attrs, DType, Op};

/// The gradients of the gates' input parts, the weight, and the initial states (backpropagation through time: Werbos
/// 1990). Only the product with the weight goes from step to step; the gradient of the weight is one product of all.
///
/// The values are these four inputs, then the hidden states, the cell states, and the sums of the gates. Gradients of
/// the last come from second derivatives.
fn lstm_gradient<'g>(
    g: &'g Builder<'g>,
    values: &[Expr<'g>],
    grads: &[Option<Expr<'g>>],
) -> Result<Vec<Option<Expr<'g>>>> {
    let (&[_, weight, hidden, cell, output, cells, sums], &[of_output, of_cells, of_sums]) = (values, grads) else {
        return Ok(vec![None; 4]);
    };
    let (steps, size) = (cells.size(0)?, cells.size(-1)?);
    let at = |x: Expr<'g>, step: i64| x.narrow(0, step, 1);
    let sum = |a: Option<Expr<'g>>, b: Option<Expr<'g>>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    let own = [weight.dtype()?, hidden.dtype()?, cell.dtype()?];
    // Under automatic mixed precision, the states after each step are those of the products.
    let dtype = cells.dtype()?;
    let weight = weight.to(dtype);
    let [hidden, cell] = [hidden, cell].map(|state| state.to(dtype).unsqueeze(0));
    let zeros = g.zeros(cell.meta()?);
    let (mut from_gates, mut from_cell) = (None, None);
    let mut all = Vec::new();
    for step in (0..steps).rev() {
        let of_hidden = sum(of_output.map(|grad| at(grad, step)), from_gates).unwrap_or(zeros);
        let of_cell = sum(of_cells.map(|grad| at(grad, step)), from_cell).unwrap_or(zeros);
        let before = if step == 0 { cell } else { at(cells, step - 1) };
        let operands = [of_hidden, of_cell, at(sums, step), before, at(cells, step)];
        let both = g.emit(Op::LstmCellBackward, &operands.map(Into::into), Attrs::None);
        let grad = both.narrow(-1, 0, 4 * size);
        let grad = of_sums.map_or(grad, |of_sums| grad + at(of_sums, step));
        from_gates = Some(grad.matmul(weight));
        from_cell = Some(both.narrow(-1, 4 * size, size));
        all.push(grad);
    }
    all.reverse();
    let all = g.cat(&all, 0);
    let before = g.cat(&[hidden, output.slice(0, None, Some(-1), None)], 0);
    let rows = |x: Expr<'g>, size: i64| x.reshape(&[-1, size]);
    let of_weight = rows(all, 4 * size).transposed().matmul(rows(before, size));
    let first = |grad: Option<Expr<'g>>, dtype: DType| grad.map(|grad| grad.select(0, 0).to(dtype));
    Ok(vec![Some(all), Some(of_weight.to(own[0])), first(from_gates, own[1]), first(from_cell, own[2])])
}

functions! {
    /// One layer of an LSTM in one direction, over all steps of a batch of sequences of one length (Hochreiter and
    /// Schmidhuber 1997).
    ///
    /// Args:
    ///     gates: The inputs' part of the gates with the biases: `(L, N, 4 H)`, as `W x_t + b` in `nn.LSTM`.
    ///     weight: The weight of the hidden state: `(4 H, H)`.
    ///     hidden: The first hidden state: `(N, H)`.
    ///     cell: The first cell state: `(N, H)`.
    ///
    /// Returns:
    ///     The hidden states and the cell states after each step: `(L, N, H)`.
    [module("_recurrent")]
    fn lstm_layer(g, gates: Expr<'g>, weight: Expr<'g>, hidden: Expr<'g>, cell: Expr<'g>)
        -> Result<[Expr<'g>; 2]> {
        let (sizes, size) = (gates.sizes()?, weight.size(-1)?);
        let fits = sizes.len() == 3
            && sizes[0] > 0
            && weight.sizes()? == [4 * size, size]
            && [hidden, cell].iter().all(|state| state.sizes().is_ok_and(|found| found == [sizes[1], size]))
            && sizes[2] == 4 * size;
        if !fits {
            return Err(OpError::runtime(format!(
                "lstm_layer(): expected gates (L, N, 4 H), weight (4 H, H) and states (N, H), but got {sizes:?}, {:?}, \
                 {:?} and {:?}",
                weight.sizes()?,
                hidden.sizes()?,
                cell.sizes()?
            )));
        }
        // Concatenation makes a copy whose rows lie one after the other: it is read at each step.
        let turned = weight.detach().transposed();
        let turned = g.cat(&[turned.slice(-1, None, Some(size), None), turned.slice(-1, Some(size), None, None)], -1);
        // Automatic mixed precision makes the states those of the products.
        let dtype = if g.autocast().is_some() { gates.dtype()? } else { g.common_dtype(&[gates, hidden, cell])? };
        let [x, h, c] = [gates, hidden, cell].map(|t| t.detach().to(dtype));
        let [mut h, mut c] = [h, c].map(|state| state.unsqueeze(0));
        let learns = [gates, weight, hidden, cell].iter().any(|input| input.requires_grad());
        // The sums of the gates are kept for the gradient alone.
        let kinds = if learns { 3 } else { 2 };
        let mut kept: [Vec<Expr<'g>>; 3] = Default::default();
        for step in 0..sizes[0] {
            let sums = (x.narrow(0, step, 1) + h.matmul(turned)).to(dtype);
            let states = g.emit(Op::LstmCell, &[sums.into(), c.into()], Attrs::None);
            (h, c) = (states.narrow(-1, 0, size), states.narrow(-1, size, size));
            kept[..kinds].iter_mut().zip([h, c, sums]).for_each(|(kept, now)| kept.push(now));
        }
        if !learns {
            return Ok([g.cat(&kept[0], 0), g.cat(&kept[1], 0)]);
        }
        let results = kept.each_ref().map(|kept| g.cat(kept, 0));
        let [output, cells, _] = g.with_gradient("LSTM", &[gates, weight, hidden, cell], results, lstm_gradient)?;
        Ok([output, cells])
    }

    /// One step of an LSTM for each row (Hochreiter and Schmidhuber 1997).
    ///
    /// Args:
    ///     gates: The sums of the input, forget, candidate and output gate: `(N, 4 H)`.
    ///     cell: The cell state: `(N, H)`.
    ///
    /// Returns:
    ///     The new hidden state and the new cell state: `(N, H)`.
    [module("_recurrent")]
    fn lstm_cell(g, gates: Expr<'g>, cell: Expr<'g>) -> Result<[Expr<'g>; 2]> {
        let (size, dtype) = (cell.size(-1)?, g.common_dtype(&[gates, cell])?);
        let [gates, cell] = [gates, cell].map(|t| t.to(dtype));
        let states = g.emit(Op::LstmCell, &[gates.into(), cell.into()], Attrs::None);
        Ok([states.narrow(-1, 0, size), states.narrow(-1, size, size)])
    }
}
