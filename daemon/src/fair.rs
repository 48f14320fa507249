//! Whose turn it is, as pure arithmetic: proportional shares of the devices' time, by user and then by session.
//!
//! Each user has a clock that runs by the time the user's sessions are served, slower the more the user weighs; the
//! next turn is that of the user whose clock is most behind, and among the user's sessions of the one that is. So
//! each user with work gets time in proportion to the weight, however many sessions it is spread over, and sessions
//! of one user get the same. Who had nothing to do for a while saves nothing up: the clock is set to that of whoever
//! was served last.
//!
//! A turn lasts for a while, since what a session works on then stays in the caches: with turns of a single step each,
//! thirty sessions together did an eighth less than one. Who begins to have work need not wait for it: if it has had no
//! more than a turn more than whoever's turn it is, its first instructions come before everybody else's.
//!
//! What users had over the last hours makes itself felt, but gently: among those who compete, who had more than the
//! others counts less than the own weight, by half at most. Where everybody has what the weights say, it changes
//! nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How long one session is served before it is looked whose turn it is, nanoseconds of expected time.
pub const QUANTUM_NS: u64 = 50_000;
/// How long its turn is, nanoseconds.
const TURN_NS: f64 = 2e6;
/// The number of no turn.
const NO_TURN: u64 = u64::MAX;
/// After so long, what a user has had counts half.
pub const USAGE_HALF_LIFE: Duration = Duration::from_secs(4 * 3600);
/// Differences in usage of far less than this, seconds of a user of weight 1, are not felt.
const USAGE_GRACE_S: f64 = 600.0;
/// Past usage takes this part of a user's weight away at most.
const USAGE_PART_MAX: f64 = 0.5;
/// A user of whom less is remembered, and who has no session, is forgotten, seconds.
const USAGE_FORGOTTEN_S: f64 = 0.1;
/// The seconds over which a session's present share is an average.
const SHARE_S: f64 = 5.0;

/// Expected time after which a session's [`Pace`] is looked at again, nanoseconds,
const PACE_WINDOW_NS: f64 = 2e6;
/// and how far estimates can be wrong, at most.
const PACE_MAX: f64 = 1000.0;

/// One user's part.
#[derive(Debug)]
struct User {
    uid: u32,
    weight: f64,
    /// The weight after what past usage takes away.
    pull: f64,
    /// The user's clock.
    time: f64,
    /// The clock of the user's session that was served last, as it was when that turn began.
    sessions_time: f64,
    sessions: u32,
    /// Sessions that have something to do.
    backlogged: u32,
    /// Whether anything was charged since the last tick.
    worked: bool,
    usage_s: f64,
}

/// One session's part.
#[derive(Debug)]
pub struct Standing {
    user: usize,
    time: f64,
    backlogged: bool,
    /// The number of the last turn it had, and what was charged since that began, nanoseconds.
    turn: u64,
    turn_ns: f64,
    /// What it may have before everybody else, since it began to have work, nanoseconds.
    first_ns: f64,
    /// Charged since the last tick, nanoseconds.
    fresh_ns: f64,
    device_ns: f64,
    share: f64,
}

impl Standing {
    /// The part of the devices' time that the session had lately.
    pub fn share(&self) -> f64 {
        self.share.clamp(0.0, 1.0)
    }

    /// The devices' time that it has had, seconds.
    pub fn device_s(&self) -> f64 {
        self.device_ns.max(0.0) / 1e9
    }

    /// `elapsed` has passed.
    pub fn tick(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let kept = (-seconds / SHARE_S).exp();
        self.share = self.share * kept + std::mem::take(&mut self.fresh_ns) / 1e9 / seconds.max(1e-9) * (1.0 - kept);
    }
}

/// All users' parts.
#[derive(Debug, Default)]
pub struct Shares {
    users: Vec<User>,
    by_uid: HashMap<u32, usize>,
    vacant: Vec<usize>,
    /// The clock of the user who was served last, as it was when that turn began.
    time: f64,
    /// The number of the present turn, and the user whose turn it is.
    turn: u64,
    turn_user: Option<usize>,
}

