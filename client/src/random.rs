//! Where random numbers come from: a seed, and how many draws were made from it.
//!
//! An instruction that draws carries both, so its numbers are the same on any device and in any session.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The key and stream of a random instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// What somebody chose, or the process.
    pub seed: u64,
    /// How many draws were made from the seed before.
    pub stream: u64,
}

/// A sequence of draws.
#[derive(Debug)]
pub struct Generator(Mutex<Draw>);

impl Generator {
    /// Draws from the beginning of `seed`.
    pub fn new(seed: u64) -> Arc<Generator> {
        Arc::new(Generator(Mutex::new(Draw { seed, stream: 0 })))
    }
    /// The next draw.
    pub fn next(&self) -> Draw {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let draw = *next;
        next.stream += 1;
        draw
    }
    /// The draw that will be next.
    pub fn state(&self) -> Draw {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Goes on from `state`.
    pub fn set_state(&self, state: Draw) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// The one that draws where no other is named.
pub fn default_generator() -> &'static Arc<Generator> {
    static DEFAULT: LazyLock<Arc<Generator>> = LazyLock::new(|| Generator::new(random_seed()));
    &DEFAULT
}

/// A seed nobody chose: different each time.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
