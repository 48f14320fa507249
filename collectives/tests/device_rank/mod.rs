//! A rank with a device: collectives on bytes of the host that NCCL computes in the device's memory.
//!
//! As in the daemon, the ranks also have a group in host memory. Each operation runs there first, so that wrong
//! arguments and calls that differ are found before a device waits for another.

use gt_collectives::conformance::PROGRAMS;
use gt_collectives::local::{LocalCommunicator, LocalGroup, LocalOptions};
use gt_collectives::nccl::device::{DeviceComm, DeviceCommOptions};
use gt_collectives::nccl::{StreamHandle, UniqueId};
use gt_collectives::{AbortHandle, CommStats, Communicator, Health, Reduce, Result};
use gt_cuda::Driver;
use gt_cuda::driver::{CudaStream, DevicePtr};
use gt_ops::DType;
use std::time::{Duration, Instant};

/// How long a rank waits for the others before its test fails.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The dtype that NCCL cannot reduce; the host's result stands for it.
const NOT_REDUCED: DType = DType::I16;

/// One rank of a group of devices.
struct DeviceRank {
    host: LocalCommunicator,
    // Before the driver, whose context it needs until it is dropped.
    comm: DeviceComm,
    stream: CudaStream,
    driver: Box<dyn Driver>,
}

/// Runs every program of the conformance suite on a group with one rank for each driver that `devices` makes.
pub fn conform(devices: impl Fn() -> Vec<Box<dyn Driver>>) {
    for (_, run) in PROGRAMS {
        let (id, drivers) = (UniqueId::new().unwrap(), devices());
        let options = LocalOptions { patience: PATIENCE, ..LocalOptions::default() };
        let hosts = LocalGroup::threads_with(drivers.len(), options).unwrap();
        std::thread::scope(|scope| {
            for (host, driver) in hosts.into_iter().zip(drivers) {
                scope.spawn(move || run(&mut DeviceRank::join(&id, host, driver)));
            }
        });
    }
}

