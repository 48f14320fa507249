//! `libgt`: GT for C, and for whatever can call C.
//!
//! Each function of `gt.h` is here, between C's pointers and the client's tensors: it checks what it was given, calls
//! the client or a builder of the op table, and turns errors into codes and panics into errors. What a tensor is and
//! how it is computed is in the client; this crate must not know Python, nor devices.
//!
//! Start at [`op`]: the one function through which every row of the op table is called, and [`call`], which finds a
//! row's builder. [`status`] is what every function returns, [`buffer`] how bytes get in and out without a copy. The
//! comments on the functions are the header's: `tests/header.rs` writes it, with what follows from the table.
#![expect(non_camel_case_types, reason = "the names are those of the header")]

mod autograd;
mod buffer;
mod call;
mod dtype;
mod op;
mod session;
mod status;
mod tensor;
