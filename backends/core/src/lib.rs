//! What GT asks of a device backend, and the conformance suite every backend passes.
