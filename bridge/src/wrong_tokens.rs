//! Limits on wrong tokens. They are counted by user where the kernel tells whose a connection is, otherwise by the
//! network address, so that a user who guesses keeps no other user of the machine out.
//!
//! The reply to a wrong token is delayed, the next one's twice as long. After [`FAILURES_MAX`] the guesser is refused
//! for [`REFUSED_FOR`], whatever its token. The log has a line when a burst of wrong tokens begins, one when its
//! guesser is refused, and one when it is over.

use crate::peer::PeerOrigin;
use crate::user_tokens::TokenFailure;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong tokens of one guesser after which it is refused for a while.
pub const FAILURES_MAX: u32 = 8;
/// The time for which a guesser is refused.
pub const REFUSED_FOR: Duration = Duration::from_secs(60);
/// The delay of the reply to the first wrong token.
const DELAY_MIN: Duration = Duration::from_millis(50);
/// The longest delay of a reply.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// A burst of wrong tokens is over when none has come for this long since the guesser was let in again.
const QUIET: Duration = Duration::from_secs(60);
/// The most guessers that are remembered; the limit bounds the daemon's memory.
const GUESSERS_MAX: usize = 4096;

/// The wrong tokens of a guesser.
#[derive(Debug)]
struct Burst {
    first: Instant,
    last: Instant,
    /// Wrong tokens since the guesser was last refused.
    failures: u32,
    /// All wrong tokens.
    total: u64,
    /// Connections that were refused without a look at their token.
    refused: u64,
    refused_until: Option<Instant>,
}

impl Burst {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.refused_until.unwrap_or(self.last).max(self.last) + QUIET
    }
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// The token is right.
    Right(T),
    /// The token is not accepted. The reply must wait for the delay.
    Failed(TokenFailure, Duration),
    /// The token was not looked at: the guesser is refused for this time.
    Refused(Duration),
}

/// The wrong tokens of all guessers.
#[derive(Debug, Default)]
pub struct WrongTokens(Mutex<HashMap<PeerOrigin, Burst>>);

impl WrongTokens {
    /// Checks a token of `guesser` with `check`, unless the guesser is refused at the time `now`. One check runs at a
    /// time, so that many connections at once are no way around the limit.
    pub fn check<T>(
        &self,
        guesser: PeerOrigin,
        now: Instant,
        check: impl FnOnce() -> Result<T, TokenFailure>,
    ) -> Verdict<T> {
        let mut bursts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(burst) = bursts.get_mut(&guesser)
            && let Some(left) = burst.refused_until.map(|until| until.saturating_duration_since(now))
            && !left.is_zero()
        {
            burst.refused += 1;
            return Verdict::Refused(left);
        }
        match check() {
            Ok(right) => Verdict::Right(right),
            Err(TokenFailure::Wrong) => {
                let delay = count(&mut bursts, guesser, now);
                Verdict::Failed(TokenFailure::Wrong, delay)
            }
            Err(unfit) => Verdict::Failed(unfit, Duration::ZERO),
        }
    }
}

