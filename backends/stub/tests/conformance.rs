//! The stub passes the conformance suite of every backend.

use gt_backend::conformance::MEMORY_BYTES;
use gt_stub::StubBackend;

gt_backend::conformance_tests!(StubBackend::new(MEMORY_BYTES));
