//! Members as contacts, in a job of a simulated org: every contact once, no job left open here or there,
//! and the member who is not there a dead letter.

use salesforce_sim::{
    Faults,
    faults::{HttpAction, HttpFault},
};

use crate::{
    harness::{CrashHarness, Database, Fault},
    http::letters,
    org::{Org, contacts, fault, members_created},
};

const MEMBERS: usize = 4;

pub(crate) fn job(harness: &mut CrashHarness) {
    let mut faults = Faults::default();
    faults.bulk.queued_ms = 20;
    // The first upload has no answer: its job is abandoned and another one made.
    let lost = fault("PUT", "batches$", HttpAction::DropAfter);
    faults.http = vec![HttpFault { times: Some(1), ..lost }];
    let org = Org::with(faults);
    harness.base.members(MEMBERS);
    harness.settings(&format!(
        "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"ihub\"\naggregate_id = \"payload:/familyId\"\n{}",
        contacts(&org, "bulk-v2", "")
    ));
    harness.post(&[("message-id", "e-1")], members_created(1..=MEMBERS + 1, 1));
    harness.until("all are sent", |harness| harness.base.outbox("DISPATCHED") == MEMBERS);
    harness.until("one is dead", |harness| harness.base.outbox("FAILED") == 1);
    // What a lost answer left is swept.
    harness.until("no job is open", |_| org.jobs("Open") == 0);
    harness.drain();
    harness.finish();

    org.assert_once("Contact", MEMBERS);
    assert_eq!(org.jobs("InProgress") + org.jobs("UploadComplete"), 0);
    assert_eq!(letters(harness), [format!("M-{} OPEN", MEMBERS + 1)]);
}

/// Hits of `bulk.before_encode` at which the second member kills its worker: three jobs of all members, then
/// the second of the jobs of one member.
const KILLS: [usize; 4] = [1, 1, 1, 2];

/// The row that kills its worker in `encode` is a dead letter, and the only one.
pub(crate) fn killer(database: Database) {
    let faults = KILLS.map(|nth| Fault { point: "bulk.before_encode".to_owned(), nth });
    let mut harness = CrashHarness::new(database, faults);
    let org = Org::with(Faults::default());
    harness.base.members(MEMBERS);
    harness.settings(&format!(
        "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"ihub\"\naggregate_id = \"payload:/familyId\"\n{}",
        contacts(&org, "bulk-v2", "")
    ));
    harness.post(&[("message-id", "e-1")], members_created(1..=MEMBERS, 1));
    harness.until("three workers are lost", |harness| harness.crashes == 3);
    let held = "SELECT aggregate_id FROM relais_outbox WHERE error_code = 'QUARANTINED'";
    harness.until("all are held", |harness| harness.base.texts(held).len() == MEMBERS);
    let attempts = "SELECT aggregate_id FROM relais_outbox WHERE attempts > 0";
    assert!(harness.base.texts(attempts).is_empty(), "losses use no attempts");
    // The lanes of the lost worker are taken over by now or soon; that must not acquit its rows.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(harness.base.texts(held).len(), MEMBERS);
    harness.base.execute(
        "UPDATE relais_outbox SET next_attempt_at = '2000-01-01T00:00:00.000Z' \
         WHERE error_code = 'QUARANTINED'; \
         UPDATE relais_waiting SET due_at = '2000-01-01T00:00:00.000Z' WHERE due_at IS NOT NULL",
    );
    harness.until("all others are sent", |harness| {
        harness.base.outbox("DISPATCHED") == MEMBERS - 1 && harness.base.outbox("FAILED") == 1
    });
    harness.drain();
    harness.finish();
    assert_eq!(harness.crashes, KILLS.len());
    org.assert_once("Contact", MEMBERS - 1);
    let dead = "SELECT error_code || ' ' || attempts FROM relais_outbox WHERE status = 'FAILED'";
    assert_eq!(harness.base.texts(dead), ["WORKER_LOST 0"]);
}
