//! The conformance suite on PyTorch's processor, with checks at once and with checks at fences, as devices do them.
//!
//! `make test-torch` runs it with the Python that `GT_TORCH_PYTHON` names.

mod at_once {
    use gt_backend::conformance::MEMORY_BYTES;
    use gt_torch::{InterpreterOptions, TorchBackend};

    fn backend() -> TorchBackend {
        let (backend, report) =
            TorchBackend::open(&InterpreterOptions::on("cpu".into()), Some(MEMORY_BYTES)).expect("PyTorch");
        assert_eq!(report.missing, Vec::<String>::new(), "every op of the table has a function");
        backend
    }

    gt_backend::conformance_tests!(backend());
}

mod at_fences {
    use gt_backend::conformance::MEMORY_BYTES;
    use gt_torch::{InterpreterOptions, TorchBackend};

    fn backend() -> TorchBackend {
        let options = InterpreterOptions { deferred: true, ..InterpreterOptions::on("cpu".into()) };
        TorchBackend::open(&options, Some(MEMORY_BYTES)).expect("PyTorch").0
    }

    gt_backend::conformance_tests!(backend();
        elementwise, movements, gathers, scatters, transfers, divisions_by_zero, memory_limit, programs, cancellations
    );
}
