//! Composite Graph: graphs of calls, each applied completely or not at all.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{
    ROLLED_BACK, halted,
    reference::{check_ids, names},
    sub::{self, SubResponse, Subrequest},
};
use crate::{
    data::{parse_some, version::Version},
    http::call::{HttpCall, segments},
    org::OrgState,
    reply::ApiReply,
};

const GRAPHS_MAX: usize = 75;
const NODES_MAX: usize = 500;
const DEPTH_MAX: usize = 15;
const KINDS_MAX: usize = 15;
/// After this many failed graphs the rest is not tried.
const FAILED_MAX: usize = 14;

#[derive(Deserialize)]
struct GraphBody {
    graphs: Vec<CallGraph>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallGraph {
    graph_id: String,
    composite_request: Vec<Subrequest>,
}

pub(crate) fn graph(
    org: &mut OrgState,
    call: &HttpCall,
    version: Version,
    body: &[u8],
) -> ApiReply {
    if version < Version::GRAPH {
        return ApiReply::not_found();
    }
    if call.method != hyper::Method::POST {
        return ApiReply::method_not_allowed("POST");
    }
    let body: Result<GraphBody, ApiReply> = parse_some(body).and_then(|json| {
        serde_json::from_value(json).map_err(|error| ApiReply::bad_json(&error.to_string()))
    });
    let graphs = match body {
        Ok(body) => body.graphs,
        Err(reply) => return reply,
    };
    if let Err(why) = check(&graphs) {
        return ApiReply::error(400, "INVALID_INPUT", &why);
    }
    let mut failed = 0;
    let mut answers = Vec::new();
    for graph in &graphs {
        let (is_successful, calls) =
            if failed > FAILED_MAX { (false, untried(graph)) } else { attempt(org, graph) };
        failed += usize::from(!is_successful);
        let calls: Vec<Json> = calls.iter().map(SubResponse::to_json).collect();
        answers.push(json!({
            "graphId": graph.graph_id,
            "graphResponse": {"compositeResponse": calls},
            "isSuccessful": is_successful,
        }));
    }
    ApiReply::json(200, json!({"graphs": answers}))
}

fn attempt(org: &mut OrgState, graph: &CallGraph) -> (bool, Vec<SubResponse>) {
    let unknown = org.faults.faults().collections.unknown_field;
    let (mut transaction, ledger) = org.begin();
    let answers = sub::run_all(&mut transaction, &graph.composite_request, unknown);
    if answers.iter().all(SubResponse::is_success) {
        transaction.commit(ledger);
        (true, answers)
    } else {
        drop(transaction);
        (false, halted(answers))
    }
}

fn untried(graph: &CallGraph) -> Vec<SubResponse> {
    let ids = graph.composite_request.iter().map(|call| call.reference_id.clone());
    ids.map(|id| SubResponse::halted(id, ROLLED_BACK)).collect()
}

fn check(graphs: &[CallGraph]) -> Result<(), String> {
    if graphs.len() > GRAPHS_MAX {
        return Err(format!("a call has at most {GRAPHS_MAX} graphs"));
    }
    let nodes: usize = graphs.iter().map(|graph| graph.composite_request.len()).sum();
    if nodes > NODES_MAX {
        return Err(format!("a call has at most {NODES_MAX} nodes"));
    }
    check_ids(graphs.iter().map(|graph| graph.graph_id.as_str())).map_err(str::to_owned)?;
    graphs.iter().try_for_each(check_one)
}

fn check_one(graph: &CallGraph) -> Result<(), String> {
    let calls = &graph.composite_request;
    check_ids(calls.iter().map(|call| call.reference_id.as_str())).map_err(str::to_owned)?;
    let mut kinds = HashSet::new();
    let mut depths: HashMap<&str, usize> = HashMap::new();
    for call in calls {
        let path = call.url.split('?').next().unwrap_or_default();
        let parts = segments(path);
        let is_row = parts.len() >= 5 && parts.len() <= 7 && parts[3] == "sobjects";
        if !is_row || !path.starts_with("/services/data/") {
            return Err(format!("a graph has calls to /sobjects/ only, not to {path}"));
        }
        kinds.insert((parts[2].clone(), parts[4].to_ascii_lowercase()));
        let body = call.body.as_ref().map(Json::to_string).unwrap_or_default();
        let parents = names(&call.url).into_iter().chain(names(&body));
        let depth = 1 + parents.filter_map(|name| depths.get(name)).max().copied().unwrap_or(0);
        depths.insert(&call.reference_id, depth);
    }
    if kinds.len() > KINDS_MAX {
        return Err(format!("a graph has at most {KINDS_MAX} different nodes"));
    }
    if depths.values().any(|depth| *depth > DEPTH_MAX) {
        return Err(format!("a graph is at most {DEPTH_MAX} deep"));
    }
    Ok(())
}
