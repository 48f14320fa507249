//! Autotuning: which of a library's algorithms multiplies a kind of matrices, found by timing the first uses.
//!
//! The heuristics of the library rank algorithms without running them. Each of the first uses of a [`Gemm`] is computed
//! by one of the best-ranked candidates in turn, between two events in the stream. Events are read once they have
//! passed, so neither the worker nor the device waits, and no product is computed for the sake of a measurement. After
//! [`USES`] uses of each candidate the fastest stays, and the store keeps it.

use super::gemm::Gemm;
use crate::compile::store::Store;
use crate::driver::{CudaEvent, CudaStream, Driver, Result};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most candidates of a product.
pub const CANDIDATES_MAX: usize = 5;
/// The uses by which a candidate is timed. The least time counts: a first use loads code, and other programs or a late
/// launch only add to a time.
const USES: usize = 3;
/// Products with less work are not timed. A device takes some microseconds for this much, as long as a launch, so of
/// shorter products the events would measure the launch. A product of few rows takes that long for its bytes.
const FLOPS_MIN: u64 = 100_000_000;
const BYTES_MIN: u64 = 8 << 20;
/// Another candidate replaces the first only for a gain of this many nanoseconds, the resolution of events, and of one
/// part in this many.
const GAIN_NS_MIN: u64 = 500;
const GAIN_PARTS: u64 = 50;
/// The least time between two logs of the totals.
const LOGGED_APART: Duration = Duration::from_secs(2);

/// The bytes by which the store names an algorithm.
pub type AlgorithmBytes = [u8; 64];

/// The timing of a product's candidates.
pub struct Trial {
    /// The least time of each candidate, nanoseconds.
    ns: Vec<Option<u64>>,
    issued: usize,
    measured: usize,
}

impl Trial {
    /// A trial of this many candidates; none if there is no choice, or if the product is too small for events.
    pub fn new(gemm: &Gemm, candidates: usize) -> Option<Trial> {
        let Gemm { m, n, k, batches, .. } = *gemm;
        let product = |factors: &[u64]| factors.iter().fold(batches, |all, factor| all.saturating_mul(*factor));
        let elements = product(&[m, k]).saturating_add(product(&[k, n])).saturating_add(product(&[m, n]));
        let is_large =
            product(&[2, m, n, k]) >= FLOPS_MIN || elements.saturating_mul(gemm.dtype.size() as u64) >= BYTES_MIN;
        (is_large && candidates > 1).then(|| Trial { ns: vec![None; candidates], issued: 0, measured: 0 })
    }

    /// The candidate that the next use times; none once enough uses have been issued.
    pub fn next(&mut self) -> Option<usize> {
        let candidate = self.issued % self.ns.len();
        (self.issued < USES * self.ns.len()).then(|| {
            self.issued += 1;
            candidate
        })
    }

    /// Takes back the last use, which was not issued.
    pub fn withdraw(&mut self) {
        self.issued -= 1;
    }

    /// Notes a time. Returns whether the trial is complete.
    pub fn measured(&mut self, candidate: usize, ns: u64) -> bool {
        if let Some(least) = self.ns.get_mut(candidate) {
            *least = Some(least.map_or(ns, |least| least.min(ns)));
        }
        self.measured += 1;
        self.measured == USES * self.ns.len()
    }

    /// The fastest candidate so far: the first, unless the gain over it is more than noise.
    pub fn fastest(&self) -> usize {
        let Some(first) = self.ns[0] else { return 0 };
        let limit = first.saturating_sub(GAIN_NS_MIN.max(first / GAIN_PARTS));
        let timed = self.ns.iter().enumerate().filter_map(|(candidate, ns)| Some(((*ns)?, candidate)));
        timed.filter(|(ns, _)| *ns < limit).min().map_or(0, |(_, candidate)| candidate)
    }
}

/// A use between two events.
struct TimedUse {
    gemm: Gemm,
    candidate: usize,
    begun: CudaEvent,
    ended: CudaEvent,
}

/// Sums over the complete trials.
#[derive(Clone, Copy, Default, PartialEq)]
struct TuningTotals {
    /// The number of trials, and of those that another candidate than the first has won.
    trials: u64,
    improved: u64,
    /// The time of one use of each product: by its first candidate, and by the chosen one.
    first_ns: u64,
    chosen_ns: u64,
}

