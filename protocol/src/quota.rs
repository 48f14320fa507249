//! What users may have of the daemon, and how that is changed.

use crate::limits::{
    ARENA_BYTES_PER_SESSION_MAX, SESSIONS_MAX, SESSIONS_PER_UID_MAX, STATUS_USERS_MAX, WEIGHT_MAX, WEIGHT_MIN,
};
use serde::{Deserialize, Serialize};

/// What a user may have. In what is not set, the default for all users holds, and where that is not set either, what
/// the daemon was made with ([`Quota::default`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaSettings {
    /// Bytes of the workers' memory, all sessions together; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of the workers' memory, each session; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_memory_bytes: Option<u64>,
    /// Sessions at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Bytes in the arenas of each session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes: Option<u64>,
    /// Instructions of each session taken in but not finished; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<u32>,
    /// How much of the devices' time, beside other users' weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

impl QuotaSettings {
    /// What is wrong with them, if anything is: a sentence for the user.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let weight = self.weight.filter(|weight| !(WEIGHT_MIN..=WEIGHT_MAX).contains(weight));
        if let Some(weight) = weight {
            return Some(format!("a weight is a number from {WEIGHT_MIN} to {WEIGHT_MAX}, and {weight} is not"));
        }
        if let Some(sessions) = self.sessions.filter(|sessions| *sessions > SESSIONS_MAX) {
            return Some(format!(
                "{sessions} sessions are more than the {SESSIONS_MAX} that all users together may have"
            ));
        }
        None
    }

    /// With `change` made.
    #[must_use]
    pub fn changed(self, change: &QuotaChange) -> QuotaSettings {
        QuotaSettings {
            memory_bytes: Setting::apply(change.memory_bytes, self.memory_bytes),
            session_memory_bytes: Setting::apply(change.session_memory_bytes, self.session_memory_bytes),
            sessions: Setting::apply(change.sessions, self.sessions),
            arena_bytes: Setting::apply(change.arena_bytes, self.arena_bytes),
            queued: Setting::apply(change.queued, self.queued),
            weight: Setting::apply(change.weight, self.weight),
        }
    }

    /// With what is not set taken from `other`.
    #[must_use]
    pub fn or(self, other: QuotaSettings) -> QuotaSettings {
        QuotaSettings {
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            session_memory_bytes: self.session_memory_bytes.or(other.session_memory_bytes),
            sessions: self.sessions.or(other.sessions),
            arena_bytes: self.arena_bytes.or(other.arena_bytes),
            queued: self.queued.or(other.queued),
            weight: self.weight.or(other.weight),
        }
    }
}

/// QuotaSettings as they are in force: as [`QuotaSettings`], with nothing left open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// Bytes of the workers' memory, all sessions together; 0 for no limit.
    pub memory_bytes: u64,
    /// Bytes of the workers' memory, each session; 0 for no limit.
    pub session_memory_bytes: u64,
    /// Sessions at a time.
    pub sessions: u32,
    /// Bytes in the arenas of each session.
    pub arena_bytes: u64,
    /// Instructions of each session taken in but not finished; 0 for no limit.
    pub queued: u32,
    /// How much of the devices' time, beside other users' weights.
    pub weight: f64,
}

impl Default for Quota {
    fn default() -> Quota {
        Quota {
            memory_bytes: 0,
            session_memory_bytes: 0,
            sessions: SESSIONS_PER_UID_MAX,
            arena_bytes: ARENA_BYTES_PER_SESSION_MAX,
            queued: 0,
            weight: 1.0,
        }
    }
}

impl From<QuotaSettings> for Quota {
    fn from(limits: QuotaSettings) -> Quota {
        let default = Quota::default();
        Quota {
            memory_bytes: limits.memory_bytes.unwrap_or(default.memory_bytes),
            session_memory_bytes: limits.session_memory_bytes.unwrap_or(default.session_memory_bytes),
            sessions: limits.sessions.unwrap_or(default.sessions),
            arena_bytes: limits.arena_bytes.unwrap_or(default.arena_bytes),
            queued: limits.queued.unwrap_or(default.queued),
            weight: limits.weight.unwrap_or(default.weight),
        }
    }
}

impl Quota {
    /// True if nothing here is more than in `other`.
    #[must_use]
    pub fn is_within(&self, other: &Quota) -> bool {
        let within = |own: u64, other: u64| other == 0 || (own != 0 && own <= other);
        within(self.memory_bytes, other.memory_bytes)
            && within(self.session_memory_bytes, other.session_memory_bytes)
            && self.sessions <= other.sessions
            && self.arena_bytes <= other.arena_bytes
            && within(self.queued.into(), other.queued.into())
            && self.weight <= other.weight
    }
}

/// What is to become of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting<T> {
    /// What holds without it again.
    Default,
    /// This.
    To(T),
}

impl<T> Setting<T> {
    fn apply(change: Option<Setting<T>>, old: Option<T>) -> Option<T> {
        match change {
            None => old,
            Some(Setting::Default) => None,
            Some(Setting::To(new)) => Some(new),
        }
    }
}

/// What is to become of limits: of those that are none here, nothing. See [`QuotaSettings`] for what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "as in `QuotaSettings`")]
pub struct QuotaChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Setting<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_memory_bytes: Option<Setting<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Setting<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes: Option<Setting<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<Setting<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Setting<f64>>,
}

/// The limits in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaDocument {
    /// What users may have who have no limits of their own.
    pub default: Quota,
    /// Users who have sessions or limits of their own, by number.
    pub users: Vec<UserStatus>,
    /// True if there are users after the last one here.
    pub more: bool,
}

impl QuotaDocument {
    /// The part that answers a wish for users `from` a number on: sorted, and no more than one message holds.
    #[must_use]
    pub fn page(mut self, from: u32) -> Self {
        self.users.retain(|user| user.uid >= from);
        self.users.sort_by_key(|user| user.uid);
        self.more = self.users.len() > STATUS_USERS_MAX;
        self.users.truncate(STATUS_USERS_MAX);
        self
    }
}

/// What a user has and may have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserStatus {
    /// The user's number.
    pub uid: u32,
    /// What is set for the user alone, by the configuration or since.
    pub own: QuotaSettings,
    /// What is in force.
    pub allowed: Quota,
    /// Sessions that the user has.
    pub sessions: u32,
    /// Bytes of the workers' memory that they hold.
    pub memory_bytes: u64,
    /// The devices' time that the user has had, seconds; what was long ago counts less.
    pub usage_s: f64,
}
