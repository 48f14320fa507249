//! Connectionist temporal classification (Graves et al. 2006), by the forward-backward algorithm.
//!
//! A target of L labels is extended by blanks before, between and after the labels: 2 L + 1 states. An alignment (path)
//! moves through the states, one time step each: it stays, advances by one state, or skips a blank between different
//! labels.

use crate::common::filled;
use crate::declaration::{TensorOrInts, functions};
use crate::losses::{reduced, reduction_at, reduction_named};
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, module};
use gt_ops::instruction::LossReduction;
use gt_ops::{Attrs, DType, Op};

/// The lengths of the samples' inputs or targets, checked.
fn lengths(name: &str, given: &TensorOrInts<'_>, samples: i64, most: Option<i64>) -> Result<Vec<i64>> {
    let lengths = match given {
        TensorOrInts::Ints(all) => all.to_vec(),
        TensorOrInts::Tensor(tensor) if tensor.dtype()?.is_float() => {
            return Err(OpError::runtime(format!("{name} must be integral")));
        }
        TensorOrInts::Tensor(tensor) => tensor.elements()?.into_iter().map(|length| length.to_i64()).collect(),
    };
    if lengths.len() as i64 != samples {
        return Err(OpError::runtime(format!("{name} must be of size batch_size")));
    }
    for &length in &lengths {
        let bound = match most {
            _ if length < 0 => "at least 0".to_owned(),
            Some(most) if length > most => format!("at most {most}"),
            _ => continue,
        };
        return Err(OpError::runtime(format!("Expected {name} to have value {bound}, but got value {length}")));
    }
    Ok(lengths)
}

/// Numbers made of each pair of a row and a column, as an int64 tensor.
fn table<'g>(g: &'g Builder<'g>, [rows, columns]: [i64; 2], number: impl Fn(i64, i64) -> i64) -> Expr<'g> {
    let number = &number;
    let all: Vec<i64> = (0..rows).flat_map(|row| (0..columns).map(move |column| number(row, column))).collect();
    g.ints(&all, &[rows, columns])
}

/// The targets as `(samples, longest)`, padded with blanks.
fn padded<'g>(g: &'g Builder<'g>, targets: Expr<'g>, lengths: &[i64], blank: i64) -> Result<Expr<'g>> {
    let samples = lengths.len() as i64;
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let wrong = |wanted: String, dim: usize, found: String| {
        Err(OpError::runtime(format!(
            "Expected tensor to have size {wanted} at dimension {dim}, but got size {found} for argument #2 'targets'"
        )))
    };
    let labels = match targets.sizes()?[..] {
        [rows, _] if rows != samples => return wrong(samples.to_string(), 0, rows.to_string()),
        [_, columns] if columns < longest => return wrong(format!("at least {longest}"), 1, columns.to_string()),
        [_, _] => targets.narrow(1, 0, longest),
        [count] if count == lengths.iter().sum::<i64>() && count == 0 => targets.reshape(&[samples, 0]),
        [count] if count == lengths.iter().sum::<i64>() => {
            let mut starts = vec![0];
            lengths.iter().for_each(|length| starts.push(starts[starts.len() - 1] + length));
            let at = |row: i64, column: i64| {
                if column < lengths[row as usize] { starts[row as usize] + column } else { 0 }
            };
            targets.gather(0, table(g, [samples, longest], at).reshape(&[-1])).reshape(&[samples, longest])
        }
        _ => return wrong(lengths.iter().sum::<i64>().to_string(), 0, targets.shape()?.to_string()),
    };
    let labels = labels.to(DType::I64);
    if lengths.iter().all(|length| *length == longest) {
        return Ok(labels);
    }
    let within = table(g, [samples, longest], |row, column| i64::from(column < lengths[row as usize])).ne(0i64);
    Ok(within.where_(labels, blank))
}

