//! What became of a message, a process or a dead letter, and where it came from.

use axum::extract::State;
use relais::explain::{ExplainOutcome, Explanation};

use super::{Answer, run};
use crate::{Admin, input::Named, problem::Problem};

pub(crate) async fn explain(
    State(admin): State<Admin>,
    Named(id): Named<String>,
) -> Answer<Explanation> {
    run(async move {
        match relais::explain::explain(admin.store.as_ref(), &id).await? {
            ExplainOutcome::One(explanation) => Ok(*explanation),
            ExplainOutcome::Nothing => Err(Problem::not_found(format_args!(
                "nothing here has the id `{id}`; it may be cleaned up, or never have come"
            ))),
            ExplainOutcome::Ambiguous(things) => {
                let names: Vec<String> =
                    things.iter().map(|thing| thing.name.to_string()).collect();
                let names = names.join(", ");
                let detail = format!("several things have the id `{id}`; ask for one of {names}");
                Err(Problem::conflict("AMBIGUOUS", detail))
            }
        }
    })
    .await
}
