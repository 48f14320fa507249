//! `gtctl usage`: the records of ended sessions, summed by user or one line for each.

use crate::output::CommandOutput;
use crate::status::user;
use crate::table::{Table, bytes, seconds};
use crate::time::{date, stamp};
use gt_protocol::{RecordQuery, SessionRecord};
use gt_shm::Socket;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The resources that the ended sessions of one user have used.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct UserUsage {
    /// The user id.
    pub uid: u32,
    /// The user's name, or the number of a user without one.
    pub user: String,
    /// Sessions.
    pub sessions: u64,
    /// Their time from start to end, seconds.
    pub session_s: f64,
    /// The devices' time, seconds.
    pub device_s: f64,
    /// The most memory that the tensors of one session held, bytes.
    pub memory_bytes_peak: u64,
    /// Instructions.
    pub instructions: u64,
    /// Tensor bytes that travelled between programs and the daemon.
    pub bytes_moved: u64,
    /// Instructions that failed.
    pub errors: u64,
    /// The end of the last session, seconds since 1970.
    pub last_ended: f64,
}

/// A record with the user's name.
#[derive(Debug, Serialize)]
struct NamedRecord {
    user: String,
    #[serde(flatten)]
    record: SessionRecord,
}

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageFormat {
    /// A table for users.
    Table,
    /// Comma-separated values.
    Csv,
}

/// Requests the records of `query` and sums them by user, or lists them all.
///
/// # Errors
/// The errors of [`gt_protocol::ask_records`].
pub fn output(
    socket: &Socket,
    mut query: RecordQuery,
    each: bool,
    format: UsageFormat,
) -> gt_protocol::Result<CommandOutput> {
    let mut users: BTreeMap<u32, UserUsage> = BTreeMap::new();
    let mut records = Vec::new();
    loop {
        let page = gt_protocol::ask_records(socket, query)?;
        for record in page.records {
            let sum = users.entry(record.uid).or_insert_with(|| UserUsage {
                uid: record.uid,
                user: user(record.uid, None),
                ..UserUsage::default()
            });
            add(sum, &record);
            if each {
                records.push(NamedRecord { user: sum.user.clone(), record });
            }
        }
        match page.next {
            Some(next) => query.from = next,
            None => break,
        }
    }
    let users: Vec<UserUsage> = users.into_values().collect();
    Ok(match (each, format) {
        (true, UsageFormat::Table) => CommandOutput::new(record_table(&records), &records),
        (true, UsageFormat::Csv) => CommandOutput::new(record_csv(&records), &records),
        (false, UsageFormat::Table) => CommandOutput::new(user_table(&users), &users),
        (false, UsageFormat::Csv) => CommandOutput::new(user_csv(&users), &users),
    })
}

fn add(sum: &mut UserUsage, record: &SessionRecord) {
    sum.sessions += 1;
    sum.session_s += (record.ended - record.started).max(0.0);
    sum.device_s += record.device_s;
    sum.memory_bytes_peak = sum.memory_bytes_peak.max(record.memory_bytes_peak);
    sum.instructions = sum.instructions.saturating_add(record.instructions);
    sum.bytes_moved = sum.bytes_moved.saturating_add(record.bytes_moved);
    sum.errors = sum.errors.saturating_add(record.errors);
    sum.last_ended = sum.last_ended.max(record.ended);
}

const NONE: &str = "no session has ended in that time\n";

fn user_table(users: &[UserUsage]) -> String {
    if users.is_empty() {
        return NONE.into();
    }
    let mut table = Table::new(&[
        ("USER", false),
        ("SESSIONS", true),
        ("TIME", true),
        ("DEVICE TIME", true),
        ("PEAK", true),
        ("INSTRUCTIONS", true),
        ("MOVED", true),
        ("ERRORS", true),
        ("LAST ENDED", false),
    ]);
    for sum in users {
        table.row(vec![
            sum.user.clone(),
            sum.sessions.to_string(),
            seconds(sum.session_s),
            seconds(sum.device_s),
            bytes(sum.memory_bytes_peak),
            sum.instructions.to_string(),
            bytes(sum.bytes_moved),
            sum.errors.to_string(),
            date(sum.last_ended),
        ]);
    }
    table.text()
}

