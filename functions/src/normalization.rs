//! Batch, layer, RMS, group, instance and local response normalization.

use crate::common::{along_axis, check_implemented, filled};
use crate::declaration::{TensorOrNumber, functions};
use crate::sliding_windows::padded;
use gt_ops::build::row_wise;
use gt_ops::build::window::{WindowParameters, pool};
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{Attrs, DType, Op};

/// `x * scale + shift`: one instruction where all three have one dtype.
fn scaled_and_shifted<'g>(x: Expr<'g>, scale: Expr<'g>, shift: Expr<'g>) -> Result<Expr<'g>> {
    let dtype = x.dtype()?;
    if scale.dtype()? != dtype || shift.dtype()? != dtype {
        return Ok(x * scale + shift);
    }
    Ok(x.builder().emit(Op::Addcmul, &[shift.into(), x.into(), scale.into()], Attrs::None))
}

/// The normalized input in the input's dtype, scaled and shifted by channel.
fn by_channel<'g>(
    input: Expr<'g>,
    normal: Expr<'g>,
    weight: Option<Expr<'g>>,
    bias: Option<Expr<'g>>,
) -> Result<Expr<'g>> {
    let shape = along_axis(input.rank()?, 1);
    let normal = normal.to(input.dtype()?);
    let [weight, bias] = [weight, bias].map(|parameter| parameter.map(|parameter| parameter.reshape(&shape)));
    match (weight, bias) {
        (Some(weight), Some(bias)) => scaled_and_shifted(normal, weight, bias),
        (Some(weight), None) => Ok(normal * weight),
        (None, Some(bias)) => Ok(normal + bias),
        (None, None) => Ok(normal),
    }
}

/// Checks that parameters and running statistics have one element for each channel.
fn check_channels<'g>(channels: i64, all: &[(&str, Option<Expr<'g>>)]) -> Result<()> {
    for (name, tensor) in all {
        let count = tensor.map_or(Ok(channels as usize), Expr::numel)?;
        if count as i64 != channels {
            return Err(OpError::runtime(format!("{name} should contain {channels} elements not {count}")));
        }
    }
    Ok(())
}

/// The axes of a tensor but for that of the channels.
fn axes_of_channels(rank: usize) -> Vec<i64> {
    (0..rank as i64).filter(|axis| *axis != 1).collect()
}

/// The gradients of a batch normalization's input, weight and bias (Ioffe and Szegedy 2015). The values are these, the
/// result, the means of the channels, and the reciprocals of their standard deviations; the gradients of the last two
/// come from second derivatives.
fn batch_norm_gradient<'g>(
    _: &'g Builder<'g>,
    values: &[Expr<'g>],
    grads: &[Option<Expr<'g>>],
) -> Result<Vec<Option<Expr<'g>>>> {
    let &[input, weight, _, _, mean, rate] = values else { return Ok(vec![None; 3]) };
    let &[grad, of_mean, of_rate] = grads else { return Ok(vec![None; 3]) };
    let sizes = input.sizes()?;
    let shape = along_axis(sizes.len(), 1);
    let axes = axes_of_channels(sizes.len());
    let count = (input.numel()? as i64 / sizes[1]) as f64;
    let centred = input - mean.reshape(&shape);
    let mut found = vec![None; 3];
    if let Some(grad) = grad {
        let total = grad.sum(&axes, false);
        let along = (grad * centred).sum(&axes, false);
        let back = grad - (total / count).reshape(&shape) - centred * (along * rate.square() / count).reshape(&shape);
        found = vec![Some(back * (rate * weight).reshape(&shape)), Some(along * rate), Some(total)];
    }
    let more = [
        of_mean.map(|of_mean| (of_mean / count).reshape(&shape).expand(&sizes)),
        of_rate.map(|of_rate| centred * (of_rate * rate * rate.square() / -count).reshape(&shape)),
    ];
    for part in more.into_iter().flatten() {
        found[0] = Some(found[0].map_or(part, |sum| sum + part));
    }
    Ok(found)
}

