//! Transfers to and from other devices, on a stream of their own.
//!
//! A transfer starts when the stream of computation has reached the point where it was issued, and computation
//! continues beside it. A tensor that a transfer writes carries the transfer's number: before the first kernel that
//! reads the tensor, the stream of computation waits for that transfer and all earlier ones. Until then the memory of
//! both operands is lent to the transfer. The success of a transfer is a check ([`crate::checks`]) of its output.

use crate::backend::CudaBackend;
use crate::checks::Checks;
use crate::error::{Result, failed};
use crate::moves::{Arrival, Move};
use crate::tensor::CudaTensor;
use gt_backend::{DeviceBuffers, Link};
use std::sync::{Arc, OnceLock};

/// The most transfers that computation has not waited for; beyond that, it waits for the oldest half.
const MOVES_MAX: usize = 64;

impl CudaBackend {
    /// Makes the stream of computation wait for the transfer that writes `tensor`, if any.
    #[inline]
    pub(crate) fn arrive(&mut self, tensor: &CudaTensor) -> Result<()> {
        if tensor.arrival > self.moves.awaited { self.wait_for_moves(tensor.arrival) } else { Ok(()) }
    }

    /// Makes the stream of computation wait for a transfer and all earlier ones.
    #[cold]
    fn wait_for_moves(&mut self, number: u64) -> Result<()> {
        let count = self.moves.open.iter().take_while(|open| open.number <= number).count();
        self.moves.awaited = number;
        let Some(last) = count.checked_sub(1).map(|last| &self.moves.open[last].arrival) else { return Ok(()) };
        if !last.is_known() {
            self.progress.wait_for(last.event).map_err(failed)?;
        }
        // Their memory may now be reused in the order of computation.
        for loan in self.moves.open.drain(..count).flat_map(|open| open.lent).flatten() {
            self.memory.take_back(&loan);
        }
        Ok(())
    }

