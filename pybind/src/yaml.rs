//! YAML as Python objects with their positions in the text.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

/// Parses YAML. Each node is a tuple of its line, column, kind (`null`, `bool`, `int`, `float`, `str`, `list` or `map`)
/// and content. The content of a map is a list of pairs of nodes.
#[pyfunction]
fn read_yaml<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyTuple>> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| {
        PyValueError::new_err((error.marker().line(), error.marker().col() + 1, error.info().to_owned()))
    })?;
    match documents.as_slice() {
        [document] => node(py, document),
        [] => Err(PyValueError::new_err((1, 1, "there is nothing in it"))),
        [_, second, ..] => {
            let start = second.span.start;
            Err(PyValueError::new_err((start.line(), start.col() + 1, "a second document; one is expected")))
        }
    }
}

fn node<'py>(py: Python<'py>, yaml: &MarkedYaml<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let start = yaml.span.start;
    let (kind, holds) = match &yaml.data {
        YamlData::Value(Scalar::Null) => ("null", py.None().into_bound(py)),
        YamlData::Value(Scalar::Boolean(b)) => ("bool", b.into_pyobject(py)?.to_owned().into_any()),
        YamlData::Value(Scalar::Integer(n)) => ("int", n.into_pyobject(py)?.into_any()),
        YamlData::Value(Scalar::FloatingPoint(x)) => ("float", x.into_inner().into_pyobject(py)?.into_any()),
        YamlData::Value(Scalar::String(text)) => ("str", text.as_ref().into_pyobject(py)?.into_any()),
        YamlData::Sequence(items) => {
            let items = items.iter().map(|item| node(py, item)).collect::<PyResult<Vec<_>>>()?;
            ("list", PyList::new(py, items)?.into_any())
        }
        YamlData::Mapping(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| PyTuple::new(py, [node(py, key)?, node(py, value)?]));
            ("map", PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
        _ => {
            return Err(PyValueError::new_err((
                start.line(),
                start.col() + 1,
                "a tag or a value that is not understood",
            )));
        }
    };
    (start.line(), start.col() + 1, kind, holds).into_pyobject(py)
}

/// Adds the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_yaml, module)?)
}
