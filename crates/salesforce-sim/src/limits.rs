//! The limits of the last 24 hours.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use crate::faults::LimitSettings;

const HOUR_S: i64 = 60 * 60;
const WINDOW_HOURS: i64 = 24;

/// Usage, counted per hour.
#[derive(Debug, Default)]
pub(crate) struct Window {
    hours: VecDeque<(i64, u64)>,
}

impl Window {
    pub(crate) fn add(&mut self, now: Timestamp, count: u64) {
        let hour = now.as_second().div_euclid(HOUR_S);
        match self.hours.back_mut() {
            Some((last, counted)) if *last == hour => *counted += count,
            _ => self.hours.push_back((hour, count)),
        }
        while self.hours.front().is_some_and(|(first, _)| *first <= hour - WINDOW_HOURS) {
            self.hours.pop_front();
        }
    }

    pub(crate) fn used(&self, now: Timestamp) -> u64 {
        let oldest = now.as_second().div_euclid(HOUR_S) - WINDOW_HOURS;
        self.hours.iter().filter(|(hour, _)| *hour > oldest).map(|(_, count)| count).sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct OrgLimits {
    pub(crate) api: Window,
    pub(crate) bulk_batches: Window,
    pub(crate) bulk_records: Window,
}

impl OrgLimits {
    pub(crate) fn api_used(&self, settings: &LimitSettings, now: Timestamp) -> u64 {
        self.api.used(now).saturating_add(settings.api_spent)
    }

    pub(crate) fn batches_left(&self, settings: &LimitSettings, now: Timestamp) -> u64 {
        let used = self.bulk_batches.used(now).saturating_add(settings.bulk_batches_spent);
        settings.bulk_batches_max.saturating_sub(used)
    }

    /// Returns `Sforce-Limit-Info`, which every response has.
    pub(crate) fn header(&self, settings: &LimitSettings, now: Timestamp) -> String {
        format!("api-usage={}/{}", self.api_used(settings, now), settings.api_max)
    }

    /// Returns the response to `GET /limits`.
    pub(crate) fn to_json(&self, settings: &LimitSettings, now: Timestamp) -> Json {
        let left = |max: u64, used: u64| json!({"Max": max, "Remaining": max.saturating_sub(used)});
        let records = self.bulk_records.used(now);
        json!({
            "DailyApiRequests": left(settings.api_max, self.api_used(settings, now)),
            "DailyBulkApiBatches": {
                "Max": settings.bulk_batches_max,
                "Remaining": self.batches_left(settings, now),
            },
            "DailyBulkV2QueryJobs": left(10_000, 0),
            "DailyBulkV2IngestRecords": left(settings.bulk_records_max, records),
            "DataStorageMB": left(1024, 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_older_than_a_day_does_not_count() {
        let at = |hours: i64| Timestamp::from_second(1_700_000_000 + hours * HOUR_S).unwrap();
        let mut window = Window::default();
        window.add(at(0), 5);
        window.add(at(20), 2);
        assert_eq!([window.used(at(20)), window.used(at(23)), window.used(at(24))], [7, 7, 2]);
        window.add(at(50), 1);
        assert_eq!((window.used(at(50)), window.hours.len()), (1, 1));
    }
}
