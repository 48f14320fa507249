//! Batch axes: those of tensors within `vmap` that the function which it calls does not see.
//!
//! Within a call of `vmap`, a batched tensor has the shape of one element. Its value is another tensor, whose first
//! axes are the batch axes of all calls of `vmap` around, the outermost first. [`crate::scope`] emits an op on batched
//! tensors as one on these values, by the rules of [`gt_ops::batching`], and records it as the program sees it; so
//! gradients are computed on whole batches, too.

use gt_ops::TensorId;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The rule for operations that draw random numbers within a call of `vmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Randomness {
    /// It raises an error.
    Refused,
    /// It draws the same numbers for all elements.
    Same,
    /// It draws numbers for each element.
    Different,
}

/// The batch axis of one call of `vmap`.
#[derive(Debug)]
pub struct BatchAxis {
    /// Later calls have larger numbers.
    number: u64,
    size: usize,
    randomness: Randomness,
    /// The first tensor that was made within the call.
    first: TensorId,
}

thread_local! {
    /// The calls of `vmap` that this thread is in, the outermost first.
    static ACTIVE: RefCell<Vec<Arc<BatchAxis>>> = const { RefCell::new(Vec::new()) };
}

impl BatchAxis {
    /// Enters a call of `vmap` on a batch of `size`, which ends when the result is dropped. `first` is the id of the
    /// session's next tensor.
    pub fn enter(size: usize, randomness: Randomness, first: TensorId) -> ActiveBatch {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let axis = Arc::new(BatchAxis { number, size, randomness, first });
        ACTIVE.with_borrow_mut(|active| active.push(axis.clone()));
        ActiveBatch(axis)
    }
    /// The number of elements.
    pub fn size(&self) -> usize {
        self.size
    }
    /// Whether this thread is in its call of `vmap`.
    pub(crate) fn is_active(&self) -> bool {
        ACTIVE.with_borrow(|active| active.iter().any(|axis| axis.number == self.number))
    }
    /// Whether a tensor existed before the call of `vmap`.
    pub(crate) fn is_after(&self, id: TensorId) -> bool {
        id < self.first
    }
}

/// A call of `vmap` that this thread is in until this is dropped.
#[derive(Debug)]
pub struct ActiveBatch(Arc<BatchAxis>);

impl ActiveBatch {
    /// The batch axis.
    pub fn axis(&self) -> &Arc<BatchAxis> {
        &self.0
    }
}

impl Drop for ActiveBatch {
    fn drop(&mut self) {
        // The thread's storage is gone while the thread ends.
        let _ = ACTIVE.try_with(|active| active.borrow_mut().retain(|axis| axis.number != self.0.number));
    }
}

/// The batch axes of a tensor, the outermost first.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchAxes(SmallVec<[Arc<BatchAxis>; 2]>);

impl BatchAxes {
    /// The axes along which random numbers differ. `None` if there must not be any.
    pub(crate) fn of_random_numbers() -> Option<BatchAxes> {
        ACTIVE.with_borrow(|active| {
            let refused = active.iter().any(|axis| axis.randomness == Randomness::Refused);
            let differ = active.iter().filter(|axis| axis.randomness == Randomness::Different);
            (!refused).then(|| BatchAxes(differ.cloned().collect()))
        })
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<BatchAxis>> {
        self.0.iter()
    }
    pub(crate) fn sizes(&self) -> SmallVec<[usize; 2]> {
        self.0.iter().map(|axis| axis.size).collect()
    }
    /// The index of an axis, or where it belongs.
    pub(crate) fn position(&self, axis: &BatchAxis) -> Result<usize, usize> {
        self.0.binary_search_by_key(&axis.number, |own| own.number)
    }
    pub(crate) fn insert(&mut self, axis: &Arc<BatchAxis>) {
        if let Err(at) = self.position(axis) {
            self.0.insert(at, axis.clone());
        }
    }
    /// The axes other than the one at index `at`.
    pub(crate) fn without(&self, at: usize) -> BatchAxes {
        let mut others = self.clone();
        others.0.remove(at);
        others
    }
    /// The axes that `other` lacks.
    pub(crate) fn beyond(&self, other: &BatchAxes) -> BatchAxes {
        BatchAxes(self.0.iter().filter(|axis| other.position(axis).is_err()).cloned().collect())
    }
    /// Bit `i` set: `other` has axis `i` of these.
    pub(crate) fn mask_of(&self, other: &BatchAxes) -> u8 {
        self.0.iter().enumerate().fold(0, |mask, (i, axis)| mask | u8::from(other.position(axis).is_ok()) << i)
    }
    /// The axes whose call of `vmap` this thread is not in.
    pub(crate) fn ended(&self) -> BatchAxes {
        BatchAxes(self.0.iter().filter(|axis| !axis.is_active()).cloned().collect())
    }
}
