//! Decompositions of dense matrices on the host, in the precision of the tensor.
//!
//! Matrices are in column-major order, as LAPACK has them. faer computes, in the calling thread. Loops after Golub and
//! Van Loan, "Matrix Computations" (4th edition), take its place for small matrices, for which faer's workspace and
//! choice of instructions take longer than the arithmetic, and for singular complex ones, for which callers need
//! LAPACK's packed forms and its `info`. Larger real matrices are decomposed by `elimination.rs` and `reflections.rs`,
//! in panels of columns: faer divides the columns down to single ones, and calls its product of matrices for each pair.

use crate::elimination::decompose_lu;
use crate::reflections::decompose_qr;
use crate::registers::VectorElement;
use faer::diag::DiagMut;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor as llt;
use faer::linalg::lu::partial_pivoting::{factor as lu, inverse as lu_inverse};
use faer::linalg::qr::no_pivoting::factor as qr_factor;
use faer::linalg::{householder, matmul, svd as faer_svd, triangular_inverse, triangular_solve};
use faer::perm::PermRef;
use faer::reborrow::ReborrowMut;
use faer::traits::ComplexField;
use faer::traits::ext::ComplexFieldExt;
use faer::{Accum, Conj, MatMut, MatRef, Par, Spec, c64};
use gt_ops::DType;
use std::ops::{Add, Div, DivAssign, Mul, MulAssign, Sub, SubAssign};

/// Loops decompose matrices with at most this many rows or columns.
const LOOPS_MAX: usize = 12;
/// Loops eliminate in matrices with at most this many rows and columns: 16 by 16 takes them half of faer's time.
pub(crate) const ELIMINATED_MAX: usize = 24;
/// Loops substitute for a single right-hand side of at most this many rows. For several, faer is faster from 4 rows on.
const SUBSTITUTED_MAX: usize = 48;
/// The order of the bidiagonal problems that faer no longer divides.
const UNDIVIDED_MAX: usize = 32;
/// Householder reflections of matrices with at most this many rows or columns are applied one by one.
const SINGLE_REFLECTIONS_MAX: usize = 32;
/// The number of reflections that are applied together: by faer, and by the loops of `reflections.rs`.
const FAER_REFLECTIONS: usize = 32;
const REAL_REFLECTIONS: usize = 16;
/// A sum of squares of this size has no error from overflow, for f32 too.
const SQUARES_MAX: f64 = 1e30;

/// An element of a matrix on the host: f32, f64 or c64.
pub(crate) trait MatrixElement:
    ComplexField
    + Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + SubAssign
    + MulAssign
    + DivAssign
    + 'static
{
    /// The dtype of tensors with these elements.
    const DTYPE: DType;
    /// The distance from 1 to the next larger number.
    const EPSILON: f64;
    /// The little-endian bytes of an element.
    type Bytes: Copy;
    /// Elements in little-endian bytes.
    fn chunks(bytes: &[u8]) -> &[Self::Bytes];
    /// As [`MatrixElement::chunks`], to be written.
    fn chunks_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
    fn of_bytes(bytes: Self::Bytes) -> Self;
    fn to_bytes(self) -> Self::Bytes;
    /// The number as a complex one.
    fn to_c64(self) -> c64;
    /// [`decompose_qr`] for real elements. Returns false, and does nothing, for others.
    fn decompose_real_qr(_a: &mut [Self], _rows: usize, _factors: MatMut<'_, Self>) -> bool {
        false
    }
    /// As [`MatrixElement::decompose_real_qr`], for [`decompose_lu`].
    fn decompose_real_lu(_a: MatMut<'_, Self>, _exchanges: &mut [usize]) -> bool {
        false
    }
}

/// A real element, f32 or f64.
pub(crate) trait RealElement: MatrixElement + VectorElement {
    /// The number in double precision.
    fn to_f64(self) -> f64;
}

macro_rules! real {
    ($($t:ty: $dtype:ident)*) => {$(
        impl MatrixElement for $t {
            const DTYPE: DType = DType::$dtype;
            const EPSILON: f64 = <$t>::EPSILON as f64;
            type Bytes = [u8; size_of::<$t>()];
            fn chunks(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }
            fn chunks_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }
            fn of_bytes(bytes: Self::Bytes) -> $t {
                <$t>::from_le_bytes(bytes)
            }
            fn to_bytes(self) -> Self::Bytes {
                self.to_le_bytes()
            }
            fn to_c64(self) -> c64 {
                c64::new(self.to_f64(), 0.0)
            }
            fn decompose_real_qr(a: &mut [$t], rows: usize, factors: MatMut<'_, $t>) -> bool {
                decompose_qr(a, rows, factors);
                true
            }
            fn decompose_real_lu(a: MatMut<'_, $t>, exchanges: &mut [usize]) -> bool {
                decompose_lu(a, exchanges);
                true
            }
        }
        impl RealElement for $t {
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    )*};
}
real! { f32: F32 f64: F64 }

impl MatrixElement for c64 {
    const DTYPE: DType = DType::C128;
    const EPSILON: f64 = f64::EPSILON;
    type Bytes = [[u8; 8]; 2];
    fn chunks(bytes: &[u8]) -> &[Self::Bytes] {
        bytes.as_chunks().0.as_chunks().0
    }
    fn chunks_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
        bytes.as_chunks_mut().0.as_chunks_mut().0
    }
    fn of_bytes([re, im]: Self::Bytes) -> c64 {
        c64::new(f64::from_le_bytes(re), f64::from_le_bytes(im))
    }
    fn to_bytes(self) -> Self::Bytes {
        [self.re.to_le_bytes(), self.im.to_le_bytes()]
    }
    fn to_c64(self) -> c64 {
        self
    }
}

/// The bytes of elements in their order.
pub(crate) fn bytes_of<T: MatrixElement>(elements: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; elements.len() * size_of::<T::Bytes>()];
    T::chunks_mut(&mut bytes).iter_mut().zip(elements).for_each(|(bytes, x)| *bytes = x.to_bytes());
    bytes
}

/// Writes the transpose of a matrix with `rows` elements in each of its columns, converted.
fn transpose<A: Copy, B>(from: &[A], to: &mut [B], rows: usize, convert: impl Fn(A) -> B) {
    /// The side of the squares that are transposed together, whose columns share cache lines.
    const SIDE: usize = 16;
    let columns = from.len().checked_div(rows).unwrap_or(0);
    if rows <= SIDE && columns <= SIDE {
        for (column, from) in from.chunks_exact(rows.max(1)).enumerate() {
            from.iter().zip(to[column..].iter_mut().step_by(columns)).for_each(|(x, to)| *to = convert(*x));
        }
        return;
    }
    let (whole_columns, whole_rows) = (columns - columns % SIDE, rows - rows % SIDE);
    for first_column in (0..whole_columns).step_by(SIDE) {
        for first_row in (0..whole_rows).step_by(SIDE) {
            let lines: [&[A]; SIDE] = std::array::from_fn(|i| &from[(first_column + i) * rows + first_row..][..SIDE]);
            for row in 0..SIDE {
                let to = &mut to[(first_row + row) * columns + first_column..][..SIDE];
                to.iter_mut().zip(&lines).for_each(|(to, line)| *to = convert(line[row]));
            }
        }
    }
    let mut edge = |columns_of: std::ops::Range<usize>, rows_of: std::ops::Range<usize>| {
        for row in rows_of {
            for column in columns_of.clone() {
                to[row * columns + column] = convert(from[column * rows + row]);
            }
        }
    };
    edge(whole_columns..columns, 0..whole_rows);
    edge(0..columns, whole_rows..rows);
}

