//! Proportional shares of the devices' time, by user and then by session: start-time fair queueing (Goyal, Vin and
//! Cheng 1996) on two levels, as pure arithmetic.
//!
//! Each user has a *virtual time*, which advances by the time that the user's sessions are served, divided by the
//! user's weight. The next time slice goes to the user with the least virtual time, and among that user's sessions to
//! the one with the least. So users with work get time in proportion to their weights, however many sessions they have,
//! and sessions of one user get equal time. A session that wakes up starts at the virtual time of the last time slice,
//! so idling earns no credit.
//!
//! A program that waits for each result is idle between its steps, and what others are served meanwhile is still due to
//! it (deceptive idleness, Iyer and Druschel 2001). So a session that was idle for at most a quarter of a second of
//! others' service keeps its virtual time, as far as it lags by at most a quarter of a second. The worker is never left
//! idle for such a program: beside one with a deep queue it gets every other step at most, whatever its weight.
//!
//! A session that waits for a worker which is stopped, or computes for long, lags behind those that other workers
//! serve. It makes up for a tenth of a second of that at most: otherwise they would wait for as long in turn.
//!
//! A time slice lasts for 2 ms, since the tensors that a session works on then stay in the caches: with
//! slices of a single step each, thirty sessions together did an eighth less than one. A session that wakes up need not
//! wait for the end of a slice: if its virtual time is at most one time slice past the start of the last slice, it is
//! served for [`VISIT_NS`] before all others.
//!
//! A long step of a worker cannot be cut into slices, but steps of other sessions may run in between. So the queue also
//! tells whether a session [is due](FairQueue::is_due) now: whether its virtual time is below that which the running
//! step's session has reached so far.
//!
//! Usage of the last hours lowers the *effective weight*, gently: among competing users, one that used more than the
//! others counts less than its weight, by half at most. Usage in proportion to the weights changes nothing.
//!
//! Time is charged as measured. A queued step is charged its expected time until the worker reports how long it took,
//! or its session ends. The virtual time of a time slice, where others begin, is without that of queued steps, since a
//! step may be expected to take an hour.
//! The *cost correction* of a session, the ratio of measured to estimated time, scales its estimates, so wrong
//! estimates neither win time nor make queues long.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Expected time for which one session is served before the queue is asked again, nanoseconds.
pub const VISIT_NS: u64 = 50_000;
/// A time slice of one session, nanoseconds.
const TIME_SLICE_NS: f64 = 2e6;
/// A session or user that was idle while others were served for at most this keeps its virtual time, nanoseconds.
const SHORT_IDLE_NS: f64 = 250e6;
/// By this much service at most, nanoseconds, the virtual time may then lag behind that of the last time slice.
const LAG_MAX_NS: f64 = 250e6;
/// By this much service at most, nanoseconds, the virtual time of a session with work may lag behind when it is served.
const BLOCKED_LAG_MAX_NS: f64 = 100e6;
/// The slice number of a session that has had no time slice yet.
const NO_SLICE: u64 = u64::MAX;
/// The half-life of a user's recorded usage.
pub const USAGE_HALF_LIFE: Duration = Duration::from_secs(4 * 3600);
/// Differences in usage that are far smaller than this have little effect, seconds of a user of weight 1.
const USAGE_GRACE_S: f64 = 600.0;
/// Past usage lowers a user's weight by this part at most.
const USAGE_PART_MAX: f64 = 0.5;
/// A user without sessions is forgotten when the user's usage is below this, seconds.
const USAGE_FORGOTTEN_S: f64 = 0.1;
/// The time constant of the moving average of a session's share, seconds.
const SHARE_S: f64 = 5.0;

/// Measured or expected time after which a [`CostCorrection`] is updated, nanoseconds.
const CORRECTION_WINDOW_NS: f64 = 2e6;
/// Estimates are corrected by this factor at most, up or down.
const CORRECTION_MAX: f64 = 1000.0;

/// A user's entry in the queue.
#[derive(Debug)]
struct User {
    uid: u32,
    weight: f64,
    /// The weight, lowered by past usage.
    effective_weight: f64,
    virtual_time: f64,
    /// The part of it that is the expected time of queued steps, nanoseconds.
    queued_ns: f64,
    /// The virtual time of the session that got this user's last time slice, at the start of that slice.
    slice_start: f64,
    sessions: u32,
    /// Sessions that have work.
    backlogged: u32,
    /// [`FairQueue::served_ns`] when the last of them ran out of work.
    idle_since_ns: f64,
    /// True if anything was charged since the last tick.
    worked: bool,
    usage_s: f64,
}

/// A session's entry in the queue.
#[derive(Debug)]
pub struct SessionShare {
    /// Index into [`FairQueue::users`].
    user: usize,
    virtual_time: f64,
    /// The part of it that is the expected time of queued steps, nanoseconds.
    queued_ns: f64,
    backlogged: bool,
    /// [`FairQueue::served_ns`] when it ran out of work.
    idle_since_ns: f64,
    /// The number of its last time slice, and the time charged since that began, nanoseconds.
    slice: u64,
    slice_ns: f64,
    /// The rest of the time for which it is served before everybody else after waking up, nanoseconds.
    boost_ns: f64,
    /// Charged since the last tick, nanoseconds.
    charged_ns: f64,
    device_ns: f64,
    share: f64,
}

