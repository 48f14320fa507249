//! Matrix products: by cuBLASLt if it is installed, else by GT's own kernel.
//!
//! The library takes matrices with contiguous rows or contiguous columns and any leading dimension, so views are
//! multiplied without a copy; only other layouts are copied first.

use crate::backend::CudaBackend;
use crate::blas::gemm::{Gemm, GemmMatrix, GemmPointers};
use crate::driver::{Args, Grid};
use crate::error::{Result, failed};
use crate::launch::Walk;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::{CudaTensor, alignment_bytes};
use gt_backend::{ExecError, Input, Loops};
use gt_ops::{DType, DTypeSet, Meta, Op, RANK_MAX, Shape};

/// Rows and columns of a block's tile of the result: `TILE` of `matmul.cuh`; and the threads of a block.
const TILE: usize = 64;
const THREADS: u32 = 256;
/// The library is called once for each index of the outer batch axes; with more indices, operands are copied so that
/// one call suffices.
const CALLS_MAX: usize = 8;
/// The most blocks along z.
const BLOCKS_Z_MAX: usize = 65535;

static MATMUL: Template = Template {
    name: "matmul",
    includes: &["matmul.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let result = key.dtypes[1].map_or(t, c_name);
        format!(
            "GT_KERNEL({THREADS}) {name}({result}* out, const {t}* a, const {t}* b, const {t}* bias, i64 m, i64 n, i64 k, \
             i64 a_row, i64 a_column, i64 b_row, i64 b_column, i64 batches, Walk<3> batch) {{
    matmul(out, a, b, bias, m, n, k, a_row, a_column, b_row, b_column, batches, batch);
}}"
        )
    },
    catalogue: || {
        let wide = DTypeSet::HALF.iter().map(|dtype| matmul_key(dtype, DType::F32));
        DTypeSet::NUMERIC.iter().map(|dtype| matmul_key(dtype, dtype)).chain(wide).collect()
    },
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&MATMUL];

fn matmul_key(dtype: DType, result: DType) -> KernelKey {
    let wide = (result != dtype).then_some(result);
    KernelKey { dtypes: [Some(dtype), wide, None], ..KernelKey::new(&MATMUL, None, None, 0) }
}

/// A product with its operands' layouts.
struct Product {
    out: CudaTensor,
    a: CudaTensor,
    b: CudaTensor,
    /// A contiguous vector that is added to each row of the result.
    bias: Option<CudaTensor>,
    m: usize,
    n: usize,
    k: usize,
    /// The batch axes: strides of the result, of a and of b, in bytes.
    batch: Loops<3>,
}

impl Product {
    fn new(out: CudaTensor, a: CudaTensor, b: CudaTensor) -> Result<Product> {
        let rank = out.meta.shape.rank();
        let (lead, tail) = out.meta.shape.dims().split_at(rank - 2);
        let (m, n, k) = (tail[0], tail[1], a.meta.shape.dims()[a.meta.shape.rank() - 1]);
        let shape = Shape::new(lead).map_err(|error| ExecError::internal(error.to_string()))?;
        let leading = |t: &CudaTensor| {
            let mut strides = [0; RANK_MAX];
            let own = t.meta.shape.rank() - 2;
            for axis in (0..own).filter(|axis| t.meta.shape.dims()[*axis] != 1) {
                strides[lead.len() - own + axis] = t.strides[axis];
            }
            strides
        };
        let strides = [leading(&out), leading(&a), leading(&b)];
        let batch = Loops::new(&shape, strides.each_ref());
        Ok(Product { out, a, b, bias: None, m, n, k, batch })
    }

    /// A batch of matrices times a single one as one tall matrix, if the rows are evenly spaced.
    fn flattened(mut self) -> Product {
        let [_, a_step, b_step] = self.batch.inner_strides();
        let batches = self.batch.inner();
        if batches > 1 && self.batch.sizes().len() == 1 && b_step == 0 && a_step == rows(&self.a) * self.m as isize {
            self.m *= batches;
            self.batch = Loops::line(1, 0);
        }
        self
    }
}

/// Bytes between the rows, and between the columns, of a tensor's matrices.
fn rows(t: &CudaTensor) -> isize {
    t.strides[t.meta.shape.rank() - 2]
}

fn columns(t: &CudaTensor) -> isize {
    t.strides[t.meta.shape.rank() - 1]
}