/// Whether a condition holds for all elements. Several are looked at together, by the registers of the machine.
pub(crate) fn holds_for_all<T: Copy>(all: &[T], condition: impl Fn(T) -> bool) -> bool {
    all.chunks(64).all(|chunk| chunk.iter().fold(true, |holds, x| holds & condition(*x)))
}

/// Matrices of one size, each in column-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostMatrices<T> {
    pub(crate) count: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) elements: Vec<T>,
}

impl<T: MatrixElement> HostMatrices<T> {
    pub(crate) fn zeros(count: usize, rows: usize, columns: usize) -> HostMatrices<T> {
        HostMatrices { count, rows, columns, elements: vec![T::zero(); count * rows * columns] }
    }

    fn filled(mut self, value: T) -> HostMatrices<T> {
        self.elements.fill(value);
        self
    }

    /// Matrices of the bytes of their elements in row-major order.
    pub(crate) fn of_bytes(count: usize, rows: usize, columns: usize, bytes: &[u8]) -> HostMatrices<T> {
        let mut result = HostMatrices::zeros(count, rows, columns);
        for (i, bytes) in T::chunks(bytes).chunks_exact((rows * columns).max(1)).enumerate() {
            transpose(bytes, result.one_mut(i), columns, T::of_bytes);
        }
        result
    }

    /// The transposes of matrices of the bytes of their elements in row-major order.
    pub(crate) fn transposes_of_bytes(count: usize, rows: usize, columns: usize, bytes: &[u8]) -> HostMatrices<T> {
        let elements = T::chunks(bytes).iter().map(|x| T::of_bytes(*x)).collect();
        HostMatrices { count, rows: columns, columns: rows, elements }
    }

    /// The bytes of the elements in row-major order.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.elements.len() * size_of::<T::Bytes>()];
        let all = T::chunks_mut(&mut bytes).chunks_exact_mut((self.rows * self.columns).max(1));
        all.enumerate().for_each(|(i, bytes)| transpose(self.one(i), bytes, self.rows, T::to_bytes));
        bytes
    }

    /// The elements of matrix `i`.
    pub(crate) fn one(&self, i: usize) -> &[T] {
        let size = self.rows * self.columns;
        &self.elements[i * size..][..size]
    }

    fn one_mut(&mut self, i: usize) -> &mut [T] {
        let size = self.rows * self.columns;
        &mut self.elements[i * size..][..size]
    }

    pub(crate) fn view(&self, i: usize) -> MatRef<'_, T> {
        MatRef::from_column_major_slice(self.one(i), self.rows, self.columns)
    }

    pub(crate) fn view_mut(&mut self, i: usize) -> MatMut<'_, T> {
        let (rows, columns) = (self.rows, self.columns);
        MatMut::from_column_major_slice_mut(self.one_mut(i), rows, columns)
    }

    /// Element (`row`, `column`) of matrix `i`.
    pub(crate) fn at(&self, i: usize, row: usize, column: usize) -> T {
        self.elements[(i * self.columns + column) * self.rows + row]
    }

    /// Matrices of `element(matrix, row, column)`.
    pub(crate) fn of(
        count: usize,
        rows: usize,
        columns: usize,
        element: impl Fn(usize, usize, usize) -> T,
    ) -> HostMatrices<T> {
        let mut result = HostMatrices::zeros(count, rows, columns);
        let places = (0..count).flat_map(|i| (0..columns).flat_map(move |j| (0..rows).map(move |k| (i, k, j))));
        result.elements.iter_mut().zip(places).for_each(|(x, (i, row, column))| *x = element(i, row, column));
        result
    }

    pub(crate) fn transposed(self) -> HostMatrices<T> {
        let (count, rows, columns) = (self.count, self.rows, self.columns);
        if rows == 1 || columns == 1 {
            return HostMatrices { rows: columns, columns: rows, ..self };
        }
        let mut result = HostMatrices::zeros(count, columns, rows);
        (0..count).for_each(|i| transpose(self.one(i), result.one_mut(i), rows, |x| x));
        result
    }

    /// The elements on and above the main diagonal, in the first rows.
    pub(crate) fn upper(&self, rows: usize) -> HostMatrices<T> {
        let mut result = HostMatrices::zeros(self.count, rows, self.columns);
        for i in 0..self.count {
            for column in 0..self.columns {
                let known = rows.min(column + 1);
                let from = &self.one(i)[column * self.rows..][..known];
                result.one_mut(i)[column * rows..][..known].copy_from_slice(from);
            }
        }
        result
    }

    fn is_finite(&self) -> bool {
        holds_for_all(&self.elements, |x| x.is_finite())
    }
}

/// Memory of faer's for one call.
pub(crate) fn with_memory<R>(request: faer::dyn_stack::StackReq, call: impl FnOnce(&mut MemStack) -> R) -> R {
    call(MemStack::new(&mut MemBuffer::new(request)))
}

/// The part of a matrix that a triangular system uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Triangle {
    /// The elements on and above the diagonal.
    Upper,
    /// The elements on and below the diagonal.
    Lower,
    /// The elements below the diagonal, with ones on it.
    UnitLower,
}

/// Overwrites right-hand sides, the columns of `x`, with the solution of a triangular system: back or forward
/// substitution.
pub(crate) fn substitute<T: MatrixElement>(a: &[T], size: usize, triangle: Triangle, x: &mut [T]) {
    if size == 0 {
        return;
    }
    let is_small = if x.len() == size { size <= SUBSTITUTED_MAX } else { size < 4 };
    if !is_small {
        let (a, columns) = (MatRef::from_column_major_slice(a, size, size), x.len() / size);
        let x = MatMut::from_column_major_slice_mut(x, size, columns);
        return match triangle {
            Triangle::Upper => triangular_solve::solve_upper_triangular_in_place(a, x, Par::Seq),
            Triangle::Lower => triangular_solve::solve_lower_triangular_in_place(a, x, Par::Seq),
            Triangle::UnitLower => triangular_solve::solve_unit_lower_triangular_in_place(a, x, Par::Seq),
        };
    }
    for x in x.chunks_exact_mut(size) {
        for step in 0..size {
            let j = if triangle == Triangle::Upper { size - 1 - step } else { step };
            let column = &a[j * size..(j + 1) * size];
            if triangle != Triangle::UnitLower {
                x[j] /= column[j];
            }
            let (known, rest) = (x[j], if triangle == Triangle::Upper { 0..j } else { j + 1..size });
            x[rest.clone()].iter_mut().zip(&column[rest]).for_each(|(y, factor)| *y -= *factor * known);
        }
    }
}

/// The row of the larger element of a column, of two rows: `best` if they are equal. NaN is the largest.
fn larger<T: MatrixElement>(column: &[T], best: usize, i: usize) -> usize {
    let (old, new) = (column[best].abs1(), column[i].abs1());
    if new > old || (new.is_nan() && !old.is_nan()) { i } else { best }
}