impl User {
    /// The virtual time without that of queued steps.
    fn served_time(&self) -> f64 {
        self.virtual_time - self.queued_ns / self.effective_weight
    }
}

impl SessionShare {
    /// The virtual time without that of queued steps.
    fn served_time(&self) -> f64 {
        self.virtual_time - self.queued_ns
    }

    /// The session's part of the devices' time in the last seconds, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.share.clamp(0.0, 1.0)
    }

    /// The devices' time charged since the session began, seconds.
    pub fn device_s(&self) -> f64 {
        self.device_ns.max(0.0) / 1e9
    }

    /// Updates the moving average after `elapsed`.
    pub fn tick(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let kept = (-seconds / SHARE_S).exp();
        self.share = self.share * kept + std::mem::take(&mut self.charged_ns) / 1e9 / seconds.max(1e-9) * (1.0 - kept);
    }
}

/// A session's virtual times as if its queued steps were charged only for the time that they have had so far.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Index into [`FairQueue::users`].
    user: usize,
    user_virtual_time: f64,
    virtual_time: f64,
}

/// The queue: all users, and the current time slice.
#[derive(Debug, Default)]
pub struct FairQueue {
    users: Vec<User>,
    by_uid: HashMap<u32, usize>,
    vacant: Vec<usize>,
    /// The virtual time of the user that got the last time slice, at the start of that slice.
    slice_start: f64,
    /// The number of the current time slice, and the user whose session has it.
    slice: u64,
    slice_user: Option<usize>,
    /// The time that all sessions have had, nanoseconds: a clock that stands while nobody is served.
    served_ns: f64,
}

impl FairQueue {
    /// Adds a session of user `uid`, whose weight is `weight`.
    pub fn open(&mut self, uid: u32, weight: f64) -> SessionShare {
        self.set_weight(uid, weight);
        let user = self.user(uid, weight);
        self.users[user].sessions += 1;
        let virtual_time = self.users[user].slice_start;
        SessionShare {
            user,
            virtual_time,
            queued_ns: 0.0,
            backlogged: false,
            idle_since_ns: f64::NEG_INFINITY,
            slice: NO_SLICE,
            slice_ns: 0.0,
            boost_ns: 0.0,
            charged_ns: 0.0,
            device_ns: 0.0,
            share: 0.0,
        }
    }