    /// See [`gt_backend::Backend::communicate`].
    pub(crate) fn give_to_link(
        &mut self,
        link: &Arc<dyn Link>,
        input: Option<&CudaTensor>,
        output: Option<&mut CudaTensor>,
        enqueue: &mut dyn FnMut(DeviceBuffers) -> Result<()>,
    ) -> Result<()> {
        if self.moves.open.len() >= MOVES_MAX {
            self.wait_for_moves(self.moves.open[MOVES_MAX / 2].number)?;
        }
        let stream = self.moves.stream;
        self.driver.enter().map_err(failed)?;
        let event = self.driver.new_event().map_err(failed)?;
        let (driver, to) = (self.driver.clone(), link.clone());
        let arrival = Arc::new(Arrival { driver, event, link: to, outcome: OnceLock::new() });
        self.progress.let_wait(stream).map_err(failed)?;
        let at = |tensor: Option<&CudaTensor>| tensor.filter(|t| t.meta.bytes() > 0).map_or(0, CudaTensor::ptr);
        let (input_at, output_at) = (at(input), at(output.as_deref()));
        let enqueued = enqueue(DeviceBuffers { input: input_at, output: output_at, stream: self.driver.raw(stream) });
        // A transfer that was enqueued in part keeps its memory until it ends.
        self.driver.record(event, stream).map_err(failed)?;
        link.begun(arrival.clone());
        self.moves.begun += 1;
        let number = self.moves.begun;
        let lend = |tensor: &CudaTensor| self.memory.lend(&tensor.buffer, event);
        let lent = [input.map(lend), output.as_deref().map(lend)];
        self.moves.open.push_back(Move { number, arrival: arrival.clone(), lent });
        if let Some(output) = output {
            let (step, done) = (self.progress.step(), self.progress.done());
            output.arrival = number;
            output.checks.join(&Checks::of_move(arrival, step, self.label), done);
            if let Some(input) = input {
                output.checks.join(&input.checks, done);
            }
        }
        enqueued
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blas::{Blas, Gemm, GemmPointers};
    use crate::driver::CudaStream;
    use crate::driver::emulated::Emulated;
    use crate::index::tests::{add_one, backend_on, read, upload};
    use gt_backend::Backend;
    use gt_backend::{EnqueuedTransfer, ExecError};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    /// A group without other devices: a transfer's output is twice its input.
    #[derive(Default)]
    struct Doubling {
        failure: Mutex<Option<ExecError>>,
        done: Arc<AtomicUsize>,
    }

    impl Link for Doubling {
        fn begun(&self, _: Arc<dyn EnqueuedTransfer>) {}
        fn failure(&self) -> Option<ExecError> {
            self.failure.lock().unwrap().clone()
        }
    }

    struct Device {
        backend: CudaBackend,
        driver: Arc<Emulated>,
        link: Arc<Doubling>,
    }

    impl Device {
        fn new() -> Device {
            let driver = Arc::new(Emulated::new(64 << 20));
            Device { backend: backend_on(driver.clone()), driver, link: Arc::default() }
        }

        /// The output of a transfer of `input`.
        fn moved(&mut self, input: &CudaTensor) -> CudaTensor {
            let mut output = self.backend.allocate(&input.meta).unwrap();
            let link: Arc<dyn Link> = self.link.clone();
            let (stream, driver, done) = (self.backend.moves.stream, self.driver.clone(), self.link.done.clone());
            let numbers = input.meta.shape.numel();
            let mut enqueue = |at: DeviceBuffers| {
                let done = done.clone();
                let double = move || {
                    for i in 0..numbers {
                        // SAFETY: both buffers have this many numbers, and they stay allocated until the stream has
                        // done this.
                        unsafe { (at.output as *mut i64).add(i).write(2 * (at.input as *const i64).add(i).read()) };
                    }
                    done.fetch_add(1, Relaxed);
                };
                driver.enqueue(stream, double).map_err(failed)
            };
            self.backend.label(7);
            self.backend.communicate(&link, Some(input), Some(&mut output), &mut enqueue).unwrap();
            output
        }

        fn done(&self) -> usize {
            self.link.done.load(Relaxed)
        }
    }

    #[test]
    fn computation_waits_for_a_move_where_it_reads_what_that_makes_and_nowhere_else() {
        let mut device = Device::new();
        let x = upload(&mut device.backend, &[1, 2]);
        let computed = add_one(&mut device.backend, &x);
        let moved = device.moved(&computed);
        let beside = add_one(&mut device.backend, &x);
        assert_eq!(read(&mut device.backend, &beside), Ok(vec![2, 3]));
        assert_eq!(device.done(), 0, "nobody has asked for it");
        let after = add_one(&mut device.backend, &moved);
        assert_eq!(read(&mut device.backend, &after), Ok(vec![5, 7]));
        // A transfer of another transfer's output needs no computation in between.
        let again = device.moved(&moved);
        assert_eq!(read(&mut device.backend, &again), Ok(vec![8, 12]));
        assert_eq!(device.done(), 2);
    }

    /// A library that computes nothing, and the switch by which it is told to time no more algorithms.
    struct TimedBlas(Arc<AtomicBool>);

    impl Blas for TimedBlas {
        unsafe fn multiply(
            &mut self,
            _: &Gemm,
            _: GemmPointers,
            _: CudaStream,
            _: bool,
        ) -> crate::driver::Result<bool> {
            Ok(false)
        }

        fn stop_tuning(&mut self) -> bool {
            !self.0.swap(true, Relaxed)
        }
    }

    #[test]
    fn a_worker_that_takes_part_in_a_move_times_no_algorithms_any_more() {
        let mut device = Device::new();
        let has_stopped = Arc::new(AtomicBool::new(false));
        device.backend.launches.set_blas(Box::new(TimedBlas(has_stopped.clone())));
        let x = upload(&mut device.backend, &[1, 2]);
        let computed = add_one(&mut device.backend, &x);
        assert!(!has_stopped.load(Relaxed));
        let moved = device.moved(&computed);
        assert!(has_stopped.load(Relaxed));
        assert_eq!(read(&mut device.backend, &moved), Ok(vec![4, 6]));
    }

    #[test]
    fn memory_of_a_move_is_not_used_again_before_computation_waits_for_it() {
        let mut device = Device::new();
        let x = upload(&mut device.backend, &[1, 2]);
        let mut moved = Vec::new();
        for _ in 0..3 * MOVES_MAX {
            let computed = add_one(&mut device.backend, &x);
            moved.push(device.moved(&computed));
        }
        drop(device.moved(&x));
        for _ in 0..8 {
            // A tensor of the same size as the transferred memory, with other values.
            let other = upload(&mut device.backend, &[-1, -1]);
            drop(add_one(&mut device.backend, &other));
        }
        for tensor in &moved {
            assert_eq!(read(&mut device.backend, tensor), Ok(vec![4, 6]));
        }
        drop((x, moved));
        let used = device.backend.memory().used_bytes;
        let last = device.backend.moves.begun;
        device.backend.wait_for_moves(last).unwrap();
        assert!(device.backend.memory().used_bytes < used.max(1));
        assert_eq!(device.backend.moves.open.len(), 0);
    }

    #[test]
    fn what_comes_of_a_move_that_failed_says_so_and_the_rest_goes_on() {
        let mut device = Device::new();
        let x = upload(&mut device.backend, &[1, 2]);
        let moved = device.moved(&x);
        let after = add_one(&mut device.backend, &moved);
        let failure = ExecError::Unreached { worker: Some(1), why: "it is gone".into() };
        *device.link.failure.lock().unwrap() = Some(failure.clone());
        let told = Err(ExecError::Earlier { label: 7, op: None, error: Box::new(failure) });
        assert_eq!(read(&mut device.backend, &after), told);
        assert_eq!(read(&mut device.backend, &moved), told);
        assert_eq!(read(&mut device.backend, &x), Ok(vec![1, 2]));
    }
}
