//! `gtctl token`: the access tokens of users who connect by TCP.

use crate::output::CommandOutput;
use crate::status::user;
use crate::table::Table;
use crate::time::date;
use gt_protocol::TokenInfo;
use serde_json::{Value, json};

/// The output of `gtctl token create`: the token on a line of its own, and what to do with it.
pub fn created(text: &str, token: &TokenInfo, lasting: bool) -> CommandOutput {
    let TokenInfo { id, uid, administrator, expires_unix_s, .. } = token;
    let rights = if *administrator { ", with the rights of an administrator" } else { "" };
    let until = if lasting { "" } else { ", or until the daemon ends, which has no state folder (gtd --state)" };
    let lines = format!(
        "{text}\n\ntoken {id} of {}{rights}, until {} UTC{until}\nIt is not shown again. The user's programs take it from \
         GT_TOKEN, or from ~/.config/gt/token (chmod 600).\n",
        user(*uid, None),
        date(*expires_unix_s as f64)
    );
    let mut document = document(token);
    document["text"] = text.into();
    document["lasting"] = lasting.into();
    CommandOutput::new(lines, &document)
}

/// The output of `gtctl token list` at the time `now`, seconds since 1970.
pub fn listed(tokens: &[TokenInfo], now: f64) -> CommandOutput {
    let documents: Vec<Value> = tokens.iter().map(document).collect();
    if tokens.is_empty() {
        return CommandOutput::new("no tokens\n".into(), &documents);
    }
    let mut table =
        Table::new(&[("TOKEN", true), ("USER", false), ("RIGHTS", false), ("CREATED", false), ("EXPIRES", false)]);
    for TokenInfo { id, uid, administrator, created_unix_s, expires_unix_s } in tokens {
        let expired = if *expires_unix_s as f64 <= now { ", expired" } else { "" };
        table.row(vec![
            id.to_string(),
            user(*uid, None),
            if *administrator { "administrator" } else { "user" }.into(),
            date(*created_unix_s as f64),
            format!("{}{expired}", date(*expires_unix_s as f64)),
        ]);
    }
    CommandOutput::new(table.text(), &documents)
}

/// The output of `gtctl token revoke`.
pub fn revoked(token: &TokenInfo, sessions: u32) -> CommandOutput {
    let ended = match sessions {
        0 => "it had no sessions".into(),
        1 => "its session was ended".into(),
        _ => format!("its {sessions} sessions were ended"),
    };
    let text = format!("token {} of {} was revoked; {ended}\n", token.id, user(token.uid, None));
    let mut document = document(token);
    document["sessions"] = sessions.into();
    CommandOutput::new(text, &document)
}

fn document(token: &TokenInfo) -> Value {
    let TokenInfo { id, uid, administrator, created_unix_s, expires_unix_s } = token;
    json!({
        "id": id, "uid": uid, "user": user(*uid, None), "administrator": administrator,
        "created_unix_s": created_unix_s, "expires_unix_s": expires_unix_s
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_a_line_each() {
        let token =
            |id, administrator| TokenInfo { id, uid: 0, administrator, created_unix_s: 0, expires_unix_s: id * 86_400 };
        let output = listed(&[token(1, false), token(12, true)], 2.0 * 86_400.0);
        let lines = [
            "TOKEN  USER  RIGHTS         CREATED           EXPIRES\n",
            "    1  root  user           1970-01-01 00:00  1970-01-02 00:00, expired\n",
            "   12  root  administrator  1970-01-01 00:00  1970-01-13 00:00\n",
        ];
        assert_eq!(output.text, lines.concat());
        assert_eq!(output.json[1]["user"], "root");
    }
}
