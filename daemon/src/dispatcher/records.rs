//! Records of sessions: written when a session ends, and read for requests.

use super::Dispatcher;
use crate::control_connection::ControlConnection;
use crate::worker::step::SessionSlot;
use gt_protocol::{DaemonMessage, RecordQuery, RefusalCode, Refused, SessionRecord};
use std::time::{Instant, SystemTime};

impl Dispatcher {
    /// The sum of a session's peaks of memory, bytes. The workers that are threads have one peak together.
    fn peak(&mut self, session_slot: SessionSlot) -> u64 {
        let (mut threads, mut processes) = (0, 0);
        for link in &mut self.links {
            let peak = link.peak(session_slot);
            if link.info().process.is_some() { processes += peak } else { threads = peak.max(threads) }
        }
        threads + processes
    }

    /// Keeps the session's peak of memory for its record, before it is reset.
    pub(super) fn keep_peak(&mut self, slot: usize) {
        let session_in = |connection: &Option<ControlConnection>| Some(connection.as_ref()?.session.as_ref()?.slot());
        let Some(session_slot) = self.connections.get(slot).and_then(session_in) else { return };
        let peak = self.peak(session_slot);
        if let Some(Some(ControlConnection { session: Some(session), .. })) = self.connections.get_mut(slot) {
            session.earlier_peak_bytes = session.earlier_peak_bytes.max(peak);
        }
    }

    /// The record of a connection's session until now, if it has one.
    fn record(&mut self, connection: &ControlConnection) -> Option<SessionRecord> {
        let record = connection.record()?;
        let peak = self.peak(connection.session.as_ref()?.slot());
        let ended = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Some(SessionRecord { ended, memory_bytes_peak: record.memory_bytes_peak.max(peak), ..record })
    }

    /// Records the end of a connection's session, if it has one. `why` is a clause, as for the log.
    pub(super) fn record_end(&mut self, connection: &ControlConnection, why: &str) {
        if self.records.is_none() {
            return;
        }
        let record = self.record(connection);
        if let (Some(records), Some(record)) = (&mut self.records, record) {
            records.session_ended(SessionRecord { end: why.into(), ..record });
        }
    }

    /// Writes the records so far of all open sessions, if that is due.
    pub(super) fn write_open_records(&mut self, now: Instant, now_ns: u64) {
        if self.records.as_ref().and_then(|records| records.due(self.last_work_ns)).is_none_or(|due| due > now) {
            return;
        }
        let connections = std::mem::take(&mut self.connections);
        let open = connections.iter().flatten().filter_map(|connection| self.record(connection)).collect();
        self.connections = connections;
        if let Some(records) = &mut self.records {
            records.write_open(open, now_ns);
        }
    }

    /// Begins to read records for the connection in `slot`; the answer follows when they are read.
    pub(super) fn ask_records(&mut self, slot: usize, query: RecordQuery) -> Result<(), Refused> {
        let Some(Some(connection)) = self.connections.get(slot) else { return Ok(()) };
        let (uid, serial) = (connection.peer.uid, connection.serial);
        let administrator = self.is_administrator(connection);
        if !administrator && query.uid.is_some_and(|asked| asked != uid) {
            let text = "only administrators may read other users' records: root, the daemon's user, and members of the \
                        group gt-admin";
            return Err(Refused::new(RefusalCode::NotPermitted, text));
        }
        let Some(records) = &mut self.records else {
            let text = "this daemon keeps no records of sessions: start it with --state FOLDER, and without \
                        session_records: 0 in its configuration";
            return Err(Refused::new(RefusalCode::Other, text));
        };
        let own = if administrator { query.uid } else { Some(uid) };
        records.ask(serial, uid, RecordQuery { uid: own, ..query })
    }

    /// Answers the connections whose records have been read.
    pub(super) fn records_read(&mut self) {
        while let Some((serial, page)) = self.records.as_mut().and_then(|records| records.page()) {
            if let Some(slot) = self.slot_of_serial.get(&serial).copied() {
                let answer = page.map_or_else(DaemonMessage::Refused, DaemonMessage::Records);
                self.answer(slot, &answer, &[]);
            }
        }
    }
}