    /// The index of user `uid`, who is added with `weight` if the queue does not know the user.
    fn user(&mut self, uid: u32, weight: f64) -> usize {
        if let Some(user) = self.by_uid.get(&uid) {
            return *user;
        }
        let user = User {
            uid,
            weight,
            effective_weight: weight,
            virtual_time: self.slice_start,
            queued_ns: 0.0,
            slice_start: 0.0,
            sessions: 0,
            backlogged: 0,
            idle_since_ns: f64::NEG_INFINITY,
            worked: false,
            usage_s: 0.0,
        };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.users[index] = user;
                index
            }
            None => {
                self.users.push(user);
                self.users.len() - 1
            }
        };
        self.by_uid.insert(uid, index);
        index
    }

    /// The decayed usage of all users, seconds.
    pub fn usage(&self) -> BTreeMap<u32, f64> {
        let of = |(uid, user): (&u32, &usize)| (*uid, self.users[*user].usage_s.max(0.0));
        self.by_uid.iter().map(of).filter(|(_, usage_s)| *usage_s >= USAGE_FORGOTTEN_S).collect()
    }

    /// Adds usage that was recorded `age` ago.
    pub fn restore_usage(&mut self, usage_s: BTreeMap<u32, f64>, age: Duration) {
        for (uid, usage_s) in usage_s {
            let user = self.user(uid, 1.0);
            self.users[user].usage_s += usage_s * decay(age);
        }
    }

    /// Removes a session that has ended while its queued steps have had `ran_ns`, which is all that they are charged.
    /// Its user's usage remains.
    pub fn close(&mut self, session: &mut SessionShare, ran_ns: f64) {
        self.measure(session, session.queued_ns, ran_ns);
        self.set_idle(session);
        self.users[session.user].sessions -= 1;
    }

    /// Sets the weight of user `uid`.
    pub fn set_weight(&mut self, uid: u32, weight: f64) {
        if let Some(user) = self.by_uid.get(&uid) {
            let user = &mut self.users[*user];
            user.effective_weight *= weight / user.weight;
            user.weight = weight;
        }
    }

    /// The lag that a session or user keeps which has been idle since `idle_since_ns`, nanoseconds.
    fn kept_lag_ns(&self, idle_since_ns: f64) -> f64 {
        if self.served_ns - idle_since_ns <= SHORT_IDLE_NS { LAG_MAX_NS } else { 0.0 }
    }

    /// Marks the session as having work. If it had none for long, its virtual time is at least that of the last time
    /// slice.
    #[inline]
    pub fn set_backlogged(&mut self, session: &mut SessionShare) {
        if session.backlogged {
            return;
        }
        session.backlogged = true;
        let kept_ns = self.kept_lag_ns(session.idle_since_ns);
        let user_kept_ns = self.kept_lag_ns(self.users[session.user].idle_since_ns);
        let user = &mut self.users[session.user];
        if user.backlogged == 0 {
            user.virtual_time = user.virtual_time.max(self.slice_start - user_kept_ns / user.effective_weight);
        }
        user.backlogged += 1;
        session.virtual_time = session.virtual_time.max(user.slice_start - kept_ns);
        let mut ahead_ns = session.virtual_time - user.slice_start;
        // The virtual time of the user with the slice advances whichever of the user's sessions is served, so it does
        // not count for these.
        if self.slice_user != Some(session.user) {
            ahead_ns = ahead_ns.max((user.virtual_time - self.slice_start) * user.effective_weight);
        }
        session.boost_ns = if ahead_ns <= TIME_SLICE_NS { VISIT_NS as f64 } else { 0.0 };
    }

    /// Marks the session as having no work.
    #[inline]
    pub fn set_idle(&mut self, session: &mut SessionShare) {
        if std::mem::take(&mut session.backlogged) {
            let user = &mut self.users[session.user];
            user.backlogged -= 1;
            (session.idle_since_ns, user.idle_since_ns) = (self.served_ns, self.served_ns);
        }
    }

    /// The sort key of a session with work: the least is served next. First come sessions that have just woken up, then
    /// the session with the current time slice, then the others by their users' and their own virtual time.
    #[inline]
    pub fn key(&self, session: &SessionShare) -> (u8, f64, f64) {
        let class = match session.boost_ns > 0.0 {
            true => 0,
            false if self.has_slice(session) => 1,
            false => 2,
        };
        (class, self.users[session.user].virtual_time, session.virtual_time)
    }

    #[inline]
    fn has_slice(&self, session: &SessionShare) -> bool {
        session.slice == self.slice && session.slice_ns < TIME_SLICE_NS
    }

    /// The progress of a session whose steps were charged `outstanding_ns` more than the time they have had.
    pub fn progress(&self, session: &SessionShare, outstanding_ns: f64) -> Progress {
        let user = &self.users[session.user];
        Progress {
            user: session.user,
            user_virtual_time: user.virtual_time - outstanding_ns / user.effective_weight,
            virtual_time: session.virtual_time - outstanding_ns,
        }
    }

    /// Whether the queue would serve the session now, rather than the one whose step runs, if that step were cut into
    /// time slices.
    #[inline]
    pub fn is_due(&self, session: &SessionShare, running: &Progress) -> bool {
        if session.boost_ns > 0.0 {
            return true;
        }
        if session.user == running.user {
            return session.served_time() <= running.virtual_time;
        }
        self.users[session.user].served_time() <= running.user_virtual_time
    }

    /// Records that the session is served next: it begins a time slice, unless it has one or has just woken up.
    #[inline]
    pub fn serve(&mut self, session: &mut SessionShare) {
        if session.boost_ns > 0.0 || self.has_slice(session) {
            return;
        }
        self.slice += 1;
        self.slice_user = Some(session.user);
        (session.slice, session.slice_ns) = (self.slice, 0.0);
        let user = &mut self.users[session.user];
        let least = self.slice_start - BLOCKED_LAG_MAX_NS / user.effective_weight;
        user.virtual_time += (least - user.served_time()).max(0.0);
        let least = user.slice_start - BLOCKED_LAG_MAX_NS;
        session.virtual_time += (least - session.served_time()).max(0.0);
        user.slice_start = user.slice_start.max(session.served_time());
        self.slice_start = self.slice_start.max(user.served_time());
    }

    /// Charges the session for steps that are queued and expected to take `expected_ns`.
    #[inline]
    pub fn charge_queued(&mut self, session: &mut SessionShare, expected_ns: f64) {
        session.queued_ns += expected_ns;
        self.users[session.user].queued_ns += expected_ns;
        self.advance(session, expected_ns);
    }

    /// Charges the session the measured time of steps that were [queued](Self::charge_queued).
    #[inline]
    pub fn measure(&mut self, session: &mut SessionShare, expected_ns: f64, took_ns: f64) {
        session.queued_ns -= expected_ns;
        self.users[session.user].queued_ns -= expected_ns;
        self.advance(session, took_ns - expected_ns);
        self.served_ns += took_ns;
    }

    /// Charges the session for time of the devices, measured or expected; a negative time corrects an earlier charge.
    #[inline]
    pub fn charge(&mut self, session: &mut SessionShare, ns: f64) {
        self.advance(session, ns);
        self.served_ns += ns;
    }

    /// Advances the virtual times of the session and its user, and adds to their usage.
    #[inline]
    fn advance(&mut self, session: &mut SessionShare, ns: f64) {
        session.virtual_time += ns;
        session.slice_ns += ns;
        session.boost_ns -= ns.max(0.0);
        session.charged_ns += ns;
        session.device_ns += ns;
        let user = &mut self.users[session.user];
        user.virtual_time += ns / user.effective_weight;
        user.usage_s += ns / 1e9;
        user.worked = true;
    }

    /// The decayed usage of user `uid`, seconds.
    pub fn usage_s(&self, uid: u32) -> f64 {
        self.by_uid.get(&uid).map_or(0.0, |user| self.users[*user].usage_s.max(0.0))
    }

    /// Decays usage by `elapsed`, updates effective weights, and forgets users without sessions and usage.
    pub fn tick(&mut self, elapsed: Duration) {
        let kept = decay(elapsed);
        let by_weight = |user: &User| user.usage_s.max(0.0) / user.weight;
        for user in &mut self.users {
            user.usage_s *= kept;
        }
        let competes = |user: &&User| user.worked && user.sessions > 0;
        let least = self.users.iter().filter(competes).map(by_weight).fold(f64::INFINITY, f64::min);
        for (index, user) in self.users.iter_mut().enumerate() {
            if std::mem::take(&mut user.worked) && least.is_finite() {
                let part = 1.0 - (least + USAGE_GRACE_S) / (by_weight(user) + USAGE_GRACE_S);
                user.effective_weight = user.weight * (1.0 - USAGE_PART_MAX * part.max(0.0));
            }
            let forgotten = user.sessions == 0 && user.usage_s < USAGE_FORGOTTEN_S;
            if forgotten && self.by_uid.get(&user.uid) == Some(&index) {
                self.by_uid.remove(&user.uid);
                self.vacant.push(index);
            }
        }
    }
}