/// Overwrites a matrix with its LU decomposition, in the outer product form of Gaussian elimination, and `exchanges`
/// with the row that each row was exchanged with.
fn eliminate<T: MatrixElement>(a: &mut [T], rows: usize, exchanges: &mut [usize]) {
    for (k, exchanged) in exchanges.iter_mut().enumerate() {
        let column = &a[k * rows..(k + 1) * rows];
        let pivot = (k + 1..rows).fold(k, |best, i| larger(column, best, i));
        *exchanged = pivot;
        if pivot != k {
            a.chunks_exact_mut(rows).for_each(|column| column.swap(k, pivot));
        }
        let (known, rest) = a.split_at_mut((k + 1) * rows);
        let column = &mut known[k * rows..];
        let diagonal = column[k];
        if diagonal == T::zero() {
            continue;
        }
        column[k + 1..].iter_mut().for_each(|x| *x /= diagonal);
        for other in rest.chunks_exact_mut(rows) {
            let factor = other[k];
            if factor != T::zero() {
                other[k + 1..].iter_mut().zip(&column[k + 1..]).for_each(|(x, y)| *x -= factor * *y);
            }
        }
    }
}

/// Writes the inverse of a matrix of `N` rows to `inverse`: the elimination of [`eliminate`] with loops that the
/// compiler unrolls. Returns whether all pivots differ from zero.
fn invert_small<T: MatrixElement, const N: usize>(a: &[T], inverse: &mut [T]) -> bool {
    let mut a: [[T; N]; N] = std::array::from_fn(|column| std::array::from_fn(|row| a[column * N + row]));
    let mut x: [[T; N]; N] = [[T::zero(); N]; N];
    (0..N).for_each(|k| x[k][k] = T::one());
    for k in 0..N {
        let pivot = (k + 1..N).fold(k, |best, i| larger(&a[k], best, i));
        for j in 0..N {
            a[j].swap(k, pivot);
            x[j].swap(k, pivot);
        }
        if a[k][k] == T::zero() {
            return false;
        }
        let (known, rest) = a.split_at_mut(k + 1);
        for i in k + 1..N {
            let factor = known[k][i] / known[k][k];
            for column in rest.iter_mut().chain(&mut x) {
                let above = column[k];
                column[i] -= above * factor;
            }
        }
    }
    for column in &mut x {
        for k in (0..N).rev() {
            column[k] /= a[k][k];
            let known = column[k];
            for i in 0..k {
                column[i] -= a[k][i] * known;
            }
        }
    }
    inverse.iter_mut().zip(x.iter().flatten()).for_each(|(to, x)| *to = *x);
    true
}

/// The inverses of square matrices; `None` if one is singular.
pub(crate) fn inverses<T: MatrixElement>(a: HostMatrices<T>) -> Option<HostMatrices<T>> {
    let small = match a.rows {
        1 => invert_small::<T, 1>,
        2 => invert_small::<T, 2>,
        3 => invert_small::<T, 3>,
        4 => invert_small::<T, 4>,
        _ => {
            let factors = PackedLu::new(a);
            return (!factors.is_singular()).then(|| factors.inverses());
        }
    };
    let mut result = HostMatrices::zeros(a.count, a.rows, a.rows);
    (0..a.count).all(|i| small(a.one(i), result.one_mut(i))).then_some(result)
}

/// The row that each row was exchanged with, in this order, so that the rows came into an order.
fn exchanges_of(order: &[usize], exchanges: &mut [usize]) {
    let mut rows: Vec<usize> = (0..order.len()).collect();
    let mut places = rows.clone();
    for (k, exchanged) in exchanges.iter_mut().enumerate() {
        let from = places[order[k]];
        places[rows[k]] = from;
        rows.swap(k, from);
        *exchanged = from;
    }
}

/// The LU decompositions of matrices with partial pivoting.
pub(crate) struct PackedLu<T> {
    /// L below the diagonal, on which it has ones, and U from the diagonal on.
    pub(crate) packed: HostMatrices<T>,
    /// The row that each row was exchanged with, in this order, of all matrices.
    pub(crate) exchanges: Vec<usize>,
}

impl<T: MatrixElement> PackedLu<T> {
    pub(crate) fn new(mut packed: HostMatrices<T>) -> PackedLu<T> {
        let (rows, columns) = (packed.rows, packed.columns);
        let count = rows.min(columns);
        let mut exchanges = vec![0; packed.count * count];
        for i in 0..packed.count {
            let exchanges = &mut exchanges[i * count..][..count];
            if count <= LOOPS_MAX || rows.max(columns) <= ELIMINATED_MAX {
                eliminate(packed.one_mut(i), rows, exchanges);
                continue;
            }
            if T::decompose_real_lu(packed.view_mut(i), exchanges) {
                continue;
            }
            let original = packed.one(i).to_vec();
            let (mut order, mut inverse) = (vec![0usize; rows], vec![0usize; rows]);
            let memory = lu::lu_in_place_scratch::<usize, T>(rows, columns, Par::Seq, Spec::default());
            with_memory(memory, |memory| {
                let a = packed.view_mut(i);
                lu::lu_in_place(a, &mut order, &mut inverse, Par::Seq, memory, Spec::default());
            });
            let is_pivot = |k: usize| packed.at(i, k, k).is_finite() && packed.at(i, k, k) != T::zero();
            if (0..count).all(is_pivot) {
                exchanges_of(&order, exchanges);
            } else {
                // faer divides by a pivot that is zero.
                packed.one_mut(i).copy_from_slice(&original);
                eliminate(packed.one_mut(i), rows, exchanges);
            }
        }
        PackedLu { packed, exchanges }
    }

    /// The number of pivots of each matrix.
    fn count(&self) -> usize {
        self.packed.rows.min(self.packed.columns)
    }

    pub(crate) fn exchanges(&self, i: usize) -> &[usize] {
        &self.exchanges[i * self.count()..][..self.count()]
    }

    /// The diagonal of U of matrix `i`.
    fn diagonal(&self, i: usize) -> impl Iterator<Item = T> {
        (0..self.count()).map(move |k| self.packed.at(i, k, k))
    }

    /// For each matrix the first column without a pivot, counted from 1, or 0.
    pub(crate) fn first_zero_pivots(&self) -> Vec<usize> {
        let first = |i| self.diagonal(i).position(|x| x == T::zero()).map_or(0, |column| column + 1);
        (0..self.packed.count).map(first).collect()
    }

    /// Whether a matrix has a zero on its diagonal of U.
    pub(crate) fn is_singular(&self) -> bool {
        (0..self.packed.count).any(|i| self.diagonal(i).any(|x| x == T::zero()))
    }

    /// The first columns of L.
    pub(crate) fn lower(&self) -> HostMatrices<T> {
        HostMatrices::of(self.packed.count, self.packed.rows, self.count(), |i, row, column| match row.cmp(&column) {
            std::cmp::Ordering::Less => T::zero(),
            std::cmp::Ordering::Equal => T::one(),
            std::cmp::Ordering::Greater => self.packed.at(i, row, column),
        })
    }

