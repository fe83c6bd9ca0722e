//! Messages with several records: one graph per message, all of its records or none.
//!
//! Invariant: a message is accepted only if its whole graph was. Two messages about the same record
//! are never in one call, where they could block each other.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt,
    ops::Range,
    sync::Arc,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use relais_core::{
    InvalidSettings, async_trait,
    delivery::Delivery,
    hydrate::Hydrator,
    json,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::{
    batch_split::{BatchCall, send_split},
    budget::ApiCallBudget,
    classify::{Class, Judge, SalesforceFailure},
    client::{ApiCall, SalesforceClient},
    external_id,
    settings::{SalesforceSettings, is_name},
};

/// Limits: graphs per call, records per call and per graph, objects per graph.
const GRAPHS_MAX: usize = 75;
const NODES_MAX: usize = 500;
const OBJECTS_MAX: usize = 15;
/// The first API version with graphs.
const OLDEST: u32 = 50;

/// Upserts the records of each message through Composite Graph.
///
/// The payload is a list of records, or an object with a list in `records`. A record has the format
/// of Collections, with its external id among its fields:
///
/// ```json
/// [
///   {"attributes": {"type": "Account"}, "ExternalId__c": "A-1", "Name": "Doe"},
///   {"attributes": {"type": "Contact"}, "ExternalId__c": "M-1", "LastName": "Doe",
///    "Account": {"ExternalId__c": "A-1"}}
/// ]
/// ```
///
/// `attributes` may also have `externalId`, the field to upsert by if it is not that of the
/// destination, and `referenceId`, by which other records of the message refer to it (`"AccountId":
/// "@{ref.id}"`).
pub struct SalesforceGraph {
    client: SalesforceClient,
    external_id: String,
}

impl SalesforceGraph {
    /// Validates the settings, without connecting. The error says which setting to change.
    pub fn new(
        settings: SalesforceSettings,
        hydrator: Option<Arc<dyn Hydrator>>,
    ) -> Result<Self, InvalidSettings> {
        settings.check(OLDEST)?;
        if hydrator.is_some() || !settings.columns.is_empty() || settings.superseded.is_some() {
            return Err(InvalidSettings::new(
                "the api `graph` takes whole records from the payload; leave out `hydrate`, \
                 `columns` and `superseded`",
            ));
        }
        Ok(Self { client: SalesforceClient::new(&settings)?, external_id: settings.external_id })
    }

    /// Returns the budget of the org's daily calls.
    pub fn budget(&self) -> &ApiCallBudget {
        self.client.budget()
    }
}

#[derive(Serialize)]
struct GraphRequest<'a> {
    graphs: &'a [MessageGraph<'a>],
}

/// One message.
#[derive(Serialize)]
struct MessageGraph<'a> {
    #[serde(skip)]
    index: usize,
    #[serde(rename = "graphId")]
    id: String,
    #[serde(rename = "compositeRequest")]
    nodes: Vec<GraphNode<'a>>,
}

/// One record.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GraphNode<'a> {
    method: &'static str,
    /// Also identifies the record.
    url: String,
    reference_id: String,
    body: BTreeMap<Cow<'a, str>, &'a RawValue>,
    #[serde(skip)]
    object: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    r#type: String,
    external_id: Option<String>,
    reference_id: Option<String>,
}

fn graph<'a>(
    row: &'a OutboxRow,
    index: usize,
    base: &str,
    external_id: &str,
) -> Result<MessageGraph<'a>, String> {
    let list = if row.payload.trim_start().starts_with('[') { "" } else { "/records" };
    let records = json::pointer(&row.payload, list).and_then(json::items);
    let records =
        records.ok_or("the payload is not a list of records and has none in `records`")?;
    if records.is_empty() || records.len() > NODES_MAX {
        return Err(format!("the payload must have 1 to {NODES_MAX} records"));
    }
    let mut nodes = Vec::with_capacity(records.len());
    for (number, record) in records.into_iter().enumerate() {
        let node = node(record, number, base, external_id);
        nodes.push(node.map_err(|why| format!("record {number}: {why}"))?);
    }
    let objects: HashSet<&str> = nodes.iter().map(|node| node.object.as_str()).collect();
    if objects.len() > OBJECTS_MAX {
        return Err(format!("the payload has records of more than {OBJECTS_MAX} objects"));
    }
    let names: HashSet<&str> = nodes.iter().map(|node| node.reference_id.as_str()).collect();
    if names.len() < nodes.len() {
        return Err("two records have the same `referenceId`".to_owned());
    }
    Ok(MessageGraph { index, id: row.message_id.simple().to_string(), nodes })
}

