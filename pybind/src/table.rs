//! The op table, for the Python side to derive methods, stubs, docs and tests from.

use gt_ops::DTypeSet;
use gt_ops::row::{Promotion, ROWS, ResultDType};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

fn names(set: DTypeSet) -> Vec<&'static str> {
    set.iter().map(|d| d.name()).collect()
}

/// The rows of the op table, a dict each.
#[pyfunction]
fn op_table(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for row in ROWS {
        let entry = PyDict::new(py);
        entry.set_item("name", row.name)?;
        entry.set_item("wire_id", row.op as u16)?;
        entry.set_item("class", row.class.name())?;
        entry.set_item("operands", row.operands)?;
        entry.set_item("accepts", names(row.accepts))?;
        entry.set_item(
            "promotion",
            match row.promotion {
                Promotion::Common => "common",
                Promotion::Float => "float",
                Promotion::Sum => "sum",
                Promotion::None => "none",
            },
        )?;
        entry.set_item(
            "result",
            match row.result {
                ResultDType::Same => "same",
                ResultDType::Bool => "bool",
                ResultDType::Index => "int64",
                ResultDType::Float32 => "float32",
                ResultDType::Attr => "given",
            },
        )?;
        entry.set_item("differentiable", row.grad.is_some())?;
        entry.set_item("doc", row.doc)?;
        entry.set_item("reference", row.reference)?;
        entry.set_item("domain", row.domain.to_vec())?;
        entry.set_item("divisor_nonzero", row.divisor_nonzero)?;
        entry.set_item("tensors_only", row.tensors_only)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// Adds the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(op_table, module)?)
}
