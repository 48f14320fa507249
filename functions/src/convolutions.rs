//! Convolutions and transposed convolutions over one, two or three axes.
//!
//! Inputs are `(N, C, *)` or, without a batch, `(C, *)`. Floating-point ones are one instruction; those of integers are
//! matrix products of the windows' elements.

use crate::declaration::functions;
use crate::sliding_windows::{SlidingWindows, batched, bounded_per_axis, last_axes, padded};
use gt_ops::build::window::{self, WindowParameters};
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{Autocast, module};
use gt_ops::{OpError, Val};

/// Weight and bias, checked to fit the input.
fn check_weight<'g>(name: &str, input: Expr<'g>, weight: Expr<'g>, bias: Option<Expr<'g>>, rank: usize) -> Result<()> {
    if weight.rank()? != rank + 2 {
        return Err(OpError::runtime(format!(
            "{name}: expected a weight of {} dimensions, but got {}",
            rank + 2,
            weight.shape()?
        )));
    }
    for (what, other) in [("weight", Some(weight)), ("bias", bias)] {
        let Some(other) = other else { continue };
        if other.dtype()? != input.dtype()? {
            return Err(OpError::runtime(format!(
                "Input type ({}) and {what} type ({}) should be the same",
                input.dtype()?.name(),
                other.dtype()?.name()
            )));
        }
    }
    Ok(())
}

/// Stride, padding before and after each axis, and dilation.
struct PaddedSides {
    stride: Vec<i64>,
    low: Vec<i64>,
    high: Vec<i64>,
    dilation: Vec<i64>,
    groups: i64,
}

impl PaddedSides {
    fn parameters(&self) -> WindowParameters<'_> {
        WindowParameters {
            stride: &self.stride,
            low: &self.low,
            high: &self.high,
            dilation: &self.dilation,
            groups: self.groups,
        }
    }
}

/// The padding of a convolution: numbers, or a rule.
enum Padding<'a> {
    Sizes(&'a [i64]),
    Rule(&'a str),
}

/// A convolution's arguments after the input.
struct ConvolutionArguments<'a, 'g> {
    weight: Expr<'g>,
    bias: Option<Expr<'g>>,
    stride: &'a [i64],
    padding: Padding<'a>,
    dilation: &'a [i64],
    groups: i64,
}

fn convolved<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    given: &ConvolutionArguments<'_, 'g>,
) -> Result<Expr<'g>> {
    let name = format!("conv{rank}d");
    let (weight, bias) = (given.weight, given.bias);
    check_weight(&name, input, weight, bias, rank)?;
    let (input, alone) = batched(&name, input, rank)?;
    let stride = bounded_per_axis("stride", given.stride, rank)?;
    let dilation = bounded_per_axis("dilation", given.dilation, rank)?;
    let (low, high) = match given.padding {
        Padding::Sizes(sizes) => {
            let sizes = bounded_per_axis("padding", sizes, rank)?;
            (sizes.clone(), sizes)
        }
        Padding::Rule("valid") => (vec![0; rank], vec![0; rank]),
        Padding::Rule("same") => {
            if stride.iter().any(|step| *step != 1) {
                return Err(OpError::runtime("padding='same' is not supported for strided convolutions"));
            }
            let kernel = &weight.sizes()?[2..];
            let total: Vec<i64> = dilation.iter().zip(kernel).map(|(d, k)| d * (k - 1)).collect();
            (total.iter().map(|t| t.div_euclid(2)).collect(), total.iter().map(|t| t - t.div_euclid(2)).collect())
        }
        Padding::Rule(other) => return Err(OpError::runtime(format!("Invalid padding string: '{other}'"))),
    };
    let sides = PaddedSides { stride, low, high, dilation, groups: given.groups };
    let result = if input.dtype()?.is_int() {
        convolved_integers(g, input, weight, bias, &sides)?
    } else {
        let tensors: Vec<_> = [input, weight].into_iter().chain(bias).collect();
        g.on_all(&tensors, |g, v: &[Val]| window::convolution(g, v[0], v[1], v.get(2).copied(), &sides.parameters()))
    };
    Ok(if alone { result.squeeze(&[0]) } else { result })
}

