//! Times on the command line and in tables. Dates are in UTC.

/// The units of a duration, and their seconds.
const UNITS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
const DAY_S: u64 = 86_400;
/// The latest year of a date: later ones are misprints.
const YEAR_MAX: u64 = 9999;

/// Parses a duration, such as `90s`, `10m`, `2h`, `7d` or `4w`. Returns seconds.
///
/// # Errors
/// A text that is no duration.
pub fn duration_s(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = UNITS.into_iter().find(|(name, _)| *name == &text[digits.len()..]);
    let seconds = unit.and_then(|(_, seconds)| digits.parse::<u64>().ok()?.checked_mul(seconds));
    seconds.ok_or_else(|| format!("`{text}` is no duration: write a number and s, m, h, d or w, as in 10m"))
}

/// Parses the begin of a period: a date (`2026-11-01`, midnight UTC), or a duration before `now`. Returns seconds since
/// 1970.
///
/// # Errors
/// A text that is neither.
pub fn since(text: &str, now: f64) -> Result<f64, String> {
    if let Some(days) = days_of(text) {
        return Ok((days * DAY_S) as f64);
    }
    let ago = duration_s(text);
    ago.map(|ago| now - ago as f64).map_err(|_| format!("`{text}` is no such time: write 7d, 12h, or 2026-11-01"))
}

/// The days from 1970 to a date that is written `2026-11-01`.
fn days_of(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let known = (1970..=YEAR_MAX).contains(&year) && (1..=12).contains(&month) && day >= 1;
    // Years begin in March here, so that the leap day is the last of a year (H. Hinnant, "chrono-compatible low-level
    // date algorithms").
    let (y, m) = if month > 2 { (year, month - 3) } else { (year.saturating_sub(1), month + 9) };
    let days = known.then(|| y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468)?;
    // A day that its month does not have gives another date.
    (civil(days) == (year, month, day)).then_some(days)
}

/// The year, month and day that are `days` days after the first of 1970, by the same algorithm.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let m = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * m + 2) / 5 + 1, if m < 10 { m + 3 } else { m - 9 });
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn parts(unix_s: f64) -> (String, u64) {
    let seconds = unix_s.max(0.0) as u64;
    let (year, month, day) = civil(seconds / DAY_S);
    (format!("{year:04}-{month:02}-{day:02}"), seconds % DAY_S)
}

/// A time for users, to the minute: `2026-11-01 14:35`.
pub fn date(unix_s: f64) -> String {
    let (date, s) = parts(unix_s);
    format!("{date} {:02}:{:02}", s / 3600, s / 60 % 60)
}

/// A time for programs, to the second (RFC 3339): `2026-11-01T14:35:07Z`.
pub fn stamp(unix_s: f64) -> String {
    let (date, s) = parts(unix_s);
    format!("{date}T{:02}:{:02}:{:02}Z", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_is_written_and_read() {
        for days in 0..60_000 {
            let (year, month, day) = civil(days);
            assert_eq!(days_of(&format!("{year:04}-{month:02}-{day:02}")), Some(days));
        }
        assert_eq!(stamp(1_793_543_707.9), "2026-11-01T14:35:07Z");
        assert_eq!(date(1_793_543_707.9), "2026-11-01 14:35");
        for text in ["2026-02-29", "2026-13-01", "2026-04-31", "1969-12-31", "2026-1", "99999-01-01", "a-b-c"] {
            assert_eq!(days_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_period_begins_at_a_date_or_some_time_ago() {
        assert_eq!(since("7d", 1e6), Ok(1e6 - 604_800.0));
        assert_eq!(since("2026-11-01", 0.0), Ok(1_793_491_200.0));
        assert_eq!(duration_s("90s"), Ok(90));
        for text in ["", "7", "d", "7 d", "-1d", "yesterday", "99999999999999999999w", "9999999999999999999w"] {
            assert!(since(text, 0.0).is_err() && duration_s(text).is_err(), "{text}");
        }
    }
}
