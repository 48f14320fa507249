//! Eigenvalues and eigenvectors of symmetric matrices.
//!
//! `tridiagonal.rs` makes a matrix tridiagonal. Eigenvalues alone come by the QL iteration without square
//! roots of Pal, Walker and Kahan (Parlett, "The Symmetric Eigenvalue Problem", 1980, section 8.15), as LAPACK's
//! `sterf` has it. Eigenvectors of a tridiagonal matrix come by divide and conquer, here. The method is Cuppen's
//! (1981): a matrix is two of half the size and a correction of rank one, whose eigenvalues are the roots of a secular
//! equation. Deflation is LAPACK's `laed2`, the iteration for a root "the middle way" of Li (1993), and the vectors are
//! those of the exact eigenvectors of a close problem (Gu and Eisenstat, 1995), so that they are orthogonal however
//! close the eigenvalues are. Roots are computed in double precision, by loops over the terms of the equation that fill
//! the registers of the machine; faer's take a third of the time that a matrix of order 128 takes.

use crate::dense::{HostMatrices, MatrixElement, RealElement, holds_for_all, with_memory};
use crate::reflections::{apply_block, triangular_factor};
use crate::tridiagonal::{TridiagonalForm, tridiagonal};
use faer::diag::{DiagMut, DiagRef};
use faer::linalg::evd;
use faer::linalg::matmul;
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::traits::ext::ComplexFieldExt;
use faer::{Accum, MatMut, Par, c64};
use pulp::{Arch, Simd, WithSimd};

/// The most steps to the eigenvalues of a tridiagonal matrix for each of its rows: LAPACK's limit.
const EIGENVALUE_STEPS_MAX: usize = 30;
/// The least denominator of merged quotients: where the square of a numerator is too small for its type, the quotient
/// does not matter beside elements of about 1.
const QUOTIENTS_MERGED_MIN: f64 = 1e-100;
/// The number of reflections that are applied together.
const REFLECTIONS: usize = 16;
/// Matrices of at most this order are not divided. QR iteration takes their time.
const UNDIVIDED_MAX: usize = 24;
/// The most steps to a root. Each is taken within an interval that holds the root, and bisection alone would end with
/// about this many.
const STEPS_MAX: usize = 100;

/// The eigenvalues of Hermitian matrices in ascending order, and eigenvectors as columns if they are `wanted`; `None`
/// without convergence. The lower triangles are read, and the real parts of the diagonals.
pub(crate) fn hermitian_eigen(mut a: HostMatrices<c64>, wanted: bool) -> Option<(Vec<f64>, HostMatrices<c64>)> {
    if !has_finite_triangles(&a) {
        return None;
    }
    // faer reads the imaginary parts of the diagonal as well.
    let size = a.rows;
    for matrix in a.elements.chunks_exact_mut((size * size).max(1)) {
        matrix.iter_mut().step_by(size + 1).for_each(|x| x.im = 0.0);
    }
    let (values, vectors) = self_adjoint_eigen(&a, wanted)?;
    Some((values.iter().map(|x| x.re).collect(), vectors))
}

/// As [`hermitian_eigen`] and [`eigen`], by faer alone.
fn self_adjoint_eigen<T: MatrixElement>(a: &HostMatrices<T>, wanted: bool) -> Option<(Vec<T>, HostMatrices<T>)> {
    let (count, size) = (a.count, a.rows);
    let mut vectors = HostMatrices::zeros(if wanted { count } else { 0 }, size, size);
    let mut values = vec![T::zero(); count * size];
    // faer takes no matrix without rows.
    if values.is_empty() {
        return Some((values, vectors));
    }
    let params = <evd::SelfAdjointEvdParams as faer::Auto<T>>::auto();
    let computed = if wanted { evd::ComputeEigenvectors::Yes } else { evd::ComputeEigenvectors::No };
    with_memory(evd::self_adjoint_evd_scratch::<T>(size, computed, Par::Seq, params.into()), |memory| {
        (0..count).try_for_each(|i| {
            let own = DiagMut::from_slice_mut(&mut values[i * size..][..size]);
            let vectors = wanted.then(|| vectors.view_mut(i));
            evd::self_adjoint_evd(a.view(i), own, vectors, Par::Seq, memory, params.into()).ok()
        })
    })?;
    Some((values, vectors))
}

