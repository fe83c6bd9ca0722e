//! Members as contacts, in a job of a simulated org: every contact once, no job left open here or there,
//! and the member who is not there a dead letter.

use salesforce_sim::Faults;

use crate::{
    http::letters,
    org::{Org, contacts, members_created},
    stage::{Database, Fault, Stage},
};

const MEMBERS: usize = 4;

pub(crate) fn job(stage: &mut Stage) {
    let mut faults = Faults::default();
    faults.bulk.queued_ms = 20;
    let org = Org::with(faults);
    stage.base.members(MEMBERS);
    stage.settings(&format!(
        "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"ihub\"\naggregate_id = \"payload:/familyId\"\n{}",
        contacts(&org, "bulk-v2", "")
    ));
    stage.post(&[("message-id", "e-1")], members_created(1..=MEMBERS + 1, 1));
    stage.until("all are sent", |stage| stage.base.outbox("DISPATCHED") == MEMBERS);
    stage.until("one is dead", |stage| stage.base.outbox("FAILED") == 1);
    // What a lost answer left is swept.
    stage.until("no job is open", |_| org.jobs("Open") == 0);
    stage.drain();
    stage.finish();

    org.assert_once("Contact", MEMBERS);
    assert_eq!(org.jobs("InProgress") + org.jobs("UploadComplete"), 0);
    assert_eq!(letters(stage), [format!("M-{} OPEN", MEMBERS + 1)]);
}

/// Hits of `bulk.before_encode` at which the second member kills its worker: three jobs of all members, then
/// the second of the jobs of one member.
const KILLS: [usize; 4] = [1, 1, 1, 2];

/// The row that kills its worker in `encode` is a dead letter, and the only one.
pub(crate) fn killer(database: Database) {
    let faults = KILLS.map(|nth| Fault { point: "bulk.before_encode".to_owned(), nth });
    let mut stage = Stage::new(database, faults);
    let org = Org::with(Faults::default());
    stage.base.members(MEMBERS);
    stage.settings(&format!(
        "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"ihub\"\naggregate_id = \"payload:/familyId\"\n{}",
        contacts(&org, "bulk-v2", "")
    ));
    stage.post(&[("message-id", "e-1")], members_created(1..=MEMBERS, 1));
    stage.until("three workers are lost", |stage| stage.crashes == 3);
    let held = "SELECT aggregate_id FROM relais_outbox WHERE error_code = 'QUARANTINED'";
    stage.until("all are held", |stage| stage.base.texts(held).len() == MEMBERS);
    let attempts = "SELECT aggregate_id FROM relais_outbox WHERE attempts > 0";
    assert!(stage.base.texts(attempts).is_empty(), "losses use no attempts");
    // The lanes of the lost worker are taken over by now or soon; that must not acquit its rows.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(stage.base.texts(held).len(), MEMBERS);
    stage.base.execute(
        "UPDATE relais_outbox SET next_attempt_at = '2000-01-01T00:00:00.000Z' \
         WHERE error_code = 'QUARANTINED'",
    );
    stage.until("all others are sent", |stage| {
        stage.base.outbox("DISPATCHED") == MEMBERS - 1 && stage.base.outbox("FAILED") == 1
    });
    stage.drain();
    stage.finish();
    assert_eq!(stage.crashes, KILLS.len());
    org.assert_once("Contact", MEMBERS - 1);
    let dead = "SELECT error_code || ' ' || attempts FROM relais_outbox WHERE status = 'FAILED'";
    assert_eq!(stage.base.texts(dead), ["WORKER_LOST 0"]);
}
