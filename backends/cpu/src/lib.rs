//! The CPU backend of GT.
