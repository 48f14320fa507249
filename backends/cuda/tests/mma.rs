//! `mma.cuh` alone: fragments have the register layouts of the PTX ISA, and products are right.

mod bare;

use bare::BareDevice;
use gt_cuda::driver::Grid;
use gt_cuda::driver::emulated::EmulatedChecks;
use gt_cuda::headers;
use half::{bf16, f16};

/// A warp copies a 16 by 16, a 16 by 8 and a transposed 8 by 16 matrix to shared memory, and writes both products.
const KERNEL: &str = r#"
#include "mma.cuh"
GT_KERNEL(32) multiply_TYPE(f32 *out, const TYPE *a, const TYPE *b, const TYPE *turned) {
    alignas(16) __shared__ TYPE left[16 * 16];
    alignas(16) __shared__ TYPE right[16 * 8];
    alignas(16) __shared__ TYPE right_turned[8 * 16];
    int lane = threadIdx.x;
    copy_behind(shared_address(left + lane * 8), a + lane * 8, true);
    // The last row is filled with zeros.
    if (lane < 16) copy_behind(shared_address(right + lane * 8), b + lane * 8, lane < 15);
    else copy_behind(shared_address(right_turned + (lane - 16) * 8), turned + (lane - 16) * 8, true);
    wait_for_copies();
    __syncthreads();
    u32 x[4], y[4], z[4];
    load_matrices<false>(x, shared_address(left + lane % 16 * 16 + lane / 16 * 8));
    load_matrices<true>(y, shared_address(right + lane % 16 * 8));
    load_matrices<false>(z, shared_address(right_turned + lane % 8 * 16 + lane / 8 % 2 * 8));
    f32 sums[2][4] = {};
    multiply<TYPE>(sums[0], x, y[0], y[1]);
    multiply_add<TYPE>(sums[1], x, z[0], z[1]);
    for (int product = 0; product < 2; product++)
        for (int c = 0; c < 4; c++)
            out[(product * 16 + lane / 4 + c / 2 * 8) * 8 + lane % 4 * 2 + c % 2] = sums[product][c];
}
GT_KERNEL(1) pack_TYPE(u32 *out, const f32 *two) { *out = packed<TYPE>(two[0], two[1]); }
"#;

/// A warp multiplies 16 by 8 numbers by 8 by 8, whose rows or columns lie in shared memory.
const KERNEL_TF32: &str = r#"
#include "mma.cuh"
GT_KERNEL(32) multiply_tf32(f32 *out, const f32 *a, const f32 *b, const f32 *turned) {
    alignas(16) __shared__ f32 left[16 * 8];
    alignas(16) __shared__ f32 right[8 * 8];
    alignas(16) __shared__ f32 right_turned[8 * 8];
    int lane = threadIdx.x;
    copy_behind(shared_address(left + lane * 4), a + lane * 4, true);
    if (lane < 16) copy_behind(shared_address(right + lane * 4), b + lane * 4, true);
    else copy_behind(shared_address(right_turned + (lane - 16) * 4), turned + (lane - 16) * 4, true);
    wait_for_copies();
    __syncthreads();
    u32 x[4], z[4];
    load_matrices<false>(x, shared_address(left + lane % 16 * 8 + lane / 16 * 4));
    load_matrices<false>(z, shared_address(right_turned + lane % 8 * 8 + lane / 8 % 2 * 4));
    u32 upper = load_word(shared_address(right + lane % 4 * 8 + lane / 4));
    u32 lower = load_word(shared_address(right + (lane % 4 + 4) * 8 + lane / 4));
    f32 sums[2][4] = {};
    multiply<f32>(sums[0], x, upper, lower);
    multiply_add<f32>(sums[1], x, z[0], z[1]);
    for (int product = 0; product < 2; product++)
        for (int c = 0; c < 4; c++)
            out[(product * 16 + lane / 4 + c / 2 * 8) * 8 + lane % 4 * 2 + c % 2] = sums[product][c];
}
GT_KERNEL(4) round_to_tf32(u32 *out, const f32 *numbers) {
    out[threadIdx.x] = rounded_to_tf32(numbers[threadIdx.x]);
}
"#;

