//! Dates and times as text of ISO 8601. A number that no calendar has stays a number.

use jiff::{
    Timestamp,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};

use super::schema::{LogicalType, TimeUnit};

/// 0001-01-01: few parsers read text of earlier years.
const NANOS_MIN: i128 = -62_135_596_800_000_000_000;
const DAY_SECONDS: i64 = 86_400;
const DAY_NANOS: i128 = 86_400_000_000_000;

/// Returns the text of a date or time; `None` if it has none.
pub(super) fn to_text(kind: LogicalType, number: i64) -> Option<String> {
    match kind {
        LogicalType::Date => {
            let seconds = number.checked_mul(DAY_SECONDS)?;
            Some(local(Timestamp::from_second(seconds).ok()?)?.date().to_string())
        }
        LogicalType::Time(unit) => {
            let nanos = i128::from(number) * unit.nanos();
            if !(0..DAY_NANOS).contains(&nanos) {
                return None;
            }
            let at = Timestamp::from_nanosecond(nanos).ok()?;
            Some(local(at)?.time().to_string())
        }
        LogicalType::Timestamp(unit) => {
            let at = instant(number, unit)?;
            is_common(at).then(|| at.to_string())
        }
        LogicalType::LocalTimestamp(unit) => Some(local(instant(number, unit)?)?.to_string()),
        LogicalType::Decimal { .. } | LogicalType::Uuid | LogicalType::Duration => None,
    }
}

/// Returns the number of a date or time that was written as text.
pub(super) fn to_number(kind: LogicalType, text: &str) -> Result<i64, String> {
    let wrong = |example: &str| format!("is not a text such as \"{example}\"");
    let (nanos, unit) = match kind {
        LogicalType::Date => {
            let date: Option<Date> = text.parse().ok().filter(|_| text.len() == 10);
            let date = date.ok_or_else(|| wrong("2026-11-18"))?;
            return Ok(since_epoch(date.at(0, 0, 0, 0))?.as_second().div_euclid(DAY_SECONDS));
        }
        LogicalType::Time(unit) => {
            let time: Time = text.parse().map_err(|_| wrong("05:07:00.123"))?;
            (since_epoch(Date::constant(1970, 1, 1).to_datetime(time))?.as_nanosecond(), unit)
        }
        LogicalType::Timestamp(unit) => {
            let at: Timestamp = text.parse().map_err(|_| wrong("2026-11-18T05:07:00Z"))?;
            (at.as_nanosecond(), unit)
        }
        LogicalType::LocalTimestamp(unit) => {
            let at: DateTime = text.parse().map_err(|_| wrong("2026-11-18T05:07:00"))?;
            (since_epoch(at)?.as_nanosecond(), unit)
        }
        LogicalType::Decimal { .. } | LogicalType::Uuid | LogicalType::Duration => {
            return Err("is not a number".to_owned());
        }
    };
    if nanos % unit.nanos() != 0 {
        return Err("is more precise than its type in the schema".to_owned());
    }
    i64::try_from(nanos / unit.nanos()).map_err(|_| "is out of range".to_owned())
}

fn instant(number: i64, unit: TimeUnit) -> Option<Timestamp> {
    Timestamp::from_nanosecond(i128::from(number) * unit.nanos()).ok()
}

fn local(at: Timestamp) -> Option<DateTime> {
    is_common(at).then(|| TimeZone::UTC.to_datetime(at))
}

fn is_common(at: Timestamp) -> bool {
    at.as_nanosecond() >= NANOS_MIN
}

fn since_epoch(at: DateTime) -> Result<Timestamp, String> {
    TimeZone::UTC.to_timestamp(at).map_err(|_| "is out of range".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_number_are_the_same_time() {
        use LogicalType::{Date, LocalTimestamp, Time, Timestamp};
        use TimeUnit::{Micros, Millis, Nanos};
        for (kind, number, text) in [
            (Date, 0, "1970-01-01"),
            (Date, -1, "1969-12-31"),
            (Date, 20_775, "2026-11-18"),
            (Time(Millis), 18_420_123, "05:07:00.123"),
            (Time(Micros), 0, "00:00:00"),
            (Timestamp(Millis), 1_794_978_420_123, "2026-11-18T05:07:00.123Z"),
            (Timestamp(Micros), -1, "1969-12-31T23:59:59.999999Z"),
            (Timestamp(Nanos), 1, "1970-01-01T00:00:00.000000001Z"),
            (LocalTimestamp(Micros), 1_794_978_420_000_000, "2026-11-18T05:07:00"),
        ] {
            assert_eq!(to_text(kind, number).as_deref(), Some(text));
            assert_eq!(to_number(kind, text), Ok(number), "{text}");
        }
    }

    #[test]
    fn a_number_that_no_calendar_has_is_no_text() {
        use TimeUnit::Millis;
        assert_eq!(to_text(LogicalType::Timestamp(Millis), i64::MAX), None);
        assert_eq!(to_text(LogicalType::Timestamp(Millis), -62_135_596_800_001), None);
        assert_eq!(to_text(LogicalType::Time(Millis), 86_400_000), None);
        assert_eq!(to_text(LogicalType::Time(Millis), -1), None);
        assert_eq!(to_text(LogicalType::Date, i64::from(i32::MAX)), None);
    }

    #[test]
    fn text_that_would_lose_digits_is_refused() {
        let to_millis = |text: &str| to_number(LogicalType::Timestamp(TimeUnit::Millis), text);
        assert!(to_millis("2026-11-18T05:07:00.1234Z").unwrap_err().contains("more precise"));
        assert!(to_millis("2026-11-18T05:07:00").is_err(), "without its zone");
        assert!(to_number(LogicalType::Date, "2026-11-18T05:07:00").is_err());
    }
}
