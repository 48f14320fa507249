//! Time slices of the hot sessions, in the order of the [`fair_queue`](crate::fair_queue), and reports of workers.

use super::Dispatcher;
use crate::control_connection::ControlConnection;
use crate::fair_queue::{FairQueue, Progress, SessionShare};
use crate::session::Context;
use gt_ops::Workers;
use gt_ops::failure::{Failure, Fault};

/// A session without work for this long goes cold even while others are busy, nanoseconds.
const HOT_NS_MAX: u64 = 2_000_000;

impl Dispatcher {
    /// Passes the workers' reports to their sessions. True if there were any.
    pub(super) fn take_reports(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        if self.links.len() > 1 {
            self.groups.look_after(&mut self.links);
        }
        let workers = self.present.len();
        for index in 0..self.links.len() {
            if !self.links[index].is_busy() {
                continue;
            }
            while let Some(report) = self.links[index].next_report() {
                any = true;
                if let Err(Failure { fault: Fault::WorkerLost { end, .. }, .. }) = &report.result {
                    self.worker_died(index, &end.to_string());
                }
                let slot = report.owner.slot as usize;
                let Some(Some(connection)) = self.connections.get_mut(slot) else { continue };
                if connection.serial != report.owner.session {
                    continue;
                }
                let Some(session) = &mut connection.session else { continue };
                session.learn(&report);
                let [expected_ns, took_ns] = [report.expected_ns, report.took_ns].map(|ns| ns as f64 / workers as f64);
                self.queue.measure(&mut session.share, expected_ns, took_ns);
                let ended = session.reported(&report, index as u16, &mut self.links, &mut self.tape);
                if let Err(violation) = ended {
                    self.end_violator(slot, &violation);
                }
            }
            self.links[index].note_time(now_ns);
        }
        if self.links.len() > self.initial_workers {
            self.update_present_workers();
        }
        any
    }

    /// Makes at most as many visits as there are hot sessions, each to the session that the fair queue serves next
    /// among those whose next step need not wait for a full worker. True if any of them had work. While the daemon
    /// ends, only steps whose commands were read before are handed over.
    pub(super) fn serve(&mut self, now_ns: u64) -> bool {
        for slot in &self.hot {
            if let Some(Some(ControlConnection { session: Some(session), .. })) = self.connections.get_mut(*slot) {
                session.blocked = self.ending.is_some() && !session.holds_steps();
            }
        }
        let mut any = false;
        // The time in which reports were read is nobody's.
        let mut begun_ns = self.tape.tick();
        let preempted = self.preempted();
        for _ in 0..self.hot.len() {
            let Some(slot) = self.next_session(&preempted) else { break };
            let Some(Some(ControlConnection { session: Some(session), .. })) = self.connections.get_mut(slot) else {
                break;
            };
            let present = session.present(self.present);
            let mut context = Context {
                links: &mut self.links,
                relay: self.relay.as_deref(),
                groups: &mut self.groups,
                pipeline: self.pipelines.of(present, &self.machines),
                tape: &mut self.tape,
                metas: &mut self.metas,
                workers: self.present.len(),
                queue_limit: self.queue_limit,
                overtakes: overtakes(&self.queue, &session.share, &preempted),
                ending: self.ending.is_some(),
            };
            let visited = session.visit(&mut context);
            let ended_ns = self.tape.tick();
            let took_ns = ended_ns - begun_ns;
            let queued_ns = session.queued_ns(took_ns);
            begun_ns = ended_ns;
            if session.was_served() {
                self.queue.serve(&mut session.share);
            }
            self.queue.charge(&mut session.share, took_ns as f64);
            self.queue.charge_queued(&mut session.share, queued_ns);
            match visited {
                Ok(served) => any |= served | session.spent,
                Err(violation) => {
                    any = true;
                    self.end_violator(slot, &violation);
                }
            }
        }
        if any {
            for link in &mut self.links {
                link.flush();
            }
        }
        if any || now_ns.saturating_sub(self.last_poll_ns) >= HOT_NS_MAX {
            self.cool_idle_sessions(now_ns);
        }
        any
    }

    /// The progress of the sessions whose heavy steps run, by worker; none for a session that has ended.
    fn preempted(&self) -> Vec<(usize, Option<Progress>)> {
        let workers = self.present.len() as f64;
        let running = self.links.iter().enumerate().filter_map(|(worker, link)| Some((worker, link.preempted()?)));
        let progress = running.map(|(worker, step)| {
            let connection = self.connections.get(step.owner.slot as usize).and_then(Option::as_ref);
            let session = connection.filter(|c| c.serial == step.owner.session).and_then(|c| c.session.as_ref());
            let outstanding_ns = step.outstanding_ns as f64 / workers;
            (worker, session.map(|session| self.queue.progress(&session.share, outstanding_ns)))
        });
        progress.collect()
    }

    /// The slot of the session that the fair queue serves next, among the hot ones with work that need not wait for a
    /// full worker.
    fn next_session(&mut self, preempted: &[(usize, Option<Progress>)]) -> Option<usize> {
        let mut next: Option<(usize, (u8, f64, f64))> = None;
        for slot in &self.hot {
            let Some(Some(ControlConnection { session: Some(session), .. })) = self.connections.get_mut(*slot) else {
                continue;
            };
            session.blocked |= {
                let overtakes = overtakes(&self.queue, &session.share, preempted);
                session.must_wait(&mut self.links, self.queue_limit, overtakes)
            };
            if session.blocked {
                continue;
            }
            if !session.has_work() {
                self.queue.set_idle(&mut session.share);
                continue;
            }
            self.queue.set_backlogged(&mut session.share);
            let order = self.queue.key(&session.share);
            if next.is_none_or(|(_, least)| order < least) {
                next = Some((*slot, order));
            }
        }
        next.map(|(slot, _)| slot)
    }

    /// Makes sessions cold that have had no work for [`HOT_NS_MAX`].
    fn cool_idle_sessions(&mut self, now_ns: u64) {
        let connections = &mut self.connections;
        self.hot.retain(|slot| {
            let Some(Some(ControlConnection { session: Some(session), .. })) = connections.get_mut(*slot) else {
                return false;
            };
            if session.has_work() || now_ns.saturating_sub(session.last_work_ns) < HOT_NS_MAX {
                return true;
            }
            session.asleep = session.port().prepare_sleep();
            !session.asleep
        });
    }
}

/// The workers whose running step the session may overtake: it is due before that step's session, or that has ended.
#[inline]
fn overtakes(queue: &FairQueue, session: &SessionShare, preempted: &[(usize, Option<Progress>)]) -> Workers {
    let due = preempted.iter().filter(|(_, running)| running.is_none_or(|running| queue.is_due(session, &running)));
    due.fold(Workers::NONE, |all, (worker, _)| all.with(Workers::one(*worker)))
}