    /// For each matrix the direction of the determinant, a number of absolute value 1 or 0, and the logarithm of its
    /// absolute value.
    pub(crate) fn log_determinants(&self) -> impl Iterator<Item = (c64, f64)> {
        (0..self.packed.count).map(|i| {
            let start = (c64::new(self.parity(i), 0.0), 0.0);
            self.diagonal(i).fold(start, |(direction, logarithm), pivot| {
                let (pivot, size) = (pivot.to_c64(), pivot.to_c64().norm());
                let turned = if size == 0.0 { c64::new(0.0, 0.0) } else { direction * (pivot / size) };
                (turned, logarithm + size.ln())
            })
        })
    }

    pub(crate) fn determinants(&self) -> impl Iterator<Item = c64> {
        (0..self.packed.count).map(|i| {
            let start = c64::new(self.parity(i), 0.0);
            self.diagonal(i).fold(start, |product, x| product * x.to_c64())
        })
    }

    /// The sign of the permutation of matrix `i`.
    fn parity(&self, i: usize) -> f64 {
        self.exchanges(i).iter().enumerate().fold(1.0, |sign, (i, j)| if i == *j { sign } else { -sign })
    }

    /// Overwrites right-hand sides, columns, with the solution of system `i`, whose square matrix has all pivots.
    pub(crate) fn solve(&self, i: usize, x: &mut [T]) {
        let size = self.packed.rows;
        for column in x.chunks_exact_mut(size.max(1)) {
            self.exchanges(i).iter().enumerate().for_each(|(row, other)| column.swap(row, *other));
        }
        substitute(self.packed.one(i), size, Triangle::UnitLower, x);
        substitute(self.packed.one(i), size, Triangle::Upper, x);
    }

    /// As [`PackedLu::solve`], for the transpose of the matrix.
    pub(crate) fn solve_transposed(&self, i: usize, x: &mut [T]) {
        let size = self.packed.rows;
        if x.is_empty() {
            return;
        }
        let (packed, columns) = (self.packed.view(i).transpose(), x.len() / size);
        let mut right = MatMut::from_column_major_slice_mut(&mut *x, size, columns);
        triangular_solve::solve_lower_triangular_in_place(packed, right.rb_mut(), Par::Seq);
        triangular_solve::solve_unit_upper_triangular_in_place(packed, right, Par::Seq);
        for column in x.chunks_exact_mut(size) {
            self.exchanges(i).iter().enumerate().rev().for_each(|(row, other)| column.swap(row, *other));
        }
    }

    /// The inverses of square matrices that have all pivots.
    pub(crate) fn inverses(&self) -> HostMatrices<T> {
        let size = self.packed.rows;
        if size <= LOOPS_MAX {
            let mut result = HostMatrices::zeros(self.packed.count, size, size);
            for i in 0..self.packed.count {
                (0..size).for_each(|k| result.one_mut(i)[k * size + k] = T::one());
                self.solve(i, result.one_mut(i));
            }
            return result;
        }
        let mut result = HostMatrices::zeros(self.packed.count, size, size);
        for i in 0..self.packed.count {
            let order = row_order(size, self.exchanges(i));
            let mut inverse = vec![0; size];
            order.iter().enumerate().for_each(|(place, row)| inverse[*row] = place);
            with_memory(lu_inverse::inverse_scratch::<usize, T>(size, Par::Seq), |memory| {
                let (packed, order) = (self.packed.view(i), PermRef::new_checked(&order, &inverse, size));
                lu_inverse::inverse(result.view_mut(i), packed, packed, order, Par::Seq, memory);
            });
        }
        result
    }
}

/// The order of rows after exchanges, of each row in turn with another one.
pub(crate) fn row_order(rows: usize, exchanges: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    for (i, j) in exchanges.iter().enumerate() {
        order.swap(i, *j);
    }
    order
}

/// The permutation matrices P for which `P @ rows[order]` are the rows in their original order.
pub(crate) fn permutations<T: MatrixElement>(orders: &[Vec<usize>], rows: usize) -> HostMatrices<T> {
    let mut result = HostMatrices::zeros(orders.len(), rows, rows);
    for (i, order) in orders.iter().enumerate() {
        order.iter().enumerate().for_each(|(place, row)| result.one_mut(i)[place * rows + row] = T::one());
    }
    result
}

/// Overwrites symmetric matrices, of which the lower triangle is read, with their lower Cholesky factors. Returns for
/// each the order of the first leading minor that is not positive, or 0.
pub(crate) fn cholesky<T: RealElement>(a: &mut HostMatrices<T>) -> Vec<usize> {
    let (count, size) = (a.count, a.rows);
    let factored = |i| {
        let fault = if size <= LOOPS_MAX {
            cholesky_of_columns(a.one_mut(i), size)
        } else {
            with_memory(llt::cholesky_in_place_scratch::<T>(size, Par::Seq, Spec::default()), |memory| {
                llt::cholesky_in_place(a.view_mut(i), Default::default(), Par::Seq, memory, Spec::default())
                    .map_or_else(|llt::LltError::NonPositivePivot { index }| index + 1, |_| 0)
            })
        };
        (1..size).for_each(|column| a.one_mut(i)[column * size..][..column].fill(T::zero()));
        fault
    };
    (0..count).map(factored).collect()
}

/// The Cholesky decomposition of one matrix, column by column.
fn cholesky_of_columns<T: RealElement>(a: &mut [T], size: usize) -> usize {
    for j in 0..size {
        let (known, rest) = a.split_at_mut(j * size);
        let column = &mut rest[j..size];
        for other in known.chunks_exact(size) {
            let factor = other[j];
            column.iter_mut().zip(&other[j..]).for_each(|(x, y)| *x -= factor * *y);
        }
        let is_positive = column[0] > T::zero();
        if !is_positive {
            return j + 1;
        }
        let diagonal = column[0].sqrt();
        column.iter_mut().for_each(|x| *x /= diagonal);
        column[0] = diagonal;
    }
    0
}

/// The scalar product of real vectors, with partial sums that fill a register.
fn dot<T: MatrixElement>(a: &[T], b: &[T]) -> T {
    const LANES: usize = 8;
    let (mut sums, n) = ([T::zero(); LANES], a.len().min(b.len()));
    let (a, b) = (&a[..n], &b[..n]);
    let (firsts, seconds) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = firsts.remainder().iter().zip(seconds.remainder());
    let rest = rest.fold(T::zero(), |sum, (x, y)| sum + *x * *y);
    for (x, y) in firsts.zip(seconds) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().fold(rest, |sum, x| sum + *x)
}

/// Applies the reflection `1 - v v^T / scale` to the columns of a matrix with `rows` rows; `v` begins with a one that
/// is not stored, at row `k`.
fn reflect_columns<T: MatrixElement>(v: &[T], scale: T, columns: &mut [T], rows: usize, k: usize) {
    for column in columns.chunks_exact_mut(rows) {
        let (head, tail) = column[k..].split_at_mut(1);
        let along = (head[0] + dot(v, tail)) / scale;
        head[0] -= along;
        tail.iter_mut().zip(v).for_each(|(x, v)| *x -= along * *v);
    }
}

