//! The measurement of a node's link with the daemon's machine, when the node joins.
//!
//! It goes over the node's connection before its workers are registered, so that it is in the way of no work: some
//! round trips of a small message, and then bursts of bytes that grow until one takes long enough, each followed by
//! such a message.

use std::time::{Duration, Instant};

/// The most round trips of a small message; the fastest one counts.
const PINGS_MAX: usize = 8;
/// The round trips end after this time.
const PINGS_ENOUGH: Duration = Duration::from_millis(100);
/// Bytes of the first burst, and of the largest. Each is four times as large as the one before.
const BURST_BYTES_MIN: usize = 64 << 10;
const BURST_BYTES_MAX: usize = 4 << 20;
/// A burst that takes this long is not followed by a larger one.
const BURST_ENOUGH: Duration = Duration::from_millis(10);
/// The most bursts of the last size, of which the fastest counts, and the time after which none is repeated.
const BURSTS_MAX: usize = 3;
const BURSTS_ENOUGH: Duration = Duration::from_millis(50);

/// The measured speed of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredLink {
    /// Half of the fastest round trip, nanoseconds.
    pub latency_ns: u64,
    /// Bytes a second, one way.
    pub bytes_per_s: u64,
}

/// Measures a link. `trip` sends so many bytes and a message, and returns how long it took until the answer came; none
/// if the other side does not answer.
pub fn measure(mut trip: impl FnMut(usize) -> Option<Duration>) -> Option<MeasuredLink> {
    let begun = Instant::now();
    let mut round = trip(0)?;
    for _ in 1..PINGS_MAX {
        if begun.elapsed() >= PINGS_ENOUGH {
            break;
        }
        round = round.min(trip(0)?);
    }
    let begun = Instant::now();
    let mut bytes = BURST_BYTES_MIN;
    let mut fastest = trip(bytes)?;
    while fastest < BURST_ENOUGH && bytes < BURST_BYTES_MAX {
        bytes *= 4;
        fastest = trip(bytes)?;
    }
    for _ in 1..BURSTS_MAX {
        if begun.elapsed() >= BURSTS_ENOUGH {
            break;
        }
        fastest = fastest.min(trip(bytes)?);
    }
    let sending = fastest.saturating_sub(round).max(Duration::from_nanos(1));
    let bytes_per_s = (bytes as f64 / sending.as_secs_f64()) as u64;
    Some(MeasuredLink { latency_ns: round.as_nanos() as u64 / 2, bytes_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trips over a link with this round trip and bandwidth, and the bytes that were sent.
    fn over(round: Duration, bytes_per_s: f64) -> (Option<MeasuredLink>, usize) {
        let mut sent = 0;
        let measured = measure(|bytes| {
            sent += bytes;
            Some(round + Duration::from_secs_f64(bytes as f64 / bytes_per_s))
        });
        (measured, sent)
    }

    #[test]
    fn fast_and_slow_links_are_measured_with_few_bytes() {
        for (round_us, bytes_per_s, sent_max) in [(40, 10e9, 14 << 20), (100, 1e9, 14 << 20), (20_000, 1e6, 192 << 10)]
        {
            let (measured, sent) = over(Duration::from_micros(round_us), bytes_per_s);
            let measured = measured.unwrap();
            assert_eq!(measured.latency_ns, round_us * 500);
            assert!((measured.bytes_per_s as f64 / bytes_per_s - 1.0).abs() < 0.01, "{measured:?}");
            assert!(sent <= sent_max, "{sent} bytes");
        }
    }

    #[test]
    fn a_node_that_does_not_answer_has_no_measured_link() {
        assert_eq!(measure(|_| None), None);
        assert_eq!(measure(|bytes| (bytes == 0).then_some(Duration::from_micros(1))), None);
    }
}
