//! Random number generators: a seed, and the number of draws made from it.
//!
//! A random instruction carries both, as the key and stream of a counter-based generator (Philox, Salmon et al. 2011),
//! so its numbers are the same on every device and in every session.

use crate::lock::lock;
use std::sync::{Arc, LazyLock, Mutex};

/// The key and stream of one random instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The generator's seed.
    pub seed: u64,
    /// The number of draws made from the seed before this one.
    pub stream: u64,
}

/// A generator, as `gt.Generator`: each draw has the next stream.
#[derive(Debug)]
pub struct Generator(Mutex<Draw>);

impl Generator {
    /// A generator with `seed` and no draws made.
    pub fn new(seed: u64) -> Arc<Generator> {
        Arc::new(Generator(Mutex::new(Draw { seed, stream: 0 })))
    }
    /// The next draw.
    pub fn next(&self) -> Draw {
        let mut next = lock(&self.0);
        let draw = *next;
        next.stream += 1;
        draw
    }
    /// The state: the next draw.
    pub fn state(&self) -> Draw {
        *lock(&self.0)
    }
    /// Makes `state` the next draw.
    pub fn set_state(&self, state: Draw) {
        *lock(&self.0) = state;
    }
}

/// The generator of random ops without a `generator` argument.
pub fn default_generator() -> &'static Arc<Generator> {
    static DEFAULT: LazyLock<Arc<Generator>> = LazyLock::new(|| Generator::new(random_seed()));
    &DEFAULT
}

/// A random seed, different at each call.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