/// The factor by which usage decays in `elapsed`.
fn decay(elapsed: Duration) -> f64 {
    (-elapsed.as_secs_f64() / USAGE_HALF_LIFE.as_secs_f64()).exp2()
}

/// The ratio of measured to estimated time of a session's steps.
#[derive(Debug)]
pub struct CostCorrection {
    factor: f64,
    estimated_ns: f64,
    measured_ns: f64,
}

impl Default for CostCorrection {
    fn default() -> CostCorrection {
        CostCorrection { factor: 1.0, estimated_ns: 0.0, measured_ns: 0.0 }
    }
}

impl CostCorrection {
    /// The corrected estimate of a step, nanoseconds.
    #[inline]
    pub fn expect(&self, estimated_ns: u64) -> u64 {
        (estimated_ns as f64 * self.factor) as u64
    }

    /// Learns from steps that were estimated to take `estimated_ns` and took `measured_ns`.
    #[inline]
    pub fn learn(&mut self, estimated_ns: u64, measured_ns: u64) {
        self.estimated_ns += estimated_ns as f64;
        self.measured_ns += measured_ns as f64;
        if self.measured_ns >= CORRECTION_WINDOW_NS || self.estimated_ns * self.factor >= CORRECTION_WINDOW_NS {
            let ratio = self.measured_ns / self.estimated_ns.max(1.0);
            let ratio = ratio.clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX);
            // The geometric mean with the old factor: one slow step among many has half the effect.
            self.factor = (self.factor * ratio).sqrt();
            (self.estimated_ns, self.measured_ns) = (0.0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A session that has work as long as `busy`; each of its steps takes about `step_ns`, and was estimated to take
    /// `wrong` times as long.
    struct Load {
        uid: u32,
        step_ns: f64,
        wrong: f64,
        busy: bool,
    }

    fn load(uid: u32, step_ns: f64, wrong: f64) -> Load {
        Load { uid, step_ns, wrong, busy: true }
    }

    /// Serves the loads for `ns` nanoseconds, as the dispatcher does. Returns the time that each session got.
    fn simulate(queue: &mut FairQueue, loads: &[Load], shares: &mut [SessionShare], ns: f64, seed: u64) -> Vec<f64> {
        let mut had = vec![0.0; loads.len()];
        let mut random = seed | 1;
        let mut now = 0.0;
        while now < ns {
            for (load, session) in loads.iter().zip(shares.iter_mut()) {
                if load.busy { queue.set_backlogged(session) } else { queue.set_idle(session) }
            }
            let busy = (0..loads.len()).filter(|i| loads[*i].busy);
            let next = busy.min_by(|a, b| {
                let (a, b) = (queue.key(&shares[*a]), queue.key(&shares[*b]));
                a.partial_cmp(&b).unwrap()
            });
            let Some(next) = next else { break };
            queue.serve(&mut shares[next]);
            let mut budget = VISIT_NS as f64;
            while budget > 0.0 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let took = loads[next].step_ns * (0.5 + (random >> 40) as f64 / (1u64 << 24) as f64);
                let expected = took * loads[next].wrong;
                queue.charge(&mut shares[next], expected);
                // The worker's report corrects the charge.
                queue.charge(&mut shares[next], took - expected);
                budget -= expected;
                had[next] += took;
                now += took;
            }
        }
        had
    }

    fn open(queue: &mut FairQueue, loads: &[Load], weight: impl Fn(u32) -> f64) -> Vec<SessionShare> {
        loads.iter().map(|load| queue.open(load.uid, weight(load.uid))).collect()
    }

    fn by_user(loads: &[Load], had: &[f64]) -> HashMap<u32, f64> {
        let total: f64 = had.iter().sum();
        let mut users = HashMap::new();
        for (load, had) in loads.iter().zip(had) {
            *users.entry(load.uid).or_default() += had / total;
        }
        users
    }

    proptest! {
        #[test]
        fn users_get_time_by_their_weights_whatever_they_submit(
            weights in prop::collection::vec(0.2f64..5.0, 2..6),
            sessions in prop::collection::vec((0usize..6, 300.0f64..300_000.0, 0.1f64..10.0), 2..14),
            seed in any::<u64>(),
        ) {
            let mut queue = FairQueue::default();
            let loads: Vec<Load> =
                sessions.iter().map(|(uid, step, wrong)| load((*uid % weights.len()) as u32, *step, *wrong)).collect();
            let mut shares = open(&mut queue, &loads, |uid| weights[uid as usize]);
            let had = simulate(&mut queue, &loads, &mut shares, 4e9, seed);
            let users = by_user(&loads, &had);
            let total: f64 = users.keys().map(|uid| weights[*uid as usize]).sum();
            let all_ns: f64 = had.iter().sum();
            // The simulation ends within a time slice, so two slices more or less are allowed.
            let is_due = |ns: f64, due_ns: f64| (ns - due_ns).abs() < 0.05 * due_ns + 2.0 * TIME_SLICE_NS;
            for (uid, part) in users {
                let due = weights[uid as usize] / total;
                prop_assert!(is_due(part * all_ns, due * all_ns), "user {uid}: {part} of {due}");
            }
            for (a, load) in loads.iter().enumerate() {
                for (b, other) in loads.iter().enumerate().filter(|(_, other)| other.uid == load.uid) {
                    prop_assert!(is_due(had[a], had[b]), "{} {} {}", had[a], had[b], other.uid);
                }
            }
        }
    }

    #[test]
    fn what_is_due_to_an_idle_program_outlasts_a_queued_step_of_an_hour() {
        let mut queue = FairQueue::default();
        let loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        simulate(&mut queue, &loads, &mut shares, 1e7, 1);
        let before = queue.users[shares[0].user].virtual_time;
        queue.set_idle(&mut shares[0]);
        simulate(&mut queue, &loads[1..], &mut shares[1..], 5e7, 2);
        queue.charge_queued(&mut shares[1], 3.6e12);
        queue.set_backlogged(&mut shares[0]);
        assert_eq!(queue.users[shares[0].user].virtual_time, before);
    }

    #[test]
    fn what_was_missed_behind_a_busy_worker_is_made_up_for_within_a_bound() {
        let mut queue = FairQueue::default();
        let mut loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        simulate(&mut queue, &loads, &mut shares, 1e8, 1);
        // The first user, and one session of the second, have work for a worker that takes no more for long.
        let others = simulate(&mut queue, &loads[2..], &mut shares[2..], 60e9, 2);
        assert!(others[0] >= 60e9);
        let had = simulate(&mut queue, &loads, &mut shares, 2e9, 3);
        let ahead_ns = had[0] - (had[1] + had[2]);
        assert!((ahead_ns - BLOCKED_LAG_MAX_NS).abs() < 1e7, "{ahead_ns}");
        assert!((had[1] - had[2] - BLOCKED_LAG_MAX_NS).abs() < 1e7, "{had:?}");
        loads[2].busy = false;
        let had = simulate(&mut queue, &loads, &mut shares, 1e9, 4);
        assert!((had[0] - had[1]).abs() < 1e7, "it is made up for once: {had:?}");
    }

    #[test]
    fn ten_sessions_of_one_user_get_as_much_as_one_of_another() {
        let mut queue = FairQueue::default();
        let mut loads: Vec<Load> = (0..10).map(|_| load(1, 20_000.0, 1.0)).collect();
        loads.push(load(2, 20_000.0, 1.0));
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        let had = simulate(&mut queue, &loads, &mut shares, 1e9, 7);
        assert!((by_user(&loads, &had)[&2] - 0.5).abs() < 0.01);
    }

    #[test]
    fn an_idle_share_is_given_away_and_not_saved_up() {
        let mut queue = FairQueue::default();
        let mut loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        loads[0].busy = false;
        let had = simulate(&mut queue, &loads, &mut shares, 1e9, 1);
        assert_eq!(had[0], 0.0);
        assert!(had[1] >= 1e9);
        loads[0].busy = true;
        // The time that the other session used meanwhile is no debt.
        let had = simulate(&mut queue, &loads, &mut shares, 1e9, 2);
        assert!((had[0] / had[1] - 1.0).abs() < 0.01, "{had:?}");
    }

    /// Serves programs that wait for each of their steps, of `step_ns`, and ask for the next `think_ns` later. Returns
    /// the part of the time that each had.
    fn simulate_waiting(weights: &[f64], step_ns: f64, think_ns: f64) -> Vec<f64> {
        let mut queue = FairQueue::default();
        let loads: Vec<Load> = (0..weights.len()).map(|uid| load(uid as u32, step_ns, 1.0)).collect();
        let mut shares = open(&mut queue, &loads, |uid| weights[uid as usize]);
        let (mut had, mut ready_ns) = (vec![0.0; weights.len()], vec![0.0; weights.len()]);
        let (mut now, mut random) = (0.0, 1u64);
        while now < 60e9 {
            for (ready, session) in ready_ns.iter().zip(&mut shares) {
                if *ready <= now { queue.set_backlogged(session) } else { queue.set_idle(session) }
            }
            let ready = (0..weights.len()).filter(|i| ready_ns[*i] <= now).map(|i| (queue.key(&shares[i]), i));
            let Some((_, next)) = ready.min_by(|a, b| a.partial_cmp(b).unwrap()) else {
                now = ready_ns.iter().copied().fold(f64::INFINITY, f64::min);
                continue;
            };
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let took = step_ns * (0.75 + (random >> 40) as f64 / (1u64 << 25) as f64);
            queue.serve(&mut shares[next]);
            queue.charge(&mut shares[next], step_ns);
            queue.set_idle(&mut shares[next]);
            queue.charge(&mut shares[next], took - step_ns);
            had[next] += took;
            now += took;
            ready_ns[next] = now + think_ns;
        }
        let total: f64 = had.iter().sum();
        had.iter().map(|had| had / total).collect()
    }

    #[test]
    fn programs_that_wait_for_each_step_get_time_by_their_weights() {
        for step_ns in [1e6, 5e6, 27e6, 83e6] {
            for weights in [&[1.0, 2.0, 3.0, 4.0][..], &[1.0; 4], &[2.0, 3.0, 3.0]] {
                let total: f64 = weights.iter().sum();
                let parts = simulate_waiting(weights, step_ns, 3e5);
                for (weight, part) in weights.iter().zip(&parts) {
                    assert!((part - weight / total).abs() < 0.02, "steps of {step_ns} ns: {parts:?} by {weights:?}");
                }
            }
        }
    }

    #[test]
    fn a_session_that_was_idle_for_long_is_due_nothing() {
        let mut queue = FairQueue::default();
        let loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        for session in &mut shares {
            queue.set_backlogged(session);
        }
        for (others_ns, lag_ns) in [(0.5 * SHORT_IDLE_NS, 0.5 * SHORT_IDLE_NS), (2.0 * SHORT_IDLE_NS, 0.0)] {
            queue.set_idle(&mut shares[0]);
            queue.charge(&mut shares[1], others_ns);
            queue.serve(&mut shares[1]);
            let start = queue.slice_start;
            queue.set_backlogged(&mut shares[0]);
            assert_eq!(start - queue.users[0].virtual_time, lag_ns);
            // It gets even again.
            let lag_ns = queue.users[1].virtual_time - queue.users[0].virtual_time;
            queue.charge(&mut shares[0], lag_ns);
        }
    }

    #[test]
    fn a_session_that_wakes_up_is_next() {
        let mut queue = FairQueue::default();
        let mut loads = [load(1, 10_000.0, 1.0), load(1, 10_000.0, 1.0), load(1, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        loads[2].busy = false;
        simulate(&mut queue, &loads, &mut shares, 1e8, 3);
        queue.set_backlogged(&mut shares[2]);
        let light = queue.key(&shares[2]);
        assert!(light <= queue.key(&shares[0]) && light <= queue.key(&shares[1]));
    }

    #[test]
    fn a_session_that_wakes_up_need_not_wait_for_the_end_of_a_time_slice() {
        let mut queue = FairQueue::default();
        let loads: Vec<Load> = (0..3).map(|uid| load(uid, 10_000.0, 1.0)).collect();
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        let first = |queue: &FairQueue, shares: &[SessionShare]| {
            let busy = (0..3).filter(|i| shares[*i].backlogged).map(|i| (queue.key(&shares[i]), i));
            busy.min_by(|a, b| a.partial_cmp(b).unwrap()).unwrap().1
        };
        for session in &mut shares[..2] {
            queue.set_backlogged(session);
            queue.charge(session, VISIT_NS as f64);
        }
        queue.serve(&mut shares[0]);
        queue.charge(&mut shares[0], TIME_SLICE_NS / 2.0);
        assert_eq!(first(&queue, &shares), 0, "a time slice goes on");
        // It comes first each time that it wakes up, as long as it has used little.
        for _ in 0..5 {
            queue.set_backlogged(&mut shares[2]);
            assert_eq!(first(&queue, &shares), 2);
            queue.serve(&mut shares[2]);
            queue.charge(&mut shares[2], VISIT_NS as f64);
            assert_eq!(first(&queue, &shares), 0, "the time slice goes on after that");
            queue.set_idle(&mut shares[2]);
        }
        queue.charge(&mut shares[2], TIME_SLICE_NS);
        queue.set_backlogged(&mut shares[2]);
        assert_eq!(first(&queue, &shares), 0, "a session that used more than a time slice gets no boost");
        queue.charge(&mut shares[0], TIME_SLICE_NS);
        assert_eq!(first(&queue, &shares), 1, "the time slice is over, and virtual time decides");
    }

    #[test]
    fn a_session_that_wakes_up_need_not_wait_for_another_of_its_user() {
        let mut queue = FairQueue::default();
        let loads = [load(0, 10_000.0, 1.0), load(0, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        queue.set_backlogged(&mut shares[0]);
        queue.charge(&mut shares[0], VISIT_NS as f64);
        queue.serve(&mut shares[0]);
        // The user has used almost a time slice since the current one began, all of it in one session.
        queue.charge(&mut shares[0], 0.99 * TIME_SLICE_NS);
        for _ in 0..3 {
            queue.set_backlogged(&mut shares[1]);
            assert!(queue.key(&shares[1]) < queue.key(&shares[0]));
            queue.serve(&mut shares[1]);
            queue.charge(&mut shares[1], VISIT_NS as f64);
            queue.set_idle(&mut shares[1]);
        }
        assert!(queue.has_slice(&shares[0]), "the time slice goes on after that");
    }

    #[test]
    fn usage_decays_and_lowers_a_weight_by_half_at_most() {
        let mut queue = FairQueue::default();
        let loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        let part = |queue: &mut FairQueue, shares: &mut [SessionShare]| {
            shares.iter_mut().for_each(|session| queue.charge(session, 1.0));
            queue.tick(Duration::ZERO);
            let had = simulate(queue, &loads, shares, 1e9, 5);
            by_user(&loads, &had)[&1]
        };
        assert!((part(&mut queue, &mut shares) - 0.5).abs() < 0.01);
        // Ten days of use without competition.
        queue.charge(&mut shares[0], 864_000e9);
        queue.users[0].virtual_time = queue.slice_start;
        shares[0].virtual_time = queue.users[0].slice_start;
        let soon = part(&mut queue, &mut shares);
        assert!((soon - 1.0 / 3.0).abs() < 0.01, "{soon}");
        queue.tick(USAGE_HALF_LIFE * 8);
        let later = part(&mut queue, &mut shares);
        assert!(soon < later && later < 0.49, "{later}");
        queue.tick(USAGE_HALF_LIFE * 20);
        let at_last = part(&mut queue, &mut shares);
        assert!((at_last - 0.5).abs() < 0.01, "{at_last}");
    }

    #[test]
    fn usage_by_the_weights_changes_nothing() {
        let mut queue = FairQueue::default();
        let loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, f64::from);
        for second in 0..20 {
            let had = simulate(&mut queue, &loads, &mut shares, 1e9, second);
            assert!((by_user(&loads, &had)[&2] - 2.0 / 3.0).abs() < 0.01);
            queue.tick(Duration::from_secs(1));
        }
    }

    #[test]
    fn usage_of_a_user_without_sessions_is_kept_for_a_while() {
        let mut queue = FairQueue::default();
        let mut session = queue.open(7, 1.0);
        queue.charge(&mut session, 50e9);
        queue.close(&mut session, 0.0);
        queue.tick(USAGE_HALF_LIFE);
        assert!((queue.usage_s(7) - 25.0).abs() < 0.1);
        queue.tick(USAGE_HALF_LIFE * 20);
        assert_eq!((queue.usage_s(7), queue.by_uid.len()), (0.0, 0));
        let session = queue.open(8, 1.0);
        assert_eq!((session.user, queue.users.len()), (0, 1));
    }

    #[test]
    fn usage_counts_after_a_restart() {
        let mut before = FairQueue::default();
        let mut session = before.open(7, 2.0);
        before.charge(&mut session, 7200e9);
        before.open(8, 1.0);
        assert_eq!(before.usage(), BTreeMap::from([(7, 7200.0)]));
        let mut queue = FairQueue::default();
        queue.restore_usage(before.usage(), USAGE_HALF_LIFE);
        assert_eq!((queue.usage_s(7), queue.usage_s(8)), (3600.0, 0.0));
        let loads = [load(7, 10_000.0, 1.0), load(8, 10_000.0, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        let part = |had: Vec<f64>| had[0] / (had[0] + had[1]);
        simulate(&mut queue, &loads, &mut shares, 1e9, 1);
        queue.tick(Duration::from_secs(1));
        let part = part(simulate(&mut queue, &loads, &mut shares, 1e9, 2));
        assert!(part < 0.4, "{part}");
        // Users without sessions are forgotten.
        let mut queue = FairQueue::default();
        queue.restore_usage(BTreeMap::from([(9, 100.0)]), Duration::ZERO);
        queue.tick(USAGE_HALF_LIFE * 20);
        assert_eq!((queue.usage(), queue.by_uid.len()), (BTreeMap::new(), 0));
    }

    #[test]
    fn a_share_is_an_average_of_the_last_seconds() {
        let mut queue = FairQueue::default();
        let mut session = queue.open(1, 1.0);
        for _ in 0..30 {
            queue.charge(&mut session, 0.25e9);
            session.tick(Duration::from_secs(1));
        }
        assert!((session.share() - 0.25).abs() < 0.01);
        session.tick(Duration::from_secs(60));
        assert!(session.share() < 0.001);
        assert!((session.device_s() - 7.5).abs() < 1e-6);
    }

    #[test]
    fn wrong_estimates_are_corrected() {
        for wrong in [0.1, 1.0, 10.0] {
            let mut correction = CostCorrection::default();
            for _ in 0..100_000 {
                correction.learn(10_000, (10_000.0 * wrong) as u64);
            }
            let expected = correction.expect(10_000) as f64;
            assert!((expected / (10_000.0 * wrong) - 1.0).abs() < 0.02, "{wrong}: {expected}");
        }
    }

    /// Serves a program with steps of `heavy_ns` and one with light steps of `light_ns`, which overtake the heavy ones
    /// while their session is due. Returns the light program's part of the time.
    fn simulate_overtaking(weights: [f64; 2], heavy_ns: f64, light_ns: f64) -> f64 {
        let mut queue = FairQueue::default();
        let [mut heavy, mut light] = [0, 1].map(|uid| queue.open(uid, weights[uid as usize]));
        queue.set_backlogged(&mut heavy);
        queue.set_backlogged(&mut light);
        let (mut now, mut light_had) = (0.0, 0.0);
        while now < 200.0 * heavy_ns {
            if queue.key(&light) < queue.key(&heavy) {
                queue.serve(&mut light);
                queue.charge(&mut light, light_ns);
                (now, light_had) = (now + light_ns, light_had + light_ns);
                continue;
            }
            queue.serve(&mut heavy);
            queue.charge(&mut heavy, heavy_ns);
            let mut left_ns = heavy_ns;
            while left_ns > 0.0 {
                if queue.is_due(&light, &queue.progress(&heavy, left_ns)) {
                    queue.charge(&mut light, light_ns);
                    (now, light_had) = (now + light_ns, light_had + light_ns);
                } else {
                    (now, left_ns) = (now + 1e5, left_ns - 1e5);
                }
            }
        }
        light_had / now
    }

    #[test]
    fn steps_that_overtake_get_no_more_than_their_weight() {
        for (heavy_ns, light_ns) in [(27e6, 1e5), (27e6, 4e6), (125e6, 5e6), (10e9, 1e6)] {
            for weights in [[1.0, 1.0], [1.0, 4.0], [3.0, 1.0]] {
                let due = weights[1] / (weights[0] + weights[1]);
                let part = simulate_overtaking(weights, heavy_ns, light_ns);
                assert!((part - due).abs() < 0.02, "{light_ns} beside {heavy_ns} by {weights:?}: {part} of {due}");
            }
        }
    }

    #[test]
    fn a_session_that_used_little_is_due_at_any_time_of_anothers_step() {
        for uids in [[0, 1], [0, 0]] {
            let mut queue = FairQueue::default();
            let [mut heavy, mut light] = uids.map(|uid| queue.open(uid, 1.0));
            queue.set_backlogged(&mut heavy);
            for _ in 0..10 {
                queue.serve(&mut heavy);
                queue.charge(&mut heavy, 27e6);
                for ran_ns in 1..27 {
                    queue.set_backlogged(&mut light);
                    assert!(queue.is_due(&light, &queue.progress(&heavy, 27e6 - f64::from(ran_ns) * 1e6)), "{uids:?}");
                    queue.charge(&mut light, 1e5);
                    queue.set_idle(&mut light);
                }
            }
        }
    }

    #[test]
    fn a_queued_step_of_an_hour_sets_nobody_back() {
        const HOUR_NS: f64 = 3600e9;
        let mut queue = FairQueue::default();
        let loads = [load(1, 1e5, 1.0), load(1, 1e5, 1.0), load(2, 1e5, 1.0), load(3, 1e5, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        simulate(&mut queue, &loads[3..], &mut shares[3..], 10e6, 1);
        let [hour, same_user, other, third] = &mut shares[..] else { unreachable!() };
        for session in [&mut *hour, &mut *same_user] {
            queue.set_backlogged(session);
            queue.serve(session);
        }
        queue.charge_queued(hour, HOUR_NS);
        queue.set_idle(hour);
        // The same user's other session is served beside it, so that time slices begin.
        queue.serve(same_user);
        queue.charge(same_user, 1e6);
        let running = queue.progress(hour, HOUR_NS - 50e6);
        queue.set_backlogged(other);
        assert!(queue.is_due(other, &running), "the step has had more than a session that begins");
        assert!(queue.is_due(third, &running), "the step has had more than one that goes on");
        // Half a second of it is computed until its session ends. The next one of the user waits for that time alone.
        queue.close(hour, 500e6);
        assert_eq!(hour.device_s(), 0.5);
        queue.set_idle(same_user);
        let loads = [load(1, 1e5, 1.0), load(2, 1e5, 1.0)];
        let mut shares = open(&mut queue, &loads, |_| 1.0);
        let had = simulate(&mut queue, &loads, &mut shares, 4e9, 1);
        assert!((0.35..0.5).contains(&by_user(&loads, &had)[&1]), "{had:?}");
    }
}
