//! Who is at fault when a call fails: its message or its target. Decided by evidence, not by the
//! status code alone.
//!
//! A message must not become a dead letter for what its target did, and a target must not be stopped
//! for what one message is. A refusal ([`Delivery::Reject`]) speaks for itself, and a target that
//! cannot be reached ([`Delivery::Outage`]) never says anything about a message. Everything else is
//! unclear: the same `503` comes from a crashed target and from one message that crashes its target.
//! The results of other keys at the same time distinguish the two: [`judge`].
//!
//! [`Evidence`] is bounded memory of one process, no table: a restart begins without any, which counts
//! fewer attempts, never more. Time is an argument, as nanoseconds of any steady clock.
//!
//! [`Delivery::Reject`]: crate::delivery::Delivery::Reject
//! [`Delivery::Outage`]: crate::delivery::Delivery::Outage

use std::{collections::HashMap, time::Duration};

/// A success of another key this long ago is still evidence that the target works, if it came after this
/// key began to fail.
pub const NEWS_AGE_MAX: Duration = Duration::from_secs(60);
/// A call that began before this key began to fail may have been accepted before an outage, and return during
/// it. It is evidence only if this many keys succeeded since this key began to fail.
pub const SUCCEEDED_KEYS_MIN: usize = 3;
/// From this many failing keys on it is the target that fails, …
pub const FAILING_KEYS_MIN: usize = 3;
/// … if they are at least this share of the keys called lately, in percent.
pub const FAILING_PERCENT: usize = 10;
/// Keys called within this time are "called lately".
const LATELY: Duration = Duration::from_secs(60);
/// After this long without a call of another key, a key that fails is judged by itself.
pub const ALONE_AFTER: Duration = Duration::from_secs(10 * 60);
/// A key that fails for this long while others succeed is a dead letter, whatever was counted.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Most keys remembered. Beyond it, keys that do not fail are forgotten first.
pub const KEYS_MAX: usize = 4_096;

/// A failed call that is not clearly about the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// An error, a time-out, a cut connection, a missing log-in or page: 401, 403, 404, 408, 425, 5xx.
    Unclear,
    /// The target, or a gateway before it, asks for patience: 429, 502, 503, 504.
    Busy,
    /// No connection, name, certificate, log-in, broker or leader.
    Unreachable,
}

/// The side that is at fault for one failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The message uses an attempt.
    Message,
    /// The message only waits; no attempt is used.
    Target,
    /// The message becomes a dead letter now: [`OVERDUE_AFTER`].
    Overdue,
}

/// The side at fault, and the number of failures of the key in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub fault: Fault,
    pub failures: u32,
}

impl Judgement {
    /// Of a call that did not fail, or of one that was judged by itself.
    pub const MESSAGE: Self = Self { fault: Fault::Message, failures: 1 };
    /// Of a call whose failure says nothing about its message.
    pub const TARGET: Self = Self { fault: Fault::Target, failures: 1 };
}

/// The evidence at the time when a call of a key fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The last finished call of any other key, if there was one.
    pub others: Option<News>,
    /// The time since this key's previous attempt began; its current one if it is the first to fail.
    pub previous_attempt: Duration,
    /// Keys called lately whose last call failed, this one included.
    pub failing_keys: usize,
    /// Keys called lately, this one included.
    pub called_keys: usize,
    /// Other keys that succeeded since this key began to fail.
    pub succeeded_keys: usize,
    /// The time since the last call of another key; since the evidence began if there was none.
    pub alone_for: Duration,
    /// The time that this key has been failing: [`FailureTimes`].
    pub failing_for: Duration,
    /// Failures of this key in a row, this one included.
    pub failures: u32,
}

/// The result of the last call of another key, and of a success the times since the call began and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Good { began: Duration, ended: Duration },
    Bad,
}