/// Whether all elements of the lower triangles are finite.
fn has_finite_triangles<T: MatrixElement>(a: &HostMatrices<T>) -> bool {
    let size = a.rows;
    let is_finite = |i| (0..size).all(|k| holds_for_all(&a.one(i)[k * size + k..(k + 1) * size], |x| x.is_finite()));
    (0..a.count).all(is_finite)
}

/// The eigenvalues of symmetric matrices, of which the lower triangles are read, in ascending order, and eigenvectors
/// as columns if they are `wanted`; `None` without convergence.
pub(crate) fn eigen<T: RealElement>(symmetric: &HostMatrices<T>, wanted: bool) -> Option<(Vec<T>, HostMatrices<T>)> {
    let (count, size) = (symmetric.count, symmetric.rows);
    if !has_finite_triangles(symmetric) {
        return None;
    }
    if wanted && size <= UNDIVIDED_MAX {
        return self_adjoint_eigen(symmetric, wanted);
    }
    let mut vectors = HostMatrices::zeros(if wanted { count } else { 0 }, size, size);
    let mut values = vec![T::zero(); count * size];
    if values.is_empty() {
        return Some((values, vectors));
    }
    if !wanted {
        for (i, values) in values.chunks_exact_mut(size).enumerate() {
            let TridiagonalForm { mut diagonal, mut beside, .. } = tridiagonal(symmetric, i);
            eigenvalues(&mut diagonal, &mut beside)?;
            values.iter_mut().zip(&diagonal).for_each(|(to, value)| *to = T::from_f64_impl(*value));
        }
        return Some((values, vectors));
    }
    for (i, values) in values.chunks_exact_mut(size).enumerate() {
        divided_eigen(symmetric, i, values, vectors.view_mut(i))?;
    }
    Some((values, vectors))
}

/// Overwrites `diagonal` with the eigenvalues of a symmetric tridiagonal matrix in ascending order. `beside` has the
/// elements beside the diagonal. Returns `None` without convergence.
fn eigenvalues(diagonal: &mut [f64], beside: &mut [f64]) -> Option<()> {
    // The squares of the elements of a matrix whose largest element is 1 are neither infinite nor, if they matter, 0.
    let largest = diagonal.iter().chain(beside.iter()).fold(0.0f64, |most, x| most.max(x.abs()));
    if largest == 0.0 {
        return Some(());
    }
    diagonal.iter_mut().for_each(|x| *x /= largest);
    beside.iter_mut().for_each(|x| *x = (*x / largest).powi(2));
    let squares = beside;
    let is_small = |diagonal: &[f64], squares: &[f64], k: usize| {
        squares[k] <= f64::EPSILON.powi(2) * (diagonal[k] * diagonal[k + 1]).abs() || squares[k] < f64::MIN_POSITIVE
    };
    let mut first = 0;
    while first < diagonal.len() {
        // A block whose neighbours it is not connected with.
        let last = (first..squares.len()).find(|k| is_small(diagonal, squares, *k)).unwrap_or(squares.len());
        let (block, squares) = (&mut diagonal[first..=last], &mut squares[first..last]);
        first = last + 1;
        // The iteration converges at its beginning, which is to have the smaller elements.
        if block[block.len() - 1].abs() < block[0].abs() {
            block.reverse();
            squares.reverse();
        }
        let (mut begin, mut steps) = (0, 0);
        while begin < squares.len() {
            let end = (begin..squares.len()).find(|k| is_small(block, squares, *k)).unwrap_or(squares.len());
            if end == begin {
                begin += 1;
                continue;
            }
            if steps == EIGENVALUE_STEPS_MAX * block.len() {
                return None;
            }
            steps += 1;
            ql_step(&mut block[begin..=end], &mut squares[begin..end]);
        }
    }
    diagonal.iter_mut().for_each(|x| *x *= largest);
    diagonal.sort_unstable_by(f64::total_cmp);
    Some(())
}

