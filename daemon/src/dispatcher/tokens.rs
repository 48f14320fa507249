//! Requests about access tokens: to create, list and revoke them.

use super::Dispatcher;
use super::admin::not_permitted;
use crate::token_desk::{TokenChange, TokenOutcome};
use gt_protocol::limits::STATUS_TOKENS_MAX;
use gt_protocol::{DaemonMessage, RefusalCode, Refused, TokenInfo};

/// The peer of a request about tokens.
#[derive(Clone, Copy)]
struct TokenAsker {
    serial: u64,
    uid: u32,
    administrator: bool,
}

impl Dispatcher {
    /// The peer in `slot`, if it may ask about tokens: a client by TCP could otherwise make itself one that lasts
    /// longer than its own.
    fn token_asker(&self, slot: usize) -> Result<TokenAsker, Refused> {
        let connection = self.connections.get(slot).and_then(Option::as_ref);
        match connection.filter(|connection| !connection.is_by_tcp()) {
            Some(connection) => Ok(TokenAsker {
                serial: connection.serial,
                uid: connection.peer.uid,
                administrator: self.is_administrator(connection),
            }),
            None => {
                Err(not_permitted("tokens are created, listed and revoked by the daemon's socket, not by TCP".into()))
            }
        }
    }

    /// Begins to create a token; the answer follows when it is stored.
    pub(super) fn create_token(
        &mut self,
        slot: usize,
        uid: Option<u32>,
        lifetime_s: u64,
        administrator: bool,
    ) -> Result<(), Refused> {
        let asker = self.token_asker(slot)?;
        let uid = uid.unwrap_or(asker.uid);
        if !asker.administrator && (uid != asker.uid || administrator) {
            let text = "only administrators may create tokens for others, or with the rights of an administrator (root, \
                        the daemon's user, members of the group gt-admin); you may create some for yourself";
            return Err(not_permitted(text.into()));
        }
        self.tokens.create(asker.serial, uid, lifetime_s, administrator)
    }

    /// The tokens with numbers larger than `after` that the asker may see, as many as one message holds.
    pub(super) fn list_tokens(&self, slot: usize, after: u64) -> Result<DaemonMessage, Refused> {
        let asker = self.token_asker(slot)?;
        let visible = |token: &TokenInfo| token.id > after && (asker.administrator || token.uid == asker.uid);
        let mut tokens: Vec<TokenInfo> = self.tokens.list()?.into_iter().filter(visible).collect();
        let more = tokens.len() > STATUS_TOKENS_MAX;
        tokens.truncate(STATUS_TOKENS_MAX);
        Ok(DaemonMessage::Tokens { tokens, more })
    }

    /// Begins to revoke a token; the answer follows when that is stored.
    pub(super) fn revoke_token(&mut self, slot: usize, id: u64) -> Result<(), Refused> {
        let asker = self.token_asker(slot)?;
        // A token of another user is as unknown to the asker as one that does not exist.
        let known =
            self.tokens.list()?.iter().any(|token| token.id == id && (asker.administrator || token.uid == asker.uid));
        if !known {
            let text = format!("you have no token {id}: gtctl token list shows yours");
            return Err(Refused::new(RefusalCode::Malformed, text));
        }
        self.tokens.revoke(asker.serial, id)
    }

    /// Answers the requests whose changes are stored, and ends the sessions of revoked tokens.
    pub(super) fn tokens_changed(&mut self) {
        while let Some(TokenOutcome { asker, result }) = self.tokens.outcome() {
            let answer = match result {
                Ok(TokenChange::Created(created)) => {
                    if let DaemonMessage::TokenCreated { token, .. } = &*created {
                        let TokenInfo { id, uid, .. } = token;
                        let rights = if token.administrator { ", with the rights of an administrator," } else { "" };
                        tracing::info!(target: "gtd::dispatcher", "token {id} of user {uid}{rights} was created");
                    }
                    *created
                }
                Ok(TokenChange::Revoked(token)) => {
                    let (id, uid) = (token.id, token.uid);
                    let sessions = self.end_sessions_of_token(id);
                    tracing::info!(
                        target: "gtd::dispatcher",
                        "token {id} of user {uid} was revoked, which ended {sessions} sessions"
                    );
                    DaemonMessage::TokenRevoked { token, sessions }
                }
                Ok(TokenChange::Other(answer)) => *answer,
                Err(refused) => DaemonMessage::Refused(refused),
            };
            if let Some(slot) = self.slot_of_serial.get(&asker) {
                self.answer(*slot, &answer, &[]);
            }
        }
    }

    /// Ends the sessions that token `id` has opened, and returns their number.
    fn end_sessions_of_token(&mut self, id: u64) -> u32 {
        let opened = self.connections.iter().flatten().filter(|connection| connection.token() == Some(id));
        let slots: Vec<usize> = opened.map(|connection| connection.slot).collect();
        for slot in &slots {
            let text =
                format!("token {id} was revoked (gtctl token revoke), and its sessions with it: use another token");
            self.answer(*slot, &DaemonMessage::Refused(Refused::new(RefusalCode::Killed, text)), &[]);
            self.disconnect(*slot, "its token was revoked");
        }
        slots.len() as u32
    }
}
