//! `gtctl limits`: the users' quotas and usage.

use crate::status::user;
use crate::table::{Table, bytes, or_none, seconds};
use gt_protocol::{Quota, QuotaDocument, UserStatus};

/// The table of users.
pub fn text(all: &QuotaDocument) -> String {
    let mut table = Table::new(&[
        ("USER", false),
        ("SESSIONS", true),
        ("MEMORY", true),
        ("OF SESSION", true),
        ("TENSORS", true),
        ("ARENA", true),
        ("QUEUED", true),
        ("WEIGHT", true),
        ("STEP", true),
        ("DEVICES", false),
    ]);
    let count = |number: u64| number.to_string();
    let mut row = |name: String, held: Option<&UserStatus>, allowed: &Quota| {
        let of = |held: Option<String>, limit: String| held.map_or(limit.clone(), |held| format!("{held} / {limit}"));
        table.row(vec![
            name,
            of(held.map(|held| held.sessions.to_string()), allowed.sessions.to_string()),
            of(held.map(|held| bytes(held.memory_bytes)), or_none(allowed.memory_bytes, bytes)),
            or_none(allowed.session_memory_bytes, bytes),
            of(held.map(|held| count(held.tensors)), or_none(allowed.tensors, count)),
            of(held.map(|held| bytes(held.arena_bytes)), bytes(allowed.arena_bytes)),
            or_none(allowed.queued.into(), count),
            allowed.weight.to_string(),
            or_none(allowed.max_step_s.into(), |s| seconds(s as f64)),
            allowed.devices.to_string(),
        ]);
    };
    row("(others)".into(), None, &all.default);
    for known in &all.users {
        row(user(known.uid, None), Some(known), &known.allowed);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::DeviceSet;

    #[test]
    fn limits_are_a_line_a_user() {
        let devices = DeviceSet::from_bits(0b1011);
        let allowed = Quota { memory_bytes: 8 << 30, weight: 2.5, devices, ..Quota::default() };
        let root = UserStatus { uid: 0, allowed, sessions: 3, memory_bytes: 1 << 30, ..UserStatus::default() };
        let root = UserStatus { tensors: 12, arena_bytes: 1 << 20, ..root };
        let all = QuotaDocument { users: vec![root], ..QuotaDocument::default() };
        let lines = [
            "USER      SESSIONS             MEMORY  OF SESSION       TENSORS               ARENA  QUEUED  WEIGHT       STEP  DEVICES\n",
            "(others)       128               none        none       1048576            64.0 GiB    none       1  1 h 0 min  all\n",
            "root       3 / 128  1.0 GiB / 8.0 GiB        none  12 / 1048576  1.0 MiB / 64.0 GiB    none     2.5  1 h 0 min  0-1,3\n",
        ];
        assert_eq!(text(&all), lines.concat());
    }
}
