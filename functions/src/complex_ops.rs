//! Functions of complex numbers. Of real ones they are those of complex numbers whose imaginary part is 0.

use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{function, method};
use gt_ops::{DType, OpError};
use std::f64::consts::PI;

/// Checks that two tensors are the parts of complex numbers: of one dtype, float32 or float64.
fn check_parts(name: &str, first: Expr<'_>, second: Expr<'_>) -> Result<()> {
    let (a, b) = (first.dtype()?, second.dtype()?);
    if a == DType::F16 && b == DType::F16 {
        let text = "complex numbers of half precision are not supported: convert both parts to float32 first";
        return Err(OpError::not_implemented(text));
    }
    if !matches!(a, DType::F32 | DType::F64) || !matches!(b, DType::F32 | DType::F64) {
        return Err(OpError::not_implemented(format!(
            "Expected both inputs to be Half, Float or Double tensors but got {} and {}",
            a.scalar_type_name(),
            b.scalar_type_name()
        )));
    }
    if a != b {
        return Err(OpError::runtime(format!(
            "Expected object of scalar type {} but got scalar type {} for second argument of {name}",
            a.scalar_type_name(),
            b.scalar_type_name()
        )));
    }
    Ok(())
}

functions! {
    /// Complex numbers of their real and imaginary parts.
    ///
    /// Args:
    ///     real: The real parts, float32 or float64.
    ///     imag: The imaginary parts, of the same dtype.
    ///
    /// Returns:
    ///     A tensor of complex64 or complex128.
    ///
    /// Example:
    ///     >>> gt.complex(gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0]))
    ///     tensor([1.+3.j, 2.+4.j])
    [function().out()]
    fn complex(g, real: Expr<'g>, imag: Expr<'g>) -> Result<Expr<'g>> {
        check_parts("complex", real, imag)?;
        Ok(g.complex(real, imag))
    }

    /// Complex numbers of their absolute values and angles: abs * (cos(angle) + i sin(angle)).
    ///
    /// Example:
    ///     >>> gt.polar(gt.tensor([1.0, 2.0]), gt.tensor([0.0, 1.0]))
    ///     tensor([1.0000+0.0000j, 1.0806+1.6829j])
    [function().out()]
    fn polar(g, abs: Expr<'g>, angle: Expr<'g>) -> Result<Expr<'g>> {
        check_parts("polar", abs, angle)?;
        Ok(g.complex(abs * angle.cos(), abs * angle.sin()))
    }

    /// A view of the real and imaginary parts of complex numbers as a last axis of size 2.
    ///
    /// Example:
    ///     >>> gt.view_as_real(gt.tensor([1 + 2j, 3 - 1j]))
    ///     tensor([[ 1.,  2.],
    ///             [ 3., -1.]])
    [function().view()]
    fn view_as_real(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let dtype = input.dtype()?;
        if !dtype.is_complex() {
            return Err(OpError::runtime("view_as_real is only supported for complex tensors"));
        }
        Ok(input.reinterpret(dtype.storage()))
    }

    /// A view of pairs, a last axis of size 2, as complex numbers of a real and an imaginary part.
    ///
    /// Raises:
    ///     RuntimeError: The last axis has another size, or the parts of a number do not lie side by side.
    ///     NotImplementedError: The parts are neither float32 nor float64.
    ///
    /// Example:
    ///     >>> gt.view_as_complex(gt.tensor([[1.0, 2.0], [3.0, -1.0]]))
    ///     tensor([1.+2.j, 3.-1.j])
    [function().view()]
    fn view_as_complex(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let meta = input.meta()?;
        if meta.dtype.is_complex() {
            return Err(OpError::type_("view_as_complex is not supported for complex tensors"));
        }
        if meta.dtype == DType::F16 {
            return Err(OpError::not_implemented("view_as_complex: complex numbers have parts of float32 or float64"));
        }
        if !matches!(meta.dtype, DType::F32 | DType::F64) {
            return Err(OpError::not_implemented(format!(
                "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar \
                 type: {}",
                meta.dtype.scalar_type_name()
            )));
        }
        if meta.shape.rank() == 0 {
            return Err(OpError::runtime("Input tensor must have one or more dimensions"));
        }
        let complex = meta.reinterpreted(meta.dtype.to_complex())?;
        let strides = input.strides()?;
        let (last, outer) = (strides[meta.shape.rank() - 1], &strides[..meta.shape.rank() - 1]);
        if last != 1 {
            return Err(OpError::runtime("Tensor must have a last dimension with stride 1"));
        }
        if outer.iter().any(|stride| stride % 2 != 0) {
            return Err(OpError::runtime("Tensor must have a stride divisible by 2 for all but last dimension"));
        }
        if input.storage_offset()? % 2 != 0 {
            return Err(OpError::runtime("Tensor must have a storage_offset divisible by 2"));
        }
        Ok(input.reinterpret(complex.dtype))
    }

    /// The argument of each element as a complex number, from -pi to pi: 0 for positive and pi for negative numbers.
    ///
    /// Example:
    ///     >>> gt.angle(gt.tensor([-1.0, 0.0, 2.0]))
    ///     tensor([3.1416, 0.0000, 0.0000])
    ///     >>> gt.angle(gt.tensor([1 + 1j, -2j]))
    ///     tensor([ 0.7854, -1.5708])
    [method().out()]
    fn angle(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let x = input.to_float();
        if x.dtype()?.is_complex() {
            let angle = x.detach().imag().atan2(x.detach().real());
            let [angle] = g.with_gradient("AngleBackward0", &[x], [angle], |_, values, grads| {
                // The direction across z, divided by its length; 0 at 0.
                let (z, zero) = (values[0], values[0].eq(0.0));
                let across = z * gt_ops::Scalar::Complex(0.0, 1.0);
                let length = z.abs().square();
                Ok(vec![grads[0].map(|grad| zero.where_(0.0, across * (grad / zero.where_(1.0, length))))])
            })?;
            return Ok(angle);
        }
        Ok(x.isnan().where_(x, x.lt(0.0).where_(PI, x.sign() * 0.0)))
    }

    /// A view of the real parts; a real tensor itself.
    ///
    /// Example:
    ///     >>> gt.real(gt.tensor([1 + 2j, 3 - 1j]))
    ///     tensor([1., 3.])
    [function().view().or_itself()]
    fn real(g, input: Expr<'g>) -> Expr<'g> {
        input.real()
    }

    /// A view of the imaginary parts.
    ///
    /// Raises:
    ///     RuntimeError: The tensor is real.
    ///
    /// Example:
    ///     >>> gt.imag(gt.tensor([1 + 2j, 3 - 1j]))
    ///     tensor([ 2., -1.])
    [function().view()]
    fn imag(g, input: Expr<'g>) -> Result<Expr<'g>> {
        if !input.dtype()?.is_complex() {
            return Err(OpError::runtime("imag is not implemented for tensors with non-complex dtypes."));
        }
        Ok(input.imag())
    }

    /// The complex conjugate; a real tensor itself. It is computed at once: no conjugation is pending.
    ///
    /// Example:
    ///     >>> gt.conj(gt.tensor([1 + 2j]))
    ///     tensor([1.-2.j])
    [method()]
    fn conj(g, input: Expr<'g>) -> Expr<'g> {
        input.conj()
    }

    /// The complex conjugate; a real tensor itself.
    [method().in_place_function().out()]
    fn conj_physical(g, input: Expr<'g>) -> Expr<'g> {
        input.conj()
    }

    /// The tensor with its lazy conjugation done: itself, since conjugation is never lazy.
    [method()]
    fn resolve_conj(g, input: Expr<'g>) -> Expr<'g> {
        input
    }

    /// The tensor with its lazy negation done: itself, since negation is never lazy.
    [method()]
    fn resolve_neg(g, input: Expr<'g>) -> Expr<'g> {
        input
    }

    /// Whether the imaginary part of each element is 0; true of real numbers.
    ///
    /// Example:
    ///     >>> gt.isreal(gt.tensor([1 + 0j, 2j]))
    ///     tensor([ True, False])
    [method()]
    fn isreal(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let meta = input.meta()?;
        Ok(if meta.dtype.is_complex() { input.imag().eq(0.0) } else { g.full(&meta.shape, true, DType::Bool) })
    }

    /// The tensor itself, `+input`; an error for bools.
    [method()]
    fn positive(g, input: Expr<'g>) -> Result<Expr<'g>> {
        if input.dtype()? == DType::Bool {
            return Err(OpError::not_implemented("The `+` operator, on a bool tensor is not supported."));
        }
        Ok(input)
    }
}