/// Overwrites a real matrix with its QR decomposition, one reflection after the other, and `scales` with the
/// reciprocals of tau. Returns false, and changes nothing, for elements whose squares would be too large or too small.
fn reflect<T: MatrixElement>(a: &mut [T], rows: usize, scales: &mut [T]) -> bool {
    // Sums of squares in this range have no error from overflow or underflow, for f32 too.
    const SQUARES: std::ops::Range<f64> = 1e-20..SQUARES_MAX;
    let largest = a.iter().map(|x| x.to_c64().re.abs()).fold(0.0, f64::max);
    let smallest = a.chunks_exact(rows).map(|column| dot(column, column).to_c64().re).fold(f64::INFINITY, f64::min);
    if largest != 0.0 && !(SQUARES.contains(&(largest * largest * rows as f64)) && SQUARES.contains(&smallest)) {
        return false;
    }
    for (k, scale) in scales.iter_mut().enumerate() {
        let (known, rest) = a.split_at_mut((k + 1) * rows);
        let (head, tail) = known[k * rows + k..].split_at_mut(1);
        let mut squares = dot(tail, tail);
        let mut unit = T::one();
        if squares.to_c64().re < SQUARES.start {
            // The rest of a column that depends on others can be so small that its squares have few digits.
            let largest = tail.iter().map(|x| x.to_c64().re.abs()).fold(0.0, f64::max);
            if largest == 0.0 {
                // No reflection: tau is 0.
                *scale = T::from_f64_impl(f64::INFINITY);
                continue;
            }
            unit = T::from_f64_impl(largest.max(head[0].to_c64().re.abs()));
            head[0] /= unit;
            tail.iter_mut().for_each(|x| *x /= unit);
            squares = dot(tail, tail);
        }
        let norm = (head[0] * head[0] + squares).sqrt();
        let norm = if head[0].to_c64().re < 0.0 { T::zero() - norm } else { norm };
        let pivot = head[0] + norm;
        tail.iter_mut().for_each(|x| *x /= pivot);
        *scale = norm / pivot;
        head[0] = (T::zero() - norm) * unit;
        reflect_columns(tail, *scale, rest, rows, k);
    }
    true
}

/// Whether no sum of squares of a column is too large.
fn has_finite_squares<T: MatrixElement>(all: &HostMatrices<T>) -> bool {
    let limit = T::Real::from_f64_impl((SQUARES_MAX / all.rows.max(1) as f64).sqrt());
    holds_for_all(&all.elements, |x| x.abs1() < limit)
}

/// The QR decompositions of matrices by Householder reflections.
///
/// They are packed as LAPACK's `geqrf` does: R on and above the diagonal, below it the vectors of the reflections. The
/// sign of each diagonal element of a real R is opposite to that of the element that the reflection found there.
pub(crate) struct PackedQr<T> {
    pub(crate) packed: HostMatrices<T>,
    /// The triangular factors of blocks of reflections, as faer has them.
    blocks: HostMatrices<T>,
}

impl<T: MatrixElement> PackedQr<T> {
    pub(crate) fn new(mut packed: HostMatrices<T>) -> PackedQr<T> {
        let (rows, columns) = (packed.rows, packed.columns);
        let count = rows.min(columns);
        let is_safe = has_finite_squares(&packed);
        let block = match count {
            ..=SINGLE_REFLECTIONS_MAX => 1,
            _ if T::IS_REAL && is_safe => REAL_REFLECTIONS,
            _ => FAER_REFLECTIONS,
        };
        let mut blocks = HostMatrices::zeros(packed.count, block, count);
        if !is_safe && !packed.is_finite() {
            return PackedQr { packed: packed.filled(T::nan()), blocks: blocks.filled(T::nan()) };
        }
        let memory = qr_factor::qr_in_place_scratch::<T>(rows, columns, block, Par::Seq, Spec::default());
        with_memory(memory, |memory| {
            for i in 0..packed.count {
                let is_small = T::IS_REAL && block == 1 && count > 0;
                if is_small && reflect(packed.one_mut(i), rows, blocks.one_mut(i)) {
                    continue;
                }
                if block == REAL_REFLECTIONS && T::decompose_real_qr(packed.one_mut(i), rows, blocks.view_mut(i)) {
                    continue;
                }
                if count > 0 {
                    let (packed, blocks) = (packed.view_mut(i), blocks.view_mut(i));
                    qr_factor::qr_in_place(packed, blocks, Par::Seq, memory, Spec::default());
                }
            }
        });
        PackedQr { packed, blocks }
    }

    /// The factor tau of each reflection `1 - tau v v^H`.
    pub(crate) fn factors(&self) -> Vec<T> {
        let (block, count) = (self.blocks.rows, self.blocks.columns);
        let factor = |(i, k): (usize, usize)| T::one() / self.blocks.at(i, k % block, k);
        (0..self.blocks.count).flat_map(|i| (0..count).map(move |k| (i, k))).map(factor).collect()
    }

    /// Multiplies columns of `x` by Q, or by its adjoint, of matrix `i`.
    fn apply(&self, i: usize, adjoint: bool, x: MatMut<'_, T>) {
        let (rows, block) = (self.packed.rows, self.blocks.rows);
        if self.blocks.columns == 0 {
            return;
        }
        let memory =
            householder::apply_block_householder_sequence_on_the_left_in_place_scratch::<T>(rows, block, x.ncols());
        let (packed, blocks) = (self.packed.view(i), self.blocks.view(i));
        with_memory(memory, |memory| {
            if adjoint {
                householder::apply_block_householder_sequence_transpose_on_the_left_in_place_with_conj(
                    packed,
                    blocks,
                    Conj::Yes,
                    x,
                    Par::Seq,
                    memory,
                );
            } else {
                householder::apply_block_householder_sequence_on_the_left_in_place_with_conj(
                    packed,
                    blocks,
                    Conj::No,
                    x,
                    Par::Seq,
                    memory,
                );
            }
        });
    }

    /// Multiplies the first columns of an identity matrix by Q of matrix `i`.
    fn apply_to_unit_vectors(&self, i: usize, mut x: MatMut<'_, T>) {
        let (rows, block, count, columns) = (self.packed.rows, self.blocks.rows, self.blocks.columns, x.ncols());
        let memory = householder::apply_block_householder_on_the_left_in_place_scratch::<T>(rows, block, columns);
        with_memory(memory, |memory| {
            for first in (0..count.min(columns)).step_by(block).rev() {
                let width = block.min(count - first);
                // The reflections leave the unit vectors before column `first` as they are.
                householder::apply_block_householder_on_the_left_in_place_with_conj(
                    self.packed.view(i).submatrix(first, first, rows - first, width),
                    self.blocks.view(i).submatrix(0, first, width, width),
                    Conj::No,
                    x.rb_mut().submatrix_mut(first, first, rows - first, columns - first),
                    Par::Seq,
                    memory,
                );
            }
        });
    }