impl Shares {
    /// A new session of user `uid`, who weighs `weight`.
    pub fn open(&mut self, uid: u32, weight: f64) -> Standing {
        self.set_weight(uid, weight);
        let user = self.user(uid, weight);
        self.users[user].sessions += 1;
        let time = self.users[user].sessions_time;
        Standing {
            user,
            time,
            backlogged: false,
            turn: NO_TURN,
            turn_ns: 0.0,
            first_ns: 0.0,
            fresh_ns: 0.0,
            device_ns: 0.0,
            share: 0.0,
        }
    }

    /// The place of user `uid`, who weighs `weight` if this is the first of it.
    fn user(&mut self, uid: u32, weight: f64) -> usize {
        if let Some(user) = self.by_uid.get(&uid) {
            return *user;
        }
        let user = User {
            uid,
            weight,
            pull: weight,
            time: self.time,
            sessions_time: 0.0,
            sessions: 0,
            backlogged: 0,
            worked: false,
            usage_s: 0.0,
        };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.users[place] = user;
                place
            }
            None => {
                self.users.push(user);
                self.users.len() - 1
            }
        };
        self.by_uid.insert(uid, place);
        place
    }

    /// What users have had, in the last hours most of all, seconds.
    pub fn usage(&self) -> BTreeMap<u32, f64> {
        let of = |(uid, user): (&u32, &usize)| (*uid, self.users[*user].usage_s.max(0.0));
        self.by_uid.iter().map(of).filter(|(_, usage_s)| *usage_s >= USAGE_FORGOTTEN_S).collect()
    }

    /// Remembers what users had had, so long ago.
    pub fn remember(&mut self, usage_s: BTreeMap<u32, f64>, age: Duration) {
        for (uid, usage_s) in usage_s {
            let user = self.user(uid, 1.0);
            self.users[user].usage_s += usage_s * kept_after(age);
        }
    }

    /// A session has ended. What its user has had is remembered.
    pub fn close(&mut self, standing: &mut Standing) {
        self.rest(standing);
        self.users[standing.user].sessions -= 1;
    }

    /// User `uid` weighs `weight` from now on.
    pub fn set_weight(&mut self, uid: u32, weight: f64) {
        if let Some(user) = self.by_uid.get(&uid) {
            let user = &mut self.users[*user];
            user.pull *= weight / user.weight;
            user.weight = weight;
        }
    }

    /// The session has something to do.
    #[inline]
    pub fn begin(&mut self, standing: &mut Standing) {
        if standing.backlogged {
            return;
        }
        standing.backlogged = true;
        let user = &mut self.users[standing.user];
        if user.backlogged == 0 {
            user.time = user.time.max(self.time);
        }
        user.backlogged += 1;
        standing.time = standing.time.max(user.sessions_time);
        let mut ahead_ns = standing.time - user.sessions_time;
        // No user is ahead of itself: its clock runs during the turn, whichever of its sessions are served.
        if self.turn_user != Some(standing.user) {
            ahead_ns = ahead_ns.max((user.time - self.time) * user.pull);
        }
        standing.first_ns = if ahead_ns <= TURN_NS { QUANTUM_NS as f64 } else { 0.0 };
    }

    /// The session has nothing to do.
    #[inline]
    pub fn rest(&mut self, standing: &mut Standing) {
        if std::mem::take(&mut standing.backlogged) {
            self.users[standing.user].backlogged -= 1;
        }
    }

    /// Which of two sessions with something to do has its turn earlier: the one for which this is less.
    #[inline]
    pub fn order(&self, standing: &Standing) -> (u8, f64, f64) {
        let class = match standing.first_ns > 0.0 {
            true => 0,
            false if self.has_turn(standing) => 1,
            false => 2,
        };
        (class, self.users[standing.user].time, standing.time)
    }

    #[inline]
    fn has_turn(&self, standing: &Standing) -> bool {
        standing.turn == self.turn && standing.turn_ns < TURN_NS
    }

    /// A session is served: it comes before everybody else, or it is its turn still, or from now on.
    #[inline]
    pub fn serve(&mut self, standing: &mut Standing) {
        if standing.first_ns > 0.0 || self.has_turn(standing) {
            return;
        }
        self.turn += 1;
        self.turn_user = Some(standing.user);
        (standing.turn, standing.turn_ns) = (self.turn, 0.0);
        let user = &mut self.users[standing.user];
        user.sessions_time = user.sessions_time.max(standing.time);
        self.time = self.time.max(user.time);
    }

    /// A session has had, or will have had, time of the devices; less than none corrects what was charged before.
    #[inline]
    pub fn charge(&mut self, standing: &mut Standing, ns: f64) {
        standing.time += ns;
        standing.turn_ns += ns;
        standing.first_ns -= ns.max(0.0);
        standing.fresh_ns += ns;
        standing.device_ns += ns;
        let user = &mut self.users[standing.user];
        user.time += ns / user.pull;
        user.usage_s += ns / 1e9;
        user.worked = true;
    }

    /// The devices' time that user `uid` has had, seconds; what was long ago counts less.
    pub fn usage_s(&self, uid: u32) -> f64 {
        self.by_uid.get(&uid).map_or(0.0, |user| self.users[*user].usage_s.max(0.0))
    }

    /// `elapsed` has passed: usage fades, and takes its part of the weights of those who compete.
    pub fn tick(&mut self, elapsed: Duration) {
        let kept = kept_after(elapsed);
        let by_weight = |user: &User| user.usage_s.max(0.0) / user.weight;
        for user in &mut self.users {
            user.usage_s *= kept;
        }
        let compete = |user: &&User| user.worked && user.sessions > 0;
        let least = self.users.iter().filter(compete).map(by_weight).fold(f64::INFINITY, f64::min);
        for (place, user) in self.users.iter_mut().enumerate() {
            if std::mem::take(&mut user.worked) && least.is_finite() {
                let part = 1.0 - (least + USAGE_GRACE_S) / (by_weight(user) + USAGE_GRACE_S);
                user.pull = user.weight * (1.0 - USAGE_PART_MAX * part.max(0.0));
            }
            let forgotten = user.sessions == 0 && user.usage_s < USAGE_FORGOTTEN_S;
            if forgotten && self.by_uid.get(&user.uid) == Some(&place) {
                self.by_uid.remove(&user.uid);
                self.vacant.push(place);
            }
        }
    }
}