/// Counts a wrong token, and returns the delay of the reply.
fn count(bursts: &mut HashMap<PeerOrigin, Burst>, guesser: PeerOrigin, now: Instant) -> Duration {
    bursts.retain(|guesser, burst| {
        let over = burst.is_over(now);
        if over && burst.total > 1 {
            let (total, refused, seconds) = (burst.total, burst.refused, (burst.last - burst.first).as_secs());
            tracing::info!(
                target: "gtd::tcp",
                "{total} wrong tokens came from {guesser} in {seconds} s, and {refused} connections that were refused"
            );
        }
        !over
    });
    if bursts.len() >= GUESSERS_MAX
        && !bursts.contains_key(&guesser)
        && let Some(oldest) = bursts.iter().min_by_key(|(_, burst)| burst.last).map(|(guesser, _)| *guesser)
    {
        bursts.remove(&oldest);
    }
    let burst = bursts.entry(guesser).or_insert_with(|| {
        tracing::warn!(target: "gtd::tcp", "a wrong token came from {guesser}; more of them within a minute are counted");
        Burst { first: now, last: now, failures: 0, total: 0, refused: 0, refused_until: None }
    });
    (burst.last, burst.failures, burst.total) = (now, burst.failures + 1, burst.total + 1);
    let delay = (DELAY_MIN * 2u32.pow(burst.failures.min(FAILURES_MAX) - 1)).min(DELAY_MAX);
    if burst.failures >= FAILURES_MAX {
        if burst.refused_until.is_none() {
            let seconds = REFUSED_FOR.as_secs();
            tracing::warn!(
                target: "gtd::tcp",
                "{FAILURES_MAX} wrong tokens came from {guesser}, which is refused for {seconds} s after each so many"
            );
        }
        (burst.failures, burst.refused_until) = (0, Some(now + REFUSED_FOR));
    }
    delay
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRONG: fn() -> Result<(), TokenFailure> = || Err(TokenFailure::Wrong);
    const RIGHT: fn() -> Result<(), TokenFailure> = || Ok(());

    #[test]
    fn a_guesser_waits_longer_each_time_and_is_then_refused() {
        let (tokens, ana, start) = (WrongTokens::default(), PeerOrigin::User(7), Instant::now());
        let mut now = start;
        for round in 0..3 {
            let mut last = Duration::ZERO;
            for _ in 0..FAILURES_MAX {
                let Verdict::Failed(_, delay) = tokens.check(ana, now, WRONG) else { panic!("refused in {round}") };
                assert_eq!(delay, (2 * last).clamp(DELAY_MIN, DELAY_MAX));
                last = delay;
            }
            assert_eq!(tokens.check(ana, now, RIGHT), Verdict::Refused(REFUSED_FOR), "even with the right token");
            assert_eq!(tokens.check(PeerOrigin::User(8), now, RIGHT), Verdict::Right(()), "another user");
            now += REFUSED_FOR;
        }
        assert_eq!(tokens.check(ana, now, RIGHT), Verdict::Right(()));
    }

    #[test]
    fn a_quiet_minute_ends_a_burst() {
        let (tokens, ana, start) = (WrongTokens::default(), PeerOrigin::User(7), Instant::now());
        for minute in 0..20 {
            let verdict = tokens.check(ana, start + minute * QUIET, WRONG);
            assert_eq!(verdict, Verdict::Failed(TokenFailure::Wrong, DELAY_MIN));
        }
    }

    #[test]
    fn a_token_that_is_unfit_is_no_guess() {
        let (tokens, ana, now) = (WrongTokens::default(), PeerOrigin::User(7), Instant::now());
        let expired = TokenFailure::Unfit("it has expired".into());
        for _ in 0..2 * FAILURES_MAX {
            let verdict = tokens.check(ana, now, || Err::<(), _>(expired.clone()));
            assert_eq!(verdict, Verdict::Failed(expired.clone(), Duration::ZERO));
        }
    }

    #[test]
    fn guessers_are_users_here_and_machines_elsewhere() {
        let of = |uid, address: &str| PeerOrigin::new(uid, address.parse().unwrap());
        assert_eq!(of(Some(7), "127.0.0.1"), of(Some(7), "127.9.9.9"));
        assert_ne!(of(None, "192.0.2.1"), of(None, "192.0.2.2"));
        assert_eq!(of(None, "192.0.2.1"), of(None, "::ffff:192.0.2.1"));
        assert_eq!(of(None, "2001:db8::1"), of(None, "2001:db8::ffff:2"));
        assert_ne!(of(None, "2001:db8::1"), of(None, "2001:db8:0:1::1"));
    }

    #[test]
    fn memory_is_bounded() {
        let (tokens, now) = (WrongTokens::default(), Instant::now());
        for uid in 0..2 * GUESSERS_MAX as u32 {
            tokens.check(PeerOrigin::User(uid), now + Duration::from_nanos(uid.into()), WRONG);
        }
        assert_eq!(tokens.0.lock().unwrap().len(), GUESSERS_MAX);
    }
}
