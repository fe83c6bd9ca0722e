//! The messages of the senders, generated from one seed: events, repeats, undecodable and poison messages.

use std::time::Duration;

use serde_json::json;

/// The event type of every message about an order.
pub(super) const EVENT_TYPE: &str = "OrderChanged";
/// Key prefix of poison orders, which the sums of the target leave out.
pub(super) const POISON: &str = "p-";
/// The event types of light messages, which hold only ids.
const MEMBERS_CREATED: &str = "MembersCreated";
const BLOCKS_TO_CREATE: &str = "BlocksToCreate";
/// Members and blocks of the family that each order has in each round.
const MEMBERS: u64 = 8;
const BLOCKS: u64 = 12;
/// Number of orders.
const ORDERS: u64 = 40;
/// Messages of an order in one round.
const ROUND: u64 = 50;
/// One message in this many is sent twice.
const REPEAT_EVERY: u64 = 10;
/// One undecodable body is sent per this many messages.
const GARBAGE_EVERY: u64 = 40;

/// The end of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoEnd {
    /// After this many messages about orders.
    Messages(u64),
    /// On a signal.
    Signal,
}

/// Messages beside the orders, which give operators something to decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtraMessages {
    /// Number of checkouts.
    pub(super) checkouts: u64,
    /// Pause between two checkouts.
    pub(super) checkout_every: Duration,
    /// Orders whose second message the target refuses.
    pub(super) poison: u64,
    /// Checkouts per poison order.
    pub(super) poison_every: u64,
}

pub(super) struct DemoPlan {
    pub(super) seed: u64,
    pub(super) until: DemoEnd,
}

/// One message about one order.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderEvent {
    pub(super) order: u64,
    /// 1, 2, 3 … within its order.
    pub(super) step: u64,
    pub(super) cents: u64,
}

/// One message that becomes many records.
pub(super) struct LightMessage {
    pub(super) id: String,
    pub(super) body: String,
    pub(super) contacts: u64,
    pub(super) blocks: u64,
}

impl DemoPlan {
    pub(super) fn new(seed: u64, until: DemoEnd) -> Self {
        Self { seed, until }
    }

    pub(super) fn orders(&self) -> u64 {
        match self.until {
            DemoEnd::Messages(messages) => ORDERS.min(messages),
            DemoEnd::Signal => ORDERS,
        }
    }

    /// Returns the messages of one order in their order.
    pub(super) fn events(&self, order: u64) -> impl Iterator<Item = OrderEvent> + use<> {
        let (seed, orders) = (self.seed, self.orders());
        let count = match self.until {
            DemoEnd::Messages(messages) => messages / orders + u64::from(order < messages % orders),
            DemoEnd::Signal => u64::MAX,
        };
        (1..=count).map(move |step| OrderEvent {
            order,
            step,
            cents: mix(seed, order, step) % 10_000,
        })
    }

    /// Returns the pause between two messages of a sender.
    pub(super) fn breath(&self) -> Duration {
        Duration::from_millis(match self.until {
            DemoEnd::Messages(_) => 15,
            DemoEnd::Signal => 100,
        })
    }

    pub(super) fn extras(&self) -> ExtraMessages {
        match self.until {
            DemoEnd::Messages(_) => ExtraMessages {
                checkouts: 24,
                checkout_every: Duration::from_millis(120),
                poison: 2,
                poison_every: 8,
            },
            // Few enough dead letters to fit on a page.
            DemoEnd::Signal => ExtraMessages {
                checkouts: u64::MAX,
                checkout_every: Duration::from_millis(1_500),
                poison: 20,
                poison_every: 10,
            },
        }
    }

