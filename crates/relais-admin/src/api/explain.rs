//! The history of a message, a process or a dead letter.

use axum::extract::State;
use relais::explain::{ExplainOutcome, Explanation};

use super::{Answer, run};
use crate::{Admin, input::PathParams, problem::ApiProblem};

pub(crate) async fn explain(
    State(admin): State<Admin>,
    PathParams(id): PathParams<String>,
) -> Answer<Explanation> {
    run(async move {
        match relais::explain::explain(admin.store.as_ref(), &id).await? {
            ExplainOutcome::One(explanation) => Ok(*explanation),
            ExplainOutcome::Nothing => Err(ApiProblem::not_found(format_args!(
                "no message, process or dead letter has the id `{id}`; it may have been removed by \
                 retention"
            ))),
            ExplainOutcome::Ambiguous(things) => {
                let names: Vec<String> =
                    things.iter().map(|thing| thing.name.to_string()).collect();
                let names = names.join(", ");
                let detail = match things.len() {
                    1 => format!(
                        "nothing has the id `{id}`; one message id begins with it; use {names}"
                    ),
                    _ => format!("several items have the id `{id}`; use one of {names}"),
                };
                Err(ApiProblem::conflict("AMBIGUOUS", detail))
            }
        }
    })
    .await
}
