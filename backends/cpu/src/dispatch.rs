//! The implementation of [`Backend`]: each instruction goes to the method of its op's class.

use crate::backend::{CpuBackend, Inputs, Result, tensor};
use crate::elementwise::STREAM_BYTES_MIN;
use crate::strided::{SharedPtr, copy_bytes, copy_to_dense, in_chunks, stream_bytes};
use crate::tensor::CpuTensor;
use crate::tile::{TILE, Tile};
use gt_backend::{Backend, Cancellation, ExecError, HostRange, Input, Loops, MemoryStats, MemoryUsage, Stage};
use gt_ops::{Attrs, Class, DType, Meta, Op, Row};
use std::ptr::NonNull;
use std::sync::Arc;

impl Backend for CpuBackend {
    type Tensor = CpuTensor;

    #[inline]
    fn execute(
        &mut self,
        op: Op,
        inputs: &[Input<'_, CpuTensor>],
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<CpuTensor> {
        self.begin()?;
        let row = op.row();
        if row.class == Class::Elementwise {
            return self.elementwise(row, inputs, out, last_use);
        }
        self.execute_other(row, inputs, attrs, out, last_use)
    }

    fn execute_fused(&mut self, stages: &[Stage<'_, CpuTensor>]) -> Result<Vec<Option<CpuTensor>>> {
        self.begin()?;
        self.fused(stages)
    }

    fn allocate(&mut self, meta: &Meta) -> Result<CpuTensor> {
        self.step.advance();
        self.new_tensor(meta)
    }

    fn write(&mut self, tensor: &mut CpuTensor, offset_bytes: usize, src: HostRange) -> Result<()> {
        self.step.advance();
        self.pool.watch.ignore();
        if !tensor.contiguous || !tensor.buffer.is_unique() {
            return Err(ExecError::internal("write to a tensor that is shared"));
        }
        tensor.check_range(offset_bytes, src.len())?;
        let to = tensor.ptr().wrapping_add(offset_bytes);
        // SAFETY: `check_range` found the range within the tensor, whose handle is unique; `HostRange::new` requires
        // that `src` is readable for its length.
        unsafe {
            if tensor.meta.bytes() >= STREAM_BYTES_MIN {
                stream_bytes(&mut self.pool, to, src.as_ptr(), src.len())?;
            } else {
                copy_bytes(&mut self.pool, to, src.as_ptr(), src.len())?;
            }
        }
        if tensor.meta.dtype == DType::Bool {
            let to = SharedPtr::new(to);
            in_chunks(&mut self.pool, src.len(), 1, |first, last| {
                for i in first..last {
                    // SAFETY: `i` is within the bytes just written, and the tensor's handle is unique.
                    unsafe {
                        let byte = to.get().add(i);
                        byte.write((byte.read() != 0) as u8);
                    }
                }
            })?;
        }
        Ok(())
    }

    fn read(&mut self, tensor: &CpuTensor, offset_bytes: usize, dst: HostRange) -> Result<()> {
        self.pool.watch.ignore();
        tensor.check_range(offset_bytes, dst.len())?;
        if tensor.contiguous {
            // SAFETY: `check_range` found the range within the tensor; `HostRange::new` requires that `dst` is writable
            // for its length.
            return unsafe {
                copy_bytes(&mut self.pool, dst.as_ptr(), tensor.ptr().wrapping_add(offset_bytes), dst.len())
            };
        }
        let size = tensor.size();
        let loops = Loops::new(&tensor.meta.shape, [&tensor.strides]);
        let from = SharedPtr::new(tensor.ptr());
        let skipped = offset_bytes / size;
        in_chunks(&mut self.pool, dst.len() / size, size, |first, last| {
            let tile = Tile::new();
            let mut at = first;
            while at < last {
                let n = TILE.min(last - at);
                // SAFETY: `check_range` found all runs within the tensor, `n <= TILE`, and `dst` has room for
                // `dst.len()` bytes. It may be unaligned, so elements are gathered in the tile first.
                unsafe {
                    let tile = tile.start();
                    copy_to_dense(tile, &loops, 0, from.get(), (skipped + at, skipped + at + n), size);
                    dst.as_ptr().add(at * size).copy_from_nonoverlapping(tile, n * size);
                }
                at += n;
            }
        })
    }

    fn bytes_of(&self, tensor: &CpuTensor) -> Option<(NonNull<u8>, usize)> {
        // An empty tensor has no bytes, so any aligned address will do.
        let start = if tensor.numel() == 0 { Some(NonNull::dangling()) } else { NonNull::new(tensor.ptr()) };
        start.filter(|_| tensor.contiguous || tensor.numel() == 0).map(|start| (start, tensor.meta.bytes()))
    }

    fn is_writable(&self, tensor: &CpuTensor) -> bool {
        tensor.is_writable()
    }

    fn shares_memory(&self, one: &CpuTensor, other: &CpuTensor) -> bool {
        one.buffer.as_ptr() == other.buffer.as_ptr()
    }

    fn shares_tensors(&self) -> bool {
        true
    }

    fn copy(&mut self, tensor: &CpuTensor) -> Result<CpuTensor> {
        self.step.advance();
        self.pool.watch.ignore();
        self.private_copy(tensor, false)
    }

    fn meta(&self, tensor: &CpuTensor) -> Meta {
        tensor.meta
    }

    #[inline]
    fn cancelled_by(&mut self, cancellation: &Arc<Cancellation>, label: u64) {
        if !Arc::ptr_eq(&self.cancellation.0, cancellation) {
            self.cancellation.0 = cancellation.clone();
        }
        self.cancellation.1 = label;
    }

    fn companion(&self) -> Option<CpuBackend> {
        Some(self.on_the_same_memory())
    }

    #[inline]
    fn charge(&mut self, account: &Arc<MemoryUsage>) {
        self.allocator.charge(account);
    }

    fn held(&self, account: &MemoryUsage) -> usize {
        self.allocator.held(account)
    }

    fn memory(&self) -> MemoryStats {
        self.allocator.stats()
    }

    fn trim(&mut self) {
        self.allocator.trim();
    }
}

impl CpuBackend {
    fn execute_other(
        &mut self,
        row: &'static Row,
        inputs: Inputs<'_, '_>,
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<CpuTensor> {
        let op = row.op;
        let operand = |i: usize| inputs.get(i).map_or(Err(ExecError::internal("an operand is missing")), tensor);
        match (row.class, attrs) {
            (Class::Elementwise, _) => self.elementwise(row, inputs, out, last_use),
            (Class::Select, _) => self.select(inputs, out, last_use),
            (Class::Cast, _) => self.cast(operand(0)?, out, last_use),
            (Class::Reduction, Attrs::Axes { mask, .. } | Attrs::AxesInto { mask, .. }) => {
                self.reduce(op, operand(0)?, *mask, out)
            }
            (Class::ArgReduction, Attrs::Axes { mask, .. }) => self.arg_reduce(op, operand(0)?, *mask, out),
            (Class::Movement, _) => self.movement(op, operand(0)?, attrs, out),
            (Class::SliceScatter, Attrs::Slice(spec)) => {
                let source = inputs.get(1).ok_or_else(|| ExecError::internal("an operand is missing"))?;
                self.slice_scatter(operand(0)?, source, spec, last_use)
            }
            (Class::Concatenation, Attrs::Axis(axis)) => self.cat(inputs, *axis as usize, out),
            (Class::Contraction, _) if op == Op::Affine => self.affine([operand(0)?, operand(1)?, operand(2)?], out),
            (Class::Contraction, _) => self.matmul(operand(0)?, operand(1)?, out),
            (Class::Gather, Attrs::Axis(axis)) => self.gather(op, [operand(0)?, operand(1)?], *axis as usize, out),
            (Class::Scatter, Attrs::Axis(axis)) => {
                self.scatter(op, [operand(0)?, operand(1)?, operand(2)?], *axis as usize, last_use)
            }
            (Class::Scan, Attrs::Axis(axis)) => self.scan(op, operand(0)?, *axis as usize, out),
            (Class::Sort, Attrs::Axis(axis)) => self.sort(op, operand(0)?, *axis as usize, out),
            (Class::Search, _) => self.search(op, operand(0)?, operand(1)?, out),
            (Class::Positions, _) => self.positions(operand(0)?, out),
            (Class::Convolution, Attrs::Window(spec)) => {
                let bias = inputs.get(2).map(tensor).transpose()?;
                self.convolution(op, operand(0)?, operand(1)?, bias, spec, out)
            }
            (Class::Pooling, Attrs::Window(spec)) => {
                let other = if row.operands > 1 { Some(operand(1)?) } else { None };
                self.pooling(op, operand(0)?, other, spec, out)
            }
            (Class::Creation | Class::Random, _) => self.create(op, inputs, attrs, out),
            (Class::RowWise, _) => self.rows(row, inputs, attrs, out, last_use),
            _ => Err(ExecError::internal(format!("{} carries other attributes", row.name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::CpuOptions;
    use crate::kernels::SimdLevel;
    use gt_ops::Shape;
    use gt_ops::infer::{InputMeta, infer};
    use gt_ops::philox;
    use gt_ops::row::ROWS;
    use std::ptr::NonNull;

    /// A tensor of random bits.
    fn noise(backend: &mut CpuBackend, dtype: DType, elements: usize, seed: u64) -> CpuTensor {
        let meta = Meta::new(Shape::new(&[elements]).unwrap(), dtype);
        let mut bytes: Vec<u8> =
            (0..).flat_map(|i| philox::block(seed, 0, i)).flat_map(u32::to_le_bytes).take(meta.bytes()).collect();
        let mut tensor = backend.allocate(&meta).unwrap();
        // SAFETY: the bytes live until the write is done, and nobody else refers to them meanwhile.
        let range = unsafe { HostRange::new(NonNull::from(bytes.as_mut_slice()).cast(), bytes.len()) };
        backend.write(&mut tensor, 0, range).unwrap();
        tensor
    }

    /// The bits of a tensor's elements, with all NaNs mapped to the same bits.
    fn bits(backend: &mut CpuBackend, tensor: &CpuTensor) -> Vec<u8> {
        let mut bytes = vec![0u8; tensor.meta.bytes()];
        // SAFETY: the bytes live until the read is done, and nothing else refers to them meanwhile.
        let range = unsafe { HostRange::new(NonNull::from(bytes.as_mut_slice()).cast(), bytes.len()) };
        backend.read(tensor, 0, range).unwrap();
        let (size, (infinity, all)) = match tensor.meta.dtype {
            DType::F16 => (2, (0x7c00, 0x7fff)),
            DType::BF16 => (2, (0x7f80, 0x7fff)),
            DType::F32 => (4, (0x7f80_0000, 0x7fff_ffff)),
            DType::F64 => (8, (0x7ff0_0000_0000_0000, 0x7fff_ffff_ffff_ffffu64)),
            _ => return bytes,
        };
        for element in bytes.chunks_exact_mut(size) {
            let magnitude = element.iter().rev().fold(0u64, |bits, byte| bits << 8 | *byte as u64) & all;
            if magnitude > infinity {
                element.fill(0xff);
            }
        }
        bytes
    }

    #[test]
    fn a_tensor_is_an_operand_of_other_backends_and_counts_where_it_was_made() {
        let options = || CpuOptions { threads: 1, memory_bytes_limit: 1 << 20, shared: None };
        let (mut one, mut two) = (CpuBackend::new(options()), CpuBackend::new(options()));
        assert!(one.shares_tensors() && two.shares_tensors());
        let usage = Arc::new(MemoryUsage::new(7));
        one.charge(&usage);
        let made = noise(&mut one, DType::I32, 1000, 1);
        let (held, before) = (one.memory().used_bytes, bits(&mut one, &made));
        assert_eq!((usage.held(), two.memory().used_bytes), (held, 0));
        std::thread::scope(|scope| {
            let (shared, meta) = (made.clone(), made.meta);
            let there = scope.spawn(move || {
                // The other handle keeps the result from taking the operand's memory.
                let double = two.execute(Op::Neg, &[Input::Tensor(&shared)], &Attrs::None, &meta, 1).unwrap();
                assert_eq!((two.shares_memory(&double, &shared), two.memory().used_bytes), (false, held));
                (two, shared)
            });
            let (mut two, shared) = there.join().unwrap();
            assert_eq!(bits(&mut one, &made), before);
            // The other handle keeps the tensor, even when the backend that made it is gone.
            drop((made, one));
            assert_eq!((bits(&mut two, &shared), usage.held()), (before, held));
            let last = two.execute(Op::Neg, &[Input::Tensor(&shared)], &Attrs::None, &meta, 1).unwrap();
            assert!(two.shares_memory(&last, &shared), "the last handle is written in place");
            drop((last, shared));
            assert_eq!(usage.held(), 0);
        });
    }

    #[test]
    fn all_levels_compute_the_same_bits() {
        let options = CpuOptions { threads: 1, memory_bytes_limit: 64 << 20, ..CpuOptions::default() };
        let mut backends: Vec<CpuBackend> =
            SimdLevel::available().into_iter().map(|level| CpuBackend::at_level(options.clone(), level)).collect();
        let elements = if cfg!(miri) { 20 } else { 1111 };
        for row in ROWS {
            for dtype in row.accepts.iter() {
                let attrs = match row.class {
                    Class::Elementwise => Attrs::None,
                    Class::Reduction | Class::ArgReduction => Attrs::Axes { mask: 1, keepdim: false },
                    Class::Random => {
                        Attrs::Random { shape: Shape::new(&[elements]).unwrap(), dtype, seed: 3, stream: 4, first: 0 }
                    }
                    _ => continue,
                };
                let results: Vec<Vec<u8>> = backends
                    .iter_mut()
                    .map(|backend| {
                        let operands = if row.class == Class::Random { 0 } else { row.operands as u64 };
                        let mut tensors: Vec<CpuTensor> =
                            (0..operands).map(|i| noise(backend, dtype, elements, i)).collect();
                        if row.divisor_nonzero && !dtype.is_float() {
                            // A divisor must not be 0.
                            tensors[1] = run(backend, Op::BitwiseOr, &tensors[1..], Some(1), &Attrs::None);
                        }
                        let limit = (row.op == Op::Randint).then_some(7);
                        let result = run(backend, row.op, &tensors, limit, &attrs);
                        bits(backend, &result)
                    })
                    .collect();
                assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{} of {dtype}", row.name);
            }
        }
    }

    /// A tensor of normally distributed numbers.
    fn normal(backend: &mut CpuBackend, dtype: DType, dims: &[usize], seed: u64) -> CpuTensor {
        let shape = Shape::new(dims).unwrap();
        run(backend, Op::Randn, &[], None, &Attrs::Random { shape, dtype, seed, stream: 1, first: 0 })
    }

    #[test]
    fn all_levels_compute_the_same_bits_of_rows() {
        let options = CpuOptions { threads: 1, memory_bytes_limit: 64 << 20, ..CpuOptions::default() };
        let mut backends: Vec<CpuBackend> =
            SimdLevel::available().into_iter().map(|level| CpuBackend::at_level(options.clone(), level)).collect();
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            for columns in if cfg!(miri) { vec![3, 70] } else { vec![3, 64, 100, 1111, 9000] } {
                let results: Vec<Vec<Vec<u8>>> = backends
                    .iter_mut()
                    .map(|backend| {
                        let [x, g] = [1, 2].map(|seed| normal(backend, dtype, &[7, columns], seed));
                        let [w, c] = [3, 4].map(|seed| normal(backend, dtype, &[columns], seed));
                        let results = [
                            run(backend, Op::Softmax, std::slice::from_ref(&x), None, &Attrs::None),
                            run(backend, Op::LogSoftmax, std::slice::from_ref(&x), None, &Attrs::None),
                            run(backend, Op::SoftmaxBackward, &[g.clone(), x.clone()], None, &Attrs::None),
                            run(backend, Op::LogSoftmaxBackward, &[g.clone(), x.clone()], None, &Attrs::None),
                            run(backend, Op::LayerNorm, &[x.clone(), w.clone(), c], Some(1), &Attrs::None),
                            run(
                                backend,
                                Op::LayerNormBackward,
                                &[g.clone(), x.clone(), w.clone()],
                                Some(1),
                                &Attrs::None,
                            ),
                            run(backend, Op::LayerNormWeightBackward, &[g.clone(), x.clone()], Some(1), &Attrs::None),
                            run(backend, Op::RmsNorm, &[x.clone(), w.clone()], Some(1), &Attrs::None),
                            run(backend, Op::RmsNormBackward, &[g.clone(), x.clone(), w], Some(1), &Attrs::None),
                            run(backend, Op::RmsNormWeightBackward, &[g, x], Some(1), &Attrs::None),
                        ];
                        results.iter().map(|result| bits(backend, result)).collect()
                    })
                    .collect();
                assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{columns} columns of {dtype}");
            }
        }
    }

    #[test]
    fn moments_are_reused_by_the_next_gradient_only() {
        let mut backend = CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::default() });
        let b = &mut backend;
        let dims = [40, 100];
        let [g, other] = [1, 2].map(|seed| normal(b, DType::F32, &dims, seed));
        let w = normal(b, DType::F32, &dims[1..], 3);
        let alone = run(b, Op::LayerNormWeightBackward, &[g.clone(), other.clone()], Some(1), &Attrs::None);
        let alone = bits(b, &alone);
        run(b, Op::LayerNormBackward, &[g.clone(), other.clone(), w.clone()], Some(1), &Attrs::None);
        let after = run(b, Op::LayerNormWeightBackward, &[g.clone(), other.clone()], Some(1), &Attrs::None);
        assert_eq!(bits(b, &after), alone);
        // Another tensor takes the memory of the one whose moments were cached.
        let mut other_bytes = bits(b, &other);
        let x = normal(b, DType::F32, &dims, 4);
        let place = x.ptr();
        run(b, Op::LayerNormBackward, &[g.clone(), x, w], Some(1), &Attrs::None);
        let mut again = b.allocate(&other.meta).unwrap();
        // SAFETY: the bytes live until the write is done, and nobody else refers to them meanwhile.
        let range = unsafe { HostRange::new(NonNull::from(other_bytes.as_mut_slice()).cast(), other_bytes.len()) };
        b.write(&mut again, 0, range).unwrap();
        let after = run(b, Op::LayerNormWeightBackward, &[g, again.clone()], Some(1), &Attrs::None);
        assert_eq!(bits(b, &after), alone);
        assert_eq!(again.ptr(), place, "the test was to reuse the memory");
    }

    /// Runs an op on tensors and a number, or without tensors on the range from `-number` to `number`.
    fn run(backend: &mut CpuBackend, op: Op, tensors: &[CpuTensor], number: Option<i64>, attrs: &Attrs) -> CpuTensor {
        let mut inputs: Vec<Input<'_, CpuTensor>> = tensors.iter().map(Input::Tensor).collect();
        if let Some(number) = number {
            if tensors.is_empty() {
                inputs.push(Input::Scalar(gt_ops::Scalar::Int(-number)));
            }
            inputs.push(Input::Scalar(gt_ops::Scalar::Int(number)));
        }
        let metas: Vec<InputMeta> = inputs
            .iter()
            .map(|input| match input {
                Input::Tensor(t) => InputMeta::Tensor(t.meta),
                Input::Scalar(s) => InputMeta::Scalar(*s),
            })
            .collect();
        let out = infer(op, &metas, attrs).unwrap();
        backend.execute(op, &inputs, attrs, &out, 0).unwrap()
    }

    #[test]
    fn a_part_is_written_in_place_or_not_at_all() {
        let mut backend = CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::default() });
        let b = &mut backend;
        let ints = |b: &mut CpuBackend, from: i64, n: usize| {
            let create = Attrs::Create { shape: Shape::new(&[n]).unwrap(), dtype: DType::I64 };
            let meta = Meta::new(Shape::new(&[n]).unwrap(), DType::I64);
            let numbers = [from, 1].map(|number| Input::Scalar(gt_ops::Scalar::Int(number)));
            b.execute(Op::Arange, &numbers, &create, &meta, 0).unwrap()
        };
        let (base, source, good, bad) = (ints(b, 0, 50), ints(b, 100, 3), ints(b, 7, 3), ints(b, 48, 3));
        let (place, before) = (base.ptr(), bits(b, &base));
        let write = |b: &mut CpuBackend, base: &CpuTensor, index: &CpuTensor| {
            let operands = [base, index, &source].map(Input::Tensor);
            b.execute(Op::Scatter, &operands, &Attrs::Axis(0), &base.meta, 1)
        };
        let bad = write(b, &base, &bad).map(drop);
        assert_eq!(bad, Err(ExecError::IndexOutOfRange { index: 50, axis: 0, size: 50 }));
        assert_eq!(bits(b, &base), before);
        let other = base.clone();
        let copied = write(b, &base, &good).unwrap();
        assert_ne!(copied.ptr(), place, "another handle has the elements");
        drop(other);
        let written = write(b, &base, &good).unwrap();
        assert_eq!(written.ptr(), place);
        drop(base);
        let cancellation = Arc::new(Cancellation::default());
        b.cancelled_by(&cancellation, 5);
        cancellation.cancel_below(6);
        let before = bits(b, &written);
        assert!(matches!(write(b, &written, &good), Err(ExecError::Cancelled)));
        b.cancelled_by(&Arc::default(), 5);
        assert_eq!(bits(b, &written), before);
    }

    #[test]
    fn a_backend_moves_to_the_thread_that_works_with_it() {
        fn moves<T: Send>() {}
        moves::<CpuBackend>();
        moves::<CpuTensor>();
    }
}