/// One step of the QL iteration without square roots, on a tridiagonal matrix of at least two rows. `squares` are those
/// of the elements beside the diagonal.
fn ql_step(diagonal: &mut [f64], squares: &mut [f64]) {
    let last = squares.len();
    let beside = squares[0].sqrt();
    let ratio = (diagonal[1] - diagonal[0]) / (2.0 * beside);
    let shift = diagonal[0] - beside / (ratio + 1.0f64.hypot(ratio).copysign(ratio));
    let (mut cosine, mut sine) = (1.0, 0.0);
    let mut below = diagonal[last] - shift;
    let mut product = below * below;
    for k in (0..last).rev() {
        let (own, square) = (diagonal[k], squares[k]);
        let length = product + square;
        if k + 1 < last {
            squares[k + 1] = sine * length;
        }
        let former = cosine;
        (cosine, sine) = (product / length, square / length);
        // `next` and `next^2 / cosine`, with one division on the way from one row to the next.
        let numerator = product * (own - shift) - square * below;
        let next = numerator / length;
        let denominator = product * length;
        product = if denominator >= QUOTIENTS_MERGED_MIN {
            numerator * numerator / denominator
        } else if cosine == 0.0 {
            former * square
        } else {
            next * next / cosine
        };
        diagonal[k + 1] = below + (own - next);
        below = next;
    }
    squares[0] = sine * product;
    diagonal[0] = shift + below;
}

/// The eigenvalues and eigenvectors of matrix `i`, which has at least two rows.
fn divided_eigen<T: RealElement>(
    symmetric: &HostMatrices<T>,
    i: usize,
    values: &mut [T],
    mut vectors: MatMut<'_, T>,
) -> Option<()> {
    let TridiagonalForm { vectors: reflections, taus, mut diagonal, mut beside } = tridiagonal(symmetric, i);
    eigenvectors(&mut diagonal, &mut beside, vectors.rb_mut())?;
    values.iter_mut().zip(&diagonal).for_each(|(to, value)| *to = T::from_f64_impl(*value));
    reflect(&reflections, &taus, vectors);
    Some(())
}

/// Multiplies a matrix from the left by reflections, whose vectors are columns, each with its first element below the
/// diagonal.
fn reflect<T: RealElement>(reflections: &HostMatrices<T>, taus: &[T], mut matrix: MatMut<'_, T>) {
    let size = matrix.nrows();
    let mut factor = [T::zero(); REFLECTIONS * REFLECTIONS];
    let mut work = vec![T::zero(); REFLECTIONS * matrix.ncols()];
    for first in (0..taus.len()).step_by(REFLECTIONS).rev() {
        let count = REFLECTIONS.min(taus.len() - first);
        let v = reflections.view(0).submatrix(first + 1, first, size - first - 1, count);
        let mut factor = MatMut::from_column_major_slice_mut(&mut factor[..count * count], count, count);
        triangular_factor(v, &taus[first..][..count], factor.rb_mut());
        apply_block(v, factor.rb(), false, matrix.rb_mut().subrows_mut(first + 1, size - first - 1), &mut work);
    }
}

/// Overwrites `diagonal` with the eigenvalues of a symmetric tridiagonal matrix in ascending order, and `vectors` with
/// eigenvectors as columns. `beside` has the elements beside the diagonal. Returns `None` without convergence.
fn eigenvectors<T: RealElement>(diagonal: &mut [f64], beside: &mut [f64], mut vectors: MatMut<'_, T>) -> Option<()> {
    // Comparisons with the precision of the elements hold for a matrix whose largest element is 1.
    let largest = diagonal.iter().chain(beside.iter()).fold(0.0f64, |most, x| most.max(x.abs()));
    if largest == 0.0 {
        vectors.fill(T::zero());
        vectors.diagonal_mut().fill(T::one());
        return Some(());
    }
    diagonal.iter_mut().chain(beside.iter_mut()).for_each(|x| *x /= largest);
    let size = diagonal.len();
    let mut work = vec![T::zero(); if size > UNDIVIDED_MAX { 2 * size * size } else { 0 }];
    let found = divided(diagonal, beside, vectors, &mut work);
    diagonal.iter_mut().for_each(|x| *x *= largest);
    found
}