/// The arguments of a transposed convolution after the input.
struct TransposedConvolution<'a, 'g> {
    weight: Expr<'g>,
    bias: Option<Expr<'g>>,
    stride: &'a [i64],
    padding: &'a [i64],
    output_padding: &'a [i64],
    groups: i64,
    dilation: &'a [i64],
}

fn transposed<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    given: &TransposedConvolution<'_, 'g>,
) -> Result<Expr<'g>> {
    let name = format!("conv_transpose{rank}d");
    let weight = given.weight;
    check_weight(&name, input, weight, given.bias, rank)?;
    let (input, alone) = batched(&name, input, rank)?;
    let (from, kernel) = (input.sizes()?, weight.sizes()?);
    if from[1] != kernel[0] {
        return Err(OpError::runtime(format!(
            "Given transposed=1, weight of size {kernel:?}, expected input{from:?} to have {} channels, but got {} \
             channels instead",
            kernel[0], from[1]
        )));
    }
    let stride = bounded_per_axis("stride", given.stride, rank)?;
    let dilation = bounded_per_axis("dilation", given.dilation, rank)?;
    let low = bounded_per_axis("padding", given.padding, rank)?;
    let more = bounded_per_axis("output_padding", given.output_padding, rank)?;
    let (mut sizes, mut high, mut beyond) = (vec![], vec![], vec![]);
    for i in 0..rank {
        if more[i] < 0 || more[i] >= stride[i].max(dilation[i]) {
            return Err(OpError::runtime(format!(
                "output padding must be smaller than either stride or dilation, but got output_padding={}, \
                 stride={}, dilation={}",
                more[i], stride[i], dilation[i]
            )));
        }
        let reach = dilation[i] * (kernel[i + 2] - 1) + 1;
        // An output padding of at least one stride would make room for another window; the excess is zeros.
        let excess = if more[i] >= stride[i] { (more[i] - low[i]).max(0) } else { 0 };
        beyond.push(excess);
        sizes.push((from[i + 2] - 1) * stride[i] - 2 * low[i] + reach + more[i] - excess);
        high.push(if more[i] < stride[i] { low[i] } else { (low[i] - more[i]).max(0) });
    }
    if sizes.iter().any(|size| *size < 1) {
        return Err(OpError::runtime(format!(
            "Given input size per channel: {:?}. Calculated output size per channel: {sizes:?}. Output size is too small",
            &from[2..]
        )));
    }
    let sides = PaddedSides { stride, low, high, dilation, groups: given.groups };
    let result = if input.dtype()?.is_int() {
        spread_integers(g, input, weight, &sizes, &sides)?
    } else {
        g.on_all(&[input, weight], |g, v: &[Val]| {
            window::transposed_convolution(g, v[0], v[1], &sizes, &sides.parameters())
        })
    };
    let mut result = padded(g, result, &vec![0; rank], &beyond)?;
    if let Some(bias) = given.bias {
        result = result + per_channel(bias, rank);
    }
    Ok(if alone { result.squeeze(&[0]) } else { result })
}