fn record_table(records: &[NamedRecord]) -> String {
    if records.is_empty() {
        return NONE.into();
    }
    let mut table = Table::new(&[
        ("STARTED", false),
        ("USER", false),
        ("PID", true),
        ("NAME", false),
        ("TIME", true),
        ("DEVICE TIME", true),
        ("PEAK", true),
        ("INSTRUCTIONS", true),
        ("MOVED", true),
        ("ERRORS", true),
        ("END", false),
    ]);
    for NamedRecord { user, record } in records {
        table.row(vec![
            date(record.started),
            user.clone(),
            record.pid.to_string(),
            record.name.clone().unwrap_or_else(|| "-".into()),
            seconds(record.ended - record.started),
            seconds(record.device_s),
            bytes(record.memory_bytes_peak),
            record.instructions.to_string(),
            bytes(record.bytes_moved),
            record.errors.to_string(),
            record.end.clone(),
        ]);
    }
    table.text()
}

fn user_csv(users: &[UserUsage]) -> String {
    let mut text = String::from(
        "user,uid,sessions,session_s,device_s,memory_bytes_peak,instructions,bytes_moved,errors,last_ended\n",
    );
    for sum in users {
        let numbers: [&dyn Display; 8] = [
            &sum.uid,
            &sum.sessions,
            &sum.session_s,
            &sum.device_s,
            &sum.memory_bytes_peak,
            &sum.instructions,
            &sum.bytes_moved,
            &sum.errors,
        ];
        text.push_str(&quoted(&sum.user));
        numbers.iter().for_each(|number| text.push_str(&format!(",{number}")));
        text.push_str(&format!(",{}\n", stamp(sum.last_ended)));
    }
    text
}

fn record_csv(records: &[NamedRecord]) -> String {
    let mut text = String::from(
        "user,uid,session,name,pid,from,started,ended,device_s,memory_bytes_peak,instructions,bytes_moved,errors,end\n",
    );
    for NamedRecord { user, record } in records {
        let cells: [&dyn Display; 14] = [
            &quoted(user),
            &record.uid,
            &record.session,
            &quoted(record.name.as_deref().unwrap_or_default()),
            &record.pid,
            &quoted(record.from.as_deref().unwrap_or_default()),
            &stamp(record.started),
            &stamp(record.ended),
            &record.device_s,
            &record.memory_bytes_peak,
            &record.instructions,
            &record.bytes_moved,
            &record.errors,
            &quoted(&record.end),
        ];
        let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

/// A text as one cell of comma-separated values (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: u32, name: &str) -> NamedRecord {
        let record = SessionRecord {
            uid,
            name: Some(name.into()),
            pid: 7,
            started: 86_400.0,
            ended: 86_475.5,
            device_s: 1.5,
            memory_bytes_peak: 4096,
            instructions: 9,
            bytes_moved: 2048,
            errors: 1,
            end: "it said goodbye".into(),
            ..SessionRecord::default()
        };
        NamedRecord { user: "ana".into(), record }
    }

    #[test]
    fn a_record_is_a_line_of_a_table_or_of_values() {
        let records = [record(3, "say \"hi\", ana")];
        let lines = [
            "STARTED           USER  PID  NAME                 TIME  DEVICE TIME     PEAK  INSTRUCTIONS    MOVED  ERRORS  END\n",
            "1970-01-02 00:00  ana     7  say \"hi\", ana  1 min 15 s          1 s  4.0 KiB             9  2.0 KiB       1  it said goodbye\n",
        ];
        assert_eq!(record_table(&records), lines.concat());
        let values = "ana,3,0,\"say \"\"hi\"\", ana\",7,,1970-01-02T00:00:00Z,1970-01-02T00:01:15Z,1.5,4096,9,2048,1,\
                      it said goodbye\n";
        assert_eq!(record_csv(&records).split_once('\n').map(|(_, line)| line), Some(values));
    }

    #[test]
    fn records_are_summed_by_user() {
        let mut sum = UserUsage { user: "ana".into(), ..UserUsage::default() };
        add(&mut sum, &record(0, "a").record);
        add(&mut sum, &SessionRecord { memory_bytes_peak: 1, ..record(0, "b").record });
        assert_eq!((sum.sessions, sum.session_s, sum.device_s, sum.memory_bytes_peak), (2, 151.0, 3.0, 4096));
        assert_eq!((sum.instructions, sum.bytes_moved, sum.errors), (18, 4096, 2));
        assert_eq!(user_csv(&[sum]).lines().nth(1), Some("ana,0,2,151,3,4096,18,4096,2,1970-01-02T00:01:15Z"));
        assert_eq!(user_table(&[]), NONE);
    }
}
