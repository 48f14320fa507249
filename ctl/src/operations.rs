//! Totals by operation as a table, for `gtctl trace` and `gtctl top`.

use crate::table::{Table, bytes};
use gt_tape::chrome::TimelineNames;
use gt_tape::totals::OperationTotal;
use serde::Serialize;

/// A total with the worker's name.
#[derive(Clone, Debug, Serialize)]
pub struct NamedTotal {
    /// The name of the worker.
    pub worker: String,
    /// The total.
    #[serde(flatten)]
    pub total: OperationTotal,
}

/// Names the workers of totals.
pub fn named_totals(totals: Vec<OperationTotal>, names: &TimelineNames) -> Vec<NamedTotal> {
    let named = |total: OperationTotal| NamedTotal { worker: names.worker(total.worker.into()), total };
    totals.into_iter().map(named).collect()
}

/// The first `most` totals as a table.
pub fn operations_table(operations: &[NamedTotal], most: usize) -> String {
    let mut table = Table::new(&[
        ("OPERATION", false),
        ("KIND", false),
        ("WORKER", false),
        ("COUNT", true),
        ("TIME", true),
        ("MEAN", true),
        ("BYTES", true),
    ]);
    for NamedTotal { worker, total } in operations.iter().take(most) {
        let about = if total.estimated_ns * 2 > total.time_ns { "~" } else { "" };
        table.row(vec![
            total.operation.into(),
            total.kind.name().into(),
            worker.clone(),
            total.count.to_string(),
            format!("{about}{}", short_time(total.time_ns)),
            format!("{about}{}", short_time(total.time_ns / total.count.max(1))),
            bytes(total.bytes),
        ]);
    }
    table.text()
}

/// A time in the unit that suits it.
pub fn short_time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        0.0..1e3 => format!("{ns:.0} ns"),
        0.0..1e6 => format!("{:.1} us", ns / 1e3),
        0.0..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let times = [(999, "999 ns"), (1500, "1.5 us"), (2_000_000, "2.0 ms"), (61_000_000_000, "61.00 s")];
        for (ns, text) in times {
            assert_eq!(short_time(ns), text);
        }
    }
}