/// A number for each channel, which broadcasts to `(N, C, *)`.
fn per_channel(bias: Expr<'_>, rank: usize) -> Expr<'_> {
    bias.reshape(&[&[-1], &vec![1; rank][..]].concat())
}

fn convolved_integers<'g>(
    g: &'g Builder<'g>,
    input: Expr<'g>,
    weight: Expr<'g>,
    bias: Option<Expr<'g>>,
    sides: &PaddedSides,
) -> Result<Expr<'g>> {
    let (from, shape, groups) = (input.sizes()?, weight.sizes()?, sides.groups);
    let (samples, channels, out, each, kernel) = (from[0], from[1], shape[0], shape[1], &shape[2..]);
    if groups < 1 {
        return Err(OpError::runtime("non-positive groups is not supported"));
    }
    if out % groups != 0 {
        return Err(OpError::runtime(format!(
            "Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size \
             {shape:?} instead"
        )));
    }
    if each.checked_mul(groups) != Some(channels) {
        return Err(OpError::runtime(format!(
            "Given groups={groups}, weight of size {shape:?}, expected input{from:?} to have {} channels, but got \
             {channels} channels instead",
            each.saturating_mul(groups)
        )));
    }
    let input = padded(g, input, &sides.low, &sides.high)?;
    let wide = input.sizes()?[2..].to_vec();
    let spans: Vec<i64> = (0..kernel.len()).map(|i| wide[i] - sides.dilation[i] * (kernel[i] - 1) - 1).collect();
    if sides.stride.iter().chain(&sides.dilation).chain(kernel).any(|size| *size < 1) || spans.iter().any(|n| *n < 0) {
        let by = |sizes: &[i64]| sizes.iter().map(i64::to_string).collect::<Vec<_>>().join(" x ");
        return Err(OpError::runtime(format!(
            "Calculated padded input size per channel: ({}). Kernel size: ({}). Kernel size can't be greater than actual \
             input size",
            by(&wide),
            by(kernel)
        )));
    }
    let counts: Vec<i64> = spans.iter().zip(&sides.stride).map(|(span, step)| span / step + 1).collect();
    let windows = SlidingWindows { kernel, dilation: &sides.dilation, stride: &sides.stride };
    let columns = windows.columns(g, input, &counts);
    let elements: i64 = shape[1..].iter().product();
    let rows = weight.reshape(&[groups, out / groups, elements]);
    let result = rows.matmul(columns.reshape(&[samples, groups, elements, counts.iter().product()]));
    let result = result.reshape(&[&[samples, out], &counts[..]].concat());
    Ok(match bias {
        Some(bias) => result + per_channel(bias, kernel.len()),
        None => result,
    })
}

/// The transpose of [`convolved_integers`] with respect to the input, whose spatial sizes are `sizes`.
fn spread_integers<'g>(
    g: &'g Builder<'g>,
    input: Expr<'g>,
    weight: Expr<'g>,
    sizes: &[i64],
    sides: &PaddedSides,
) -> Result<Expr<'g>> {
    let (from, shape, groups) = (input.sizes()?, weight.sizes()?, sides.groups);
    let (samples, channels, counts, kernel) = (from[0], from[1], &from[2..], &shape[2..]);
    if groups < 1 || channels % groups != 0 {
        return Err(OpError::runtime(format!(
            "Given groups={groups}, expected weight to be divisible by {groups} at dimension 0"
        )));
    }
    let rows = weight.reshape(&[groups, channels / groups, shape[1..].iter().product()]);
    let windows: i64 = counts.iter().product();
    let parts = rows.transposed().matmul(input.reshape(&[samples, groups, channels / groups, windows]));
    let elements: i64 = kernel.iter().product();
    let parts = parts.reshape(&[&[samples, groups * shape[1], elements], counts].concat());
    let wide: Vec<i64> = (0..sizes.len()).map(|i| sizes[i] + sides.low[i] + sides.high[i]).collect();
    let spread = SlidingWindows { kernel, dilation: &sides.dilation, stride: &sides.stride };
    let total = spread.sum_columns(g, parts, &wide)?;
    Ok(total.index(&last_axes(sides.low.iter().zip(sizes).map(|(low, size)| (*low, low + size, 1)))))
}