/// As [`eigenvectors`], of a matrix whose largest element is about 1. `work` has twice as many elements as the matrix.
fn divided<T: RealElement>(
    diagonal: &mut [f64],
    beside: &mut [f64],
    mut vectors: MatMut<'_, T>,
    work: &mut [T],
) -> Option<()> {
    let size = diagonal.len();
    if size <= UNDIVIDED_MAX {
        return undivided(diagonal, beside, vectors);
    }
    let half = size / 2;
    let strength = beside[half - 1];
    diagonal[half - 1] -= strength.abs();
    diagonal[half] -= strength.abs();
    let (mut first, _, _, mut second) = vectors.rb_mut().split_at_mut(half, half);
    divided(&mut diagonal[..half], &mut beside[..half - 1], first.rb_mut(), work)?;
    divided(&mut diagonal[half..], &mut beside[half..], second.rb_mut(), work)?;

    let sign = if strength < 0.0 { -1.0 } else { 1.0 };
    let along: Vec<f64> = (0..half)
        .map(|i| first[(half - 1, i)].to_f64())
        .chain((0..size - half).map(|i| sign * second[(0, i)].to_f64()))
        .map(|z| z * std::f64::consts::FRAC_1_SQRT_2)
        .collect();
    let mut update = Update::deflated::<T>(diagonal, &along, half, 2.0 * strength.abs());
    let (inner, product) = work.split_at_mut(work.len() / 2);
    let mut inner = MatMut::from_column_major_slice_mut(&mut inner[..size * size], size, size);
    let mut product = MatMut::from_column_major_slice_mut(&mut product[..size * size], size, size);
    Arch::new().dispatch(Solved { update: &mut update, values: diagonal, vectors: inner.rb_mut() });
    let (upper, lower) = inner.rb().split_at_row(half);
    let (above, below) = product.rb_mut().split_at_row_mut(half);
    matmul::matmul(above, Accum::Replace, first.rb(), upper, T::one(), Par::Seq);
    matmul::matmul(below, Accum::Replace, second.rb(), lower, T::one(), Par::Seq);
    vectors.copy_from(product.rb());
    Some(())
}

/// The eigenvectors of a small matrix by QR iteration.
fn undivided<T: RealElement>(diagonal: &mut [f64], beside: &[f64], vectors: MatMut<'_, T>) -> Option<()> {
    let size = diagonal.len();
    let narrow = |all: &[f64]| -> Vec<T> { all.iter().map(|x| T::from_f64_impl(*x)).collect() };
    let (own, below, mut values) = (narrow(diagonal), narrow(beside), vec![T::zero(); size]);
    let mut params = <evd::SelfAdjointEvdParams as faer::Auto<T>>::auto();
    params.recursion_threshold = usize::MAX;
    let request = faer::linalg::temp_mat_scratch::<T>(size, 1).array(4);
    with_memory(request, |memory| {
        let (own, below) = (DiagRef::from_slice(&own), DiagRef::from_slice(&below));
        let values = DiagMut::from_slice_mut(&mut values);
        evd::tridiagonal_self_adjoint_evd(own, below, values, Some(vectors), Par::Seq, memory, params.into()).ok()
    })?;
    diagonal.iter_mut().zip(&values).for_each(|(x, value)| *x = value.to_f64());
    Some(())
}

/// Writes the eigenvalues and eigenvectors of a problem, by the instructions that the machine has.
struct Solved<'a, T> {
    update: &'a mut Update,
    values: &'a mut [f64],
    vectors: MatMut<'a, T>,
}

impl<T: RealElement> WithSimd for Solved<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.update.solve(simd, T::EPSILON);
        self.update.write(simd, self.values, self.vectors);
    }
}

/// The eigenproblem of `diag(d) + strength z z^T`, where `z` has length 1.
struct Update {
    strength: f64,
    /// The elements of the diagonal that are not deflated, in ascending order.
    poles: Vec<f64>,
    /// Their elements of `z`, and the columns that they belong to.
    along: Vec<f64>,
    columns: Vec<usize>,
    /// The eigenvalues that are elements of the diagonal, with their columns.
    deflated: Vec<(f64, usize)>,
    /// Rotations of two columns by a cosine and a sine, in their order.
    rotations: Vec<(usize, usize, f64, f64)>,
    /// Each root as a sum of a pole, by its index, and a distance.
    roots: Vec<(usize, f64)>,
}

