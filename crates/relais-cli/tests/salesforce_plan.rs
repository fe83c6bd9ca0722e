//! The test plan of the specification, point by point: Kafka → inbox → route → outbox → bulk jobs of
//! a simulated org.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Each of these files uses its part of them.
#[allow(dead_code)]
#[path = "support/broker.rs"]
mod broker;
#[allow(dead_code)]
#[path = "support/org.rs"]
mod org;
#[allow(dead_code)]
mod support;

use std::net::TcpListener;

use broker::{Broker, Topic};
use org::{Base, Org, contacts, members_created, until};
use salesforce_sim::{
    Faults,
    faults::{HttpAction, HttpFault, Pattern, RowFault},
};
use support::Site;

/// One relais between a topic and an org.
struct Bed<'a> {
    site: Site,
    base: Base,
    org: Org,
    topic: Topic<'a>,
}

impl<'a> Bed<'a> {
    /// On each database there is, with this many members.
    fn all(broker: &'a Broker, members: usize, faults: &Faults) -> Vec<Self> {
        let bed = |(site, base): (Site, Base)| {
            base.members(members);
            let bed =
                Bed { site, base, org: Org::with(faults.clone()), topic: broker.topic("sf", 1) };
            bed.site.write("relais.toml", &bed.settings(&broker.address));
            bed
        };
        Base::all(&Site::new).into_iter().map(bed).collect()
    }

    fn settings(&self, brokers: &str) -> String {
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        format!(
            "[store]\nurl = \"{}\"\n[lanes]\nlease = \"2s\"\n[admin]\nlisten = \"{listen}\"\n\
             [[source]]\nname = \"members\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             group = \"{topic}\"\ntopics = [\"{topic}\"]\nsource_system = \"ihub\"\n\
             message_id = \"header:message-id\"\naggregate_id = \"payload:/familyId\"\n{}",
            self.base.url(),
            contacts(&self.org, "bulk-v2", ""),
            topic = self.topic.name,
        )
    }

    fn send(&self, id: &str, body: &str) {
        self.topic.send("F-8842", &[("message-id", id)], Some(body.as_bytes()));
    }

    /// Returns the number of inbox rows in this state.
    fn inbox(&self, status: &str) -> usize {
        let sql = format!("SELECT message_id FROM relais_inbox WHERE status = '{status}'");
        self.base.texts(&sql).len()
    }

    /// Returns true if no record is left to read.
    fn is_committed(&self) -> bool {
        self.topic.committed(&self.topic.name) == self.topic.ends()
    }
}

#[test]
fn point_1_a_value_that_cannot_be_decoded_is_kept_and_its_offset_committed() {
    let Some(broker) = Broker::from_environment() else { return };
    for bed in Bed::all(&broker, 3, &Faults::default()) {
        let running = bed.site.run();
        let garbage = "{\"type\":\"MembersCreated\",\"memberIds\":[\"M-1\"";
        bed.send("bad", garbage);
        bed.send("good", &members_created(1..=3, 1));
        until(|| bed.base.outbox("DISPATCHED") == 3);
        until(|| bed.is_committed());
        assert_eq!(running.stop().code, 0);
        assert_eq!((bed.inbox("SERDE_ERROR"), bed.inbox("PROCESSED")), (1, 1));
        let kept = "SELECT raw_payload_base64 FROM relais_inbox WHERE status = 'SERDE_ERROR' \
                    AND error_stage = 'CONSUMER_SERDE'";
        let kept = bed.base.texts(kept);
        assert!(kept.len() == 1 && !kept[0].is_empty(), "{kept:?}");
        bed.org.assert_once("Contact", 3);
    }
}

#[test]
fn point_2_a_duplicate_delivery_has_one_effect() {
    let Some(broker) = Broker::from_environment() else { return };
    for bed in Bed::all(&broker, 10, &Faults::default()) {
        let event = members_created(1..=10, 1);
        bed.send("m-1", &event);
        bed.send("m-1", &event);
        let running = bed.site.run();
        bed.send("m-1", &event);
        until(|| bed.base.outbox("DISPATCHED") == 10);
        bed.send("m-1", &event);
        until(|| bed.is_committed());
        assert_eq!(running.stop().code, 0);
        assert_eq!((bed.inbox("PROCESSED"), bed.inbox("RECEIVED")), (1, 0));
        bed.org.assert_once("Contact", 10);
        assert_eq!(bed.org.ledger().writes(), 10);
    }
}

