//! What the senders will send, all from one seed: events, repeats, garbage, and what nobody can take.

use std::time::Duration;

use serde_json::json;

/// The event type of every message about an order.
pub(super) const EVENT_TYPE: &str = "OrderChanged";
/// Orders whose key begins so are about poison; the target's sums leave them out.
pub(super) const POISON: &str = "p-";
/// The event types of light messages: ids, and nothing else.
const MEMBERS_CREATED: &str = "MembersCreated";
const BLOCKS_TO_CREATE: &str = "BlocksToCreate";
/// Each order has a family in each round, with so many members and blocks.
const MEMBERS: u64 = 8;
const BLOCKS: u64 = 12;
/// How many orders the messages are about.
const ORDERS: u64 = 40;
/// Messages of an order in one round.
const ROUND: u64 = 50;
/// One message in this many is sent twice.
const REPEAT_EVERY: u64 = 10;
/// One garbage body comes along with this many messages.
const GARBAGE_EVERY: u64 = 40;

/// How long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// So many messages about orders.
    Messages(u64),
    /// Somebody has seen enough.
    Told,
}

/// What there is beside the orders, so that there is something for people to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extras {
    /// Checkouts begun, and the pause between two.
    pub(super) checkouts: u64,
    pub(super) checkout_every: Duration,
    /// Orders whose second message the target refuses. A new one comes with so many checkouts.
    pub(super) poison: u64,
    pub(super) poison_every: u64,
}

pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) until: Until,
}

/// One message about one order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) order: u64,
    /// 1, 2, 3 … within its order.
    pub(super) step: u64,
    pub(super) cents: u64,
}

/// One message that becomes many records.
pub(super) struct Light {
    pub(super) id: String,
    pub(super) body: String,
    pub(super) contacts: u64,
    pub(super) blocks: u64,
}

impl Plan {
    pub(super) fn new(seed: u64, until: Until) -> Self {
        Self { seed, until }
    }

    pub(super) fn orders(&self) -> u64 {
        match self.until {
            Until::Messages(messages) => ORDERS.min(messages),
            Until::Told => ORDERS,
        }
    }

    /// The messages of one order, in the order they must take effect.
    pub(super) fn events(&self, order: u64) -> impl Iterator<Item = Event> + use<> {
        let (seed, orders) = (self.seed, self.orders());
        let count = match self.until {
            Until::Messages(messages) => messages / orders + u64::from(order < messages % orders),
            Until::Told => u64::MAX,
        };
        (1..=count).map(move |step| Event { order, step, cents: mix(seed, order, step) % 10_000 })
    }

    /// A breath between two messages of a sender, so that a person can watch.
    pub(super) fn breath(&self) -> Duration {
        Duration::from_millis(match self.until {
            Until::Messages(_) => 15,
            Until::Told => 100,
        })
    }

    pub(super) fn extras(&self) -> Extras {
        match self.until {
            Until::Messages(_) => Extras {
                checkouts: 24,
                checkout_every: Duration::from_millis(120),
                poison: 2,
                poison_every: 8,
            },
            // Few enough of what waits for people to fit on a page.
            Until::Told => Extras {
                checkouts: u64::MAX,
                checkout_every: Duration::from_millis(1_500),
                poison: 20,
                poison_every: 10,
            },
        }
    }

    /// How long rows wait for others before they go as a bulk job.
    pub(super) fn linger(&self) -> &'static str {
        match self.until {
            Until::Messages(_) => "300ms",
            Until::Told => "2s",
        }
    }

    /// The light messages that go along with this one: in each round, each family has one of each type.
    pub(super) fn light(&self, event: Event) -> Vec<Light> {
        let round = match self.until {
            Until::Messages(messages) => ROUND.min(messages / self.orders()),
            Until::Told => ROUND,
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
            light.push(Light { id, body: body.to_string(), contacts: MEMBERS, blocks: 0 });
        }
        if is_now(4) {
            let ids = ids("B", BLOCKS);
            let body = json!({"type": BLOCKS_TO_CREATE, "family": family, "blockIds": ids});
            let id = format!("blocks-{family}");
            light.push(Light { id, body: body.to_string(), contacts: 0, blocks: BLOCKS });
        }
        light
    }

    pub(super) fn is_repeated(&self, event: Event) -> bool {
        mix(self.seed ^ 1, event.order, event.step).is_multiple_of(REPEAT_EVERY)
    }

    /// A body whose end is missing, for some messages; each is different. Mended by hand it is a message
    /// the target takes, and leaves out of its sums.
    pub(super) fn garbage(&self, event: Event) -> Option<String> {
        let number = mix(self.seed ^ 2, event.order, event.step);
        let cut = || {
            let order = format!("{POISON}cut-{number}");
            format!(r#"{{"type":"{EVENT_TYPE}","order":"{order}","step":1,"cents":100"#)
        };
        number.is_multiple_of(GARBAGE_EVERY).then(cut)
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

/// Three messages of one key: well, refused by the target, and one that must wait behind it.
pub(super) fn poison(number: u64) -> [(String, String); 3] {
    let message = |step: u64, cents: &str| {
        let order = format!("{POISON}{number}");
        let body =
            format!(r#"{{"type":"{EVENT_TYPE}","order":"{order}","step":{step},"cents":{cents}}}"#);
        (format!("poison-{number}-{step}"), body)
    };
    [message(1, "100"), message(2, "\"twelve\""), message(3, "300")]
}

/// A message of a type that nothing is declared for.
pub(super) fn stranger() -> (String, String) {
    let body = json!({"type": "OrderArchived", "order": "archived-1"});
    ("stranger-1".to_owned(), body.to_string())
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
        let all = |plan: &Plan| -> Vec<_> {
            (0..plan.orders()).flat_map(|order| plan.events(order)).collect()
        };
        let plan = Plan::new(7, Until::Messages(2_003));
        let events = all(&plan);
        assert_eq!(events.len(), 2_003);
        assert!(events.iter().any(|event| plan.is_repeated(*event)));
        assert!(events.iter().any(|event| plan.garbage(*event).is_some()));
        for messages in [1, 41, 2_000] {
            let plan = Plan::new(7, Until::Messages(messages));
            let light: usize = all(&plan).into_iter().map(|event| plan.light(event).len()).sum();
            assert!(light >= 2 * usize::try_from(plan.orders()).unwrap(), "{messages}: {light}");
        }
    }

    #[test]
    fn a_plan_without_an_end_goes_on_with_new_families() {
        let plan = Plan::new(7, Until::Told);
        let events = plan.events(3).take(200);
        let ids: Vec<_> =
            events.flat_map(|event| plan.light(event)).map(|light| light.id).collect();
        assert_eq!(ids.len(), 8);
        assert!(ids.iter().enumerate().all(|(index, id)| !ids[..index].contains(id)), "{ids:?}");
    }
}
