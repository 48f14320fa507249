//! Windows of convolutions and pools for tests that compare two backends.

use gt_ops::WindowSpec;
use gt_ops::build::window::WindowParameters;

/// Stride, dilation, padding before and after, sizes of the kernel and of the input.
pub type WindowSizes =
    (&'static [i64], &'static [i64], &'static [i64], &'static [i64], &'static [usize], &'static [usize]);

/// Windows along one to three axes.
pub const WINDOWS: [WindowSizes; 9] = [
    (&[1], &[1], &[0], &[0], &[1], &[5]),
    (&[2], &[3], &[2], &[1], &[3], &[11]),
    (&[1, 1], &[1, 1], &[1, 1], &[1, 1], &[3, 3], &[6, 7]),
    (&[2, 1], &[1, 2], &[0, 2], &[1, 1], &[2, 3], &[7, 5]),
    (&[3, 3], &[1, 1], &[0, 0], &[0, 0], &[2, 2], &[9, 8]),
    (&[1, 1], &[1, 1], &[0, 0], &[0, 0], &[1, 1], &[4, 5]),
    (&[4, 4], &[1, 1], &[3, 0], &[0, 3], &[4, 4], &[9, 13]),
    (&[1, 2, 1], &[1, 1, 2], &[1, 0, 1], &[0, 1, 1], &[2, 2, 2], &[3, 5, 4]),
    (&[2, 2, 2], &[2, 1, 1], &[1, 1, 1], &[1, 1, 1], &[2, 3, 1], &[5, 4, 3]),
];

/// The window of these sizes.
///
/// # Panics
/// If they are no window.
pub fn window_spec((stride, dilation, low, high, kernel, input): WindowSizes, groups: i64) -> WindowSpec {
    WindowParameters { stride, low, high, dilation, groups }.spec(input, kernel).expect("a window of the test")
}
