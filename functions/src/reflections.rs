//! Householder reflections of real matrices, in loops that fill the registers of the machine.
//!
//! A QR decomposition goes through panels of a few columns (Golub and Van Loan, "Matrix Computations", section 5.2.3).
//! A panel, which stays in the cache next to the core, is reflected column by column; the columns beside it take the
//! product of the panel's reflections `I - V F^-1 V^T` as products of matrices. F is the upper triangle of `V^T V` with
//! the reciprocals of tau on its diagonal, as in `faer::linalg::householder`.

use crate::registers::{LANES_MAX, VectorElement, dot_of_registers, split_columns};
use faer::linalg::{matmul, triangular_solve};
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::traits::ext::ComplexFieldExt;
use faer::{Accum, MatMut, MatRef, Par};
use pulp::{Arch, Simd, WithSimd};

/// The number of columns that a reflection is applied to for each time that its vector is read.
const COLUMNS: usize = 4;

/// A reflection `I - tau v v^T` that takes a vector to a multiple of a unit vector.
pub(crate) struct Reflection<T> {
    /// The multiple. Its sign is opposite to that of the element that it replaces, unless tau is 0.
    pub(crate) reflected: T,
    /// Zero if the vector is a multiple already.
    pub(crate) tau: T,
}

impl<T: VectorElement> Reflection<T> {
    /// Overwrites a column of whole registers, which is zero before row `first`, with `v`, whose element there is 1.
    #[inline(always)]
    pub(crate) fn of_column<S: Simd>(simd: S, column: &mut [T], first: usize) -> Reflection<T> {
        let from = first / T::lane_count::<S>();
        let mut head = std::mem::replace(&mut column[first], T::zero());
        let (mut rest, mut unit) = (squared_length(simd, column, from), T::one());
        if rest < T::SQUARES_MIN {
            // The squares of so small numbers have few digits.
            let largest = column[first..].iter().fold(T::zero(), |most, x| if x.abs() > most { x.abs() } else { most });
            if largest == T::zero() {
                column[first] = T::one();
                return Reflection { reflected: head, tau: T::zero() };
            }
            unit = if head.abs() > largest { head.abs() } else { largest };
            head /= unit;
            column[first..].iter_mut().for_each(|x| *x /= unit);
            rest = squared_length(simd, column, from);
        }
        let norm = (head * head + rest).sqrt();
        let reflected = if head < T::zero() { norm } else { -norm };
        let pivot = head - reflected;
        let scale = T::splat_lanes(simd, T::one() / pivot);
        let own = &mut T::registers_mut::<S>(column).0[from..];
        own.iter_mut().for_each(|x| *x = T::multiply_lanes(simd, *x, scale));
        column[first] = T::one();
        Reflection { reflected: reflected * unit, tau: -pivot / reflected }
    }
}

/// The sum of the squares of a column from register `from` on. A closure would not be compiled for instructions `S`.
#[inline(always)]
fn squared_length<T: VectorElement, S: Simd>(simd: S, column: &[T], from: usize) -> T {
    let all = &T::registers::<S>(column).0[from..];
    dot_of_registers::<T, S>(simd, all, all)
}

/// The columns of a QR decomposition that are reflected one by one.
struct QrPanel<'a, T> {
    /// The columns, filled up with zeros to `len` elements, which become the vectors of the reflections.
    elements: &'a mut [T],
    len: usize,
    /// Square, for the elements of R on and above the diagonal.
    upper: &'a mut [T],
    taus: &'a mut [T],
}

impl<T: VectorElement> WithSimd for QrPanel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let QrPanel { elements, len, upper, taus } = self;
        let width = taus.len();
        for (k, tau) in taus.iter_mut().enumerate() {
            let (own, mut rest) = elements[k * len..].split_at_mut(len);
            let upper = &mut upper[k * width..][..=k];
            upper.copy_from_slice(&own[..=k]);
            own[..k].fill(T::zero());
            let found = Reflection::of_column(simd, own, k);
            upper[k] = found.reflected;
            *tau = found.tau;
            if found.tau == T::zero() {
                continue;
            }
            // The elements of `v` before row `k` are zero: the rows that share its register keep their elements.
            let from = k / T::lane_count::<S>();
            let v = &T::registers::<S>(own).0[from..];
            let mut left = width - k - 1;
            while left >= COLUMNS {
                rest = reflect_columns::<T, S, COLUMNS>(simd, v, -found.tau, rest, len, from);
                left -= COLUMNS;
            }
            for _ in 0..left {
                rest = reflect_columns::<T, S, 1>(simd, v, -found.tau, rest, len, from);
            }
        }
    }
}