/// Decides whether a failed call counts against its message.
///
/// | failure | evidence | verdict |
/// |---|---|---|
/// | unreachable | any | target |
/// | other | this key has failed for 24 hours, and another key succeeded lately | overdue |
/// | other | at least max(3, 10 %) of the keys called in the last minute fail | target |
/// | other | another key succeeded since this key's previous attempt began; or in the last minute, after this key began to fail. Its call began after that too, or three keys succeeded since | message |
/// | unclear | no other key was called for 10 minutes | message |
/// | other | anything else | target |
pub fn judge(failure: FailureKind, facts: &Facts) -> Fault {
    if failure == FailureKind::Unreachable {
        return Fault::Target;
    }
    let good_news = match facts.others {
        Some(News::Good { began, ended }) => {
            let many = facts.succeeded_keys >= SUCCEEDED_KEYS_MIN;
            let ago = if many { ended } else { began };
            ago <= facts.previous_attempt || ago <= NEWS_AGE_MAX.min(facts.failing_for)
        }
        Some(News::Bad) | None => false,
    };
    if good_news && facts.failing_for >= OVERDUE_AFTER {
        return Fault::Overdue;
    }
    if facts.failing_keys >= failing_keys_max(facts.called_keys) {
        return Fault::Target;
    }
    let alone = facts.alone_for >= ALONE_AFTER && failure == FailureKind::Unclear;
    if good_news || alone { Fault::Message } else { Fault::Target }
}

/// The number of failing keys, of those called, from which the target is at fault.
fn failing_keys_max(called_keys: usize) -> usize {
    FAILING_KEYS_MIN.max((called_keys * FAILING_PERCENT).div_ceil(100))
}

/// The chance that the next call of a key succeeds; the likely ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    Good,
    Unknown,
    Bad,
}

/// The recent results of the keys of one destination.
#[derive(Clone, Debug)]
pub struct Evidence {
    keys: HashMap<u64, KeyRecord>,
    /// The last finished calls; of keys that were failing already, only successes.
    news: LastOfTwo,
    /// The last finished calls, whatever came of them.
    calls: LastOfTwo,
    began_ns: u64,
}

/// The times of a failed call.
#[derive(Clone, Copy, Debug)]
pub struct FailureTimes {
    began_ns: u64,
    /// The target fails since then, as far as this call shows.
    failing_ns: u64,
    ended_ns: u64,
}

impl FailureTimes {
    /// Of a call that ended with an error or a cut connection. The target may have worked until then: it may
    /// have accepted the message, and the successes of other keys meanwhile say nothing about its failure.
    pub fn ended(began_ns: u64, ended_ns: u64) -> Self {
        Self { began_ns, failing_ns: ended_ns, ended_ns }
    }

    /// Of a call without any answer. It failed from its beginning.
    pub fn unanswered(began_ns: u64, ended_ns: u64) -> Self {
        Self { began_ns, failing_ns: began_ns, ended_ns }
    }
}

/// The last call of one key.
#[derive(Clone, Copy, Debug)]
struct KeyRecord {
    called_ns: u64,
    result: KeyResult,
}

#[derive(Clone, Copy, Debug)]
enum KeyResult {
    Succeeded,
    Rejected,
    Failing(Failing),
}

