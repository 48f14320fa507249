//! Sets of a daemon's devices, by number, as quotas and hellos name them: `0-3`, `0,2`, `all`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The most devices of a daemon's own machine: a set of them is one word.
const DEVICES_MAX: u32 = 64;

/// A set of a daemon's devices. They are numbered from 0, in the order of `gtctl status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSet(u64);

impl DeviceSet {
    /// All devices, however many there are, and those that join later.
    pub const ALL: DeviceSet = DeviceSet(u64::MAX);

    /// The devices whose bits are set.
    pub const fn from_bits(bits: u64) -> DeviceSet {
        DeviceSet(bits)
    }

    /// Bit `n` is set for device `n`.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// True if every device of this set is one of `others`.
    pub const fn is_within(self, others: DeviceSet) -> bool {
        self.0 & !others.0 == 0
    }

    /// The devices of both sets.
    #[must_use]
    pub const fn and(self, other: DeviceSet) -> DeviceSet {
        DeviceSet(self.0 & other.0)
    }

    /// The number of devices.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// True if there is no device in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The numbers of the devices, ascending.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (0..DEVICES_MAX).filter(move |number| self.0 >> number & 1 == 1)
    }

    /// Says which device a daemon with `count` devices lacks; none if it has all of them.
    #[must_use]
    pub fn complaint(self, count: u32) -> Option<String> {
        if self == DeviceSet::ALL {
            return None;
        }
        let missing = self.numbers().find(|number| *number >= count)?;
        let have = match count {
            1 => "1 device, number 0".to_owned(),
            _ => format!("{count} devices, numbered from 0 to {}", count.saturating_sub(1)),
        };
        Some(format!("there is no device {missing}: the daemon has {have}"))
    }

    fn of_numbers(numbers: impl IntoIterator<Item = u32>) -> Result<DeviceSet, String> {
        let mut bits = 0;
        for number in numbers {
            if number >= DEVICES_MAX {
                return Err(format!("{number} is no number of a device: they are from 0 to {}", DEVICES_MAX - 1));
            }
            bits |= 1 << number;
        }
        if bits == 0 {
            return Err("no device is named: write numbers, as in 0-3 or 0,2, or all".into());
        }
        Ok(DeviceSet(bits))
    }
}

impl fmt::Display for DeviceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == DeviceSet::ALL {
            return f.write_str("all");
        }
        let mut first = true;
        let mut at = 0;
        while at < DEVICES_MAX {
            let length = (self.0 >> at).trailing_ones();
            if length > 0 {
                f.write_str(if std::mem::take(&mut first) { "" } else { "," })?;
                match length {
                    1 => write!(f, "{at}")?,
                    _ => write!(f, "{at}-{}", at + length - 1)?,
                }
            }
            at += length + 1;
        }
        Ok(())
    }
}

impl FromStr for DeviceSet {
    type Err = String;

    /// Reads `all`, or numbers and ranges with commas between, as in `0-3,5`; a list's brackets are allowed.
    fn from_str(text: &str) -> Result<DeviceSet, String> {
        let list = text.trim();
        let list = list.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(list);
        if list.trim() == "all" {
            return Ok(DeviceSet::ALL);
        }
        let wrong = || format!("`{text}` names no devices: write numbers, as in 0-3 or 0,2, or all");
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let mut numbers = Vec::new();
        for part in list.split(',') {
            match part.split_once('-') {
                None => numbers.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(wrong());
                    }
                    numbers.extend(first..=last.min(DEVICES_MAX));
                }
            }
        }
        DeviceSet::of_numbers(numbers)
    }
}

/// The JSON form: a list of numbers, or a text that [`DeviceSet::from_str`] reads.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum DeviceForm {
    Numbers(Vec<u32>),
    Text(String),
}

impl Serialize for DeviceSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match *self {
            DeviceSet::ALL => DeviceForm::Text("all".into()),
            some => DeviceForm::Numbers(some.numbers().collect()),
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DeviceSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DeviceSet, D::Error> {
        let read = match DeviceForm::deserialize(deserializer)? {
            DeviceForm::Numbers(numbers) => DeviceSet::of_numbers(numbers),
            DeviceForm::Text(text) => text.parse(),
        };
        read.map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_written() {
        for (text, bits, written) in [
            ("0", 0b1, "0"),
            ("0-3", 0b1111, "0-3"),
            ("[0-3]", 0b1111, "0-3"),
            (" [ 0, 2 ] ", 0b101, "0,2"),
            ("5,0-1,2", 0b10_0111, "0-2,5"),
            ("63", 1 << 63, "63"),
            ("62-63", 0b11 << 62, "62-63"),
            ("all", u64::MAX, "all"),
        ] {
            let set: DeviceSet = text.parse().unwrap();
            assert_eq!((set.bits(), set.to_string().as_str()), (bits, written), "{text}");
            let json = serde_json::to_string(&set).unwrap();
            assert_eq!(serde_json::from_str::<DeviceSet>(&json).unwrap(), set, "{json}");
        }
        assert_eq!(serde_json::to_string(&DeviceSet::from_bits(0b101)).unwrap(), "[0,2]");
        for wrong in ["", "[]", "a", "1-", "3-1", "-1", "64", "0-64", "0-4294967295", "0;1"] {
            assert!(wrong.parse::<DeviceSet>().is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<DeviceSet>("[]").is_err());
        assert!(serde_json::from_str::<DeviceSet>("[64]").is_err());
    }

    #[test]
    fn a_device_that_is_missing_is_named_with_the_number_there_are() {
        let complaint = |text: &str, count| text.parse::<DeviceSet>().unwrap().complaint(count);
        assert_eq!(complaint("0-3", 4), None);
        assert_eq!(complaint("all", 1), None);
        let text = "there is no device 4: the daemon has 4 devices, numbered from 0 to 3";
        assert_eq!(complaint("0,4,9", 4).as_deref(), Some(text));
        assert_eq!(complaint("1", 1).as_deref(), Some("there is no device 1: the daemon has 1 device, number 0"));
    }

    #[test]
    fn a_set_is_within_another() {
        let set = |text: &str| text.parse::<DeviceSet>().unwrap();
        assert!(set("0,2").is_within(set("0-2")) && set("5").is_within(DeviceSet::ALL));
        assert!(!set("0,3").is_within(set("0-2")) && !DeviceSet::ALL.is_within(set("0-62")));
        assert_eq!(set("0-3").and(set("2-9")), set("2-3"));
    }
}