/// Adds `factor * v v^T` times each of the first `N` columns to it. Returns the other columns.
#[inline(always)]
fn reflect_columns<'a, T: VectorElement, S: Simd, const N: usize>(
    simd: S,
    v: &[T::Register<S>],
    factor: T,
    elements: &'a mut [T],
    len: usize,
    from: usize,
) -> &'a mut [T] {
    let (columns, rest) = split_columns::<T, S, N>(elements, len, from);
    let count = v.len();
    assert!(columns.iter().all(|column| column.len() == count));
    // Two sums for each column: one addition waits for the one before it.
    let mut sums = [[T::splat_lanes(simd, T::zero()); N]; 2];
    for pair in 0..count / 2 {
        for (half, sums) in sums.iter_mut().enumerate() {
            let row = 2 * pair + half;
            for (sum, column) in sums.iter_mut().zip(&columns) {
                *sum = T::multiply_add(simd, v[row], column[row], *sum);
            }
        }
    }
    if count % 2 == 1 {
        for (sum, column) in sums[0].iter_mut().zip(&columns) {
            *sum = T::multiply_add(simd, v[count - 1], column[count - 1], *sum);
        }
    }
    let factors: [T::Register<S>; N] = std::array::from_fn(|i| {
        T::splat_lanes(simd, factor * T::sum_of_lanes(simd, T::add_lanes(simd, sums[0][i], sums[1][i])))
    });
    for row in 0..count {
        for i in 0..N {
            columns[i][row] = T::multiply_add(simd, v[row], factors[i], columns[i][row]);
        }
    }
    rest
}

/// The triangle F of reflections with the vectors `v` and the factors `taus`.
pub(crate) fn triangular_factor<T: VectorElement>(v: MatRef<'_, T>, taus: &[T], mut factor: MatMut<'_, T>) {
    matmul::matmul(factor.rb_mut(), Accum::Replace, v.transpose(), v, T::one(), Par::Seq);
    // A factor of 0 becomes infinite, and solutions with it 0.
    taus.iter().enumerate().for_each(|(k, tau)| factor[(k, k)] = T::one() / *tau);
}

/// Multiplies a matrix from the left by a product of reflections, or by its transpose. `work` has as many elements as
/// the matrix has in the first rows, one for each reflection.
pub(crate) fn apply_block<T: VectorElement>(
    v: MatRef<'_, T>,
    factor: MatRef<'_, T>,
    transpose: bool,
    mut matrix: MatMut<'_, T>,
    work: &mut [T],
) {
    let (count, columns) = (v.ncols(), matrix.ncols());
    let mut along = MatMut::from_column_major_slice_mut(&mut work[..count * columns], count, columns);
    matmul::matmul(along.rb_mut(), Accum::Replace, v.transpose(), matrix.rb(), T::one(), Par::Seq);
    if transpose {
        triangular_solve::solve_lower_triangular_in_place(factor.transpose(), along.rb_mut(), Par::Seq);
    } else {
        triangular_solve::solve_upper_triangular_in_place(factor, along.rb_mut(), Par::Seq);
    }
    matmul::matmul(matrix.rb_mut(), Accum::Add, v, along.rb(), -T::one(), Par::Seq);
}