    /// Returns how long rows wait before they are sent as a bulk job.
    pub(super) fn linger(&self) -> &'static str {
        match self.until {
            DemoEnd::Messages(_) => "300ms",
            DemoEnd::Signal => "2s",
        }
    }

    /// Returns the light messages sent with this one: in each round, each family has one of each type.
    pub(super) fn light(&self, event: OrderEvent) -> Vec<LightMessage> {
        let round = match self.until {
            DemoEnd::Messages(messages) => ROUND.min(messages / self.orders()),
            DemoEnd::Signal => ROUND,
        };
        let (number, step) = ((event.step - 1) / round, (event.step - 1) % round);
        let family = format!("{}-{number}", event.order);
        let ids = |prefix: &str, count| -> Vec<String> {
            (1..=count).map(|n| format!("{prefix}-{family}-{n}")).collect()
        };
        let is_now = |salt| step == mix(self.seed ^ salt, event.order, number) % round;
        let mut light = Vec::new();
        if is_now(3) {
            let ids = ids("M", MEMBERS);
            let body = json!({"type": MEMBERS_CREATED, "family": family, "memberIds": ids});
            let id = format!("members-{family}");
            light.push(LightMessage { id, body: body.to_string(), contacts: MEMBERS, blocks: 0 });
        }
        if is_now(4) {
            let ids = ids("B", BLOCKS);
            let body = json!({"type": BLOCKS_TO_CREATE, "family": family, "blockIds": ids});
            let id = format!("blocks-{family}");
            light.push(LightMessage { id, body: body.to_string(), contacts: 0, blocks: BLOCKS });
        }
        light
    }

    pub(super) fn is_repeated(&self, event: OrderEvent) -> bool {
        mix(self.seed ^ 1, event.order, event.step).is_multiple_of(REPEAT_EVERY)
    }

    /// Returns a truncated body for some messages; each is different. Corrected by an operator, it is a message
    /// that the target accepts and leaves out of its sums.
    pub(super) fn garbage(&self, event: OrderEvent) -> Option<String> {
        let number = mix(self.seed ^ 2, event.order, event.step);
        let cut = || {
            let order = format!("{POISON}cut-{number}");
            format!(r#"{{"type":"{EVENT_TYPE}","order":"{order}","step":1,"cents":100"#)
        };
        number.is_multiple_of(GARBAGE_EVERY).then(cut)
    }
}

impl OrderEvent {
    pub(super) fn id(self) -> String {
        format!("order-{}-{}", self.order, self.step)
    }

    pub(super) fn body(self) -> String {
        let Self { order, step, cents } = self;
        format!(r#"{{"type":"{EVENT_TYPE}","order":"o-{order}","step":{step},"cents":{cents}}}"#)
    }
}

/// Returns three messages of one key: accepted, refused by the target, and parked behind the second.
pub(super) fn poison(number: u64) -> [(String, String); 3] {
    let message = |step: u64, cents: &str| {
        let order = format!("{POISON}{number}");
        let body =
            format!(r#"{{"type":"{EVENT_TYPE}","order":"{order}","step":{step},"cents":{cents}}}"#);
        (format!("poison-{number}-{step}"), body)
    };
    [message(1, "100"), message(2, "\"twelve\""), message(3, "300")]
}

/// Returns a message of an unknown event type.
pub(super) fn stranger() -> (String, String) {
    let body = json!({"type": "OrderArchived", "order": "archived-1"});
    ("stranger-1".to_owned(), body.to_string())
}

/// Mixes three numbers into a pseudo-random one (SplitMix64).
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
        let all = |plan: &DemoPlan| -> Vec<_> {
            (0..plan.orders()).flat_map(|order| plan.events(order)).collect()
        };
        let plan = DemoPlan::new(7, DemoEnd::Messages(2_003));
        let events = all(&plan);
        assert_eq!(events.len(), 2_003);
        assert!(events.iter().any(|event| plan.is_repeated(*event)));
        assert!(events.iter().any(|event| plan.garbage(*event).is_some()));
        for messages in [1, 41, 2_000] {
            let plan = DemoPlan::new(7, DemoEnd::Messages(messages));
            let light: usize = all(&plan).into_iter().map(|event| plan.light(event).len()).sum();
            assert!(light >= 2 * usize::try_from(plan.orders()).unwrap(), "{messages}: {light}");
        }
    }

    #[test]
    fn a_plan_without_an_end_continues_with_new_families() {
        let plan = DemoPlan::new(7, DemoEnd::Signal);
        let events = plan.events(3).take(200);
        let ids: Vec<_> =
            events.flat_map(|event| plan.light(event)).map(|light| light.id).collect();
        assert_eq!(ids.len(), 8);
        assert!(ids.iter().enumerate().all(|(index, id)| !ids[..index].contains(id)), "{ids:?}");
    }
}
