//! Explanations of bulk jobs.

use uuid::Uuid;

use super::{
    explain::{lines, roles, story},
    support::Bench,
};
use crate::explain::{ExplainOutcome, ThingRole, explain};

#[tokio::test]
async fn a_bulk_job_is_part_of_the_explanation() {
    let bench = Bench::new().await;
    bench.enqueue(&[("k", "a")]).await;
    let job = Uuid::now_v7();
    bench.sql(&format!(
        "INSERT INTO relais_bulk_job (id, destination, remote_id, phase, row_count, finished_at)
         VALUES ('{job}', 'd', '750x', 'RECONCILED', 1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
         UPDATE relais_outbox SET job_id = '{job}', status = 'DISPATCHED',
                dispatched_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now');"
    ));
    let explained = story(&bench, "outbox:1").await;
    let about_job = |line: &&String| line.starts_with("job:");
    let all = lines(&explained);
    let job_lines: Vec<_> = all.iter().filter(about_job).collect();
    assert_eq!(job_lines, [&format!("job:{job} job_planned"), &format!("job:{job} job_ended")]);
    assert!(explained.events.iter().any(|event| event.what.to_string().contains("remote id 750x")));
    assert_eq!(explained.things[1].status, "RECONCILED");
}

#[tokio::test]
async fn a_bulk_job_is_explained_by_its_id_its_first_digits_and_its_remote_id() {
    let bench = Bench::new().await;
    for (digit, remote) in [(4, "750x"), (5, "750y")] {
        bench.sql(&format!(
            "INSERT INTO relais_bulk_job (id, destination, remote_id, phase, row_count, finished_at)
             VALUES ('0192f3c{digit}-5a6b-7c8d-9e0f-112233445566', 'd', '{remote}', 'RECONCILED', 7,
                     strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));"
        ));
    }
    let name = "job:0192f3c4-5a6b-7c8d-9e0f-112233445566";
    for written in [name, &name[4..], "0192f3c4", "job:0192f3c4", "750x"] {
        let explained = story(&bench, written).await;
        assert_eq!(explained.subject.to_string(), name, "{written}");
        assert_eq!(roles(&explained), [(name.to_owned(), ThingRole::Subject)]);
        assert_eq!(explained.things[0].place.as_deref(), Some("d"));
    }
    let several = explain(bench.store.as_ref(), "0192f3").await.unwrap();
    assert!(matches!(&several, ExplainOutcome::Ambiguous(two) if two.len() == 2), "{several:?}");
    assert_eq!(explain(bench.store.as_ref(), "job:750").await.unwrap(), ExplainOutcome::Nothing);
}
