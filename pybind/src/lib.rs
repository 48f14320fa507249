//! The Python package of GT.
