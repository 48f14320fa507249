//! The registry of device backends: the one place that names them all.
//!
//! Other crates get facts from [`BACKENDS`] and a backend from [`open`]. To add one, see `gt_backend`.

use gt_backend::{BackendFactory, BackendFacts, BackendVisitor, OpenOptions};

/// Makes [`BACKENDS`] and [`open`] from a list of factories. The daemon prefers the devices of the first backend that
/// finds any, and otherwise the first entry.
macro_rules! backends {
    ($($(#[$condition:meta])? $factory:ty),+ $(,)?) => {
        /// The facts of every backend.
        pub static BACKENDS: &[&BackendFacts] = &[$($(#[$condition])? &<$factory as BackendFactory>::FACTS),+];

        /// Opens the backend of this name and hands it to `visitor`; none if there is no such backend.
        pub fn open<V: BackendVisitor>(name: &str, options: &OpenOptions, visitor: V) -> Option<V::Output> {
            $($(#[$condition])?
            if name == <$factory as BackendFactory>::FACTS.name {
                return Some(visitor.visit(<$factory as BackendFactory>::open(options)));
            })+
            None
        }
    };
}

backends! {
    gt_cpu::CpuFactory,
    gt_cuda::CudaFactory,
    gt_cuda::EmulatedCudaFactory,
    gt_torch::TorchCpuFactory,
    gt_torch::TorchCudaFactory,
    gt_torch::TorchHipFactory,
    gt_torch::TorchXpuFactory,
    gt_torch::TorchMpsFactory,
    #[cfg(feature = "stub")]
    gt_stub::StubFactory,
}

/// The backend of this name.
pub fn find(name: &str) -> Option<&'static BackendFacts> {
    BACKENDS.iter().copied().find(|facts| facts.name == name)
}

/// The backend of the processor, for workers without a configured backend on machines without a device.
pub fn host() -> &'static BackendFacts {
    BACKENDS[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_backend::Site;

    #[test]
    fn names_are_unique_and_fit() {
        for (at, facts) in BACKENDS.iter().enumerate() {
            assert!(BACKENDS[..at].iter().all(|other| other.name != facts.name), "{}", facts.name);
            assert!(BACKENDS[..at].iter().all(|other| other.worker_prefix != facts.worker_prefix), "{}", facts.name);
            assert!(facts.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", facts.name);
            assert!(!facts.name.starts_with("proc-") && facts.worker_prefix.len() <= 12, "{}", facts.name);
            assert!(facts.discovery.is_none() || facts.site == Site::Device, "{}", facts.name);
            assert!(facts.is_numbered || facts.discovery.is_none(), "{}", facts.name);
        }
        assert_eq!(host().site, Site::Host);
    }
}
