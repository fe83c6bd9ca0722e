//! Durations (`100ms`, `1h30m`), rates (`50/s`) and sizes (`8MiB`) as operators write them.
//!
//! Errors do not repeat the text: it may come from the environment.

use std::time::Duration;

use serde::Serialize;

use crate::query::Retention;

/// The longest duration that a key may have.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads `100ms`, `30s`, `5m`, `1h30m`, `30d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    const HOW: &str = "is not a duration; write for example \"100ms\", \"30s\", \"5m\" or \"30d\"";
    let mut millis: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(HOW.to_owned());
    }
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or(HOW)?;
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(HOW)?;
        millis = number
            .checked_mul(*factor)
            .and_then(|part| millis.checked_add(part))
            .ok_or("is too long a duration")?;
        rest = after;
    }
    let duration = Duration::from_millis(millis);
    if duration > DURATION_MAX {
        return Err("is too long a duration".to_owned());
    }
    Ok(duration)
}

/// Formats a duration as [`duration`] reads it, in the fewest parts.
pub fn show_duration(duration: Duration) -> String {
    let mut millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    for (unit, factor) in UNITS.iter().rev() {
        let count = millis / u128::from(*factor);
        if count > 0 {
            out.push_str(&format!("{count}{unit}"));
            millis %= u128::from(*factor);
        }
    }
    out
}

/// Reads a duration, or `never`: rows stay.
pub fn retention(text: &str) -> Result<Duration, String> {
    if text.trim() == NEVER { Ok(never()) } else { duration(text) }
}

/// Formats a duration as [`retention`] reads it.
pub fn show_retention(duration: Duration) -> String {
    if duration >= never() { NEVER.to_owned() } else { show_duration(duration) }
}

/// The retention of rows that stay.
const NEVER: &str = "never";

fn never() -> Duration {
    Duration::from_secs(Retention::NEVER_SECONDS.unsigned_abs())
}

/// Calls per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    pub calls: u32,
    pub period: Duration,
}

/// Reads `50/s`, `100/m`, `1000/h`.
pub fn rate(text: &str) -> Result<Rate, String> {
    const HOW: &str = "is not a rate; write for example \"50/s\", \"100/m\" or \"1000/h\"";
    let (calls, unit) = text.split_once('/').ok_or(HOW)?;
    let calls: u32 = calls.trim().parse().map_err(|_| HOW)?;
    let period = match unit.trim() {
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3_600),
        _ => return Err(HOW.to_owned()),
    };
    if calls == 0 {
        return Err("allows no call; use at least one call per period".to_owned());
    }
    Ok(Rate { calls, period })
}

/// Formats a rate as [`rate`] reads it.
pub fn show_rate(rate: Rate) -> String {
    let unit = match rate.period.as_secs() {
        1 => "s",
        60 => "m",
        _ => "h",
    };
    format!("{}/{unit}", rate.calls)
}

/// Reads `8MiB`, `500KB`, `1024`.
pub fn size(text: &str) -> Result<usize, String> {
    const HOW: &str = "is not a size; write for example \"512KiB\" or \"8MiB\"";
    let (number, unit) = split_number(text.trim()).ok_or(HOW)?;
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(HOW.to_owned()),
    };
    let bytes = number.checked_mul(factor).ok_or(HOW)?;
    usize::try_from(bytes).map_err(|_| HOW.to_owned())
}

/// Formats a size as [`size`] reads it.
pub fn show_size(bytes: usize) -> String {
    const UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fits = UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_show_the_same() {
        for text in ["100ms", "30s", "5m", "1h30m", "30d", "0s"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(show_duration(Duration::from_secs(90)), "1m30s");
    }

    #[test]
    fn other_texts_are_no_durations() {
        for text in ["", "5", "m", "5 m", "-5m", "1.5s", "5min", "99999999999999999999s", "40000d"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_retention_is_a_duration_or_never() {
        for text in ["never", "7d", "1h30m"] {
            assert_eq!(show_retention(retention(text).unwrap()), text);
        }
        assert!(retention("NEVER").is_err() && retention("").is_err());
    }

    #[test]
    fn rates_have_a_count_and_a_unit() {
        assert_eq!(show_rate(rate("50/s").unwrap()), "50/s");
        assert_eq!(rate("7/m").unwrap(), Rate { calls: 7, period: Duration::from_secs(60) });
        assert_eq!(show_rate(rate("1000/h").unwrap()), "1000/h");
        for text in ["50", "0/s", "x/s", "5/d", "-1/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_know_their_units() {
        assert_eq!(size("8MiB").unwrap(), 8 << 20);
        assert_eq!(size("500KB").unwrap(), 500_000);
        assert_eq!(size("12").unwrap(), 12);
        assert_eq!(show_size(8 << 20), "8MiB");
        assert_eq!(show_size(12), "12B");
        assert!(size("8megs").is_err());
        assert!(size("99999999999999GiB").is_err());
    }
}
