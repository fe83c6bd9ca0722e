//! Members as contacts, in a job of a simulated org: every contact once, no job left open here or there,
//! and the member who is not there a dead letter.

use salesforce_sim::Faults;

use crate::{
    http::letters,
    org::{Org, contacts, members_created},
    stage::Stage,
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