/// The library's view of matrices with this many rows and columns, `batch_step` bytes apart; none if their layout is
/// unsupported.
fn side(
    t: &CudaTensor,
    (row_count, column_count): (usize, usize),
    batch_step: isize,
    offset: isize,
) -> Option<GemmMatrix> {
    let size = t.size() as isize;
    // A single row or column has no stride, so any valid one serves.
    let row = if row_count == 1 { (columns(t) * column_count as isize).max(size) } else { rows(t) };
    let column = if column_count == 1 { (rows(t) * row_count as isize).max(size) } else { columns(t) };
    let (turned, step, least) = if column == size || column_count == 1 {
        (false, row, column_count)
    } else if row == size || row_count == 1 {
        (true, column, row_count)
    } else {
        return None;
    };
    let step = step / size;
    let address = t.ptr().wrapping_add_signed(offset as i64);
    (step >= least as isize && batch_step >= 0).then(|| GemmMatrix {
        turned,
        step: step as u64,
        batch_step: (batch_step / size) as u64,
        alignment: alignment_bytes(address),
    })
}

impl CudaBackend {
    pub(crate) fn matmul(&mut self, a: &CudaTensor, b: &CudaTensor, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if result.numel() == 0 {
            return Ok(result);
        }
        let product = Product::new(result.clone(), a.clone(), b.clone())?.flattened();
        if product.k == 0 {
            // SAFETY: the result was just allocated with `out.bytes()`.
            unsafe { self.driver.fill(result.ptr(), 0, out.bytes(), self.stream) }.map_err(failed)?;
        } else if !(out.dtype.is_float() && self.launches.has_blas() && self.by_library(product)?) {
            self.by_kernel(&Product::new(result.clone(), a.clone(), b.clone())?.flattened())?;
        }
        Ok(result)
    }

    /// Rows times a transposed matrix, plus a bias, which is added before the sums are rounded.
    pub(crate) fn affine(&mut self, [input, weight, bias]: [&CudaTensor; 3], out: &Meta) -> Result<CudaTensor> {
        let &[n, k] = weight.meta.shape.dims() else { return Err(ExecError::internal("a weight has two axes")) };
        if out.shape.numel() == 0 {
            return self.new_tensor(out);
        }
        if k == 0 {
            return self.laid_out(bias, *out);
        }
        let turned = Shape::new(&[k, n]).map_err(|error| ExecError::internal(error.to_string()))?;
        let mut strides = weight.strides;
        strides.swap(0, 1);
        let turned = weight.seen(weight.view(turned, weight.offset_bytes, strides));
        let bias = if bias.contiguous { bias.clone() } else { self.copied(bias)? };
        let result = self.new_tensor(out)?;
        let product = || -> Result<Product> {
            let product = Product::new(result.clone(), input.clone(), turned.clone())?;
            Ok(Product { bias: Some(bias.clone()), ..product }.flattened())
        };
        if !self.launches.has_blas() {
            self.by_kernel(&product()?)?;
            return Ok(result);
        }
        if self.by_library(product()?)? {
            return Ok(result);
        }
        // The library multiplies without adding this bias.
        let wide = Meta::new(out.shape, if out.dtype.is_half() { DType::F32 } else { out.dtype });
        let wide_bias = self.cast(&bias, &Meta::new(bias.meta.shape, wide.dtype), 0)?;
        let product = self.matmul(input, &turned, &wide)?;
        let sum = self.elementwise(Op::Add.row(), &[Input::Tensor(&product), Input::Tensor(&wide_bias)], &wide, 0)?;
        self.cast(&sum, out, 0)
    }

