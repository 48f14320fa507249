//! `libgt`: GT for C, and for languages that can call C.
//!
//! This crate defines the functions of `gt.h`. Each checks its arguments, calls the client or a builder of the op
//! table, and returns errors and panics as status codes. It must not know Python, nor devices.
//!
//! Start at [`op`], the function that calls any op of the op table, [`function`], which calls any public function, and
//! [`call`], which selects an op's builder. [`status`] has the status codes and error messages, [`handles`] knows which
//! pointers are handles, and [`buffer`] transfers bytes without a copy. The comments of the exported functions are the
//! header's: `tests/header.rs` generates it from them and from the op table.
#![expect(non_camel_case_types, reason = "the names are those of the header")]

mod autograd;
mod buffer;
mod call;
mod dtype;
mod function;
mod handles;
mod op;
mod session;
mod status;
mod tensor;
