//! Indices that count from the end.

use crate::build::{elementwise, where_};
use crate::error::Result;
use crate::graph::{Arg, Graph, Val};
use crate::instruction::Scalar;
use crate::op::Op;

type G<'a> = &'a mut dyn Graph;

/// `index` with `size` added to the negative ones, for daemons whose gathers and scatters do not count these from the
/// end. Indices out of range stay as they are, so that the op that checks them reports the user's value.
///
/// # Errors
/// The errors of elementwise ops.
pub fn wrap_negative(g: G<'_>, index: Val, size: usize) -> Result<Val> {
    let size = size as i64;
    let number = |x: i64| Arg::Scalar(Scalar::Int(x));
    let behind = elementwise(g, Op::Lt, &[index.into(), number(0)])?;
    let inside = elementwise(g, Op::Ge, &[index.into(), number(-size)])?;
    let from_end = elementwise(g, Op::BitwiseAnd, &[behind.into(), inside.into()])?;
    let turned = elementwise(g, Op::Add, &[index.into(), number(size)])?;
    where_(g, from_end, turned.into(), index.into())
}