impl fmt::Display for TuningTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TuningTotals { trials, improved, .. } = self;
        let us = |ns: u64| ns as f64 / 1e3;
        write!(
            f,
            "algorithms timed for {trials} kinds of products: {improved} took another than the heuristics' first; one use \
             of each takes {:.1} µs instead of {:.1} µs",
            us(self.chosen_ns),
            us(self.first_ns)
        )
    }
}

/// The events of trials, and the store of their outcomes.
pub struct Autotuner {
    driver: Arc<dyn Driver>,
    store: Store,
    /// The library and the device whose choices are kept.
    identity: String,
    /// Uses whose events have not been read, in the order of the stream.
    timed: VecDeque<TimedUse>,
    spare: Vec<CudaEvent>,
    totals: TuningTotals,
    /// The totals that were logged last, and when.
    logged: (TuningTotals, Option<Instant>),
    /// Whether a failure to write has been logged.
    warned: bool,
}

impl Autotuner {
    /// The autotuner of a library, of which `identity` names the version, on the device of `driver`.
    pub fn new(driver: Arc<dyn Driver>, store: Store, identity: &str) -> Autotuner {
        let identity = format!("{identity} on {}", driver.properties().name);
        let (timed, spare) = (VecDeque::new(), Vec::new());
        let (totals, logged) = (TuningTotals::default(), (TuningTotals::default(), None));
        Autotuner { driver, store, identity, timed, spare, totals, logged, warned: false }
    }

    /// The candidate that an earlier trial has chosen.
    pub fn kept(&self, gemm: &Gemm, candidates: &[AlgorithmBytes]) -> Option<usize> {
        let kept = self.store.get(&self.identity, &format!("{gemm:?}"))?;
        // The file only selects one of the heuristics' algorithms, so its bytes never reach the library.
        candidates.iter().position(|candidate| candidate[..] == kept[..])
    }

    /// Records the begin of a use, which [`Autotuner::ends`] ends.
    pub fn begins(&mut self, stream: CudaStream) -> Result<CudaEvent> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => self.driver.new_timer()?,
        };
        self.driver.record(event, stream).map(|()| event)
    }

    /// Records the end of a use.
    pub fn ends(&mut self, gemm: &Gemm, candidate: usize, begun: CudaEvent, stream: CudaStream) -> Result<()> {
        let ended = self.begins(stream)?;
        self.timed.push_back(TimedUse { gemm: *gemm, candidate, begun, ended });
        Ok(())
    }

    /// Takes back the event of a use that was not issued.
    pub fn withdraw(&mut self, begun: CudaEvent) {
        self.spare.push(begun);
    }

    /// Forgets the uses whose events have not been read.
    pub fn forget(&mut self) {
        self.spare.extend(self.timed.drain(..).flat_map(|timed| [timed.begun, timed.ended]));
    }

    /// The product, the candidate and the nanoseconds of the oldest use, if the device has passed it.
    pub fn passed(&mut self) -> Result<Option<(Gemm, usize, u64)>> {
        let Some(TimedUse { gemm, candidate, begun, ended }) = self.timed.front() else { return Ok(None) };
        if !self.driver.has_passed(*ended)? {
            return Ok(None);
        }
        let passed = (*gemm, *candidate, self.driver.elapsed_ns(*begun, *ended)?);
        self.spare.extend([*begun, *ended]);
        self.timed.pop_front();
        Ok(Some(passed))
    }

    /// Chooses the fastest candidate of a complete trial, and keeps the choice. If another process has kept one
    /// meanwhile, that is chosen, so that both round alike.
    pub fn choose(&mut self, gemm: &Gemm, candidates: &[AlgorithmBytes], trial: &Trial) -> usize {
        let kept = self.kept(gemm, candidates);
        let chosen = kept.unwrap_or_else(|| trial.fastest());
        if let (Some(Some(first)), Some(Some(ns))) = (trial.ns.first(), trial.ns.get(chosen)) {
            self.totals.trials += 1;
            self.totals.improved += u64::from(chosen != 0);
            self.totals.first_ns += first;
            self.totals.chosen_ns += ns;
            tracing::debug!(target: "gtd::cuda", ?gemm, times_ns = ?trial.ns, chosen, "has timed a product's algorithms");
        }
        if kept.is_none()
            && let Err(error) = self.store.put(&self.identity, &format!("{gemm:?}"), &candidates[chosen])
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!(target: "gtd::cuda", %error, "the chosen algorithms of products could not be kept");
        }
        chosen
    }

    /// Logs the totals, if they have changed and the last log is not only just past.
    pub fn log(&mut self) {
        let (logged, when) = self.logged;
        if self.totals == logged || when.is_some_and(|when| when.elapsed() < LOGGED_APART) {
            return;
        }
        tracing::info!(target: "gtd::cuda", "{}", self.totals);
        self.logged = (self.totals, Some(Instant::now()));
    }
}

