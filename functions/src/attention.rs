//! Scaled dot-product attention.

use crate::declaration::functions;
use crate::dropout::dropout;
use gt_ops::DType;
use gt_ops::build::row_wise;
use gt_ops::error::{OpError, Result};
use gt_ops::expr::Expr;
use gt_ops::forms::{Autocast, module};

/// Repeats each head of `keys` for consecutive heads of `query`, as grouped-query attention needs it.
fn repeat_heads<'g>(query: Expr<'g>, keys: Expr<'g>) -> Result<Expr<'g>> {
    let (wanted, heads) = (query.size(-3)?, keys.size(-3)?);
    if heads == wanted {
        return Ok(keys);
    }
    if heads == 0 || wanted % heads != 0 {
        return Err(OpError::runtime(format!(
            "Number of heads in key and value must divide the number of heads in query when enable_gqa=True, but got \
             {heads} and {wanted}"
        )));
    }
    let mut sizes = keys.sizes()?;
    let at = sizes.len() - 3;
    sizes.insert(at + 1, wanted / heads);
    let spread = keys.unsqueeze(-3).expand(&sizes);
    sizes.remove(at + 1);
    sizes[at] = wanted;
    Ok(spread.reshape(&sizes))
}

functions! {
    /// Attention `softmax(query @ key.mT * scale + mask) @ value` (Vaswani et al. 2017).
    ///
    /// Without dropout it is one instruction, which does not store the matrix of scores.
    ///
    /// Args:
    ///     query: `(*, L, E)`: `L` queries of `E` features. `*` are batch axes, usually `(batch, heads)`.
    ///     key: `(*, S, E)`.
    ///     value: `(*, S, Ev)`.
    ///     attn_mask: A tensor that broadcasts to `(*, L, S)`: of bools, true where a query attends to a key, or
    ///         floating, to be added to the scores. A query that attends to no key gets zeros.
    ///     dropout_p: The probability of dropping an attention weight. A function knows of no training mode: pass 0 in
    ///         evaluation.
    ///     is_causal: Whether query `i` attends to keys `0` to `i` alone.
    ///     scale: The factor of the scores; `1 / sqrt(E)` if not given.
    ///     enable_gqa: Whether each head of `key` and `value` (axis -3) serves several heads of `query`: grouped-query
    ///         attention (Ainslie et al. 2023).
    ///
    /// Returns:
    ///     `(*, L, Ev)`.
    ///
    /// Raises:
    ///     RuntimeError: Both `attn_mask` and `is_causal` are given, or the numbers of heads do not divide.
    ///
    /// Example:
    ///     >>> q = k = v = gt.ones(2, 8, 5, 16)  # (batch, heads, length, features)
    ///     >>> gt.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).shape
    ///     gt.Size([2, 8, 5, 16])
    ///     >>> padding = gt.tensor([True, True, True, False, False])  # the last two keys are not attended to
    ///     >>> gt.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=padding).shape
    ///     gt.Size([2, 8, 5, 16])
    [module("nn.functional").autocast(Autocast::Low)]
    fn scaled_dot_product_attention(g, query: Expr<'g>, key: Expr<'g>, value: Expr<'g>,
        attn_mask: Option<Expr<'g>> = None, dropout_p: f64 = 0.0, is_causal: bool = false, scale: Option<f64> = None,
        enable_gqa: bool = false) -> Result<Expr<'g>> {
        if is_causal && attn_mask.is_some() {
            return Err(OpError::runtime("Explicit attn_mask should not be set when is_causal=True"));
        }
        let (key, value) = match enable_gqa {
            true => (repeat_heads(query, key)?, repeat_heads(query, value)?),
            false => (key, value),
        };
        if dropout_p == 0.0 {
            let mut operands = vec![query, key, value];
            operands.extend(attn_mask);
            return Ok(g.on_all(&operands, |g, v| {
                row_wise::attention(g, [v[0], v[1], v[2]], v.get(3).copied(), is_causal, scale)
            }));
        }
        // Dropout needs the attention weights themselves, which the fused instruction does not store.
        let scale = scale.unwrap_or(1.0 / (query.size(-1)? as f64).sqrt());
        let scores = query.matmul(key.transposed()) * scale;
        let weights = match attn_mask {
            None if is_causal => {
                let positions = |axis| Ok::<_, OpError>(g.arange(scores.size(axis)?, DType::I64));
                let seen = positions(-2)?.unsqueeze(1).ge(positions(-1)?);
                seen.where_(scores, f64::NEG_INFINITY).softmax(-1)
            }
            None => scores.softmax(-1),
            Some(mask) => {
                let scores = match mask.dtype()? {
                    DType::Bool => mask.where_(scores, f64::NEG_INFINITY),
                    _ => scores + mask.to(scores.dtype()?),
                };
                // A query that attends to no key gets zeros.
                let masked = scores.detach().eq(f64::NEG_INFINITY).all(&[-1], true);
                masked.where_(0.0, masked.where_(0.0, scores).softmax(-1))
            }
        };
        Ok(dropout(g, weights, dropout_p, true, false)?.matmul(value))
    }
}