    /// The first columns of Q.
    fn orthonormal(&self, columns: usize) -> HostMatrices<T> {
        let rows = self.packed.rows;
        let mut q = HostMatrices::zeros(self.packed.count, rows, columns);
        for i in 0..q.count {
            (0..rows.min(columns)).for_each(|k| q.one_mut(i)[k * rows + k] = T::one());
            if self.blocks.rows == 1 && T::IS_REAL {
                for (k, scale) in self.blocks.one(i).iter().enumerate().rev() {
                    let v = &self.packed.one(i)[k * rows + k + 1..(k + 1) * rows];
                    // The reflection leaves the unit vectors before column `k` as they are.
                    let from = (k * rows).min(q.rows * q.columns);
                    reflect_columns(v, *scale, &mut q.one_mut(i)[from..], rows, k);
                }
            } else {
                self.apply_to_unit_vectors(i, q.view_mut(i));
            }
        }
        q
    }
}

/// The first `count` columns of Q, and as many rows of R. The diagonal of a complex R is not negative.
pub(crate) fn qr<T: MatrixElement>(a: HostMatrices<T>, count: usize) -> [HostMatrices<T>; 2] {
    let found = PackedQr::new(a);
    let (mut q, mut r) = (found.orthonormal(count), found.packed.upper(count));
    if !T::IS_REAL {
        for i in 0..r.count {
            for k in 0..count.min(r.columns) {
                let diagonal = r.at(i, k, k);
                let size = diagonal.abs();
                if size == T::Real::zero() {
                    continue;
                }
                let phase = diagonal.mul_real(size.recip());
                let (rows, own) = (q.rows, count);
                q.one_mut(i)[k * rows..][..rows].iter_mut().for_each(|x| *x *= phase);
                r.one_mut(i).iter_mut().skip(k).step_by(own.max(1)).for_each(|x| *x = phase.conj() * *x);
            }
        }
    }
    [q, r]
}

/// The least-squares solutions X of `A[i] @ X = B[j]` for pairs `(i, j)`, of smallest norm; `None` if a matrix may lack
/// full rank, with singular values of at most `tolerance` times the largest counting as zeros.
pub(crate) fn least_squares<T: RealElement>(
    a: HostMatrices<T>,
    b: &HostMatrices<T>,
    pairs: &[(usize, usize)],
    tolerance: f64,
) -> Option<HostMatrices<T>> {
    let (rows, columns) = (a.rows, a.columns);
    let size = rows.min(columns);
    let decomposed = PackedQr::new(if rows < columns { a.transposed() } else { a });
    let packed = &decomposed.packed;
    let square = packed.upper(size);
    let mut inverse = HostMatrices::zeros(1, size, size);
    let norm = |all: &[T]| all.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt();
    for i in 0..square.count {
        triangular_inverse::invert_upper_triangular(inverse.view_mut(0), square.view(i), Par::Seq);
        // The norms of Frobenius bound the largest singular values of R and of its inverse.
        let condition = norm(square.one(i)) * norm(inverse.one(0));
        if !(condition * tolerance < 1.0 && condition.is_finite()) {
            return None;
        }
    }
    let mut result = HostMatrices::zeros(pairs.len(), columns, b.columns);
    for (k, (i, j)) in pairs.iter().enumerate() {
        if rows < columns {
            // A = R^T Q^T with the QR decomposition of the transpose.
            let lower = MatRef::from_column_major_slice(square.one(*i), size, size).transpose();
            let mut x = result.view_mut(k);
            x.rb_mut().subrows_mut(0, size).copy_from(b.view(*j));
            triangular_solve::solve_lower_triangular_in_place(lower, x.rb_mut().subrows_mut(0, size), Par::Seq);
            decomposed.apply(*i, false, x);
        } else {
            let mut x = HostMatrices { count: 1, rows, columns: b.columns, elements: b.one(*j).to_vec() };
            decomposed.apply(*i, true, x.view_mut(0));
            let mut first = x.view_mut(0).subrows_mut(0, size);
            triangular_solve::solve_upper_triangular_in_place(square.view(*i), first.rb_mut(), Par::Seq);
            result.view_mut(k).copy_from(first);
        }
    }
    Some(result)
}

/// The vectors of a singular value decomposition that are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingularVectors {
    None,
    /// One vector for each singular value.
    Reduced,
    /// Square U and Vh.
    Full,
}

/// The singular value decompositions `a = U diag(S) Vh` of matrices.
pub(crate) struct Singular<T> {
    pub(crate) u: HostMatrices<T>,
    /// The singular values of all matrices, in descending order for each.
    pub(crate) values: Vec<f64>,
    pub(crate) vh: HostMatrices<T>,
}

/// The singular value decompositions of matrices; `None` without convergence.
pub(crate) fn svd<T: MatrixElement>(a: &HostMatrices<T>, wanted: SingularVectors) -> Option<Singular<T>> {
    let (rows, columns) = (a.rows, a.columns);
    let count = rows.min(columns);
    if !a.is_finite() {
        return None;
    }
    let (across, down, computed) = match wanted {
        SingularVectors::None => (0, 0, faer_svd::ComputeSvdVectors::No),
        SingularVectors::Reduced => (count, count, faer_svd::ComputeSvdVectors::Thin),
        SingularVectors::Full => (rows, columns, faer_svd::ComputeSvdVectors::Full),
    };
    let (mut u, mut v) = (HostMatrices::zeros(a.count, rows, across), HostMatrices::zeros(a.count, columns, down));
    let mut values = vec![0.0; a.count * count];
    let mut diagonal = vec![T::zero(); count];
    let mut params = <faer_svd::SvdParams as faer::Auto<T>>::auto();
    params.recursion_threshold = UNDIVIDED_MAX;
    let request = faer_svd::svd_scratch::<T>(rows, columns, computed, computed, Par::Seq, params.into());
    with_memory(request, |memory| {
        (0..a.count).try_for_each(|i| {
            let (own_u, own_v) = match wanted {
                SingularVectors::None => (None, None),
                _ => (Some(u.view_mut(i)), Some(v.view_mut(i))),
            };
            let found = DiagMut::from_slice_mut(&mut diagonal);
            faer_svd::svd(a.view(i), found, own_u, own_v, Par::Seq, memory, params.into()).ok()?;
            let own = &mut values[i * count..][..count];
            own.iter_mut().zip(&diagonal).for_each(|(value, x)| *value = x.to_c64().re);
            if wanted != SingularVectors::None && count > 0 {
                turn(u.one_mut(i), rows, own, v.one(i), columns);
            }
            Some(())
        })
    })?;
    let mut vh = v.transposed();
    if !T::IS_REAL {
        vh.elements.iter_mut().for_each(|x| *x = x.conj());
    }
    Some(Singular { u, values, vh })
}

/// Turns the left vectors of singular values that are zero up to rounding towards the right ones. Their sign is free;
/// this one gives the nuclear norm of a singular matrix that is positive semidefinite the gradient of a regular one
/// close to it.
fn turn<T: MatrixElement>(u: &mut [T], rows: usize, values: &[f64], v: &[T], columns: usize) {
    let zero = values[0] * T::EPSILON * rows.max(columns) as f64;
    for (k, _) in values.iter().enumerate().filter(|(_, value)| **value <= zero) {
        let (left, right) = (&mut u[k * rows..][..rows], &v[k * columns..][..columns]);
        let along: f64 = left.iter().zip(right).map(|(x, y)| (*x * y.conj()).to_c64().re).sum();
        if along < 0.0 {
            left.iter_mut().for_each(|x| *x = T::zero() - *x);
        }
    }
}

