//! How long the device takes for each kernel, measured by events around each launch and logged when the worker is idle.

use super::work::GraphWork;
use crate::blas::gemm::Gemm;
use crate::driver::{CudaEvent, CudaStream, Driver, KernelFunction, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most launches whose events have not been read.
const PENDING_MAX: usize = 4096;
/// The least time between two tables.
const APART: Duration = Duration::from_secs(2);
/// The most lines of a table.
const LINES_MAX: usize = 60;

/// The launches of one kernel and their time.
#[derive(Clone, Copy, Default)]
struct Elapsed {
    launches: u64,
    ns: u64,
}

/// The times of kernels, by name.
pub struct KernelTimes {
    names: HashMap<KernelFunction, String>,
    pending: Vec<(String, CudaEvent, CudaEvent)>,
    spare: Vec<CudaEvent>,
    sums: HashMap<String, Elapsed>,
    shown: Instant,
}

impl KernelTimes {
    pub fn new() -> KernelTimes {
        let (names, sums) = (HashMap::new(), HashMap::new());
        KernelTimes { names, pending: Vec::new(), spare: Vec::new(), sums, shown: Instant::now() }
    }

    /// Remembers a kernel's name.
    pub fn name(&mut self, function: KernelFunction, name: &str) {
        self.names.insert(function, name.to_owned());
    }

    /// Records the beginning of a piece of work, which [`KernelTimes::ends`] ends.
    pub fn begins(&mut self, driver: &dyn Driver, stream: CudaStream) -> Result<CudaEvent> {
        if self.pending.len() >= PENDING_MAX {
            self.collect(driver, stream)?;
        }
        self.record(driver, stream)
    }

    /// Records the end of a piece of work.
    pub fn ends(
        &mut self,
        work: &GraphWork<'_>,
        begun: CudaEvent,
        driver: &dyn Driver,
        stream: CudaStream,
    ) -> Result<()> {
        let name = match work {
            GraphWork::Launch { function, .. } => self.names.get(function).cloned().unwrap_or_default(),
            GraphWork::Fill { .. } => "fill".to_owned(),
            GraphWork::Copy { .. } => "copy".to_owned(),
            GraphWork::Product { gemm, .. } => {
                let turned = |turned: bool| if turned { "ᵀ" } else { "" };
                let (a, b) = (turned(gemm.a.turned), turned(gemm.b.turned));
                let bias = if gemm.bias.is_some() { " + bias" } else { "" };
                let Gemm { dtype, m, n, k, batches, .. } = gemm;
                format!("product {dtype} a{a} b{b}{bias}: {m} × {k} × {n}, {batches}")
            }
            GraphWork::Convolution { conv, .. } => {
                let [input, weight, output] = conv.shapes();
                format!("convolution {:?} {}: {input:?} {weight:?} {output:?}", conv.pass, conv.dtype)
            }
        };
        let end = self.record(driver, stream)?;
        self.pending.push((name, begun, end));
        Ok(())
    }

    fn record(&mut self, driver: &dyn Driver, stream: CudaStream) -> Result<CudaEvent> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => driver.new_timer()?,
        };
        driver.record(event, stream)?;
        Ok(event)
    }

    /// Waits for the device, and adds up what was measured.
    fn collect(&mut self, driver: &dyn Driver, stream: CudaStream) -> Result<()> {
        driver.synchronize(stream)?;
        for (name, begun, end) in self.pending.drain(..) {
            let sum = self.sums.entry(name).or_default();
            sum.launches += 1;
            sum.ns += driver.elapsed_ns(begun, end)?;
            self.spare.extend([begun, end]);
        }
        Ok(())
    }

    /// Logs the table of what was measured since the last one, unless that is only just past.
    pub fn show(&mut self, driver: &dyn Driver, stream: CudaStream) -> Result<()> {
        if self.shown.elapsed() < APART || (self.pending.is_empty() && self.sums.is_empty()) {
            return Ok(());
        }
        self.collect(driver, stream)?;
        let mut sums: Vec<(String, Elapsed)> = self.sums.drain().collect();
        sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.ns));
        let all = sums.iter().fold(Elapsed::default(), |all, (_, sum)| Elapsed {
            launches: all.launches + sum.launches,
            ns: all.ns + sum.ns,
        });
        let line =
            |name: &str, sum: &Elapsed| format!("\n{:>12.1} µs {:>7} × {name}", sum.ns as f64 / 1e3, sum.launches);
        let lines: String = sums.iter().take(LINES_MAX).map(|(name, sum)| line(name, sum)).collect();
        tracing::info!(target: "gtd::cuda", "the device's time by kernel:{}{lines}", line("all", &all));
        self.shown = Instant::now();
        Ok(())
    }
}
