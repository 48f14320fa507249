//! The CUDA C++ sources in `kernels/`, embedded in the program.

/// A header: its name in `kernels/`, and its text.
pub type Header = (&'static str, &'static str);

/// The headers that kernels may include.
pub static HEADERS: &[Header] = &[
    ("attention.cuh", include_str!("../kernels/attention.cuh")),
    ("attention_mma.cuh", include_str!("../kernels/attention_mma.cuh")),
    ("attention_mma_backward.cuh", include_str!("../kernels/attention_mma_backward.cuh")),
    ("checks.cuh", include_str!("../kernels/checks.cuh")),
    ("columns.cuh", include_str!("../kernels/columns.cuh")),
    ("create.cuh", include_str!("../kernels/create.cuh")),
    ("ctc.cuh", include_str!("../kernels/ctc.cuh")),
    ("elementwise.cuh", include_str!("../kernels/elementwise.cuh")),
    ("fourier.cuh", include_str!("../kernels/fourier.cuh")),
    ("index.cuh", include_str!("../kernels/index.cuh")),
    ("loss.cuh", include_str!("../kernels/loss.cuh")),
    ("lstm.cuh", include_str!("../kernels/lstm.cuh")),
    ("math.cuh", include_str!("../kernels/math.cuh")),
    ("matmul.cuh", include_str!("../kernels/matmul.cuh")),
    ("mma.cuh", include_str!("../kernels/mma.cuh")),
    ("move.cuh", include_str!("../kernels/move.cuh")),
    ("norm.cuh", include_str!("../kernels/norm.cuh")),
    ("philox.cuh", include_str!("../kernels/philox.cuh")),
    ("reduce.cuh", include_str!("../kernels/reduce.cuh")),
    ("rows.cuh", include_str!("../kernels/rows.cuh")),
    ("scan.cuh", include_str!("../kernels/scan.cuh")),
    ("search.cuh", include_str!("../kernels/search.cuh")),
    ("sort.cuh", include_str!("../kernels/sort.cuh")),
    ("special.cuh", include_str!("../kernels/special.cuh")),
    ("team.cuh", include_str!("../kernels/team.cuh")),
    ("tensors.cuh", include_str!("../kernels/tensors.cuh")),
    ("types.cuh", include_str!("../kernels/types.cuh")),
    ("walk.cuh", include_str!("../kernels/walk.cuh")),
    ("window.cuh", include_str!("../kernels/window.cuh")),
];

/// The headers that `source` includes, directly or not.
pub fn included(source: &str) -> Vec<&'static Header> {
    let named = |text: &str| -> Vec<&'static Header> {
        let includes = |name: &str| text.contains(&format!("#include \"{name}\""));
        HEADERS.iter().filter(|(name, _)| includes(name)).collect()
    };
    let mut all = named(source);
    let mut next = 0;
    while let Some((_, text)) = all.get(next) {
        for header in named(text) {
            if !all.contains(&header) {
                all.push(header);
            }
        }
        next += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_through_those_that_include_them() {
        let names = |source: &str| included(source).iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names("int x;"), [""; 0]);
        assert_eq!(names("#include \"special.cuh\"\n"), ["special.cuh", "math.cuh", "types.cuh"]);
    }
}