fn check(name: &str, narrow: fn(f32) -> u16) {
    assert!(headers::HEADERS.iter().any(|(name, _)| *name == "mma.cuh"));
    let device = BareDevice::new(EmulatedChecks::asked(), 0);
    let source = KERNEL.replace("TYPE", name);
    // Small integers, whose products and sums are exact.
    let left = |i: usize, k: usize| ((i * 7 + k * 3) % 11) as f32 - 5.0;
    let right = |k: usize, j: usize| ((k * 5 + j * 2) % 13) as f32 - 6.0;
    let halves = |rows: usize, columns: usize, of: &dyn Fn(usize, usize) -> f32| -> u64 {
        let numbers = (0..rows * columns).map(|i| narrow(of(i / columns, i % columns)));
        device.put(&numbers.flat_map(u16::to_le_bytes).collect::<Vec<u8>>())
    };
    let operands = [halves(16, 16, &left), halves(16, 8, &right), halves(8, 16, &|j, k| right(k, j))];
    let written = device.run(&source, &format!("multiply_{name}"), Grid::new(1, 32), 2 * 16 * 8 * 4, &operands);
    let product = |i: usize, j: usize, depth: usize| (0..depth).map(|k| left(i, k) * right(k, j)).sum::<f32>();
    for (at, bytes) in written.chunks_exact(4).enumerate() {
        let got = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        // The last row of the first product's right operand was filled with zeros.
        let depth = if at < 128 { 15 } else { 16 };
        assert_eq!(got, product(at / 8 % 16, at % 8, depth), "{name}: row {}, column {}", at / 8, at % 8);
    }
    let two = device.put(&[1.5f32, -0.3].map(f32::to_le_bytes).concat());
    let written = device.run(&source, &format!("pack_{name}"), Grid::new(1, 1), 4, &[two]);
    assert_eq!(written, [narrow(1.5).to_le_bytes(), narrow(-0.3).to_le_bytes()].concat());
}

#[test]
fn a_warp_multiplies_halves() {
    check("f16", |x| f16::from_f32(x).to_bits());
}

#[test]
fn a_warp_multiplies_bfloat16() {
    check("bf16", |x| bf16::from_f32(x).to_bits());
}

#[test]
fn a_warp_multiplies_tf32() {
    let device = BareDevice::new(EmulatedChecks::asked(), 0);
    let left = |i: usize, k: usize| ((i * 7 + k * 3) % 11) as f32 - 5.0;
    let right = |k: usize, j: usize| ((k * 5 + j * 2) % 13) as f32 - 6.0;
    let matrix = |rows: usize, of: &dyn Fn(usize, usize) -> f32| -> u64 {
        device.put(&(0..rows * 8).flat_map(|at| of(at / 8, at % 8).to_le_bytes()).collect::<Vec<u8>>())
    };
    let operands = [matrix(16, &left), matrix(8, &right), matrix(8, &|j, k| right(k, j))];
    let written = device.run(KERNEL_TF32, "multiply_tf32", Grid::new(1, 32), 2 * 16 * 8 * 4, &operands);
    for (at, bytes) in written.chunks_exact(4).enumerate() {
        let (row, column) = (at / 8 % 16, at % 8);
        let want: f32 = (0..8).map(|k| left(row, k) * right(k, column)).sum();
        assert_eq!(bytes, want.to_le_bytes(), "row {row}, column {column}");
    }
    // Ties are rounded away from zero.
    let numbers = [1.0 + 2f32.powi(-11), -1.0 - 2f32.powi(-12), f32::INFINITY, f32::from_bits(0x7fff_ffff)];
    let put = device.put(&numbers.map(f32::to_le_bytes).concat());
    let written = device.run(KERNEL_TF32, "round_to_tf32", Grid::new(1, 4), 16, &[put]);
    let rounded: Vec<f32> = written.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(rounded[..3], [1.0 + 2f32.powi(-10), -1.0, f32::INFINITY]);
    assert!(rounded[3].is_nan());
}
