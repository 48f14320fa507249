//! How far a program runs ahead of its daemon, bounded in time.
//!
//! The ring bounds it in instructions: 4096 small ones are a few milliseconds, large ones are minutes, and a fetch or
//! an interrupt would be as far behind. So the session adds up the estimated time of what it issues. At each
//! [`CHUNK_NS`] it issues a sync and waits for the sync before that: two chunks are outstanding at most. The syncs also
//! measure the pace, with all that other sessions take of it, which corrects the estimates. Small instructions hardly
//! ever fill a chunk, so the ring alone bounds them. A client that left out its syncs would only have to wait longer
//! itself: the daemon shares time by what it measures.

use std::time::{Duration, Instant};

/// Half of the time by which a program may be ahead, nanoseconds by the measured pace.
const CHUNK_NS: f64 = 125e6;
/// Added to the estimate of each instruction, nanoseconds, so that a chunk ends also if all estimates are 0.
pub(crate) const INSTRUCTION_NS: u64 = 1_000;
/// Estimates are corrected by this factor at most, up or down.
const CORRECTION_MAX: f64 = 1e5;

/// A sync that ends a chunk of instructions.
pub(crate) struct RunAheadSync {
    /// The token of its completion.
    pub(crate) token: u64,
    /// The estimated time of the chunk, nanoseconds.
    pub(crate) estimated_ns: u64,
    /// When its first instruction was issued.
    pub(crate) begun: Instant,
}

/// The last sync, and the measured pace.
pub(crate) struct RunAhead {
    last: Option<RunAheadSync>,
    /// When the sync before was passed.
    passed: Option<Instant>,
    /// The ratio of measured to estimated time.
    correction: f64,
}

impl RunAhead {
    /// A session that has issued nothing: estimates are taken as they are.
    pub(crate) fn new() -> RunAhead {
        RunAhead { last: None, passed: None, correction: 1.0 }
    }

    /// The estimated time of a chunk, nanoseconds.
    pub(crate) fn chunk_ns(&self) -> u64 {
        (CHUNK_NS / self.correction) as u64
    }

    /// The expected time of a chunk.
    pub(crate) fn expected(&self, sync: &RunAheadSync) -> Duration {
        Duration::from_nanos((sync.estimated_ns as f64 * self.correction) as u64)
    }

    /// Notes a sync that was issued. Returns the one before, which must be passed before more is issued.
    pub(crate) fn synced(&mut self, sync: RunAheadSync) -> Option<RunAheadSync> {
        self.last.replace(sync)
    }

    /// Learns from a sync that was passed at `now`, or before if the program did not have to wait for it.
    pub(crate) fn passed(&mut self, sync: &RunAheadSync, waited: bool, now: Instant) {
        let begun = self.passed.map_or(sync.begun, |passed| passed.max(sync.begun));
        self.passed = Some(now);
        let took: Duration = now.saturating_duration_since(begun);
        let ratio = took.as_nanos() as f64 / sync.estimated_ns.max(1) as f64;
        let ratio = ratio.clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX);
        // Without a wait, the time is an upper bound: the program may have taken it itself.
        self.correction = if waited { ratio } else { ratio.min(self.correction) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issues chunks to a device that takes `slower` times as long as estimated, as the session does. Returns the
    /// times by which the program was ahead when a chunk was issued.
    fn ahead(run: &mut RunAhead, start: Instant, slower: f64, chunks: u64) -> Vec<Duration> {
        let mut now = start;
        let mut device = start;
        let mut ends = std::collections::VecDeque::new();
        let mut ahead = Vec::new();
        for token in 0..chunks {
            let (begun, estimated_ns) = (now, run.chunk_ns());
            // Issuing takes a thousandth of the time that it takes to compute.
            now += Duration::from_nanos((estimated_ns as f64 * slower / 1e3) as u64);
            device = device.max(begun) + Duration::from_nanos((estimated_ns as f64 * slower) as u64);
            ends.push_back(device);
            ahead.push(device - now);
            if let Some(before) = run.synced(RunAheadSync { token, estimated_ns, begun }) {
                let end = ends.pop_front().unwrap();
                let waited = end > now;
                now = now.max(end);
                run.passed(&before, waited, now);
            }
        }
        ahead
    }

    #[test]
    fn a_program_is_a_quarter_of_a_second_ahead_at_most_once_the_pace_is_known() {
        for slower in [1e-4, 0.01, 0.5, 1.0, 3.0, 1000.0] {
            let mut run = RunAhead::new();
            let ahead = ahead(&mut run, Instant::now(), slower, 60);
            let most = *ahead[20..].iter().max().unwrap();
            assert!(most <= Duration::from_millis(260), "{slower}: {most:?}");
            assert!(most >= Duration::from_millis(120), "{slower}: the device always has work, {most:?}");
        }
    }

    #[test]
    fn time_that_the_program_took_itself_is_no_pace_of_the_daemon() {
        let mut run = RunAhead::new();
        let begun = Instant::now();
        let sync = RunAheadSync { token: 1, estimated_ns: 1_000_000, begun };
        run.passed(&sync, false, begun + Duration::from_secs(10));
        assert_eq!(run.chunk_ns(), CHUNK_NS as u64);
    }
}