impl Update {
    /// The problem without the eigenvalues that the correction leaves as they are, up to rounding of elements `T`. The
    /// diagonal is ascending up to `half`, and from there on.
    fn deflated<T: RealElement>(diagonal: &[f64], along: &[f64], half: usize, strength: f64) -> Update {
        let size = diagonal.len();
        let (mut i, mut j) = (0, half);
        let next = |_| {
            let is_first = j == size || (i < half && diagonal[i] < diagonal[j]);
            let next = if is_first { &mut i } else { &mut j };
            *next += 1;
            *next - 1
        };
        let order: Vec<usize> = (0..size).map(next).collect();
        let mut d: Vec<f64> = order.iter().map(|column| diagonal[*column]).collect();
        let mut z: Vec<f64> = order.iter().map(|column| along[*column]).collect();
        let largest = |all: &[f64]| all.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let negligible = 8.0 * T::EPSILON * largest(&d).max(largest(&z));
        let (mut kept, mut deflated, mut rotations) = (Vec::with_capacity(size), Vec::new(), Vec::new());
        let mut last: Option<usize> = None;
        for next in 0..size {
            if strength * z[next].abs() <= negligible {
                deflated.push((d[next], order[next]));
                continue;
            }
            if let Some(last) = last {
                let length = z[next].hypot(z[last]);
                let (cosine, sine) = (z[next] / length, -z[last] / length);
                let apart = d[next] - d[last];
                if (apart * cosine * sine).abs() <= negligible {
                    z[next] = length;
                    rotations.push((order[last], order[next], cosine, sine));
                    deflated.push((d[last] * cosine * cosine + d[next] * sine * sine, order[last]));
                    d[next] = d[last] * sine * sine + d[next] * cosine * cosine;
                } else {
                    kept.push(last);
                }
            }
            last = Some(next);
        }
        kept.extend(last);
        Update {
            strength,
            poles: kept.iter().map(|i| d[*i]).collect(),
            along: kept.iter().map(|i| z[*i]).collect(),
            columns: kept.iter().map(|i| order[*i]).collect(),
            deflated,
            rotations,
            roots: Vec::with_capacity(size),
        }
    }

    /// Computes the roots of the secular equation, and the vector `z` for which they are exact.
    #[inline(always)]
    fn solve<S: Simd>(&mut self, simd: S, epsilon: f64) {
        let (poles, count) = (&self.poles, self.poles.len());
        let squares: Vec<f64> = self.along.iter().map(|z| z * z).collect();
        let mut distances = vec![0.0; count];
        // The vectors are orthogonal whatever the error of the roots, which need be no smaller than that of the
        // elements.
        let precision = (epsilon * 0.01).max(f64::EPSILON);
        for j in 0..count {
            let root = root(simd, poles, &squares, self.strength, j, precision, &mut distances);
            self.roots.push(root);
        }
        let mut products = vec![1.0; count];
        for (j, (origin, distance)) in self.roots.iter().enumerate() {
            let (pole, origin) = (poles[j], poles[*origin]);
            let factor = |x: f64| ((origin - x) + distance) / (pole - x);
            let (before, rest) = products.split_at_mut(j);
            before.iter_mut().zip(&poles[..j]).for_each(|(product, x)| *product *= factor(*x));
            rest[0] *= (origin - pole) + distance;
            rest[1..].iter_mut().zip(&poles[j + 1..]).for_each(|(product, x)| *product *= factor(*x));
        }
        self.along.iter_mut().zip(&products).for_each(|(z, product)| *z = product.abs().sqrt().copysign(*z));
    }

