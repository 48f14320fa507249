//! Quotas: the resources that a user may have, and the messages that change and report them.

use crate::device_set::DeviceSet;
use crate::limits::{
    ARENA_BYTES_PER_UID_MAX, SESSIONS_MAX, SESSIONS_PER_UID_MAX, STATUS_USERS_MAX, STEP_S_MAX, TENSORS_PER_UID_MAX,
    WEIGHT_MAX, WEIGHT_MIN,
};
use serde::{Deserialize, Serialize};

/// A quota as it is written: a field that is not set has the value of the default quota, else that of
/// [`Quota::default`]. In a message, fields of later versions are ignored; the configuration file is read by its own
/// table of keys, which refuses unknown ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaSettings {
    /// Bytes of the workers' memory, all sessions of the user together; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of the workers' memory, each session; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_memory_bytes: Option<u64>,
    /// Sessions at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Tensors, all sessions of the user together; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<u64>,
    /// Bytes of arenas, all sessions of the user together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes: Option<u64>,
    /// Instructions in flight of each session; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<u32>,
    /// The weight of the user's part of the devices' time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The longest estimated time of one step, seconds; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_step_s: Option<u32>,
    /// The devices that new sessions of the user may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceSet>,
}

impl QuotaSettings {
    /// The first error in the values, as a sentence for the user; none if they are valid.
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

    /// These settings after `change`.
    #[must_use]
    pub fn changed(self, change: &QuotaChange) -> QuotaSettings {
        QuotaSettings {
            memory_bytes: Setting::apply(change.memory_bytes, self.memory_bytes),
            session_memory_bytes: Setting::apply(change.session_memory_bytes, self.session_memory_bytes),
            sessions: Setting::apply(change.sessions, self.sessions),
            tensors: Setting::apply(change.tensors, self.tensors),
            arena_bytes: Setting::apply(change.arena_bytes, self.arena_bytes),
            queued: Setting::apply(change.queued, self.queued),
            weight: Setting::apply(change.weight, self.weight),
            max_step_s: Setting::apply(change.max_step_s, self.max_step_s),
            devices: Setting::apply(change.devices, self.devices),
        }
    }

    /// These settings; fields that are not set are taken from `other`.
    #[must_use]
    pub fn or(self, other: QuotaSettings) -> QuotaSettings {
        QuotaSettings {
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            session_memory_bytes: self.session_memory_bytes.or(other.session_memory_bytes),
            sessions: self.sessions.or(other.sessions),
            tensors: self.tensors.or(other.tensors),
            arena_bytes: self.arena_bytes.or(other.arena_bytes),
            queued: self.queued.or(other.queued),
            weight: self.weight.or(other.weight),
            max_step_s: self.max_step_s.or(other.max_step_s),
            devices: self.devices.or(other.devices),
        }
    }
}

/// A quota in force: the resources that a user may have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// Bytes of the workers' memory, all sessions of the user together; 0 for no limit.
    pub memory_bytes: u64,
    /// Bytes of the workers' memory, each session; 0 for no limit.
    pub session_memory_bytes: u64,
    /// Sessions at a time.
    pub sessions: u32,
    /// Tensors, all sessions of the user together; 0 for no limit.
    pub tensors: u64,
    /// Bytes of arenas, all sessions of the user together.
    pub arena_bytes: u64,
    /// Instructions in flight of each session; 0 for no limit.
    pub queued: u32,
    /// The weight of the user's part of the devices' time.
    pub weight: f64,
    /// The longest estimated time of one step, seconds; 0 for no limit.
    pub max_step_s: u32,
    /// The devices that new sessions of the user may use.
    pub devices: DeviceSet,
}

impl Default for Quota {
    fn default() -> Quota {
        Quota {
            memory_bytes: 0,
            session_memory_bytes: 0,
            sessions: SESSIONS_PER_UID_MAX,
            tensors: TENSORS_PER_UID_MAX,
            arena_bytes: ARENA_BYTES_PER_UID_MAX,
            queued: 0,
            weight: 1.0,
            max_step_s: STEP_S_MAX,
            devices: DeviceSet::ALL,
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
            tensors: limits.tensors.unwrap_or(default.tensors),
            arena_bytes: limits.arena_bytes.unwrap_or(default.arena_bytes),
            queued: limits.queued.unwrap_or(default.queued),
            weight: limits.weight.unwrap_or(default.weight),
            max_step_s: limits.max_step_s.unwrap_or(default.max_step_s),
            devices: limits.devices.unwrap_or(default.devices),
        }
    }
}

impl Quota {
    /// True if no field is more generous than in `other`.
    #[must_use]
    pub fn is_within(&self, other: &Quota) -> bool {
        let within = |own: u64, other: u64| other == 0 || (own != 0 && own <= other);
        within(self.memory_bytes, other.memory_bytes)
            && within(self.session_memory_bytes, other.session_memory_bytes)
            && self.sessions <= other.sessions
            && within(self.tensors, other.tensors)
            && self.arena_bytes <= other.arena_bytes
            && within(self.queued.into(), other.queued.into())
            && self.weight <= other.weight
            && within(self.max_step_s.into(), other.max_step_s.into())
            && self.devices.is_within(other.devices)
    }
}

/// The new value of one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting<T> {
    /// Not set: the default holds.
    Default,
    /// This value.
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

/// A change of a quota. Fields that are none stay as they are; [`QuotaSettings`] documents the fields. A daemon refuses
/// a change with fields of a later version, since it could not make it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of `QuotaSettings`")]
pub struct QuotaChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Setting<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_memory_bytes: Option<Setting<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Setting<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Setting<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes: Option<Setting<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<Setting<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Setting<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_step_s: Option<Setting<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Setting<DeviceSet>>,
}

/// The quotas in force, and the users' usage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaDocument {
    /// The quota of users without settings of their own.
    pub default: Quota,
    /// Users with sessions or settings of their own, by number.
    pub users: Vec<UserStatus>,
    /// True if there are users after the last one here.
    pub more: bool,
}

impl QuotaDocument {
    /// The users from number `from` on, sorted, as many as one message holds.
    #[must_use]
    pub fn page(mut self, from: u32) -> Self {
        self.users.retain(|user| user.uid >= from);
        self.users.sort_by_key(|user| user.uid);
        self.more = self.users.len() > STATUS_USERS_MAX;
        self.users.truncate(STATUS_USERS_MAX);
        self
    }
}

/// A user's quota and usage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserStatus {
    /// The user id.
    pub uid: u32,
    /// The settings for this user alone, from the configuration or a later change.
    pub own: QuotaSettings,
    /// The quota in force.
    pub allowed: Quota,
    /// Open sessions.
    pub sessions: u32,
    /// Bytes that these sessions hold on the workers.
    pub memory_bytes: u64,
    /// Tensors of these sessions, and errors in the place of tensors.
    pub tensors: u64,
    /// Bytes of these sessions' arenas.
    pub arena_bytes: u64,
    /// The devices' time used, seconds, with exponential decay.
    pub usage_s: f64,
}

/// A number of bytes with a binary unit: `1.50 MiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}
