//! Eigenvalues and eigenvectors of square matrices that need not be symmetric, by faer's Schur decomposition.
//!
//! They are computed in double precision. Eigenvectors are scaled as LAPACK's `geev` does: each has length 1, and its
//! largest element is real.

use crate::dense::{HostMatrices, MatrixElement, with_memory};
use faer::diag::DiagMut;
use faer::linalg::evd::{self, ComputeEigenvectors, EvdParams};
use faer::{Auto, MatMut, MatRef, Par, c64};

/// The eigenvalues of each matrix, and its eigenvectors as columns.
pub(crate) type Eigenpairs = (Vec<c64>, HostMatrices<c64>);

/// An element of a matrix whose eigenvalues are found in its own type of numbers.
pub(crate) trait EigenElement: MatrixElement {
    /// The eigenvalues of one matrix, and its eigenvectors if there is room for them; `None` without convergence.
    fn eigen(a: MatRef<'_, Self>, values: &mut [c64], vectors: Option<MatMut<'_, c64>>) -> Option<()>;
}

impl EigenElement for f64 {
    fn eigen(a: MatRef<'_, f64>, values: &mut [c64], vectors: Option<MatMut<'_, c64>>) -> Option<()> {
        let size = a.nrows();
        let (mut re, mut im) = (vec![0.0; size], vec![0.0; size]);
        let mut packed = HostMatrices::<f64>::zeros(usize::from(vectors.is_some()), size, size);
        let params = <EvdParams as Auto<f64>>::auto();
        let request = evd::evd_scratch::<f64>(size, ComputeEigenvectors::No, wanted(&vectors), Par::Seq, params.into());
        with_memory(request, |memory| {
            let own = vectors.is_some().then(|| packed.view_mut(0));
            let (re, im) = (DiagMut::from_slice_mut(&mut re), DiagMut::from_slice_mut(&mut im));
            evd::evd_real(a, re, im, None, own, Par::Seq, memory, params.into()).ok()
        })?;
        values.iter_mut().zip(re.iter().zip(&im)).for_each(|(value, (re, im))| *value = c64::new(*re, *im));
        let Some(mut vectors) = vectors else { return Some(()) };
        for column in 0..size {
            // A pair of conjugate eigenvalues has two columns: the real and the imaginary parts of the first one's.
            let (first, sign) = match im[column] {
                0.0 => (column, 0.0),
                im if im > 0.0 => (column, 1.0),
                _ => (column - 1, -1.0),
            };
            for row in 0..size {
                let imaginary = if sign == 0.0 { 0.0 } else { sign * packed.at(0, row, first + 1) };
                vectors[(row, column)] = c64::new(packed.at(0, row, first), imaginary);
            }
        }
        Some(())
    }
}

impl EigenElement for c64 {
    fn eigen(a: MatRef<'_, c64>, values: &mut [c64], vectors: Option<MatMut<'_, c64>>) -> Option<()> {
        let params = <EvdParams as Auto<c64>>::auto();
        let (size, wanted) = (a.nrows(), wanted(&vectors));
        let request = evd::evd_scratch::<c64>(size, ComputeEigenvectors::No, wanted, Par::Seq, params.into());
        with_memory(request, |memory| {
            evd::evd_cplx(a, DiagMut::from_slice_mut(values), None, vectors, Par::Seq, memory, params.into()).ok()
        })
    }
}

fn wanted(vectors: &Option<MatMut<'_, c64>>) -> ComputeEigenvectors {
    if vectors.is_some() { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No }
}

/// The eigenvalues of square matrices, and eigenvectors if they are `wanted`; `None` without convergence, as for a
/// matrix with an element that is not finite.
pub(crate) fn general_eigen<T: EigenElement>(a: &HostMatrices<T>, wanted: bool) -> Option<Eigenpairs> {
    let size = a.rows;
    let mut values = vec![c64::new(0.0, 0.0); a.count * size];
    let mut vectors = HostMatrices::zeros(if wanted { a.count } else { 0 }, size, size);
    if size == 0 {
        return Some((values, vectors));
    }
    for (i, values) in values.chunks_exact_mut(size).enumerate() {
        T::eigen(a.view(i), values, wanted.then(|| vectors.view_mut(i)))?;
    }
    vectors.elements.chunks_exact_mut(size).for_each(scale);
    Some((values, vectors))
}

/// Gives a vector length 1. The largest element of a complex one becomes a positive real number; real ones keep their
/// signs.
fn scale(vector: &mut [c64]) {
    let largest = vector.iter().copied().fold(c64::new(0.0, 0.0), |a, b| if b.norm() > a.norm() { b } else { a });
    let is_real = vector.iter().all(|x| x.im == 0.0);
    // Dividing first keeps the squares within range.
    let by = if is_real { c64::new(largest.norm(), 0.0) } else { largest };
    if largest.norm() == 0.0 {
        return;
    }
    vector.iter_mut().for_each(|x| *x /= by);
    let length = vector.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt();
    vector.iter_mut().for_each(|x| *x /= length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::tests::{assert_close, diagonal, product, samples};

    fn check<T: EigenElement>(imaginary: T) {
        for a in samples::<T>(imaginary).into_iter().filter(|a| a.rows == a.columns) {
            let (values, vectors) = general_eigen(&a, true).unwrap();
            let complex = HostMatrices::of(a.count, a.rows, a.rows, |i, row, column| a.at(i, row, column).to_c64());
            let of_values = diagonal(a.rows, a.rows, &values);
            assert_close(&product(&complex, &vectors), &product(&vectors, &of_values));
            for vector in vectors.elements.chunks_exact(a.rows) {
                assert!((vector.iter().map(|x| x.norm_sqr()).sum::<f64>() - 1.0).abs() < 1e-12);
            }
            let (alone, none) = general_eigen(&a, false).unwrap();
            assert_eq!((alone.len(), none.count), (values.len(), 0));
        }
    }

    #[test]
    fn a_matrix_scales_its_eigenvectors_by_its_eigenvalues() {
        check(0.0);
        check(c64::new(0.0, 1.0));
    }

    #[test]
    fn a_turn_by_a_right_angle_has_imaginary_eigenvalues() {
        let turn = HostMatrices { count: 1, rows: 2, columns: 2, elements: vec![0.0, 1.0, -1.0, 0.0] };
        let (values, _) = general_eigen(&turn, true).unwrap();
        assert_eq!(values.iter().map(|x| (x.re, x.im.abs())).collect::<Vec<_>>(), [(0.0, 1.0); 2]);
        assert_eq!(values[0], values[1].conj());
    }

    #[test]
    fn a_matrix_with_an_element_that_is_not_finite_has_none() {
        let a = HostMatrices { count: 1, rows: 2, columns: 2, elements: vec![0.0, f64::NAN, 1.0, 0.0] };
        assert!(general_eigen(&a, true).is_none());
    }
}