    /// Writes the eigenvalues in ascending order, and the eigenvectors in the basis of the columns.
    #[inline(always)]
    fn write<S: Simd, T: RealElement>(&self, simd: S, values: &mut [f64], mut vectors: MatMut<'_, T>) {
        #[derive(Clone, Copy)]
        enum Source {
            Root(usize),
            Deflated(usize),
        }
        let value = |(origin, distance): (usize, f64)| self.poles[origin] + distance;
        let roots = self.roots.iter().enumerate().map(|(j, root)| (value(*root), Source::Root(j)));
        let deflated = self.deflated.iter().map(|(value, column)| (*value, Source::Deflated(*column)));
        let mut all: Vec<(f64, Source)> = roots.chain(deflated).collect();
        all.sort_by(|x, y| x.0.total_cmp(&y.0));
        let mut elements = vec![0.0; self.poles.len()];
        for (k, (value, source)) in all.into_iter().enumerate() {
            values[k] = value;
            let mut column = vectors.rb_mut().col_mut(k);
            column.fill(T::zero());
            match source {
                Source::Deflated(own) => column[own] = T::one(),
                Source::Root(j) => {
                    let (origin, distance) = self.roots[j];
                    let origin = self.poles[origin];
                    let own = elements.iter_mut().zip(&self.along).zip(&self.poles);
                    own.for_each(|((element, z), pole)| *element = z / ((pole - origin) - distance));
                    let scale = squared_length(simd, &elements).sqrt().recip();
                    for (element, row) in elements.iter().zip(&self.columns) {
                        column[*row] = T::from_f64_impl(element * scale);
                    }
                }
            }
        }
        for (first, second, cosine, sine) in self.rotations.iter().rev() {
            for k in 0..values.len() {
                let (x, y) = (vectors[(*first, k)].to_f64(), vectors[(*second, k)].to_f64());
                vectors[(*first, k)] = T::from_f64_impl(cosine * x - sine * y);
                vectors[(*second, k)] = T::from_f64_impl(sine * x + cosine * y);
            }
        }
    }
}

/// The sum of the squares of `elements`.
#[inline(always)]
fn squared_length<S: Simd>(simd: S, elements: &[f64]) -> f64 {
    let (all, rest) = S::as_simd_f64s(elements);
    let sum = all.iter().fold(simd.splat_f64s(0.0), |sum, x| simd.mul_add_f64s(*x, *x, sum));
    rest.iter().fold(simd.reduce_sum_f64s(sum), |sum, x| sum + x * x)
}

/// The sum of `squares / (distance - at)`, and its derivative.
#[inline(always)]
fn terms<S: Simd>(simd: S, distances: &[f64], squares: &[f64], at: f64) -> (f64, f64) {
    let ((all, rest), (weights, last)) = (S::as_simd_f64s(distances), S::as_simd_f64s(squares));
    let (one, from, zero) = (simd.splat_f64s(1.0), simd.splat_f64s(at), simd.splat_f64s(0.0));
    let (mut sums, mut slopes) = (zero, zero);
    for (distance, square) in all.iter().zip(weights) {
        let reciprocal = simd.div_f64s(one, simd.sub_f64s(*distance, from));
        let term = simd.mul_f64s(*square, reciprocal);
        sums = simd.add_f64s(sums, term);
        slopes = simd.mul_add_f64s(term, reciprocal, slopes);
    }
    if !rest.is_empty() {
        // The lanes after the last term have a square of zero, and a distance that is not that of a root.
        let (distance, square) = (simd.partial_load_f64s(rest), simd.partial_load_f64s(last));
        let reciprocal = simd.div_f64s(one, simd.sub_f64s(distance, from));
        let term = simd.mul_f64s(square, reciprocal);
        sums = simd.add_f64s(sums, term);
        slopes = simd.mul_add_f64s(term, reciprocal, slopes);
    }
    (simd.reduce_sum_f64s(sums), simd.reduce_sum_f64s(slopes))
}

/// The distances of poles from a number.
#[inline(always)]
fn measure(poles: &[f64], from: f64, distances: &mut [f64]) {
    distances.iter_mut().zip(poles).for_each(|(to, pole)| *to = pole - from);
}

