//! `gtctl limits`: the users' quotas and usage.

use crate::status::user;
use crate::table::{Table, bytes, or_none};
use gt_protocol::{Quota, QuotaDocument};

/// The table of users.
pub fn text(all: &QuotaDocument) -> String {
    let mut table = Table::new(&[
        ("USER", false),
        ("SESSIONS", true),
        ("MEMORY", true),
        ("OF SESSION", true),
        ("ARENA", true),
        ("QUEUED", true),
        ("WEIGHT", true),
    ]);
    let mut row = |name: String, sessions: Option<u32>, held: Option<u64>, allowed: &Quota| {
        let Quota { memory_bytes, session_memory_bytes, sessions: most, arena_bytes, queued, weight } = *allowed;
        let of = |held: Option<String>, limit: String| held.map_or(limit.clone(), |held| format!("{held} / {limit}"));
        table.row(vec![
            name,
            of(sessions.map(|sessions| sessions.to_string()), most.to_string()),
            of(held.map(bytes), or_none(memory_bytes, bytes)),
            or_none(session_memory_bytes, bytes),
            bytes(arena_bytes),
            or_none(queued.into(), |queued| queued.to_string()),
            weight.to_string(),
        ]);
    };
    row("(others)".into(), None, None, &all.default);
    for known in &all.users {
        row(user(known.uid, None), Some(known.sessions), Some(known.memory_bytes), &known.allowed);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::UserStatus;

    #[test]
    fn limits_are_a_line_a_user() {
        let allowed = Quota { memory_bytes: 8 << 30, weight: 2.5, ..Quota::default() };
        let root = UserStatus { uid: 0, allowed, sessions: 3, memory_bytes: 1 << 30, ..UserStatus::default() };
        let all = QuotaDocument { users: vec![root], ..QuotaDocument::default() };
        let lines = [
            "USER      SESSIONS             MEMORY  OF SESSION     ARENA  QUEUED  WEIGHT\n",
            "(others)       256               none        none  64.0 GiB    none       1\n",
            "root       3 / 256  1.0 GiB / 8.0 GiB        none  64.0 GiB    none     2.5\n",
        ];
        assert_eq!(text(&all), lines.concat());
    }
}
