//! Gather and scatter along an axis.
//!
//! The device finds indices that are out of range; see `checks`. A scatter combines elements with the same destination
//! in index order where that is fast, which is where there are many lines along the axis, or short ones. Otherwise it
//! uses atomic operations in any order: results then differ only in the rounding of sums and products of floats.

use crate::backend::CudaBackend;
use crate::driver::{Args, Param};
use crate::error::{Result, failed};
use crate::launch::Walk;
use crate::strided::{unit_bytes, unit_name};
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::Loops;
use gt_ops::row::ROWS;
use gt_ops::{Class, DType, Meta, Op};

/// The number of lines that keeps a device busy, whatever their length.
const LINES_MIN: usize = 1 << 15;
/// Lines this short take no longer than atomic operations.
const LINE_LENGTH_MAX: usize = 16;

/// Copies units of a given number of bytes.
static GATHER: Template = Template {
    name: "gather",
    includes: &["index.cuh"],
    code: |key| {
        let (name, unit) = (key.name(), unit_name(key.variant));
        format!(
            "GT_KERNEL(256) {name}({unit}* out, const i64* index, const {unit}* from, i64 count, Lookup lookup, \
             i64 lanes, Found* found, Walk<2> walk) {{
    gather(out, index, from, count, lookup, lanes, found, walk);
}}"
        )
    },
    catalogue: || [1, 2, 4, 8, 16].map(gather_key).to_vec(),
};

/// One thread for each line along the axis, in index order.
static SCATTER_LINES: Template = Template {
    name: "scatter_lines",
    includes: &["index.cuh"],
    code: |key| {
        let (Some(op), Some(dtype)) = (key.op, key.dtypes[0]) else { return String::new() };
        let (name, t) = (key.name(), c_name(dtype));
        format!(
            "GT_KERNEL(256) {name}({t}* out, const i64* index, const {t}* from, i64 lines, i64 length, i64 index_step, \
             i64 from_step, i64 inner, Lookup lookup, Found* found, Walk<3> walk) {{
    scatter_lines<{}>(out, index, from, lines, length, index_step, from_step, inner, lookup, found, walk);
}}",
            join(op)
        )
    },
    catalogue: || scatter_keys(&SCATTER_LINES, |_| true),
};

/// One thread for each element, by atomic operations.
static SCATTER: Template = Template {
    name: "scatter",
    includes: &["index.cuh"],
    code: |key| {
        let (Some(op), Some(dtype)) = (key.op, key.dtypes[0]) else { return String::new() };
        let (name, t) = (key.name(), c_name(dtype));
        format!(
            "GT_KERNEL(256) {name}({t}* out, const i64* index, const {t}* from, i64 count, Lookup lookup, Found* found, \
             Walk<3> walk) {{
    scatter_at_once<{}>(out, index, from, count, lookup, found, walk);
}}",
            join(op)
        )
    },
    catalogue: || scatter_keys(&SCATTER, |op| op != Op::Scatter),
};

/// For a scatter that keeps the last element: marks which element that is for each destination.
static MARK_LAST: Template = Template {
    name: "mark_last",
    includes: &["index.cuh"],
    code: |key| {
        format!(
            "GT_KERNEL(256) {}(u32* last, const i64* index, i64 count, Lookup lookup, Found* found, Walk<3> walk) {{
    mark_last(last, index, count, lookup, found, walk);
}}",
            key.name()
        )
    },
    catalogue: || vec![KernelKey::new(&MARK_LAST, None, None, 0)],
};

/// Writes the marked elements, of a given number of bytes.
static PUT_LAST: Template = Template {
    name: "put_last",
    includes: &["index.cuh"],
    code: |key| {
        let (name, unit) = (key.name(), unit_name(key.variant));
        format!(
            "GT_KERNEL(256) {name}({unit}* out, const u32* last, const i64* index, const {unit}* from, i64 count, \
             Lookup lookup, Walk<3> walk) {{
    put_last(out, last, index, from, count, lookup, walk);
}}"
        )
    },
    catalogue: || [1, 2, 4, 8].map(|bytes| KernelKey::new(&PUT_LAST, None, None, bytes)).to_vec(),
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&GATHER, &SCATTER_LINES, &SCATTER, &MARK_LAST, &PUT_LAST];

fn gather_key(bytes: usize) -> KernelKey {
    KernelKey::new(&GATHER, None, None, bytes as u32)
}