/// Waits until all ranks have joined.
///
/// # Errors
/// NCCL's error.
pub fn joined(comm: &DeviceComm) -> Result<()> {
    let started = Instant::now();
    while !comm.is_ready()? {
        assert!(started.elapsed() < PATIENCE, "NCCL brings the ranks together");
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

impl DeviceRank {
    fn join(id: &UniqueId, host: LocalCommunicator, driver: Box<dyn Driver>) -> DeviceRank {
        driver.enter().unwrap();
        let stream = driver.new_stream().unwrap();
        let (rank, size, health) = (host.rank(), host.size(), host.health());
        let comm = DeviceComm::begin(id, DeviceCommOptions { rank, size, patience: PATIENCE, health }).unwrap();
        joined(&comm).unwrap();
        DeviceRank { host, comm, stream, driver }
    }

    /// Copies both buffers to the device, lets `call` enqueue a collective from the first to the second, and copies the
    /// second back. The second has its bytes before the call, for collectives in place.
    fn on_device(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        call: impl FnOnce(&mut DeviceComm, DevicePtr, DevicePtr, StreamHandle) -> Result<()>,
    ) -> Result<()> {
        let (from, to) = (self.upload(input), self.upload(output));
        call(&mut self.comm, from, to, self.driver.raw(self.stream) as usize as StreamHandle)?;
        self.finish()?;
        if !output.is_empty() {
            // SAFETY: `to` has as many bytes as `output`, which outlives the copy: the stream is synchronised below.
            unsafe { self.driver.download(output.as_mut_ptr(), to, output.len(), self.stream).unwrap() };
        }
        self.driver.synchronize(self.stream).unwrap();
        for memory in [from, to] {
            // SAFETY: the memory came from `allocate`, and the only stream that used it has completed its work.
            unsafe { self.driver.free(memory, self.stream).unwrap() };
        }
        Ok(())
    }

    /// Memory of the device with these bytes.
    fn upload(&self, bytes: &[u8]) -> DevicePtr {
        let memory = self.driver.allocate(bytes.len(), self.stream).unwrap();
        if !bytes.is_empty() {
            // SAFETY: the memory was allocated for `bytes.len()` bytes, and `bytes` outlives the copy: the stream is
            // synchronised below.
            unsafe { self.driver.upload(memory, bytes.as_ptr(), bytes.len(), self.stream).unwrap() };
        }
        self.driver.synchronize(self.stream).unwrap();
        memory
    }

    /// Waits until the stream has completed its work, or NCCL has failed or the group is broken.
    fn finish(&mut self) -> Result<()> {
        let (event, started) = (self.driver.new_event().unwrap(), Instant::now());
        self.driver.record(event, self.stream).unwrap();
        while !self.driver.has_passed(event).unwrap() {
            if let Err(error) = self.comm.is_ready().and_then(|_| self.host.health().check()) {
                self.comm.give_up();
                return Err(error);
            }
            assert!(started.elapsed() < PATIENCE, "the devices complete a collective");
            std::thread::yield_now();
        }
        self.driver.drop_event(event);
        Ok(())
    }
}

impl Communicator for DeviceRank {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn size(&self) -> usize {
        self.host.size()
    }

    fn all_reduce(&mut self, buffer: &mut [u8], dtype: DType, reduce: Reduce) -> Result<()> {
        let mut by_host = buffer.to_vec();
        self.host.all_reduce(&mut by_host, dtype, reduce)?;
        if dtype == NOT_REDUCED {
            buffer.copy_from_slice(&by_host);
            return Ok(());
        }
        let elements = buffer.len() / dtype.size();
        // SAFETY: `on_device` uploads so many elements, and keeps the memory until the stream has completed the call.
        self.on_device(&[], buffer, |comm, _, to, stream| unsafe {
            comm.all_reduce(to, to, elements, dtype, reduce, stream)
        })
    }

    fn all_gather(&mut self, input: &[u8], output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()> {
        self.host.all_gather(input, &mut output.to_vec(), counts, dtype)?;
        // SAFETY: the host's group has compared the buffers with the counts; `on_device` keeps the memory until the
        // stream has completed the call.
        self.on_device(input, output, |comm, from, to, stream| unsafe {
            comm.all_gather(from, to, counts, dtype, stream)
        })
    }

    fn reduce_scatter(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        dtype: DType,
        reduce: Reduce,
    ) -> Result<()> {
        let mut by_host = output.to_vec();
        self.host.reduce_scatter(input, &mut by_host, counts, dtype, reduce)?;
        if dtype == NOT_REDUCED {
            output.copy_from_slice(&by_host);
            return Ok(());
        }
        // SAFETY: the host's group has compared the buffers with the counts; `on_device` keeps the memory until the
        // stream has completed the call.
        self.on_device(input, output, |comm, from, to, stream| unsafe {
            comm.reduce_scatter(from, to, counts, dtype, reduce, stream)
        })
    }

    fn broadcast(&mut self, buffer: &mut [u8], root: usize, dtype: DType) -> Result<()> {
        self.host.broadcast(&mut buffer.to_vec(), root, dtype)?;
        let elements = buffer.len() / dtype.size();
        // SAFETY: `on_device` uploads so many elements, and keeps the memory until the stream has completed the call.
        self.on_device(&[], buffer, |comm, _, to, stream| unsafe { comm.broadcast(to, elements, root, dtype, stream) })
    }

    fn all_to_all(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        send_counts: &[usize],
        recv_counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        self.host.all_to_all(input, &mut output.to_vec(), send_counts, recv_counts, dtype)?;
        // SAFETY: the host's group has compared the buffers with the counts; `on_device` keeps the memory until the
        // stream has completed the call.
        self.on_device(input, output, |comm, from, to, stream| unsafe {
            comm.all_to_all(from, to, send_counts, recv_counts, dtype, stream)
        })
    }

    // NCCL's messages are tested by `all_to_all`, which is made of them.
    fn send(&mut self, data: &[u8], to: usize, dtype: DType) -> Result<()> {
        self.host.send(data, to, dtype)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, dtype: DType) -> Result<()> {
        self.host.recv(data, from, dtype)
    }

    fn barrier(&mut self) -> Result<()> {
        self.host.barrier()
    }

    fn stats(&self) -> CommStats {
        self.host.stats()
    }

    fn abort_handle(&self) -> AbortHandle {
        self.host.abort_handle()
    }

    fn health(&self) -> Health {
        self.host.health()
    }
}