/// Declares the instructions, and the convolutions of each rank.
macro_rules! by_rank {
    ($($rank:literal $conv:ident $conv_with_rule:ident $transpose:ident;)*) => {
        functions! {
            /// Convolution of a batch, with separate padding before (`low`) and after (`high`) each axis.
            [module("_windows")]
            fn convolution(g, input: Expr<'g>, weight: Expr<'g>, bias: Option<Expr<'g>>, stride: &'g [i64],
                low: &'g [i64], high: &'g [i64], dilation: &'g [i64], groups: i64) -> Expr<'g> {
                let tensors: Vec<_> = [input, weight].into_iter().chain(bias).collect();
                let parameters = WindowParameters { stride, low, high, dilation, groups };
                g.on_all(&tensors, |g, v: &[Val]| {
                    window::convolution(g, v[0], v[1], v.get(2).copied(), &parameters)
                })
            }

            /// Transposed convolution: the gradient of `convolution` with respect to an input of spatial sizes `sizes`.
            [module("_windows")]
            fn convolution_input(g, input: Expr<'g>, weight: Expr<'g>, sizes: &'g [i64], stride: &'g [i64],
                low: &'g [i64], high: &'g [i64], dilation: &'g [i64], groups: i64) -> Expr<'g> {
                let parameters = WindowParameters { stride, low, high, dilation, groups };
                g.on_all(&[input, weight], |g, v: &[Val]| {
                    window::transposed_convolution(g, v[0], v[1], sizes, &parameters)
                })
            }
        $(
            /// Convolution (cross-correlation) over the axes after the channels, plus a bias.
            ///
            /// Args:
            ///     input: `(N, C, *)` or `(C, *)`.
            ///     weight: `(K, C / groups, *kernel_size)`.
            ///     bias: `(K)`.
            ///     stride: The step between windows, one number or one for each axis.
            ///     padding: The zeros added at both ends of each axis; `"valid"` for none, `"same"` to keep the sizes
            ///         (with stride 1).
            ///     dilation: The step between the elements of a window.
            ///     groups: The number of groups that channels are split into; each output channel sees its group's
            ///         inputs alone.
            ///
            /// Returns:
            ///     `(N, K, *)` or `(K, *)`, of sizes
            ///     `floor((size + 2 padding - dilation (kernel - 1) - 1) / stride + 1)`.
            ///
            /// Example:
            ///     >>> x, weight = gt.ones(1, 1, 4, 4), gt.ones(2, 1, 3, 3)
            ///     >>> gt.nn.functional.conv2d(x, weight)[0, 0]
            ///     tensor([[9., 9.],
            ///             [9., 9.]])
            [module("nn.functional").autocast(Autocast::Low)]
            fn $conv(g, input: Expr<'g>, weight: Expr<'g>, bias: Option<Expr<'g>> = None, stride: &'g [i64] = &[1],
                padding: &'g [i64] = &[0], dilation: &'g [i64] = &[1], groups: i64 = 1) -> Result<Expr<'g>> {
                let padding = Padding::Sizes(padding);
                convolved(g, $rank, input, &ConvolutionArguments { weight, bias, stride, padding, dilation, groups })
            }

            /// The convolution whose padding is `"valid"` or `"same"`.
            [module("nn.functional").named(stringify!($conv)).autocast(Autocast::Low)]
            fn $conv_with_rule(g, input: Expr<'g>, weight: Expr<'g>, bias: Option<Expr<'g>> = None,
                stride: &'g [i64] = &[1], padding: &'g str = "valid", dilation: &'g [i64] = &[1],
                groups: i64 = 1) -> Result<Expr<'g>> {
                let padding = Padding::Rule(padding);
                convolved(g, $rank, input, &ConvolutionArguments { weight, bias, stride, padding, dilation, groups })
            }

            /// Transposed convolution: the gradient of the convolution with respect to its input, plus a bias.
            ///
            /// Args:
            ///     input: `(N, C, *)` or `(C, *)`.
            ///     weight: `(C, K / groups, *kernel_size)`.
            ///     bias: `(K)`.
            ///     stride: The step between windows of the output, one number or one for each axis.
            ///     padding: How much is cut off at both ends of each axis of the output.
            ///     output_padding: How much is added to the end of each axis of the output.
            ///     groups: The number of groups that channels are split into.
            ///     dilation: The step between the elements of a window.
            ///
            /// Returns:
            ///     `(N, K, *)` or `(K, *)`, of sizes
            ///     `(size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1`.
            ///
            /// Example:
            ///     >>> x, weight = gt.ones(1, 1, 2, 2), gt.ones(1, 1, 2, 2)
            ///     >>> gt.nn.functional.conv_transpose2d(x, weight, stride=2).shape
            ///     gt.Size([1, 1, 4, 4])
            [module("nn.functional").autocast(Autocast::Low)]
            fn $transpose(g, input: Expr<'g>, weight: Expr<'g>, bias: Option<Expr<'g>> = None,
                stride: &'g [i64] = &[1], padding: &'g [i64] = &[0], output_padding: &'g [i64] = &[0],
                groups: i64 = 1, dilation: &'g [i64] = &[1]) -> Result<Expr<'g>> {
                let given = TransposedConvolution { weight, bias, stride, padding, output_padding, groups, dilation };
                transposed(g, $rank, input, &given)
            }
        )*}
    };
}

by_rank! {
    1 conv1d conv1d_with_rule conv_transpose1d;
    2 conv2d conv2d_with_rule conv_transpose2d;
    3 conv3d conv3d_with_rule conv_transpose3d;
}