/// A scatter that only copies depends only on the size of the dtype, so an integer dtype of each size stands for all
/// dtypes of that size.
fn scatter_key(template: &'static Template, op: Op, dtype: DType) -> KernelKey {
    let dtype = match (op, dtype.size()) {
        (Op::Scatter, 1) => DType::U8,
        (Op::Scatter, 2) => DType::I16,
        (Op::Scatter, 4) => DType::I32,
        (Op::Scatter, _) => DType::I64,
        _ => dtype,
    };
    KernelKey::new(template, Some(op), Some(dtype), 0)
}

fn scatter_keys(template: &'static Template, wanted: fn(Op) -> bool) -> Vec<KernelKey> {
    let own = |op: Op| op.without_wrapping().is_none() && wanted(op);
    let rows = ROWS.iter().filter(|row| row.class == Class::Scatter && own(row.op));
    let all = rows.flat_map(|row| row.accepts.iter().map(|dtype| (row.op, dtype)));
    let own = |(op, dtype): &(Op, DType)| scatter_key(template, *op, *dtype).dtypes[0] == Some(*dtype);
    all.filter(own).map(|(op, dtype)| scatter_key(template, op, dtype)).collect()
}

fn join(op: Op) -> &'static str {
    match op {
        Op::ScatterAdd => "SUM",
        Op::ScatterProd => "PRODUCT",
        Op::ScatterAmax => "LARGEST",
        Op::ScatterAmin => "SMALLEST",
        _ => "PUT",
    }
}

/// `struct Lookup` of `index.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Lookup {
    size: i64,
    step: i64,
    axis: i64,
    back: i64,
}

// SAFETY: all fields are 64-bit numbers, in the header's order: no padding.
unsafe impl Param for Lookup {}

impl Lookup {
    /// The lookup of `op` along an axis of `t`, in units of this many bytes.
    fn along(op: Op, t: &CudaTensor, axis: usize, unit: usize) -> Lookup {
        let (size, step) = (t.meta.shape.dims()[axis] as i64, t.strides[axis] as i64 / unit as i64);
        let back = if op.without_wrapping().is_some() { size } else { 0 };
        Lookup { size, step, axis: axis as i64, back }
    }
}

impl CudaBackend {
    /// The gather ops: elements of the first operand at the indices in the second.
    pub(crate) fn gather(
        &mut self,
        op: Op,
        [from, index]: [&CudaTensor; 2],
        axis: usize,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let mut result = self.new_tensor(out)?;
        let elements = out.shape.numel();
        if elements == 0 {
            return Ok(result);
        }
        let mut others = from.strides;
        others[axis] = 0;
        let loops = Loops::new(&out.shape, [&index.strides, &others]);
        let (size, last) = (from.size(), loops.sizes().len() - 1);
        // Where one index selects several neighbouring elements, they are copied as one unit.
        let mut unit = size;
        if loops.inner_strides() == [0, size as isize] {
            let steps = loops.strides()[..last].iter().map(|[_, stride]| *stride).chain([from.strides[axis]]);
            let places = [from.ptr(), result.ptr(), (loops.inner() * size) as u64];
            unit = unit_bytes(places.into_iter().chain(steps.map(|stride| stride as u64)));
        }
        let (lanes, lookup) = (unit / size, Lookup::along(op, from, axis, unit));
        let function = self.kernels.get(&gather_key(unit))?;
        let slot = self.check(op, &mut result)?;
        let count = elements / lanes;
        let mut args = Args::new();
        args.push(result.ptr()).push(index.ptr()).push(from.ptr()).push(count as i64);
        args.push(lookup).push(lanes as i64).push(slot.0);
        args.push(Walk::by(&loops, lanes, [index.size(), unit]));
        // SAFETY: the arguments match `gather`. The index has the result's shape, and `from` is at least as large along
        // the other axes; along this axis the kernel checks each index.
        unsafe { self.launch(function, self.grid_stride(count), &args) }?;
        Ok(result)
    }