/// Root `j` of `1 / strength + sum(squares / (poles - x))`: the index of the pole that it is next to, and the distance
/// from it.
#[inline(always)]
fn root<S: Simd>(
    simd: S,
    poles: &[f64],
    squares: &[f64],
    strength: f64,
    j: usize,
    precision: f64,
    distances: &mut [f64],
) -> (usize, f64) {
    let (count, constant) = (poles.len(), 1.0 / strength);
    if count == 1 {
        return (0, strength * squares[0]);
    }
    let is_last = j + 1 == count;
    // The pole on the left and the one on the right. The last root is right of both.
    let left = if is_last { j - 1 } else { j };
    let right = left + 1;
    let gap = poles[right] - poles[left];
    measure(poles, poles[if is_last { right } else { left }], distances);
    let most = if is_last { strength * squares.iter().sum::<f64>() } else { gap };
    let middle = most / 2.0;
    let value = constant + terms(simd, distances, squares, middle).0;
    let (left_square, right_square) = (squares[left], squares[right]);
    // The first guess takes the other terms as a constant.
    let others = value - left_square / (distances[left] - middle) - right_square / (distances[right] - middle);
    let (origin, mut low, mut high) = match (is_last, value >= 0.0) {
        (true, _) => (right, 0.0, most),
        (false, true) => (left, 0.0, middle),
        (false, false) => {
            measure(poles, poles[right], distances);
            (right, -middle, 0.0)
        }
    };
    let sum = left_square + right_square;
    let mut at = if origin == left {
        let (a, b) = (others * gap + sum, left_square * gap);
        let root = (a * a - 4.0 * b * others).abs().sqrt();
        if a > 0.0 { 2.0 * b / (a + root) } else { (a - root) / (2.0 * others) }
    } else {
        let (a, b) = (sum - others * gap, right_square * gap);
        let root = (a * a + 4.0 * b * others).abs().sqrt();
        match (is_last, a < 0.0) {
            (false, true) => 2.0 * b / (a - root),
            (false, false) => -(a + root) / (2.0 * others),
            (true, true) => 2.0 * b / (root - a),
            (true, false) => (a + root) / (2.0 * others),
        }
    };
    let is_within = |at: f64, low: f64, high: f64| at > low && at < high;
    if !is_within(at, low, high) {
        at = (low + high) / 2.0;
    }
    for _ in 0..STEPS_MAX {
        let (below, below_slope) = terms(simd, &distances[..right], &squares[..right], at);
        let (above, above_slope) = terms(simd, &distances[right..], &squares[right..], at);
        let (value, slope) = (constant + below + above, below_slope + above_slope);
        let rounding = precision * (8.0 * (constant + below.abs() + above.abs()) + at.abs() * slope);
        if value.abs() <= rounding {
            break;
        }
        if value < 0.0 {
            low = at
        } else {
            high = at
        }
        let (to_left, to_right) = (distances[left] - at, distances[right] - at);
        let c = value - to_left * below_slope - to_right * above_slope;
        let a = (to_left + to_right) * value - to_left * to_right * slope;
        let b = to_left * to_right * value;
        let root = (a * a - 4.0 * b * c).max(0.0).sqrt();
        let mut step = match (is_last, a > 0.0) {
            (false, false) => (a - root) / (2.0 * c),
            (false, true) => 2.0 * b / (a + root),
            (true, false) => 2.0 * b / (a - root),
            (true, true) => (a + root) / (2.0 * c),
        };
        // Also if the step is NaN.
        let is_towards = value * step < 0.0;
        if !is_towards {
            step = -value / slope;
        }
        let next = if is_within(at + step, low, high) { at + step } else { (low + high) / 2.0 };
        if next == at || !is_within(next, low, high) {
            break;
        }
        at = next;
    }
    (origin, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::tests::{adjoint, assert_close, diagonal, identity, product, samples};

    /// Checks the eigenvalues and eigenvectors of a symmetric matrix.
    fn check<T: RealElement>(a: &HostMatrices<T>) {
        let (size, largest) = (a.rows, a.elements.iter().fold(0.0f64, |most, x| most.max(x.to_f64().abs())));
        let (values, vectors) = eigen(a, true).unwrap();
        assert!(values.is_sorted_by(|x, y| x <= y), "{values:?}");
        assert_close(&product(&adjoint(&vectors), &vectors), &identity(size));
        // The limit of `assert_close` is relative to the largest element, or to 1.
        let unit = T::from_f64_impl(if largest > 0.0 { largest.recip() } else { 1.0 });
        let scaled = |x: &HostMatrices<T>| HostMatrices::of(1, x.rows, x.columns, |_, i, j| x.at(0, i, j) * unit);
        let restored = product(&vectors, &product(&diagonal(size, size, &values), &adjoint(&vectors)));
        assert_close(&scaled(&restored), &scaled(a));
        let alone = eigen(a, false).unwrap().0;
        assert_close(&scaled(&diagonal(size, size, &alone)), &scaled(&diagonal(size, size, &values)));
    }

    /// Symmetric matrices with simple, equal, close, small, negative and zero eigenvalues.
    fn check_kinds<T: RealElement>() {
        for a in samples(T::zero()) {
            check(&product(&a, &adjoint(&a)));
        }
        for size in [1, 2, 3, UNDIVIDED_MAX, UNDIVIDED_MAX + 1, 2 * UNDIVIDED_MAX + 3, 4 * UNDIVIDED_MAX + 5, 400] {
            let of = |element: &dyn Fn(usize, usize) -> f64| {
                check(&HostMatrices::<T>::of(1, size, size, |_, i, j| T::from_f64_impl(element(i.min(j), i.max(j)))));
            };
            let beside = |i: usize, j: usize, x: f64, y: f64| [x, y].get(j - i).copied().unwrap_or(0.0);
            of(&|i, j| ((i * 71 + j * 29 + i * j * 13) as f64).sin());
            of(&|i, j| 1e4 * ((i * 71 + j * 29 + i * j * 13) as f64).sin());
            of(&|i, j| 1e-20 * ((i * 71 + j * 29 + i * j * 13) as f64).sin());
            // Rank 1, diagonals, and the identity with small elements beside it.
            of(&|i, j| ((i + 1) * (j + 1)) as f64 / (size * size) as f64);
            of(&|i, j| if i == j { (i * 7 % 5) as f64 - 2.0 } else { 0.0 });
            of(&|i, j| beside(i, j, 1.0, 1e-9));
            of(&|i, j| 1.0 + if i == j { 1e-3 } else { 0.0 });
            // The second difference, Wilkinson's matrix with pairs of close eigenvalues, and several glued together.
            of(&|i, j| beside(i, j, 2.0, -1.0));
            of(&|i, j| beside(i, j, (i as f64 - (size / 2) as f64).abs(), 1.0));
            of(&|i, j| beside(i, j, ((i % 21) as f64 - 10.0).abs(), if j % 21 == 0 { 1e-8 } else { 1.0 }));
            // Graded over 16 powers of ten.
            of(&|i, j| {
                beside(i, j, 10f64.powi(-(i as i32) * 16 / size as i32), 10f64.powi(-(j as i32) * 16 / size as i32))
            });
        }
    }

    #[test]
    fn eigenvectors_are_orthogonal_and_give_the_matrix_back() {
        check_kinds::<f32>();
        check_kinds::<f64>();
    }

    #[test]
    fn only_the_lower_triangle_is_read() {
        let size = 2 * UNDIVIDED_MAX;
        let of = |upper: f64| {
            let element = |i: usize, j: usize| ((i * 71 + j * 29 + i * j * 13) as f64).sin();
            HostMatrices::of(1, size, size, |_, i, j| if i >= j { element(i, j) } else { upper })
        };
        assert_eq!(eigen(&of(0.0), true).unwrap(), eigen(&of(f64::NAN), true).unwrap());
    }

    #[test]
    fn matrices_with_infinities_and_nan_have_no_eigenvalues() {
        for size in [1, UNDIVIDED_MAX, 2 * UNDIVIDED_MAX] {
            for wrong in [f32::NAN, f32::INFINITY] {
                let a =
                    HostMatrices::of(2, size, size, |i, j, k| if (i, j, k) == (1, size - 1, 0) { wrong } else { 1.0 });
                assert!(eigen(&a, true).is_none() && eigen(&a, false).is_none());
            }
        }
        let none = HostMatrices::<f32>::zeros(3, 0, 0);
        assert_eq!(eigen(&none, true).unwrap(), (Vec::new(), HostMatrices::zeros(3, 0, 0)));
        let no_matrices = HostMatrices::<f32>::zeros(0, 40, 40);
        assert_eq!(eigen(&no_matrices, true).unwrap(), (Vec::new(), HostMatrices::zeros(0, 40, 40)));
    }
}