/// The running statistic after a batch.
fn moved<'g>(running: Expr<'g>, batch: Expr<'g>, momentum: Expr<'g>) -> Expr<'g> {
    running.detach() * (1.0 - momentum) + batch.detach() * momentum
}

/// Layer normalization as one instruction, or RMS normalization.
fn over_last_axes<'g>(
    g: &'g Builder<'g>,
    op: Op,
    input: Expr<'g>,
    normalized_shape: &[i64],
    weight: Option<Expr<'g>>,
    bias: Option<Expr<'g>>,
    eps: f64,
) -> Result<Expr<'g>> {
    if normalized_shape.is_empty() {
        return Err(OpError::runtime(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got \
             normalized_shape = []",
        ));
    }
    let fits = |dims: &[usize]| dims.iter().map(|size| *size as i64).eq(normalized_shape.iter().copied());
    for (name, parameter) in [("weight", weight), ("bias", bias)] {
        let Some(parameter) = parameter else { continue };
        let shape = parameter.shape()?;
        if !fits(shape.dims()) {
            return Err(OpError::runtime(format!(
                "Expected {name} to be of same shape as normalized_shape, but got {name} of shape {shape} and \
                 normalized_shape = {normalized_shape:?}"
            )));
        }
    }
    let (shape, axes) = (input.shape()?, normalized_shape.len());
    if shape.rank() < axes || !fits(&shape.dims()[shape.rank() - axes..]) {
        let sizes = normalized_shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        return Err(OpError::runtime(format!(
            "Given normalized_shape={normalized_shape:?}, expected input with shape [*, {sizes}], but got input of \
             size{shape}"
        )));
    }
    let kernel = if op == Op::LayerNorm { "LayerNormKernelImpl" } else { "RMSNormKernelImpl" };
    check_implemented(kernel, input, DType::is_float)?;
    let operands = match (weight, bias) {
        (Some(weight), Some(bias)) => &[input, weight, bias][..],
        (Some(parameter), None) | (None, Some(parameter)) => &[input, parameter],
        (None, None) => &[input],
    };
    Ok(g.on_all(operands, |g, v| {
        let mut rest = v[1..].iter().copied();
        let weight = weight.and_then(|_| rest.next());
        row_wise::norm(g, op, v[0], axes, weight, bias.and_then(|_| rest.next()), eps)
    }))
}