/// The pseudoinverses `V diag(scales) U^H`, with the scale of each singular value.
pub(crate) fn pseudoinverses<T: MatrixElement>(found: &Singular<T>, scales: &[f64]) -> HostMatrices<T> {
    let (rows, columns, size) = (found.u.rows, found.vh.columns, found.u.columns);
    let mut result = HostMatrices::zeros(found.u.count, columns, rows);
    for i in 0..result.count {
        let scaled = HostMatrices::of(1, columns, size, |_, j, k| {
            found.vh.at(i, k, j).conj() * T::from_f64_impl(scales[i * size + k])
        });
        let (left, right) = (scaled.view(0), found.u.view(i).adjoint());
        matmul::matmul(result.view_mut(i), Accum::Replace, left, right, T::one(), Par::Seq);
    }
    result
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn product<T: MatrixElement>(a: &HostMatrices<T>, b: &HostMatrices<T>) -> HostMatrices<T> {
        let element = |i: usize, row: usize, column: usize| {
            (0..a.columns).fold(T::zero(), |sum, k| sum + a.at(i, row, k) * b.at(i, k, column))
        };
        HostMatrices::of(a.count, a.rows, b.columns, element)
    }

    pub fn adjoint<T: MatrixElement>(a: &HostMatrices<T>) -> HostMatrices<T> {
        HostMatrices::of(a.count, a.columns, a.rows, |i, row, column| a.at(i, column, row).conj())
    }

    pub fn identity<T: MatrixElement>(size: usize) -> HostMatrices<T> {
        diagonal(size, size, &vec![T::one(); size])
    }

    pub fn diagonal<T: MatrixElement>(rows: usize, columns: usize, values: &[T]) -> HostMatrices<T> {
        HostMatrices::of(1, rows, columns, |_, i, j| if i == j { values[i] } else { T::zero() })
    }

    pub fn assert_close<T: MatrixElement>(a: &HostMatrices<T>, b: &HostMatrices<T>) {
        assert_eq!((a.count, a.rows, a.columns), (b.count, b.rows, b.columns));
        let largest = b.elements.iter().map(|x| x.to_c64().norm()).fold(1.0, f64::max);
        let error = a.elements.iter().zip(&b.elements).map(|(x, y)| (*x - *y).to_c64().norm()).fold(0.0, f64::max);
        let limit = 20.0 * T::EPSILON * largest * (a.rows + a.columns) as f64;
        assert!(error <= limit, "{error} > {limit} of {} by {}", a.rows, a.columns);
    }

    fn number<T: MatrixElement>(x: f64) -> T {
        T::from_f64_impl(x)
    }

    /// Matrices of several shapes and ranks: full, 1, 0, and with equal singular values.
    pub fn samples<T: MatrixElement>(imaginary: T) -> Vec<HostMatrices<T>> {
        let mut samples = Vec::new();
        let sizes = [(1, 1), (1, 4), (4, 1), (3, 3), (5, 3), (3, 5), (8, 8), (20, 7), (40, 40), (70, 20), (20, 70)];
        for (rows, columns) in sizes {
            samples.push(HostMatrices::of(1, rows, columns, |_, i, j| {
                number::<T>(((i * 7 + j * 13 + i * j * 5) as f64).sin())
                    + imaginary * number::<T>(((i * 3 + j) as f64).cos())
            }));
            samples.push(HostMatrices::of(1, rows, columns, |_, i, j| number(((i + 1) * (j + 1)) as f64)));
            samples.push(HostMatrices::zeros(1, rows, columns));
            samples.push(diagonal(rows, columns, &vec![T::one(); rows.min(columns)]));
        }
        samples
    }

    /// LU, QR and singular value decompositions multiply to the matrix, and their factors are what they should be.
    fn check_factors<T: MatrixElement>(imaginary: T) {
        for a in samples(imaginary) {
            let count = a.rows.min(a.columns);
            let lu = PackedLu::new(a.clone());
            let order = row_order(a.rows, lu.exchanges(0));
            let restored = product(&lu.lower(), &lu.packed.upper(count));
            assert_close(&product(&permutations(&[order], a.rows), &restored), &a);
            assert!(lu.lower().elements.iter().all(|x| x.to_c64().norm() <= 1.5), "not the largest pivots");
            let [q, r] = qr(a.clone(), a.rows);
            assert_close(&product(&q, &r), &a);
            assert_close(&product(&adjoint(&q), &q), &identity(a.rows));
            let alone = svd(&a, SingularVectors::None).unwrap().values;
            for wanted in [SingularVectors::Reduced, SingularVectors::Full] {
                let Singular { u, values, vh } = svd(&a, wanted).unwrap();
                let numbers: Vec<T> = values.iter().map(|x| number(*x)).collect();
                assert_close(&product(&u, &product(&diagonal(u.columns, vh.rows, &numbers), &vh)), &a);
                assert_close(&product(&adjoint(&u), &u), &identity(u.columns));
                assert_close(&product(&vh, &adjoint(&vh)), &identity(vh.rows));
                assert!(values.is_sorted_by(|x, y| x >= y) && values.iter().all(|x| *x >= 0.0));
                let alone: Vec<T> = alone.iter().map(|x| number(*x)).collect();
                assert_close(&diagonal(count, count, &alone), &diagonal(count, count, &numbers));
            }
        }
    }

    /// Cholesky factors multiply to the matrix; packed QR decompositions are those of LAPACK.
    fn check_real_factors<T: RealElement>() {
        for a in samples(T::zero()) {
            let gram = product(&a, &adjoint(&a));
            let largest = gram.elements.iter().fold(T::one(), |x, y| if x > y.abs() { x } else { y.abs() });
            let scaled = HostMatrices::of(1, a.rows, a.rows, |_, i, j| gram.at(0, i, j) / largest);
            let one = identity::<T>(a.rows);
            let positive = HostMatrices::of(1, a.rows, a.rows, |_, i, j| scaled.at(0, i, j) + one.at(0, i, j));
            let mut factor = positive.clone();
            assert_eq!(cholesky(&mut factor), [0]);
            assert_eq!(factor.clone().transposed().upper(a.rows), factor.clone().transposed());
            assert_close(&product(&factor, &adjoint(&factor)), &positive);

            let packed = PackedQr::new(a.clone());
            let factors = packed.factors();
            let mut q = identity::<T>(a.rows);
            for (k, tau) in factors.iter().enumerate() {
                let v = HostMatrices::of(1, a.rows, 1, |_, i, _| match i.cmp(&k) {
                    std::cmp::Ordering::Less => T::zero(),
                    std::cmp::Ordering::Equal => T::one(),
                    std::cmp::Ordering::Greater => packed.packed.at(0, i, k),
                });
                let along = product(&product(&q, &v), &adjoint(&v));
                q = HostMatrices::of(1, a.rows, a.rows, |_, i, j| q.at(0, i, j) - *tau * along.at(0, i, j));
            }
            assert_close(&product(&q, &packed.packed.upper(a.rows)), &a);
        }
    }

    #[test]
    fn factors_give_the_matrix_back() {
        check_factors(0f32);
        check_factors(0f64);
        check_factors(c64::new(0.0, 1.0));
        check_real_factors::<f32>();
        check_real_factors::<f64>();
    }

    #[test]
    fn inverses_and_solutions_solve_systems() {
        for size in [0, 1, 2, 3, 4, LOOPS_MAX, LOOPS_MAX + 1, ELIMINATED_MAX, ELIMINATED_MAX + 1, SUBSTITUTED_MAX, 50] {
            let a = HostMatrices::of(2, size, size, |i, row, column| {
                ((i + row * 7 + column * 13 + row * column * 5) as f64).sin() + f64::from(u8::from(row == column)) * 4.0
            });
            let lu = PackedLu::new(a.clone());
            let ones = HostMatrices::of(2, size, size, |_, row, column| f64::from(u8::from(row == column)));
            assert_close(&product(&a, &lu.inverses()), &ones);
            let lower = HostMatrices::of(2, size, size, |i, j, k| if j >= k { a.at(i, j, k) } else { 0.0 });
            for columns in [0, 1, 2, 3] {
                let b = HostMatrices::of(2, size, columns, |i, row, column| (i + row + column) as f64);
                let mut x = b.clone();
                (0..2).for_each(|i| lu.solve(i, x.one_mut(i)));
                assert_close(&product(&a, &x), &b);
                let mut x = b.clone();
                (0..2).for_each(|i| lu.solve_transposed(i, x.one_mut(i)));
                assert_close(&product(&adjoint(&a), &x), &b);
                let mut x = b.clone();
                (0..2).for_each(|i| substitute(a.one(i), size, Triangle::Lower, x.one_mut(i)));
                assert_close(&product(&lower, &x), &b);
            }
        }
    }

    #[test]
    fn small_matrices_have_the_inverses_of_the_decomposition() {
        for size in 0..6 {
            let a = HostMatrices::of(3, size, size, |i, row, column| {
                // The largest elements are off the diagonal, so that rows are exchanged.
                ((i * 3 + row * 7 + column * 13) as f64).sin() + if (row + 1) % size == column { 3.0 } else { 0.0 }
            });
            let lu = PackedLu::new(a.clone());
            assert_close(&inverses(a.clone()).unwrap(), &lu.inverses());
            let ones = HostMatrices::of(3, size, size, |_, row, column| f64::from(u8::from(row == column)));
            assert_close(&product(&a, &inverses(a.clone()).unwrap()), &ones);
            if size > 0 {
                let equal = HostMatrices::of(2, size, size, |i, row, _| if i == 0 { 0.0 } else { row as f64 });
                assert!(inverses(equal).is_none(), "{size}");
                let wrong = HostMatrices::of(1, size, size, |_, _, _| f64::NAN);
                assert!(!inverses(wrong).unwrap().is_finite());
            }
        }
    }

    /// Elements whose squares are beyond the range of the numbers, and columns that are zero or multiples of others.
    #[test]
    fn small_decompositions_keep_to_the_range_of_their_numbers() {
        for scale in [1.0, 1e-30, 1e-19, 1e25, 1e35] {
            for (rows, columns) in [(1, 1), (6, 4), (4, 6), (12, 12), (60, 20)] {
                for rank in [0, 1, 2, columns] {
                    let a = HostMatrices::of(2, rows, columns, |i, row, column| {
                        let x = ((i + row * 7 + column % rank.max(1) * 13 + row * row) as f64).sin();
                        if rank == 0 { 0.0 } else { (x * scale) as f32 }
                    });
                    let [q, r] = qr(a.clone(), rows.min(columns));
                    let apart = |x: &HostMatrices<f32>, y: &HostMatrices<f32>| {
                        let apart = x.elements.iter().zip(&y.elements).map(|(x, y)| (x.to_f64() - y.to_f64()).abs());
                        apart.fold(0.0, f64::max)
                    };
                    let wide = |all: &HostMatrices<f32>| {
                        HostMatrices::of(all.count, all.rows, all.columns, |i, j, k| all.at(i, j, k).to_f64())
                    };
                    let restored = product(&wide(&q), &wide(&r));
                    let restored =
                        HostMatrices::of(2, rows, columns, |i, row, column| restored.at(i, row, column) as f32);
                    let limit = 20.0 * f64::from(f32::EPSILON) * (rows + columns) as f64;
                    assert!(apart(&restored, &a) <= limit * scale, "{rows} by {columns}, {rank}, {scale}");
                    let ones = HostMatrices::of(2, q.columns, q.columns, |_, j, k| f32::from(u8::from(j == k)));
                    let error = apart(&product(&adjoint(&q), &q), &ones);
                    assert!(error <= limit, "{error}: {rows} by {columns}, {rank}, {scale}");
                    let lower = |i: usize, j: usize, k: usize| j <= k || r.at(i, j, k) == 0.0;
                    assert!((0..2).all(|i| (0..r.rows).all(|j| (0..columns).all(|k| lower(i, j, k)))));
                }
            }
        }
    }

    #[test]
    fn least_squares_is_found_for_full_rank_alone() {
        for a in samples(0f64) {
            let b = HostMatrices::of(1, a.rows, 2, |_, i, j| (i + 2 * j) as f64);
            let count = a.rows.min(a.columns);
            let found = svd(&a, SingularVectors::Reduced).unwrap();
            let full = found.values[count - 1] > 1e-12 * found.values[0];
            let solved = least_squares(a.clone(), &b, &[(0, 0)], 1e-12);
            assert_eq!(solved.is_some(), full, "{} by {}", a.rows, a.columns);
            if let Some(x) = solved {
                let scales: Vec<f64> = found.values.iter().map(|x| 1.0 / x).collect();
                assert_close(&x, &product(&pseudoinverses(&found, &scales), &b));
            }
        }
    }

    #[test]
    fn faults_are_found() {
        for size in [3, 20, 40] {
            let singular =
                HostMatrices::of(
                    1,
                    size,
                    size,
                    |_, i, j| if i == 1 { 0.0 } else { ((i * i + 1) as f64 * j as f64).cos() },
                );
            let lu = PackedLu::new(singular);
            assert!(lu.is_singular());
            assert_eq!(lu.first_zero_pivots(), [size]);
            assert_eq!(lu.determinants().next(), Some(c64::new(0.0, 0.0)));
            assert_eq!(lu.log_determinants().next().unwrap().1, f64::NEG_INFINITY);
            let mut indefinite = HostMatrices::of(1, size, size, |_, i, j| if i == j { 1.0 } else { 2.0 });
            assert_eq!(cholesky(&mut indefinite), [2]);
            for wrong in [f64::NAN, f64::INFINITY] {
                let a = HostMatrices::zeros(1, size, size).filled(wrong);
                assert!(svd(&a, SingularVectors::Reduced).is_none());
                assert_ne!(cholesky(&mut a.clone()), [0]);
                assert!(qr(a.clone(), size)[0].elements.iter().all(|x| x.is_nan()));
                assert!(least_squares(a.clone(), &a, &[(0, 0)], 1e-12).is_none());
                assert!(!PackedLu::new(a).inverses().is_finite());
            }
        }
    }
}
