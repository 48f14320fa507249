//! The instruction set of GT: dtypes, shapes, the op table, its rules, gradients and wire encoding.
