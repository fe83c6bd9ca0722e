//! Checks a broker before the first message: whether it accepts the login, and whether the address can
//! be used. A broker that creates addresses on demand creates it.

use super::{
    AmqpConnection, RoutingTemplate,
    classify::AmqpFailure,
    connection::AmqpOpenError,
    links::SendingConnection,
    peer::AmqpPeer,
    receiving::{LinkPlan, ReceivingLink},
};
use crate::ProbeError;

impl AmqpConnection {
    /// Attaches a link without credit to the address of a source. The error says what to change.
    pub async fn probe_source(
        &self,
        address: &str,
        capability: Option<&str>,
    ) -> Result<String, ProbeError> {
        let plan = LinkPlan {
            address: address.to_owned(),
            capability: capability.map(str::to_owned),
            session_idle: None,
        };
        let peer = self.peer().map_err(String::from)?;
        Ok(probe_source(&peer, &plan).await?)
    }

    /// Attaches a link to the address of a destination. Only a fixed address can be asked for. The
    /// error says what to change.
    pub async fn probe_destination(
        &self,
        address: &RoutingTemplate,
        capability: Option<&str>,
    ) -> Result<String, ProbeError> {
        let fixed = address.is_fixed().then(|| address.to_string());
        let peer = self.peer().map_err(String::from)?;
        Ok(probe_destination(&peer, fixed.as_deref(), capability).await?)
    }
}

pub(crate) async fn probe_source(peer: &AmqpPeer, plan: &LinkPlan) -> Result<String, String> {
    let link = ReceivingLink::open(peer, "check", plan).await;
    link.map_err(|failure| text(peer, &failure))?.close().await;
    Ok(format!("{peer} lets us read `{}`", plan.address))
}

pub(crate) async fn probe_destination(
    peer: &AmqpPeer,
    address: Option<&str>,
    capability: Option<&str>,
) -> Result<String, String> {
    let open = SendingConnection::open(peer, "check", capability.map(str::to_owned)).await;
    let unreachable = |error: AmqpOpenError| text(peer, &AmqpFailure::of_open(&error));
    let connection = open.map_err(unreachable)?;
    let attached = match address {
        Some(address) => {
            connection.link(address).await.map(|_| format!("lets us write to `{address}`"))
        }
        None => Ok("accepts the login".to_owned()),
    };
    connection.close().await;
    attached.map(|found| format!("{peer} {found}")).map_err(|failure| text(peer, &failure))
}

fn text(peer: &AmqpPeer, failure: &AmqpFailure) -> String {
    format!("{peer}: {}", failure.problem.message)
}
