//! The instruction set of GT: dtypes, shapes, the op table, its rules, gradients and wire encoding.
//!
//! This crate is plain data and pure functions: it must not know memory, threads, I/O or devices, and has no `unsafe`.
//! The other crates derive from it: the client its shape errors and gradients, the daemon its validation, a backend its
//! kernels, the Python package its methods and reference page.
//!
//! Start at `table/`: one row per primitive op. [`op`] makes the enum of the table, [`row`] the rows. [`infer`] holds
//! the shape and dtype rule of each class of op, [`grad`] the gradients, [`build`] the builders that a user's call
//! reaches (promotion, broadcasting, negative axes, composites), [`batching`] the rules of ops on batches,
//! [`propagate`] the sharding rules, and [`wire`] the 64-byte slots in which instructions travel. [`expr`] is the
//! notation in which composites and gradients are written.
#![forbid(unsafe_code)]

pub mod batching;
pub mod build;
pub mod class;
pub mod composed;
pub mod cost;
mod docstring;
pub mod dtype;
pub mod error;
pub mod event;
pub mod expr;
pub mod failure;
pub mod forms;
mod formula;
pub mod grad;
pub mod graph;
pub mod infer;
pub mod instruction;
pub mod integers;
pub mod lstm;
pub mod math;
pub mod mesh;
pub mod op;
mod packing;
pub mod philox;
pub mod placement;
pub mod propagate;
pub mod reduce_op;
pub mod result_meta;
pub mod row;
pub mod shape;
pub mod special;
pub mod storage;
mod table;
pub mod window;
pub mod wire;
pub mod workers;

pub use dtype::{DType, DTypeSet};
pub use error::{ErrorKind, OpError};
pub use expr::{Builder, Expr};
pub use forms::Forms;
pub use graph::{Arg, Graph, Val};
pub use instruction::{Attrs, Inputs, Instruction, Operand, Scalar, TensorId};
pub use op::Op;
pub use placement::{Placement, Workers};
pub use row::{AttrKind, Class, Row};
pub use shape::{Meta, RANK_MAX, Shape};
pub use window::WindowSpec;