/// The part of usage that still counts after so long.
fn kept_after(elapsed: Duration) -> f64 {
    (-elapsed.as_secs_f64() / USAGE_HALF_LIFE.as_secs_f64()).exp2()
}

/// How long a session's steps take beside what was estimated.
#[derive(Debug)]
pub struct Pace {
    factor: f64,
    estimated_ns: f64,
    measured_ns: f64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { factor: 1.0, estimated_ns: 0.0, measured_ns: 0.0 }
    }
}

impl Pace {
    /// What to expect of a step that is estimated to take `estimated_ns`.
    #[inline]
    pub fn expect(&self, estimated_ns: u64) -> u64 {
        (estimated_ns as f64 * self.factor) as u64
    }

    /// Steps that were estimated to take the one took the other.
    #[inline]
    pub fn learn(&mut self, estimated_ns: u64, measured_ns: u64) {
        self.estimated_ns += estimated_ns as f64;
        self.measured_ns += measured_ns as f64;
        if self.measured_ns >= PACE_WINDOW_NS || self.estimated_ns * self.factor >= PACE_WINDOW_NS {
            let seen = (self.measured_ns / self.estimated_ns.max(1.0)).clamp(1.0 / PACE_MAX, PACE_MAX);
            // Halfway on a scale of factors: one slow step among many is not believed at once.
            self.factor = (self.factor * seen).sqrt();
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

    /// Serves the loads for `ns` nanoseconds, as the dispatcher does. Returns what each session had.
    fn simulate(shares: &mut Shares, loads: &[Load], standings: &mut [Standing], ns: f64, seed: u64) -> Vec<f64> {
        let mut had = vec![0.0; loads.len()];
        let mut random = seed | 1;
        let mut now = 0.0;
        while now < ns {
            for (load, standing) in loads.iter().zip(standings.iter_mut()) {
                if load.busy { shares.begin(standing) } else { shares.rest(standing) }
            }
            let busy = (0..loads.len()).filter(|i| loads[*i].busy);
            let next = busy.min_by(|a, b| {
                let (a, b) = (shares.order(&standings[*a]), shares.order(&standings[*b]));
                a.partial_cmp(&b).unwrap()
            });
            let Some(next) = next else { break };
            shares.serve(&mut standings[next]);
            let mut budget = QUANTUM_NS as f64;
            while budget > 0.0 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let took = loads[next].step_ns * (0.5 + (random >> 40) as f64 / (1u64 << 24) as f64);
                let expected = took * loads[next].wrong;
                shares.charge(&mut standings[next], expected);
                // The report comes.
                shares.charge(&mut standings[next], took - expected);
                budget -= expected;
                had[next] += took;
                now += took;
            }
        }
        had
    }

    fn open(shares: &mut Shares, loads: &[Load], weight: impl Fn(u32) -> f64) -> Vec<Standing> {
        loads.iter().map(|load| shares.open(load.uid, weight(load.uid))).collect()
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
        fn users_get_what_their_weights_say_whatever_they_submit(
            weights in prop::collection::vec(0.2f64..5.0, 2..6),
            sessions in prop::collection::vec((0usize..6, 300.0f64..300_000.0, 0.1f64..10.0), 2..14),
            seed in any::<u64>(),
        ) {
            let mut shares = Shares::default();
            let loads: Vec<Load> =
                sessions.iter().map(|(uid, step, wrong)| load((*uid % weights.len()) as u32, *step, *wrong)).collect();
            let mut standings = open(&mut shares, &loads, |uid| weights[uid as usize]);
            let had = simulate(&mut shares, &loads, &mut standings, 4e9, seed);
            let users = by_user(&loads, &had);
            let total: f64 = users.keys().map(|uid| weights[*uid as usize]).sum();
            let all_ns: f64 = had.iter().sum();
            // Up to a turn that has just been had, and one that comes next.
            let is_due = |ns: f64, due_ns: f64| (ns - due_ns).abs() < 0.05 * due_ns + 2.0 * TURN_NS;
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
    fn ten_sessions_of_one_user_get_what_one_of_another_gets() {
        let mut shares = Shares::default();
        let mut loads: Vec<Load> = (0..10).map(|_| load(1, 20_000.0, 1.0)).collect();
        loads.push(load(2, 20_000.0, 1.0));
        let mut standings = open(&mut shares, &loads, |_| 1.0);
        let had = simulate(&mut shares, &loads, &mut standings, 1e9, 7);
        assert!((by_user(&loads, &had)[&2] - 0.5).abs() < 0.01);
    }

    #[test]
    fn an_idle_share_is_given_away_and_not_saved_up() {
        let mut shares = Shares::default();
        let mut loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut standings = open(&mut shares, &loads, |_| 1.0);
        loads[0].busy = false;
        let had = simulate(&mut shares, &loads, &mut standings, 1e9, 1);
        assert_eq!(had[0], 0.0);
        assert!(had[1] >= 1e9);
        loads[0].busy = true;
        // What the other had meanwhile is no debt.
        let had = simulate(&mut shares, &loads, &mut standings, 1e9, 2);
        assert!((had[0] / had[1] - 1.0).abs() < 0.01, "{had:?}");
    }

    #[test]
    fn who_comes_back_is_next() {
        let mut shares = Shares::default();
        let mut loads = [load(1, 10_000.0, 1.0), load(1, 10_000.0, 1.0), load(1, 10_000.0, 1.0)];
        let mut standings = open(&mut shares, &loads, |_| 1.0);
        loads[2].busy = false;
        simulate(&mut shares, &loads, &mut standings, 1e8, 3);
        shares.begin(&mut standings[2]);
        let light = shares.order(&standings[2]);
        assert!(light <= shares.order(&standings[0]) && light <= shares.order(&standings[1]));
    }

    #[test]
    fn who_comes_need_not_wait_for_the_end_of_a_turn() {
        let mut shares = Shares::default();
        let loads: Vec<Load> = (0..3).map(|uid| load(uid, 10_000.0, 1.0)).collect();
        let mut standings = open(&mut shares, &loads, |_| 1.0);
        let first = |shares: &Shares, standings: &[Standing]| {
            let busy = (0..3).filter(|i| standings[*i].backlogged).map(|i| (shares.order(&standings[i]), i));
            busy.min_by(|a, b| a.partial_cmp(b).unwrap()).unwrap().1
        };
        for standing in &mut standings[..2] {
            shares.begin(standing);
            shares.charge(standing, QUANTUM_NS as f64);
        }
        shares.serve(&mut standings[0]);
        shares.charge(&mut standings[0], TURN_NS / 2.0);
        assert_eq!(first(&shares, &standings), 0, "a turn lasts");
        // As often as it comes, while it has had little.
        for _ in 0..5 {
            shares.begin(&mut standings[2]);
            assert_eq!(first(&shares, &standings), 2);
            shares.serve(&mut standings[2]);
            shares.charge(&mut standings[2], QUANTUM_NS as f64);
            assert_eq!(first(&shares, &standings), 0, "and then it goes on");
            shares.rest(&mut standings[2]);
        }
        shares.charge(&mut standings[2], TURN_NS);
        shares.begin(&mut standings[2]);
        assert_eq!(first(&shares, &standings), 0, "who comes has had more than a turn");
        shares.charge(&mut standings[0], TURN_NS);
        assert_eq!(first(&shares, &standings), 1, "the turn is over, and clocks decide");
    }

    #[test]
    fn who_comes_need_not_wait_for_another_session_of_the_same_user_either() {
        let mut shares = Shares::default();
        let loads = [load(0, 10_000.0, 1.0), load(0, 10_000.0, 1.0)];
        let mut standings = open(&mut shares, &loads, |_| 1.0);
        shares.begin(&mut standings[0]);
        shares.charge(&mut standings[0], QUANTUM_NS as f64);
        shares.serve(&mut standings[0]);
        // The user has had more than a turn since this one began: the one session nearly all of it, the other little.
        shares.charge(&mut standings[0], 0.99 * TURN_NS);
        for _ in 0..3 {
            shares.begin(&mut standings[1]);
            assert!(shares.order(&standings[1]) < shares.order(&standings[0]));
            shares.serve(&mut standings[1]);
            shares.charge(&mut standings[1], QUANTUM_NS as f64);
            shares.rest(&mut standings[1]);
        }
        assert!(shares.has_turn(&standings[0]), "and then it goes on");
    }

    #[test]
    fn what_was_used_long_ago_counts_less_and_takes_half_of_a_weight_at_most() {
        let mut shares = Shares::default();
        let loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut standings = open(&mut shares, &loads, |_| 1.0);
        let part = |shares: &mut Shares, standings: &mut [Standing]| {
            standings.iter_mut().for_each(|standing| shares.charge(standing, 1.0));
            shares.tick(Duration::ZERO);
            let had = simulate(shares, &loads, standings, 1e9, 5);
            by_user(&loads, &had)[&1]
        };
        assert!((part(&mut shares, &mut standings) - 0.5).abs() < 0.01);
        // Ten days of it, while nobody else was there.
        shares.charge(&mut standings[0], 864_000e9);
        shares.users[0].time = shares.time;
        standings[0].time = shares.users[0].sessions_time;
        let soon = part(&mut shares, &mut standings);
        assert!((soon - 1.0 / 3.0).abs() < 0.01, "{soon}");
        shares.tick(USAGE_HALF_LIFE * 8);
        let later = part(&mut shares, &mut standings);
        assert!(soon < later && later < 0.49, "{later}");
        shares.tick(USAGE_HALF_LIFE * 20);
        let at_last = part(&mut shares, &mut standings);
        assert!((at_last - 0.5).abs() < 0.01, "{at_last}");
    }

    #[test]
    fn usage_by_the_weights_changes_nothing() {
        let mut shares = Shares::default();
        let loads = [load(1, 10_000.0, 1.0), load(2, 10_000.0, 1.0)];
        let mut standings = open(&mut shares, &loads, f64::from);
        for second in 0..20 {
            let had = simulate(&mut shares, &loads, &mut standings, 1e9, second);
            assert!((by_user(&loads, &had)[&2] - 2.0 / 3.0).abs() < 0.01);
            shares.tick(Duration::from_secs(1));
        }
    }

    #[test]
    fn who_is_gone_is_remembered_for_a_while_and_then_forgotten() {
        let mut shares = Shares::default();
        let mut standing = shares.open(7, 1.0);
        shares.charge(&mut standing, 50e9);
        shares.close(&mut standing);
        shares.tick(USAGE_HALF_LIFE);
        assert!((shares.usage_s(7) - 25.0).abs() < 0.1);
        shares.tick(USAGE_HALF_LIFE * 20);
        assert_eq!((shares.usage_s(7), shares.by_uid.len()), (0.0, 0));
        let standing = shares.open(8, 1.0);
        assert_eq!((standing.user, shares.users.len()), (0, 1));
    }

    #[test]
    fn what_was_had_counts_after_a_new_start() {
        let mut before = Shares::default();
        let mut standing = before.open(7, 2.0);
        before.charge(&mut standing, 7200e9);
        before.open(8, 1.0);
        assert_eq!(before.usage(), BTreeMap::from([(7, 7200.0)]));
        let mut shares = Shares::default();
        shares.remember(before.usage(), USAGE_HALF_LIFE);
        assert_eq!((shares.usage_s(7), shares.usage_s(8)), (3600.0, 0.0));
        let loads = [load(7, 10_000.0, 1.0), load(8, 10_000.0, 1.0)];
        let mut standings = open(&mut shares, &loads, |_| 1.0);
        let part = |had: Vec<f64>| had[0] / (had[0] + had[1]);
        simulate(&mut shares, &loads, &mut standings, 1e9, 1);
        shares.tick(Duration::from_secs(1));
        let part = part(simulate(&mut shares, &loads, &mut standings, 1e9, 2));
        assert!(part < 0.4, "{part}");
        // Who never comes back is forgotten.
        let mut shares = Shares::default();
        shares.remember(BTreeMap::from([(9, 100.0)]), Duration::ZERO);
        shares.tick(USAGE_HALF_LIFE * 20);
        assert_eq!((shares.usage(), shares.by_uid.len()), (BTreeMap::new(), 0));
    }

    #[test]
    fn a_share_is_that_of_the_last_seconds() {
        let mut shares = Shares::default();
        let mut standing = shares.open(1, 1.0);
        for _ in 0..30 {
            shares.charge(&mut standing, 0.25e9);
            standing.tick(Duration::from_secs(1));
        }
        assert!((standing.share() - 0.25).abs() < 0.01);
        standing.tick(Duration::from_secs(60));
        assert!(standing.share() < 0.001);
        assert!((standing.device_s() - 7.5).abs() < 1e-6);
    }

    #[test]
    fn estimates_that_are_wrong_are_put_right() {
        for wrong in [0.1, 1.0, 10.0] {
            let mut pace = Pace::default();
            for _ in 0..100_000 {
                pace.learn(10_000, (10_000.0 * wrong) as u64);
            }
            let expected = pace.expect(10_000) as f64;
            assert!((expected / (10_000.0 * wrong) - 1.0).abs() < 0.02, "{wrong}: {expected}");
        }
    }
}
