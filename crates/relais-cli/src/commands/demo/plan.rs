//! What the senders will send, all from one seed: events, repeats and garbage.

use serde_json::json;

/// The event type of every good message.
pub(super) const EVENT_TYPE: &str = "OrderChanged";
/// The event types of light messages: ids, and nothing else.
pub(super) const MEMBERS_CREATED: &str = "MembersCreated";
pub(super) const BLOCKS_TO_CREATE: &str = "BlocksToCreate";
/// Each order has a family, with so many members and blocks.
const MEMBERS: u64 = 8;
const BLOCKS: u64 = 12;
/// How many orders the messages are about.
const ORDERS: u64 = 40;
/// One message in this many is sent twice.
const REPEAT_EVERY: u64 = 10;
/// One garbage body comes along with this many messages.
const GARBAGE_EVERY: u64 = 40;

pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) messages: u64,
}

/// One message about one order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) order: u64,
    /// 1, 2, 3 … within its order.
    pub(super) step: u64,
    pub(super) cents: u64,
}

impl Plan {
    pub(super) fn new(seed: u64, messages: u64) -> Self {
        Self { seed, messages }
    }

    pub(super) fn orders(&self) -> u64 {
        ORDERS.min(self.messages)
    }

    /// The messages of one order, in the order they must take effect.
    pub(super) fn events(&self, order: u64) -> impl Iterator<Item = Event> + use<> {
        let (seed, orders) = (self.seed, self.orders());
        let count = self.messages / orders + u64::from(order < self.messages % orders);
        (1..=count).map(move |step| Event { order, step, cents: mix(seed, order, step) % 10_000 })
    }

    /// The light messages that go along with this one: each family has one of each type, at some
    /// point of its order.
    pub(super) fn light(&self, event: Event) -> Vec<(String, String)> {
        let steps = self.messages / self.orders();
        let at = |salt| 1 + mix(self.seed ^ salt, event.order, 0) % steps;
        let family = event.order;
        let ids = |prefix: &str, count| -> Vec<String> {
            (1..=count).map(|n| format!("{prefix}-{family}-{n}")).collect()
        };
        let mut light = Vec::new();
        if event.step == at(3) {
            let body = json!({"type": MEMBERS_CREATED, "memberIds": ids("M", MEMBERS)});
            light.push((format!("members-{family}"), body.to_string()));
        }
        if event.step == at(4) {
            let body = json!({"type": BLOCKS_TO_CREATE, "blockIds": ids("B", BLOCKS)});
            light.push((format!("blocks-{family}"), body.to_string()));
        }
        light
    }

    pub(super) fn light_total(&self) -> u64 {
        2 * self.orders()
    }

    pub(super) fn contacts(&self) -> u64 {
        self.orders() * MEMBERS
    }

    pub(super) fn blocks(&self) -> u64 {
        self.orders() * BLOCKS
    }

    /// What the target must have added up in the end.
    pub(super) fn cents(&self) -> u64 {
        (0..self.orders()).flat_map(|order| self.events(order)).map(|e| e.cents).sum()
    }

    pub(super) fn is_repeated(&self, event: Event) -> bool {
        mix(self.seed ^ 1, event.order, event.step).is_multiple_of(REPEAT_EVERY)
    }

    /// A body that is no JSON, for some messages; each is different.
    pub(super) fn garbage(&self, event: Event) -> Option<String> {
        let number = mix(self.seed ^ 2, event.order, event.step);
        let cut = || format!("{{\"type\":\"{EVENT_TYPE}\",\"cut\":{number}");
        number.is_multiple_of(GARBAGE_EVERY).then(cut)
    }

    pub(super) fn garbage_total(&self) -> u64 {
        let all = (0..self.orders()).flat_map(|order| self.events(order));
        all.filter(|event| self.garbage(*event).is_some()).count() as u64
    }
}

impl Event {
    pub(super) fn id(self) -> String {
        format!("order-{}-{}", self.order, self.step)
    }

    pub(super) fn body(self) -> String {
        let Self { order, step, cents } = self;
        format!(r#"{{"type":"{EVENT_TYPE}","order":"o-{order}","step":{step},"cents":{cents}}}"#)
    }
}

/// Three numbers to one that looks random (SplitMix64).
pub(super) fn mix(seed: u64, a: u64, b: u64) -> u64 {
    let mut z = seed
        .wrapping_add(a.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_add(b.wrapping_mul(0xD1B5_4A32_D192_ED03));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_planned_once() {
        let plan = Plan::new(7, 2_003);
        let all: Vec<_> = (0..plan.orders()).flat_map(|order| plan.events(order)).collect();
        assert_eq!(all.len(), 2_003);
        assert!(all.iter().any(|e| plan.is_repeated(*e)) && plan.garbage_total() > 0);
        for plan in [plan, Plan::new(7, 1), Plan::new(7, 41)] {
            let all = (0..plan.orders()).flat_map(|order| plan.events(order));
            let light = all.map(|event| plan.light(event).len() as u64).sum::<u64>();
            assert_eq!(light, plan.light_total());
        }
    }
}