fn node<'a>(
    record: &'a str,
    number: usize,
    base: &str,
    external_id: &str,
) -> Result<GraphNode<'a>, String> {
    let mut body: BTreeMap<Cow<'a, str>, &'a RawValue> =
        serde_json::from_str(record).map_err(|_| "is not a JSON object")?;
    let attributes = body.remove("attributes").ok_or("has no `attributes`")?;
    let attributes: Attributes = serde_json::from_str(attributes.get())
        .map_err(|e| format!("cannot read its `attributes`: {e}"))?;
    let field = attributes.external_id.as_deref().unwrap_or(external_id);
    if !is_name(&attributes.r#type) || !is_name(field) {
        return Err("its `type` or `externalId` is not an API name".to_owned());
    }
    let id = body.remove(field).and_then(|raw| json::text(raw.get()));
    let id = id.ok_or_else(|| format!("has no {field}"))?;
    external_id::check(&id)?;
    if id.contains('/') {
        return Err(format!(
            "the external id {id:?} contains a `/`, which a graph does not support"
        ));
    }
    let reference_id = attributes.reference_id.unwrap_or_else(|| format!("n{number}"));
    let is_reference = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if reference_id.starts_with('_') || !reference_id.bytes().all(is_reference) {
        return Err("its `referenceId` may have letters, digits and `_` only".to_owned());
    }
    let encoded = utf8_percent_encode(&id, NON_ALPHANUMERIC);
    let url = format!("{base}sobjects/{}/{field}/{encoded}", attributes.r#type);
    Ok(GraphNode { method: "PATCH", url, reference_id, body, object: attributes.r#type })
}

/// Splits into parts within the limits of a call, without a repeated record.
fn split(graphs: &[MessageGraph<'_>]) -> Vec<Range<usize>> {
    let (mut parts, mut start, mut nodes) = (Vec::new(), 0, 0);
    let mut records: HashSet<String> = HashSet::new();
    for (at, graph) in graphs.iter().enumerate() {
        let touched: HashSet<String> =
            graph.nodes.iter().map(|node| node.url.to_ascii_lowercase()).collect();
        let is_full = at - start >= GRAPHS_MAX || nodes + graph.nodes.len() > NODES_MAX;
        if at > start && (is_full || !records.is_disjoint(&touched)) {
            parts.push(start..at);
            (start, nodes) = (at, 0);
            records.clear();
        }
        nodes += graph.nodes.len();
        records.extend(touched);
    }
    if start < graphs.len() {
        parts.push(start..graphs.len());
    }
    parts
}

#[derive(Deserialize)]
struct GraphResult {
    #[serde(rename = "graphId")]
    id: String,
    #[serde(rename = "isSuccessful")]
    success: bool,
    #[serde(rename = "graphResponse")]
    response: Option<NodeResults>,
}

#[derive(Deserialize)]
struct NodeResults {
    #[serde(rename = "compositeResponse", default)]
    nodes: Vec<NodeResult>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeResult {
    #[serde(default)]
    body: Value,
    http_status_code: u16,
}

impl GraphResult {
    /// Returns the delivery of the failed record; `Held` if no record was tried.
    fn delivery(&self, judge: &Judge) -> Delivery {
        if self.success {
            return Delivery::Accepted;
        }
        let nodes = self.response.as_ref().map_or(&[][..], |response| &response.nodes);
        let mut blamed: Vec<Delivery> = nodes
            .iter()
            .filter_map(|node| node.delivery(judge))
            .filter(|delivery| *delivery != Delivery::Held)
            .collect();
        // A record that can never succeed decides, whatever else failed.
        let worst = blamed.iter().position(|d| matches!(d, Delivery::Reject { .. })).unwrap_or(0);
        if blamed.is_empty() { Delivery::Held } else { blamed.swap_remove(worst) }
    }
}

impl NodeResult {
    fn delivery(&self, judge: &Judge) -> Option<Delivery> {
        if (200..300).contains(&self.http_status_code) {
            return None;
        }
        if self.http_status_code == 300 {
            let why = "several records of the org have this external id";
            return Some(judge.row("DUPLICATE_EXTERNAL_ID", why));
        }
        let first = self.body.get(0).unwrap_or(&self.body);
        let text = |name: &str| first.get(name).and_then(Value::as_str);
        let code = text("errorCode").or(text("statusCode")).unwrap_or("UNKNOWN_EXCEPTION");
        Some(judge.row(code, text("message").unwrap_or_default()))
    }
}

#[async_trait]
impl<'g> BatchCall<MessageGraph<'g>> for SalesforceGraph {
    async fn call(&self, part: &[MessageGraph<'g>]) -> Result<Vec<Delivery>, SalesforceFailure> {
        #[derive(Deserialize)]
        struct GraphResponse {
            graphs: Vec<GraphResult>,
        }
        let body = serde_json::to_string(&GraphRequest { graphs: part }).map_err(|e| {
            SalesforceFailure::new(Class::Permanent, "PAYLOAD_INVALID", &e.to_string())
        })?;
        let answer: GraphResponse =
            self.client.ask(ApiCall::rows(Method::POST, "composite/graph", body)).await?;
        let of = |graph: &MessageGraph<'_>| {
            let result = answer.graphs.iter().find(|result| result.id == graph.id);
            result.map_or_else(
                || Delivery::retry("RESULT_MISSING", "the response does not contain this message"),
                |result| result.delivery(&self.client.judge),
            )
        };
        Ok(part.iter().map(of).collect())
    }
}

#[async_trait]
impl Publisher for SalesforceGraph {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let mut answers = vec![Delivery::Held; messages.len()];
        let mut graphs = Vec::with_capacity(messages.len());
        for (index, row) in messages.iter().enumerate() {
            match graph(row, index, self.client.base(), &self.external_id) {
                Ok(graph) => graphs.push(graph),
                Err(why) => answers[index] = Delivery::reject("PAYLOAD_INVALID", &why),
            }
        }
        let sent = send_split(&graphs, split(&graphs), self).await;
        for (graph, delivery) in graphs.iter().zip(sent) {
            answers[graph.index] = delivery;
        }
        answers
    }

    fn batching(&self) -> Batching {
        Batching::Distinct { max: GRAPHS_MAX }
    }
}

impl fmt::Debug for SalesforceGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SalesforceGraph").field(&self.client.origin()).finish()
    }
}

#[cfg(test)]
mod tests;