    /// The scatter ops: a copy of the first operand, combined with elements of the third at indices of the second.
    pub(crate) fn scatter(
        &mut self,
        op: Op,
        operands: [&CudaTensor; 3],
        axis: usize,
        last_use: u8,
    ) -> Result<CudaTensor> {
        let [base, index, source] = operands;
        let mut out = self.private_copy(base, last_use & 1 == 1)?;
        let elements = index.numel();
        if elements == 0 {
            return Ok(out);
        }
        let slot = self.check(op, &mut out)?;
        let lookup = Lookup::along(op, &out, axis, source.size());
        let op = op.without_wrapping().unwrap_or(op);
        let shape = index.meta.shape;
        let (size, length) = (source.size(), shape.dims()[axis]);
        let mut others = out.strides;
        others[axis] = 0;
        let strides = [&index.strides, &source.strides, &others];
        let lines = elements / length;
        if lines >= LINES_MIN || length <= LINE_LENGTH_MAX || (op == Op::Scatter && elements >= u32::MAX as usize) {
            let loops = Loops::new(&shape.with_dim(axis, 1), strides);
            let inner: usize = shape.dims()[axis + 1..].iter().product();
            let function = self.kernels.get(&scatter_key(&SCATTER_LINES, op, out.meta.dtype))?;
            let mut args = Args::new();
            args.push(out.ptr()).push(index.ptr()).push(source.ptr()).push(lines as i64).push(length as i64);
            args.push(index.element_strides()[axis]).push(source.element_strides()[axis]).push(inner as i64);
            args.push(lookup).push(slot.0).push(Walk::new(&loops, [index.size(), size, size]));
            // SAFETY: the arguments match `scatter_lines`. The source, and the result along the other axes, are at
            // least as large as the index; along this axis the kernel checks each index; `private_copy` made the result
            // unshared.
            unsafe { self.launch(function, self.grid_stride(lines), &args) }?;
            return Ok(out);
        }
        let walk = Walk::new(&Loops::new(&shape, strides), [index.size(), size, size]);
        let grid = self.grid_stride(elements);
        if op == Op::Scatter {
            // Among elements with one destination, the last in index order stays.
            let last_bytes = out.numel() * size_of::<u32>();
            let last = self.memory.allocate(last_bytes)?;
            // SAFETY: the memory was just allocated for `last_bytes`.
            unsafe { self.driver.fill(last.ptr(), 0, last_bytes, self.stream) }.map_err(failed)?;
            let mark = self.kernels.get(&KernelKey::new(&MARK_LAST, None, None, 0))?;
            let mut args = Args::new();
            args.push(last.ptr()).push(index.ptr()).push(elements as i64).push(lookup).push(slot.0).push(walk);
            // SAFETY: the arguments match `mark_last`, which checks each index; `last` has a mark for each element of
            // the result.
            unsafe { self.launch(mark, grid, &args) }?;
            let put = self.kernels.get(&KernelKey::new(&PUT_LAST, None, None, size as u32))?;
            let mut args = Args::new();
            args.push(out.ptr()).push(last.ptr()).push(index.ptr()).push(source.ptr()).push(elements as i64);
            args.push(lookup).push(walk);
            // SAFETY: the arguments match `put_last`; its index is the one that `mark_last` checked.
            unsafe { self.launch(put, grid, &args) }?;
            return Ok(out);
        }
        let function = self.kernels.get(&scatter_key(&SCATTER, op, out.meta.dtype))?;
        let mut args = Args::new();
        args.push(out.ptr()).push(index.ptr()).push(source.ptr()).push(elements as i64);
        args.push(lookup).push(slot.0).push(walk);
        // SAFETY: the arguments match `scatter`, which checks each index; the source, and the result along the other
        // axes, are at least as large as the index.
        unsafe { self.launch(function, grid, &args) }?;
        Ok(out)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::backend::CudaBackend;
    use crate::checks::SLOTS;
    use crate::driver::emulated::{Emulated, Gxx, test_store};
    use gt_backend::{Backend, ExecError, HostRange, Input};
    use gt_ops::{Attrs, DType, Meta, Op, Scalar, Shape};
    use std::ptr::NonNull;
    use std::sync::Arc;

    const AXIS: Attrs = Attrs::Axis(0);

    fn backend() -> CudaBackend {
        backend_on(Arc::new(Emulated::new(64 << 20)))
    }

    pub(crate) fn backend_on(driver: Arc<Emulated>) -> CudaBackend {
        CudaBackend::new(driver, Box::new(Gxx::default()), test_store(), 32 << 20).unwrap()
    }

    fn meta(size: usize) -> Meta {
        Meta::new(Shape::new(&[size]).unwrap(), DType::I64)
    }

    pub(crate) fn upload(backend: &mut CudaBackend, values: &[i64]) -> crate::tensor::CudaTensor {
        let mut bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let mut tensor = backend.allocate(&meta(values.len())).unwrap();
        // SAFETY: `bytes` outlives the call, and nothing else uses it meanwhile.
        let range = unsafe { HostRange::new(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
        backend.write(&mut tensor, 0, range).unwrap();
        tensor
    }

    pub(crate) fn read(backend: &mut CudaBackend, tensor: &crate::tensor::CudaTensor) -> Result<Vec<i64>, ExecError> {
        let mut bytes = vec![0u8; tensor.meta.bytes()];
        // SAFETY: `bytes` outlives the call, and nothing else uses it meanwhile.
        let range = unsafe { HostRange::new(NonNull::from(&mut bytes[..]).cast(), bytes.len()) };
        backend.read(tensor, 0, range)?;
        Ok(bytes.chunks_exact(8).map(|x| i64::from_ne_bytes(x.try_into().unwrap())).collect())
    }

    fn gather(
        backend: &mut CudaBackend,
        from: &crate::tensor::CudaTensor,
        index: &crate::tensor::CudaTensor,
    ) -> crate::tensor::CudaTensor {
        let out = index.meta;
        backend.execute(Op::Gather, &[Input::Tensor(from), Input::Tensor(index)], &AXIS, &out, 0).unwrap()
    }

    pub(crate) fn add_one(backend: &mut CudaBackend, t: &crate::tensor::CudaTensor) -> crate::tensor::CudaTensor {
        let one = Input::Scalar(Scalar::Int(1));
        backend.execute(Op::Add, &[Input::Tensor(t), one], &Attrs::None, &t.meta, 0).unwrap()
    }

    fn found(label: u64, op: Op, index: i64, size: usize) -> ExecError {
        ExecError::Earlier { label, op: Some(op), error: Box::new(ExecError::IndexOutOfRange { index, axis: 0, size }) }
    }

    #[test]
    fn who_reads_what_depends_on_a_bad_index_is_told() {
        let mut backend = backend();
        let from = upload(&mut backend, &[10, 11, 12]);
        let good = upload(&mut backend, &[2, 0]);
        let bad = upload(&mut backend, &[1, 3, -7]);
        backend.label(41);
        let fine = gather(&mut backend, &from, &good);
        backend.label(42);
        let wrong = gather(&mut backend, &from, &bad);
        backend.label(43);
        let derived = add_one(&mut backend, &wrong);
        let other = add_one(&mut backend, &fine);
        // The first of several wrong indices is reported.
        assert_eq!(read(&mut backend, &wrong), Err(found(42, Op::Gather, 3, 3)));
        assert_eq!(read(&mut backend, &derived), Err(found(42, Op::Gather, 3, 3)));
        assert_eq!(read(&mut backend, &fine), Ok(vec![12, 10]));
        assert_eq!(read(&mut backend, &other), Ok(vec![13, 11]));
        // The error stays, also for tensors computed after it was found.
        assert_eq!(read(&mut backend, &wrong), Err(found(42, Op::Gather, 3, 3)));
        let later = add_one(&mut backend, &derived);
        assert_eq!(read(&mut backend, &later), Err(found(42, Op::Gather, 3, 3)));
    }

    #[test]
    fn scatters_tell_the_first_bad_index_and_put_the_others() {
        let mut backend = backend();
        let base = upload(&mut backend, &[0; 40]);
        // Long enough for atomic operations.
        let mut places: Vec<i64> = (0..40).collect();
        (places[17], places[30]) = (-1, 40);
        let index = upload(&mut backend, &places);
        let base_again = base.clone();
        for op in [Op::Scatter, Op::ScatterAdd, Op::ScatterAmax] {
            backend.label(op as u64);
            let operands = [&base, &index, &index].map(Input::Tensor);
            let put = backend.execute(op, &operands, &AXIS, &meta(40), 0).unwrap();
            assert_eq!(read(&mut backend, &put), Err(found(op as u64, op, -1, 40)));
        }
        assert_eq!(read(&mut backend, &base_again), Ok(vec![0; 40]));
    }

    #[test]
    fn checks_that_were_passed_are_forgotten() {
        let mut backend = backend();
        let mut x = upload(&mut backend, &[1, 2, 0]);
        let turn = upload(&mut backend, &[1, 2, 0]);
        let mut most = 0;
        for _ in 0..100_000 {
            x = gather(&mut backend, &x, &turn);
            most = most.max(x.checks.len());
        }
        assert!(most <= SLOTS && backend.board.open() <= 2 * SLOTS + 1, "{most} checks, {}", backend.board.open());
        assert_eq!(read(&mut backend, &x), Ok(vec![2, 0, 1]));
        let after = gather(&mut backend, &x, &turn);
        assert_eq!(after.checks.len(), 1);
    }
}
