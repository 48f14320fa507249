//! What the daemon promises its clients, tested over real rings against the real program.

mod support;

mod instructions;