    /// Computes the product by the library; returns false if it is not supported.
    fn by_library(&mut self, mut product: Product) -> Result<bool> {
        // Operands in an unsupported layout are copied.
        let lies_well = |t: &CudaTensor, shape| side(t, shape, 0, 0).is_some();
        let (m, n, k) = (product.m, product.n, product.k);
        if !lies_well(&product.a, (m, k)) || !lies_well(&product.b, (k, n)) {
            let a = if lies_well(&product.a, (m, k)) { product.a } else { self.copied(&product.a)? };
            let b = if lies_well(&product.b, (k, n)) { product.b } else { self.copied(&product.b)? };
            product = Product { bias: product.bias, ..Product::new(product.out, a, b)? }.flattened();
        }
        let calls = |product: &Product| product.batch.numel() / product.batch.inner();
        let backwards = |product: &Product| product.batch.inner_strides().iter().any(|step| *step < 0);
        if product.bias.is_some() && product.batch.numel() > 1 {
            // The rows of a contiguous operand are those of one matrix.
            let a = self.copied(&product.a)?;
            product = Product { bias: product.bias, ..Product::new(product.out, a, product.b)? }.flattened();
        } else if calls(&product) > CALLS_MAX || backwards(&product) {
            let (a, b) = (self.spread(&product, &product.a)?, self.spread(&product, &product.b)?);
            product = Product::new(product.out, a, b)?.flattened();
        }
        for call in 0..calls(&product) {
            let first = call * product.batch.inner();
            let mut offsets = [0; 3];
            product.batch.for_runs(first, first + 1, |run| offsets = run.offsets);
            if !self.one_call(&product, offsets)? {
                // The kernel computes the whole product.
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn one_call(&mut self, product: &Product, offsets: [isize; 3]) -> Result<bool> {
        let &Product { m, n, k, batch, ref bias, .. } = product;
        let [out_step, a_step, b_step] = batch.inner_strides();
        let out = side(&product.out, (m, n), out_step, offsets[0]);
        let (a, b) = (side(&product.a, (m, k), a_step, offsets[1]), side(&product.b, (k, n), b_step, offsets[2]));
        let (Some(out), Some(a), Some(b)) = (out, a, b) else { return Ok(false) };
        let (dtype, out_dtype, tf32) = (product.a.meta.dtype, product.out.meta.dtype, self.tf32);
        let gemm = Gemm {
            dtype,
            out_dtype,
            tf32,
            m: m as u64,
            n: n as u64,
            k: k as u64,
            batches: batch.inner() as u64,
            out,
            a,
            b,
            bias: bias.as_ref().map(|bias| alignment_bytes(bias.ptr())),
        };
        let at = |t: &CudaTensor, offset: isize| t.ptr().wrapping_add_signed(offset as i64);
        let pointers = GemmPointers {
            out: at(&product.out, offsets[0]),
            a: at(&product.a, offsets[1]),
            b: at(&product.b, offsets[2]),
            bias: bias.as_ref().map_or(0, CudaTensor::ptr),
        };
        // SAFETY: `gemm` describes the layouts of these tensors, whose shapes inference checked; the result is new
        // memory.
        unsafe { self.launches.multiply(&gemm, pointers) }.map_err(failed)
    }

    /// A contiguous copy.
    fn copied(&mut self, t: &CudaTensor) -> Result<CudaTensor> {
        self.laid_out(t, t.meta)
    }

    /// An operand with all the batches of the result, copied if its own batches are not evenly spaced.
    fn spread(&mut self, product: &Product, t: &CudaTensor) -> Result<CudaTensor> {
        let lead = product.out.meta.shape.rank() - 2;
        let mut dims = [0; RANK_MAX];
        dims[..lead].copy_from_slice(&product.out.meta.shape.dims()[..lead]);
        dims[lead..lead + 2].copy_from_slice(&t.meta.shape.dims()[t.meta.shape.rank() - 2..]);
        let shape = |dims: &[usize]| Shape::new(dims).map_err(|error| ExecError::internal(error.to_string()));
        let strides = t.broadcast_strides(&shape(&dims[..lead + 2])?);
        let loops = Loops::new(&shape(&dims[..lead])?, [&strides]);
        if loops.sizes().len() == 1 && loops.inner_strides()[0] >= 0 {
            return Ok(t.clone());
        }
        self.laid_out(t, Meta::new(shape(&dims[..lead + 2])?, t.meta.dtype))
    }

    /// A copy of the tensor, broadcast to this shape.
    fn laid_out(&mut self, t: &CudaTensor, meta: Meta) -> Result<CudaTensor> {
        let out = self.new_tensor(&meta)?;
        let seen = t.seen(t.view(meta.shape, t.offset_bytes, t.broadcast_strides(&meta.shape)));
        self.copy(&out, &seen)?;
        Ok(out)
    }

    fn by_kernel(&mut self, product: &Product) -> Result<()> {
        let Product { out, a, b, bias, m, n, k, batch } = product;
        let function = self.kernels.get(&matmul_key(a.meta.dtype, out.meta.dtype))?;
        let (size, batches) = (a.size() as isize, batch.numel());
        let mut args = Args::new();
        args.push(out.ptr()).push(a.ptr()).push(b.ptr()).push(bias.as_ref().map_or(0, CudaTensor::ptr));
        args.push(*m as i64).push(*n as i64).push(*k as i64);
        for step in [rows(a), columns(a), rows(b), columns(b)] {
            args.push((step / size) as i64);
        }
        args.push(batches as i64).push(Walk::new(batch, [out, a, b].map(|t| t.size())));
        let tiles = m.div_ceil(TILE) * n.div_ceil(TILE);
        // A result with more tiles than a grid has blocks does not fit into any device's memory.
        let blocks = [tiles as u32, 1, batches.min(BLOCKS_Z_MAX) as u32];
        let grid = Grid { blocks, threads: THREADS, shared_bytes: 0 };
        // SAFETY: the arguments match `matmul`, with the layouts of the tensors.
        unsafe { self.launch(function, grid, &args) }
    }
}
