//! Reading the daemon's tape: live, as a permitted observer, or from a file that `GT_INSTRUCTION_LOG` or `gtctl trace`
//! wrote. Both are a sequence of [`LogLine`](gt_ops::event::LogLine)s, which everything else here takes.
//!
//! It must not know the daemon's insides nor the command line. Start reading at [`source`]. [`steps`] pairs the
//! beginning and the end of each step, [`totals`] sums them by operation, [`timeline`] arranges them in time,
//! [`chrome`] writes a timeline for <https://ui.perfetto.dev>, and [`picture`] draws it. [`activity`] tells what is done
//! at present, [`recording`] what was done last before something died, [`event_lines`] which lines of programs issued
//! instructions, and [`explanation`] why a program is slow. [`work_kind`] groups operations, and [`spans`] are sets of
//! times.

pub mod activity;
pub mod chrome;
pub mod event_lines;
pub mod explanation;
pub mod picture;
pub mod recording;
pub mod source;
pub mod spans;
pub mod steps;
pub mod timeline;
pub mod totals;
pub mod work_kind;
