//! Whose turn it is: deficit round robin over the hot sessions, and what workers report.

use super::Dispatcher;
use crate::connection::Connection;
use crate::session::Context;

/// A session's share of a round, estimated nanoseconds.
const QUANTUM_NS: i64 = 50_000;
/// A session without work for so long goes cold even while others are busy, nanoseconds.
const HOT_NS_MAX: u64 = 2_000_000;

impl Dispatcher {
    /// Hands what workers have done to their sessions. True if there was something.
    pub(super) fn take_reports(&mut self) -> bool {
        let mut any = false;
        if self.links.len() > 1 {
            self.groups.look_after(&self.links);
        }
        for index in 0..self.links.len() {
            if !self.links[index].is_busy() {
                continue;
            }
            while let Some(report) = self.links[index].next_report() {
                any = true;
                let place = report.stream.place as usize;
                let Some(Some(connection)) = self.connections.get_mut(place) else { continue };
                if connection.serial != report.stream.session {
                    continue;
                }
                let Some(session) = &mut connection.session else { continue };
                let ended = session.reported(&report, index as u16, &mut self.tape);
                if let Err(violation) = ended {
                    self.violated(place, &violation);
                }
            }
        }
        any
    }

    /// One round over the hot sessions. True if any of them had something.
    pub(super) fn serve(&mut self, now_ns: u64) -> bool {
        if self.ending.is_some() {
            return false;
        }
        let mut any = false;
        let mut starved = false;
        let mut index = 0;
        while index < self.hot.len() {
            let place = self.hot[index];
            index += 1;
            let Some(Some(connection)) = self.connections.get_mut(place) else { continue };
            let Some(session) = &mut connection.session else { continue };
            if !session.has_work() {
                // An idle session saves nothing up.
                session.deficit_ns = session.deficit_ns.min(0);
                continue;
            }
            session.deficit_ns = (session.deficit_ns + QUANTUM_NS).min(QUANTUM_NS);
            let mut context = Context {
                links: &mut self.links,
                groups: &mut self.groups,
                pipeline: &mut self.pipeline,
                tape: &mut self.tape,
                metas: &mut self.metas,
            };
            match session.visit(&mut context) {
                Ok(served) => {
                    any |= served | session.spent;
                    starved |= session.spent;
                }
                Err(violation) => {
                    any = true;
                    self.violated(place, &violation);
                }
            }
        }
        if any {
            for link in &mut self.links {
                link.flush();
            }
        }
        if starved {
            self.forgive();
        }
        if any || now_ns.saturating_sub(self.last_poll_ns) >= HOT_NS_MAX {
            self.cool(now_ns);
        }
        any
    }

    /// Where every session with work is in debt, all debts shrink at once by as many rounds as the smallest needs.
    fn forgive(&mut self) {
        let debts = self.hot.iter().filter_map(|place| {
            let session = self.connections.get(*place)?.as_ref()?.session.as_ref()?;
            (session.has_work() && !session.blocked).then_some(-session.deficit_ns)
        });
        let Some(least) = debts.min().filter(|least| *least > 0) else { return };
        for place in &self.hot {
            if let Some(Some(connection)) = self.connections.get_mut(*place)
                && let Some(session) = &mut connection.session
                && session.deficit_ns < 0
            {
                session.deficit_ns += least.min(-session.deficit_ns);
            }
        }
    }

    /// Sessions that have long been without work go cold.
    fn cool(&mut self, now_ns: u64) {
        let connections = &mut self.connections;
        self.hot.retain(|place| {
            let Some(Some(Connection { session: Some(session), .. })) = connections.get_mut(*place) else {
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