#[test]
fn point_3_out_of_order_events_are_ignored_by_their_version() {
    let Some(broker) = Broker::from_environment() else { return };
    for bed in Bed::all(&broker, 4, &Faults::default()) {
        bed.base.execute("UPDATE members SET version = 3");
        let running = bed.site.run();
        bed.send("v-3", &members_created(1..=4, 3));
        bed.send("v-2", &members_created(1..=4, 2));
        until(|| bed.inbox("PROCESSED") == 2 && bed.base.outbox("DISPATCHED") == 4);
        assert_eq!(running.stop().code, 0);
        assert_eq!(bed.base.texts("SELECT event_type FROM relais_outbox").len(), 4);
        bed.org.assert_once("Contact", 4);
        let ledger = bed.org.ledger();
        for entry in ledger.entries() {
            assert_eq!((entry.writes, entry.versions.get("3")), (1, Some(&1)), "{entry:?}");
        }
    }
}

#[test]
fn point_4_of_a_bulk_job_that_is_partly_ok_only_failed_rows_are_tried_again() {
    let Some(broker) = Broker::from_environment() else { return };
    let rows = vec![RowFault {
        key: Pattern::new("^M-[34]$").unwrap(),
        code: "UNABLE_TO_LOCK_ROW".into(),
        message: "unable to obtain exclusive access to this record".into(),
        ..RowFault::default()
    }];
    for bed in Bed::all(&broker, 10, &Faults { rows, ..Faults::default() }) {
        let running = bed.site.run();
        bed.send("m-1", &members_created(1..=10, 1));
        let failed = "SELECT aggregate_id FROM relais_outbox WHERE status = 'PENDING' \
                      AND error_code = 'UNABLE_TO_LOCK_ROW' ORDER BY aggregate_id";
        until(|| bed.base.texts(failed) == ["M-3", "M-4"]);
        assert_eq!(bed.base.outbox("DISPATCHED"), 8);
        assert_eq!(bed.org.ledger().len(), 8);
        bed.org.set_faults(Faults::default());
        until(|| bed.base.outbox("DISPATCHED") == 10);
        assert_eq!(running.stop().code, 0);
        bed.org.assert_once("Contact", 10);
        let tried =
            "SELECT aggregate_id FROM relais_outbox WHERE attempts > 1 ORDER BY aggregate_id";
        assert_eq!(bed.base.texts(tried), ["M-3", "M-4"]);
    }
}

#[test]
fn point_5_throttling_opens_the_breaker_and_exhausts_no_attempts() {
    let Some(broker) = Broker::from_environment() else { return };
    for action in [HttpAction::Throttled, HttpAction::Unavailable, HttpAction::ConcurrentLimit] {
        let path = Pattern::new("services/data").unwrap();
        let fault = HttpFault { path, action, retry_after: Some(600), ..HttpFault::default() };
        let faults = Faults { http: vec![fault], ..Faults::default() };
        for bed in Bed::all(&broker, 5, &faults) {
            let running = bed.site.run();
            bed.send("m-1", &members_created(1..=5, 1));
            let guards = || bed.site.json(&["status"])["destinations"][0]["guards"].clone();
            until(|| guards()["breaker"] == "open");
            let calls = bed.org.calls();
            // The pause the org asked for is longer than all of this; too many calls at once are
            // answered without one.
            if action != HttpAction::ConcurrentLimit {
                for _ in 0..5 {
                    assert_eq!(guards()["breaker"], "open");
                }
                assert_eq!(bed.org.calls(), calls, "no call while the breaker is open");
            }
            let spared =
                "SELECT status FROM relais_outbox WHERE status = 'PENDING' AND attempts = 0";
            assert_eq!(bed.base.texts(spared).len(), 5);
            assert_eq!(running.stop().code, 0);
            bed.org.set_faults(Faults::default());
            let running = bed.site.run();
            until(|| bed.base.outbox("DISPATCHED") == 5);
            assert_eq!(running.stop().code, 0);
            bed.org.assert_once("Contact", 5);
        }
    }
}