/// The loss of each sample. Its gradient is that of the logits whose `log_softmax` the input is.
fn losses_of<'g>(
    g: &'g Builder<'g>,
    log_probs: Expr<'g>,
    labels: Expr<'g>,
    steps: &[i64],
    lengths: &[i64],
    blank: i64,
    zero_infinity: bool,
) -> Result<Expr<'g>> {
    let (samples, time) = (steps.len() as i64, steps.iter().copied().max().unwrap_or(0));
    let all = log_probs.detach();
    let own = all.narrow(0, 0, time);
    let longest = labels.size(1)?;
    let count = 2 * longest + 1;
    let blanks = filled(g, &[samples, longest], blank, DType::I64);
    let last_blank = filled(g, &[samples, 1], blank, DType::I64);
    let extended = g.cat(&[g.stack(&[blanks, labels], 2).flatten(1, 2), last_blank], 1);
    let index = extended.expand(&[time, samples, count]);
    let emitted = own.gather(2, index);
    let sizes = g.ints(&steps.iter().zip(lengths).flat_map(|(a, b)| [*a, *b]).collect::<Vec<_>>(), &[samples, 2]);
    let operands = [emitted.into(), extended.into(), sizes.into()];
    let variables = g.emit(Op::CtcForward, &operands, Attrs::None);
    let losses = variables.select(1, 0);
    let impossible = losses.eq(f64::INFINITY);
    let result = if zero_infinity { impossible.where_(0.0, losses) } else { losses };
    if !log_probs.requires_grad() {
        return Ok(result);
    }

    let [emitted, extended, sizes] = operands;
    let posteriors = g.emit(Op::CtcPosteriors, &[emitted, extended, sizes, variables.into()], Attrs::None);
    let expected = g.zeros(own.meta()?).scatter(Op::ScatterAdd, 2, index, posteriors);
    let nothing = if zero_infinity { 0.0 } else { f64::NAN };
    let mut gradient = impossible.unsqueeze(1).where_(nothing, own.exp() - expected);
    if steps.iter().any(|n| *n < time) {
        let within = table(g, [time, samples], |t, n| i64::from(t < steps[n as usize])).ne(0i64).unsqueeze(2);
        gradient = within.where_(gradient, 0.0);
    }
    let rest = all.size(0)? - time;
    if rest > 0 {
        gradient = g.cat(&[gradient, g.zeros(all.narrow(0, time, rest).meta()?)], 0);
    }
    let [recorded] = g.with_gradient("CtcLoss", &[log_probs, gradient], [result], |_, values, grads| {
        Ok(vec![grads[0].map(|grad| values[1] * grad.unsqueeze(1)), None])
    })?;
    Ok(recorded)
}

functions! {
    /// Connectionist temporal classification: negative log-likelihood of label sequences, summed over their alignments.
    ///
    /// See Graves et al. 2006. As in PyTorch, the gradient is with respect to the logits whose `log_softmax` is
    /// `log_probs`. Waits for lengths that are tensors.
    ///
    /// Args:
    ///     log_probs: `(T, N, C)`, or `(T, C)` without a batch.
    ///     targets: The labels, `(N, S)`, or those of all samples one after the other.
    ///     input_lengths: The number of time steps of each sample, `(N)`.
    ///     target_lengths: The number of labels of each sample, `(N)`.
    ///     blank: The class index of the blank.
    ///     reduction: `"mean"` (each loss divided by the length of its target first), `"sum"` or `"none"`.
    ///     zero_infinity: Whether infinite losses, of inputs that are too short for their targets, count as 0.
    ///
    /// Example:
    ///     >>> log_probs = gt.zeros(3, 1, 2).log_softmax(2)
    ///     >>> gt.nn.functional.ctc_loss(log_probs, gt.tensor([[1]]), [3], [1])
    ///     tensor(0.2877)
    [module("nn.functional").wide()]
    fn ctc_loss(g, log_probs: Expr<'g>, targets: Expr<'g>, input_lengths: TensorOrInts<'g>,
        target_lengths: TensorOrInts<'g>, blank: i64 = 0, reduction: &'g str = "mean", zero_infinity: bool = false)
        -> Result<Expr<'g>> {
        let reduction = reduction_named(reduction)?;
        let rank = log_probs.rank()?;
        if !matches!(rank, 2 | 3) {
            return Err(OpError::runtime(format!(
                "Expected 3-dimensional tensor, but got {rank}-dimensional tensor for log_probs"
            )));
        }
        if log_probs.numel()? == 0 {
            return Err(OpError::runtime("log_probs tensor must not be empty"));
        }
        if !(0..log_probs.size(-1)?).contains(&blank) {
            return Err(OpError::runtime("blank must be in label range"));
        }
        let batch = if rank == 3 { log_probs } else { log_probs.unsqueeze(1) };
        let samples = batch.size(1)?;
        let steps = lengths("input_lengths", &input_lengths, samples, Some(batch.size(0)?))?;
        let lengths = lengths("target_lengths", &target_lengths, samples, None)?;
        let labels = padded(g, targets, &lengths, blank)?;
        let losses = losses_of(g, batch, labels, &steps, &lengths, blank, zero_infinity)?;
        if reduction == LossReduction::Mean {
            let sizes: Vec<f64> = lengths.iter().map(|length| (*length).max(1) as f64).collect();
            return Ok((losses / g.floats(&sizes, &[samples], losses.dtype()?)).mean(&[], false));
        }
        Ok(reduced(if rank == 3 { losses } else { losses.squeeze(&[0]) }, reduction))
    }

    /// Connectionist temporal classification loss: see `gt.nn.functional.ctc_loss`.
    [function().named("ctc_loss").wide()]
    fn aten_ctc_loss(g, log_probs: Expr<'g>, targets: Expr<'g>, input_lengths: TensorOrInts<'g>,
        target_lengths: TensorOrInts<'g>, blank: i64 = 0, reduction: i64 = 1, zero_infinity: bool = false)
        -> Result<Expr<'g>> {
        let reduction = reduction_at(reduction)?;
        ctc_loss(g, log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    }
}