functions! {
    /// Layer normalization over the last axes: `(x - mean) / sqrt(var + eps) * weight + bias` (Ba et al. 2016).
    ///
    /// Args:
    ///     input: `(*, *normalized_shape)`.
    ///     normalized_shape: The sizes of the axes over which the mean and variance are taken.
    ///     weight: The scale, of shape `normalized_shape`.
    ///     bias: The shift, of shape `normalized_shape`.
    ///     eps: Added to the variance.
    ///
    /// Example:
    ///     >>> gt.nn.functional.layer_norm(gt.tensor([[1.0, 3.0]]), (2,))
    ///     tensor([[-1.0000,  1.0000]])
    [module("nn.functional")]
    fn layer_norm(g, input: Expr<'g>, normalized_shape: &'g [i64], weight: Option<Expr<'g>> = None,
        bias: Option<Expr<'g>> = None, eps: f64 = 1e-5) -> Result<Expr<'g>> {
        over_last_axes(g, Op::LayerNorm, input, normalized_shape, weight, bias, eps)
    }

    /// RMS normalization over the last axes: `x / sqrt(mean(x^2) + eps) * weight` (Zhang and Sennrich 2019).
    ///
    /// Args:
    ///     input: `(*, *normalized_shape)`.
    ///     normalized_shape: The sizes of the axes over which the mean is taken.
    ///     weight: The scale, of shape `normalized_shape`.
    ///     eps: Added to the mean square; by default the machine epsilon of float64 for float64, else that of float32.
    ///
    /// Example:
    ///     >>> gt.nn.functional.rms_norm(gt.tensor([[3.0, 3.0]]), (2,))
    ///     tensor([[1., 1.]])
    [module("nn.functional")]
    fn rms_norm(g, input: Expr<'g>, normalized_shape: &'g [i64], weight: Option<Expr<'g>> = None,
        eps: Option<f64> = None) -> Result<Expr<'g>> {
        let epsilon = if input.dtype()? == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        over_last_axes(g, Op::RmsNorm, input, normalized_shape, weight, None, eps.unwrap_or(epsilon))
    }

    /// Batch normalization of each channel: `(x - mean) / sqrt(var + eps) * weight + bias` (Ioffe and Szegedy 2015).
    ///
    /// Args:
    ///     input: `(N, C, *)`.
    ///     running_mean: The running mean, `(C)`. With `training` it is updated; otherwise the input is normalized by
    ///         it.
    ///     running_var: The running variance, `(C)`, likewise.
    ///     weight: The scale, `(C)`; 1 if not given.
    ///     bias: The shift, `(C)`; 0 if not given.
    ///     training: Whether to normalize by the mean and variance of the batch, over all axes but `C`, and to update
    ///         the running ones in place: `running = (1 - momentum) * running + momentum * batch`.
    ///     momentum: The weight of the batch in the running statistics.
    ///     eps: Added to the variance.
    ///
    /// Returns:
    ///     A tensor of the input's shape and dtype.
    ///
    /// Raises:
    ///     ValueError: `training` is true and there is only one value per channel, or it is false and the running
    ///         statistics are not given.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 4.0], [3.0, 8.0]])
    ///     >>> gt.nn.functional.batch_norm(x, None, None, training=True)
    ///     tensor([[-1.0000, -1.0000],
    ///             [ 1.0000,  1.0000]])
    [module("nn.functional").updates(&["running_mean", "running_var"])]
    fn batch_norm(g, input: Expr<'g>, running_mean: Option<Expr<'g>>, running_var: Option<Expr<'g>>,
        weight: Option<Expr<'g>> = None, bias: Option<Expr<'g>> = None, training: bool = false,
        momentum: TensorOrNumber<'g> = TensorOrNumber(g.number(0.1)), eps: f64 = 1e-5) -> Result<[Expr<'g>; 3]> {
        check_implemented("batch_norm", input, DType::is_float)?;
        let mut running = [running_mean.unwrap_or(input), running_var.unwrap_or(input)];
        if !training && (running_mean.is_none() || running_var.is_none()) {
            return Err(OpError::value("Expected running_mean and running_var to be defined when training=False"));
        }
        let (numel, channels) = (input.numel()? as i64, input.size(1)?);
        let statistics = [("running_mean", running_mean), ("running_var", running_var)];
        check_channels(channels, &[statistics, [("weight", weight), ("bias", bias)]].concat())?;
        if numel == 0 {
            // An empty batch has no statistics. The parameters take part in the result so that they get gradients of
            // zero.
            let scaled = weight.map_or(input + 0i64, |weight| input * weight.select(0, 0));
            return Ok([bias.map_or(scaled, |bias| scaled + bias.select(0, 0)), running[0], running[1]]);
        }
        let rank = input.rank()?;
        let shape = along_axis(rank, 1);
        let x = input.upcast();
        let wide = x.dtype()?;
        let weight = weight.map_or_else(|| filled(g, &[channels], 1.0, wide), |weight| weight.to(wide));
        let bias = bias.map_or_else(|| filled(g, &[channels], 0.0, wide), |bias| bias.to(wide));
        if !training {
            let scale = (running[1] + eps).rsqrt() * weight;
            let centred = x - running[0].reshape(&shape);
            let result = scaled_and_shifted(centred, scale.reshape(&shape), bias.reshape(&shape))?;
            return Ok([result.to(input.dtype()?), running[0], running[1]]);
        }
        let count = numel / channels;
        if count == 1 {
            return Err(OpError::value(format!(
                "Expected more than 1 value per channel when training, got input size gt.Size({})",
                input.shape()?
            )));
        }
        let axes = axes_of_channels(rank);
        let [own, scale, shift] = [x, weight, bias].map(Expr::detach);
        let mean = own.mean(&axes, false);
        let centred = own - mean.reshape(&shape);
        let variance = centred.square().mean(&axes, false);
        if let Some(running_mean) = running_mean {
            running[0] = moved(running_mean, mean, *momentum);
        }
        if let Some(running_var) = running_var {
            // The running variance is the unbiased one (Bessel's correction).
            running[1] = moved(running_var, variance * (count as f64 / (count - 1) as f64), *momentum);
        }
        let rate = (variance + eps).rsqrt();
        let result = scaled_and_shifted(centred, (rate * scale).reshape(&shape), shift.reshape(&shape))?;
        let results = [result, mean, rate];
        let name = "NativeBatchNormBackward0";
        let [result, _, _] = g.with_gradient(name, &[x, weight, bias], results, batch_norm_gradient)?;
        Ok([result.to(input.dtype()?), running[0], running[1]])
    }

    /// Group normalization (Wu and He 2018): `(x - mean) / sqrt(var + eps) * weight + bias`.
    ///
    /// The mean and the variance are taken over each group of channels of each sample.
    ///
    /// Args:
    ///     input: `(N, C, *)`.
    ///     num_groups: The number of groups. It has to divide `C`.
    ///     weight: The scale, `(C)`; 1 if not given.
    ///     bias: The shift, `(C)`; 0 if not given.
    ///     eps: Added to the variance.
    ///
    /// Returns:
    ///     A tensor of the input's shape.
    ///
    /// Example:
    ///     >>> gt.nn.functional.group_norm(gt.tensor([[1.0, 3.0, 2.0, 2.0]]), num_groups=2)
    ///     tensor([[-1.0000,  1.0000,  0.0000,  0.0000]])
    [module("nn.functional")]
    fn group_norm(g, input: Expr<'g>, num_groups: i64, weight: Option<Expr<'g>> = None, bias: Option<Expr<'g>> = None,
        eps: f64 = 1e-5) -> Result<Expr<'g>> {
        let sizes = input.sizes()?;
        let [samples, channels, spatial @ ..] = &sizes[..] else {
            return Err(OpError::runtime(format!(
                "Expected at least 2 dimensions for input tensor but received {}",
                sizes.len()
            )));
        };
        let size: i64 = spatial.iter().product();
        for (name, number) in [("number of channels", *channels), ("HxW", size)] {
            if number == 0 {
                return Err(OpError::runtime(format!("Expected {name} to be greater than 0, got 0")));
            }
        }
        if num_groups <= 0 || channels % num_groups != 0 {
            return Err(OpError::runtime(format!(
                "Expected number of channels in input to be divisible by num_groups, but got input of shape {sizes:?} \
                 and num_groups={num_groups}"
            )));
        }
        for (name, parameter) in [("weight", weight), ("bias", bias)] {
            let Some(parameter) = parameter else { continue };
            let found = parameter.sizes()?;
            if found != [*channels] {
                return Err(OpError::runtime(format!(
                    "Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of \
                     shape {found:?} and input of shape {sizes:?}"
                )));
            }
        }
        let elements = channels / num_groups * size;
        let rows = input.upcast().reshape(&[*samples, num_groups, elements]);
        let normal = over_last_axes(g, Op::LayerNorm, rows, &[elements], None, None, eps)?;
        by_channel(input, normal.reshape(&sizes), weight, bias)
    }

    /// Instance normalization (Ulyanov et al. 2016): `(x - mean) / sqrt(var + eps) * weight + bias`.
    ///
    /// The mean and the variance are taken over each channel of each sample.
    ///
    /// Args:
    ///     input: `(N, C, *)`.
    ///     running_mean: The running mean, `(C)`. With `use_input_stats` it is updated in place, by the mean over the
    ///         samples; otherwise the input is normalized by it.
    ///     running_var: The running variance, `(C)`, likewise.
    ///     weight: The scale, `(C)`; 1 if not given.
    ///     bias: The shift, `(C)`; 0 if not given.
    ///     use_input_stats: Whether to normalize by the input's statistics rather than by the running ones.
    ///     momentum: The weight of the input in the running statistics.
    ///     eps: Added to the variance.
    ///
    /// Returns:
    ///     A tensor of the input's shape.
    ///
    /// Raises:
    ///     ValueError: There is only one value per channel and sample.
    ///     RuntimeError: `use_input_stats` is false and the running statistics are not given.
    ///
    /// Example:
    ///     >>> gt.nn.functional.instance_norm(gt.tensor([[[1.0, 3.0], [2.0, 6.0]]]))
    ///     tensor([[[-1.0000,  1.0000],
    ///              [-1.0000,  1.0000]]])
    [module("nn.functional").updates(&["running_mean", "running_var"])]
    fn instance_norm(g, input: Expr<'g>, running_mean: Option<Expr<'g>> = None, running_var: Option<Expr<'g>> = None,
        weight: Option<Expr<'g>> = None, bias: Option<Expr<'g>> = None, use_input_stats: bool = true,
        momentum: TensorOrNumber<'g> = TensorOrNumber(g.number(0.1)), eps: f64 = 1e-5) -> Result<[Expr<'g>; 3]> {
        if !use_input_stats {
            if running_mean.is_none() || running_var.is_none() {
                return Err(OpError::runtime(
                    "Expected running_mean and running_var to be defined when use_input_stats is false",
                ));
            }
            return batch_norm(g, input, running_mean, running_var, weight, bias, false, momentum, eps);
        }
        let sizes = input.sizes()?;
        if sizes.iter().skip(2).product::<i64>() <= 1 {
            return Err(OpError::value(format!(
                "Expected more than 1 spatial element when training, got input size {sizes:?}"
            )));
        }
        check_channels(sizes[1], &[("running_mean", running_mean), ("running_var", running_var)])?;
        let rows = || input.detach().flatten(2, -1);
        let mean = running_mean.map(|running| moved(running, rows().mean(&[-1], false).mean(&[0], false), *momentum));
        let var =
            running_var.map(|running| moved(running, rows().var(&[-1], 1.0, false).mean(&[0], false), *momentum));
        let result = group_norm(g, input, input.size(1)?, weight, bias, eps)?;
        Ok([result, mean.unwrap_or(input), var.unwrap_or(input)])
    }

    /// Local response normalization over channels: `x / (k + alpha * mean(x^2))^beta` (Krizhevsky et al. 2012).
    ///
    /// Args:
    ///     input: `(N, C, *)`.
    ///     size: The number of neighbouring channels over which the mean is taken, the channel itself among them.
    ///         Channels beyond the first and the last count as zeros.
    ///     alpha: The factor of the mean.
    ///     beta: The exponent.
    ///     k: The additive constant.
    ///
    /// Returns:
    ///     A tensor of the input's shape.
    ///
    /// Example:
    ///     >>> gt.nn.functional.local_response_norm(gt.ones(1, 3, 1), size=3, alpha=3.0, beta=1.0).flatten()
    ///     tensor([0.3333, 0.2500, 0.3333])
    [module("nn.functional").wide()]
    fn local_response_norm(g, input: Expr<'g>, size: i64, alpha: f64 = 1e-4, beta: f64 = 0.75, k: f64 = 1.0)
        -> Result<Expr<'g>> {
        let rank = input.rank()?;
        if rank < 3 {
            return Err(OpError::value(format!(
                "Expected 3D or higher dimensionality input (got {rank} dimensions)"
            )));
        }
        check_implemented("avg_pool2d", input, |dtype| dtype.is_float() || dtype == DType::I64)?;
        if input.numel()? == 0 {
            return Ok(input);
        }
        let (low, high) = ([size / 2, 0], [(size - 1) / 2, 0]);
        let squares = input.square().unsqueeze(1).flatten(3, -1);
        let means = if input.dtype()?.is_int() {
            // The instruction sums windows of floats alone.
            let (wide, channels) = (padded(g, squares, &low, &high)?, input.size(1)?);
            let neighbour = |i| wide.narrow(2, i, channels);
            (1..size).fold(neighbour(0), |sum, i| sum + neighbour(i)).floor_divide(size)
        } else {
            let window = WindowParameters { stride: &[1, 1], low: &low, high: &high, dilation: &[1, 1], groups: 1 };
            g.on_all(&[squares], |g, v| pool(g, Op::SumPool, v[0], &[size, 1], &window)) / size
        };
        Ok(input / (means.with_shape(&input.shape()?) * alpha + k).pow(beta))
    }
}