impl KeyRecord {
    fn failing(&self) -> Option<Failing> {
        match self.result {
            KeyResult::Failing(failing) => Some(failing),
            KeyResult::Succeeded | KeyResult::Rejected => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    since_ns: u64,
    /// When the last failed attempt began.
    attempt_ns: u64,
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
struct EndedCall {
    key: u64,
    began_ns: u64,
    at_ns: u64,
    good: bool,
}

/// The last finished calls of two different keys: for any key, one of them is another key's.
#[derive(Clone, Copy, Debug, Default)]
struct LastOfTwo([Option<EndedCall>; 2]);

impl LastOfTwo {
    fn push(&mut self, ended: EndedCall) {
        if self.0[0].is_some_and(|last| last.key != ended.key) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some(ended);
    }

    fn other_than(&self, key: u64) -> Option<EndedCall> {
        self.0.iter().flatten().find(|ended| ended.key != key).copied()
    }
}

impl Evidence {
    pub fn new(now_ns: u64) -> Self {
        let (news, calls) = (LastOfTwo::default(), LastOfTwo::default());
        Self { keys: HashMap::new(), news, calls, began_ns: now_ns }
    }

    /// The key as the evidence remembers it.
    pub fn key(msg_key: &str) -> u64 {
        // FNV-1a: two keys that share a hash share their evidence, which harms little.
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        msg_key.bytes().fold(OFFSET, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME))
    }

    /// The message of a call of this key that began at `began_ns` was accepted.
    pub fn succeeded(&mut self, key: u64, began_ns: u64, now_ns: u64) {
        self.news.push(EndedCall { key, began_ns, at_ns: now_ns, good: true });
        self.answered(key, KeyResult::Succeeded, now_ns);
    }

    /// The message of a call of this key was refused. That is no evidence that the target works: one that is
    /// half deployed refuses some messages and fails with others.
    pub fn rejected(&mut self, key: u64, now_ns: u64) {
        self.answered(key, KeyResult::Rejected, now_ns);
    }

    fn answered(&mut self, key: u64, result: KeyResult, now_ns: u64) {
        self.calls.push(EndedCall { key, began_ns: now_ns, at_ns: now_ns, good: true });
        self.make_room(key, now_ns);
        self.keys.insert(key, KeyRecord { called_ns: now_ns, result });
    }

    /// A call of this key failed; what is known about it.
    pub fn failed(&mut self, key: u64, times: FailureTimes) -> Facts {
        let FailureTimes { began_ns, ended_ns: now_ns, .. } = times;
        let (news, called) = (self.news.other_than(key), self.calls.other_than(key));
        let before = self.keys.get(&key).and_then(KeyRecord::failing);
        let ended = EndedCall { key, began_ns, at_ns: now_ns, good: false };
        self.calls.push(ended);
        if before.is_none() {
            // That a failing key fails once more says nothing new about the target.
            self.news.push(ended);
        }
        let failing = self.fail(key, times);
        let ago = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));
        let lately = self.keys.values().filter(|record| ago(record.called_ns) <= LATELY);
        let (mut failing_keys, mut called_keys, mut succeeded_keys) = (0, 0, 0);
        for record in lately {
            called_keys += 1;
            match record.result {
                KeyResult::Failing(_) => failing_keys += 1,
                KeyResult::Succeeded if record.called_ns >= failing.since_ns => succeeded_keys += 1,
                KeyResult::Succeeded | KeyResult::Rejected => {}
            }
        }
        Facts {
            others: news.map(|call| match call.good {
                true => News::Good { began: ago(call.began_ns), ended: ago(call.at_ns) },
                false => News::Bad,
            }),
            previous_attempt: ago(before.map_or(began_ns, |failing| failing.attempt_ns)),
            failing_keys,
            called_keys,
            succeeded_keys,
            alone_for: ago(called.map_or(self.began_ns, |ended| ended.at_ns)),
            failing_for: ago(failing.since_ns),
            failures: failing.failures,
        }
    }

    /// Records one more failure of a key.
    fn fail(&mut self, key: u64, times: FailureTimes) -> Failing {
        let before = self.keys.get(&key).and_then(KeyRecord::failing);
        let failing = Failing {
            since_ns: before.map_or(times.failing_ns, |failing| failing.since_ns),
            attempt_ns: times.began_ns,
            failures: before.map_or(0, |failing| failing.failures).saturating_add(1),
        };
        self.make_room(key, times.ended_ns);
        let result = KeyResult::Failing(failing);
        self.keys.insert(key, KeyRecord { called_ns: times.ended_ns, result });
        failing
    }

    /// A call of several keys failed as a whole: each of them may be the reason.
    pub fn failed_together(&mut self, keys: &[u64], times: FailureTimes) {
        for key in keys {
            self.fail(*key, times);
        }
    }

    /// Returns the chance of the next call of this key, judged by its last one.
    pub fn outlook(&self, key: u64) -> Outlook {
        match self.keys.get(&key) {
            None => Outlook::Unknown,
            Some(record) if record.failing().is_some() => Outlook::Bad,
            Some(_) => Outlook::Good,
        }
    }

    /// Returns true if the last call of this key failed.
    pub fn is_failing(&self, key: u64) -> bool {
        self.keys.get(&key).is_some_and(|record| record.failing().is_some())
    }

    /// Forgets keys so that `key` fits in: old ones, then some that do not fail, then any.
    fn make_room(&mut self, key: u64, now_ns: u64) {
        if self.keys.len() < KEYS_MAX || self.keys.contains_key(&key) {
            return;
        }
        let lately_ns = now_ns.saturating_sub(u64::try_from(LATELY.as_nanos()).unwrap_or(u64::MAX));
        self.keys.retain(|_, record| record.called_ns >= lately_ns || record.failing().is_some());
        self.halve(|record| record.failing().is_none());
        self.halve(|_| true);
    }

    /// Forgets every second key of a kind, if there is little room.
    fn halve(&mut self, kind: impl Fn(&KeyRecord) -> bool) {
        if self.keys.len() < KEYS_MAX * 3 / 4 {
            return;
        }
        let mut nth = 0_usize;
        self.keys.retain(|_, record| {
            nth += usize::from(kind(record));
            !kind(record) || nth.is_multiple_of(2)
        });
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
