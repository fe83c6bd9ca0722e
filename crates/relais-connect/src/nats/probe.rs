//! Checks a server before the first message: whether it accepts the login, and whether the stream, the
//! consumer or the subject exists. Nothing is created.

use super::{
    NatsConnection, RoutingTemplate, api, classify::NatsFailure, connection::OpenNatsConnection,
    source::NatsSourceSettings,
};
use crate::ProbeError;

/// Messages of a subscription; a check has none.
const CAPACITY: usize = 16;

impl NatsConnection {
    /// Asks the server for the stream and the consumer of a source. The error says what to change.
    pub async fn probe_source(&self, settings: &NatsSourceSettings) -> Result<String, ProbeError> {
        let connection = self.reach().await?;
        let plan = settings.plan();
        let failed = |failure: NatsFailure| format!("{}: {}", self.url, failure.problem.message);
        let stream = plan.stream_info(&connection).await.map_err(failed)?;
        let found = format!("{} has stream `{}`", self.url, plan.stream);
        match plan.info(&connection).await {
            Ok(info) => match info.config.unusable() {
                None => {
                    let waiting = info.num_pending;
                    Ok(format!(
                        "{found} and consumer `{}` with {waiting} new messages",
                        plan.consumer
                    ))
                }
                Some(why) => {
                    let consumer = &plan.consumer;
                    Err(format!("{found}; cannot use consumer `{consumer}`: {why}").into())
                }
            },
            Err(failure) if failure.is_unknown_consumer() => Ok(format!(
                "{found} with {} messages; consumer `{}` is created at the start",
                stream.state.messages, plan.consumer
            )),
            Err(failure) => Err(failed(failure).into()),
        }
    }

    /// Asks the server for the stream of a destination's subject. Only a fixed subject can be asked
    /// for. The error says what to change.
    pub async fn probe_destination(&self, subject: &RoutingTemplate) -> Result<String, ProbeError> {
        let connection = self.reach().await?;
        if !subject.is_fixed() {
            return Ok(format!("{} accepts the login", self.url));
        }
        let subject = subject.to_string();
        match api::streams_of(&connection, &subject).await {
            Ok(streams) => match streams.first() {
                Some(stream) => {
                    Ok(format!("{} has stream `{stream}` for subject `{subject}`", self.url))
                }
                None => {
                    let url = &self.url;
                    Err(format!("{url}: no stream has the subject `{subject}`; add it to one")
                        .into())
                }
            },
            Err(failure) => Err(format!("{}: {}", self.url, failure.problem.message).into()),
        }
    }

    async fn reach(&self) -> Result<OpenNatsConnection, String> {
        self.open("check", CAPACITY).await.map_err(|error| {
            let failure = NatsFailure::of_open(&error);
            format!("cannot connect to {}: {}", self.url, failure.problem.message)
        })
    }
}