impl Drop for Autotuner {
    fn drop(&mut self) {
        self.forget();
        self.spare.drain(..).for_each(|event| self.driver.drop_event(event));
    }
}

#[cfg(test)]
mod tests {
    use super::super::gemm::GemmMatrix;
    use super::*;
    use crate::driver::emulated::Emulated;
    use gt_ops::DType;

    fn product(m: u64, n: u64, k: u64) -> Gemm {
        let side = |step| GemmMatrix { turned: false, step, batch_step: 0, alignment: 256 };
        let (dtype, out_dtype, tf32, batches, bias) = (DType::BF16, DType::BF16, false, 1, None);
        Gemm { dtype, out_dtype, tf32, m, n, k, batches, out: side(n), a: side(k), b: side(n), bias }
    }

    #[test]
    fn products_are_timed_where_they_take_longer_than_a_launch() {
        assert!(Trial::new(&product(512, 512, 512), 5).is_some());
        assert!(Trial::new(&product(256, 256, 256), 5).is_none());
        // A product of one row takes the time of its matrix's bytes.
        assert!(Trial::new(&product(1, 4096, 4096), 5).is_some());
        assert!(Trial::new(&product(512, 512, 512), 1).is_none());
        assert!(Trial::new(&product(u64::MAX, 2, 2), 2).is_some());
    }

    #[test]
    fn candidates_take_turns_and_the_fastest_stays() {
        let mut trial = Trial::new(&product(512, 512, 512), 3).expect("a large product");
        // A use that fails is repeated.
        assert_eq!(trial.next(), Some(0));
        trial.withdraw();
        let turns: Vec<usize> = std::iter::from_fn(|| trial.next()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(trial.fastest(), 0);
        // The first use of candidate 1 loads its code.
        let times = [40_000, 900_000, 50_000, 41_000, 30_000, 45_000, 42_000, 31_000, 46_000];
        let complete: Vec<bool> = turns.iter().zip(times).map(|(turn, ns)| trial.measured(*turn, ns)).collect();
        assert_eq!(complete, [[false; 8].as_slice(), &[true]].concat());
        assert_eq!((trial.fastest(), trial.next()), (1, None));
    }

    #[test]
    fn the_totals_say_how_many_products_were_timed_and_what_that_gained() {
        let mut tuner = Autotuner::new(Arc::new(Emulated::new(1 << 20)), Store::default(), "a library");
        for (gemm, times) in [(product(512, 512, 512), [40_000, 30_000]), (product(512, 512, 1024), [50_000, 60_000])] {
            let mut trial = Trial::new(&gemm, 2).expect("a large product");
            for (candidate, ns) in times.into_iter().enumerate() {
                trial.measured(candidate, ns);
            }
            tuner.choose(&gemm, &[[1; 64], [2; 64]], &trial);
        }
        assert_eq!(
            tuner.totals.to_string(),
            "algorithms timed for 2 kinds of products: 1 took another than the heuristics' first; one use of each takes \
             80.0 µs instead of 90.0 µs"
        );
    }

    #[test]
    fn a_gain_within_the_noise_is_none() {
        for (first, other, fastest) in
            [(100_000, 99_000, 0), (100_000, 97_000, 1), (3_000, 2_600, 0), (3_000, 2_400, 1)]
        {
            let mut trial = Trial::new(&product(512, 512, 512), 2).expect("a large product");
            trial.measured(0, first);
            trial.measured(1, other);
            assert_eq!(trial.fastest(), fastest, "{first} ns and {other} ns");
        }
    }
}