/// Overwrites a matrix in column-major order with its QR decomposition in LAPACK's packed form, and `factors` with the
/// triangles F, one beside the other, of blocks of as many reflections as it has rows. No square of an element, nor the
/// sum of those of a column, may be infinite.
pub(crate) fn decompose_qr<T: VectorElement>(a: &mut [T], rows: usize, mut factors: MatMut<'_, T>) {
    let (block, count, columns) = (factors.nrows(), factors.ncols(), a.len() / rows);
    let mut elements = vec![T::zero(); rows.next_multiple_of(LANES_MAX) * block];
    let (mut upper, mut taus) = (vec![T::zero(); block * block], vec![T::zero(); block]);
    let mut work = vec![T::zero(); block * columns];
    for first in (0..count).step_by(block) {
        let (width, height) = (block.min(count - first), rows - first);
        let (len, taus) = (height.next_multiple_of(LANES_MAX), &mut taus[..width]);
        let (own, beside) = a[first * rows..].split_at_mut(width * rows);
        let elements = &mut elements[..len * width];
        for (to, column) in elements.chunks_exact_mut(len).zip(own.chunks_exact(rows)) {
            to[..height].copy_from_slice(&column[first..]);
            to[height..].fill(T::zero());
        }
        Arch::new().dispatch(QrPanel { elements: &mut *elements, len, upper: &mut upper, taus });
        for (k, column) in own.chunks_exact_mut(rows).enumerate() {
            let (above, below) = column[first..].split_at_mut(k + 1);
            above.copy_from_slice(&upper[k * width..][..=k]);
            below.copy_from_slice(&elements[k * len..][k + 1..height]);
        }
        let v = MatRef::from_column_major_slice(&*elements, len, width).subrows(0, height);
        let mut factor = factors.rb_mut().submatrix_mut(0, first, width, width);
        triangular_factor(v, taus, factor.rb_mut());
        if !beside.is_empty() {
            let beside = MatMut::from_column_major_slice_mut(beside, rows, columns - first - width);
            apply_block(v, factor.rb(), true, beside.subrows_mut(first, height), &mut work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than two blocks, of which the last is not full.
    const SIZE: usize = 37;
    const BLOCK: usize = 16;

    /// The largest error of `Q R`, and of `Q^T Q`, by the squares of numbers of double precision.
    fn errors(element: impl Fn(usize, usize) -> f32, rows: usize) -> (f64, f64) {
        let original: Vec<f32> = (0..rows * SIZE).map(|k| element(k % rows, k / rows)).collect();
        let (mut packed, mut factors) = (original.clone(), vec![0f32; BLOCK * SIZE]);
        decompose_qr(&mut packed, rows, MatMut::from_column_major_slice_mut(&mut factors, BLOCK, SIZE));
        // Reflections in reverse order, from the packed form alone.
        let apply = |columns: &mut [Vec<f64>]| {
            for k in (0..SIZE).rev() {
                let v = |i: usize| if i == k { 1.0 } else { f64::from(packed[k * rows + i]) };
                let tau = 1.0 / f64::from(factors[k * BLOCK + k % BLOCK]);
                for column in &mut *columns {
                    let along: f64 = (k..rows).map(|i| v(i) * column[i]).sum();
                    (k..rows).for_each(|i| column[i] -= tau * along * v(i));
                }
            }
        };
        let upper = |j: usize, i: usize| if i <= j { f64::from(packed[j * rows + i]) } else { 0.0 };
        let mut restored: Vec<Vec<f64>> = (0..SIZE).map(|j| (0..rows).map(|i| upper(j, i)).collect()).collect();
        apply(&mut restored);
        let mut q: Vec<Vec<f64>> =
            (0..rows).map(|j| (0..rows).map(|i| f64::from(u8::from(i == j))).collect()).collect();
        apply(&mut q);
        let restored = restored.iter().flatten().zip(&original).map(|(x, y)| (x - f64::from(*y)).abs());
        let pairs = (0..rows).flat_map(|i| (0..rows).map(move |j| (i, j)));
        let orthogonal = pairs.map(|(i, j)| {
            let along: f64 = q[i].iter().zip(&q[j]).map(|(x, y)| x * y).sum();
            (along - f64::from(u8::from(i == j))).abs()
        });
        (restored.fold(0.0, f64::max), orthogonal.fold(0.0, f64::max))
    }

    #[test]
    fn decompositions_give_matrices_of_all_scales_and_ranks_back() {
        for rows in [SIZE, SIZE + 1, 3 * SIZE] {
            for scale in [1.0, 1e-38, 1e-30, 1e-19, 1e12] {
                for rank in [0, 1, 20, SIZE] {
                    let of = |i: usize, j: usize| {
                        let x = (i * 7 + j % rank.max(1) * 13 + i * (j % rank.max(1)) * 5) as f64;
                        if rank == 0 { 0.0 } else { (x.sin() * scale) as f32 }
                    };
                    let (restored, orthogonal) = errors(of, rows);
                    assert!(restored <= 1e-4 * scale, "{restored} of {scale}, {rows}, {rank}");
                    assert!(orthogonal <= 1e-4, "{orthogonal} of {scale}, {rows}, {rank}");
                }
            }
        }
    }

    #[test]
    fn an_upper_triangle_is_left_as_it_is() {
        let of = |i: usize, j: usize| if i <= j { (i + 2 * j) as f32 - 30.0 } else { 0.0 };
        let original: Vec<f32> = (0..SIZE * SIZE).map(|k| of(k % SIZE, k / SIZE)).collect();
        let (mut packed, mut factors) = (original.clone(), vec![0f32; BLOCK * SIZE]);
        decompose_qr(&mut packed, SIZE, MatMut::from_column_major_slice_mut(&mut factors, BLOCK, SIZE));
        assert_eq!(packed, original);
        assert!((0..SIZE).all(|k| factors[k * BLOCK + k % BLOCK].is_infinite()));
    }
}
