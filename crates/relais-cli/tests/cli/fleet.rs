//! Programs with different routes on one database.

use std::{collections::BTreeSet, time::Instant};

use crate::{
    PATIENCE,
    support::{Running, Site, Target, post, postgres::PostgresSchema},
};

const MESSAGES: usize = 20;

fn hook() -> String {
    "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
     source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n"
        .to_owned()
}

fn routes(types: &[&str], target: &Target) -> String {
    let routes = types.iter().map(|name| {
        format!(
            "[[route]]\non = \"{name}\"\naggregate_type = \"Order\"\ndestination = \"orders\"\n"
        )
    });
    let destination = format!(
        "[[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n",
        target.address
    );
    routes.chain([destination]).collect()
}

fn site(store: &str, parts: &[String]) -> Site {
    Site::with(&format!("[store]\nurl = \"{store}\"\n{}", parts.concat()))
}

/// Posts twenty messages of each type; five keys, each with messages of both types.
fn post_mixed(running: &Running, types: [&str; 2]) {
    for n in 0..2 * MESSAGES {
        let (event_type, key) = (types[(n / 5 + n) % 2], n % 5);
        let body = format!("{{\"type\": \"{event_type}\", \"orderId\": \"o-{key}\"}}");
        let id = format!("m-{n}");
        let (status, answer) =
            post(running.address("hook"), "/hook", &[("message-id", &id)], &body);
        assert_eq!(status, 202, "{answer}");
    }
}

fn rows(status: &serde_json::Value, name: &str) -> u64 {
    let counts = status["inbox"].as_array().unwrap();
    counts.iter().find(|count| count["name"] == name).unwrap()["rows"].as_u64().unwrap()
}

fn until(site: &Site, what: &str, reached: impl Fn(&serde_json::Value) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = site.json(&["status"]);
        if reached(&status) {
            return;
        }
        assert!(Instant::now() < end, "{what}: {status}");
    }
}

fn all_delivered(site: &Site, target: &Target) {
    let both = 2 * MESSAGES;
    until(site, "everything is handled", |status| rows(status, "PROCESSED") == both as u64);
    let seen: BTreeSet<String> = (0..both).map(|_| target.next().body).collect();
    assert!(seen.len() > 1, "{seen:?}");
    let status = site.json(&["status"]);
    assert_eq!(status["dead_letters_open"], 0, "{status}");
    assert_eq!(rows(&status, "FAILED"), 0, "{status}");
}

/// Runs a scenario on one file, and on one schema if there is a server.
fn on_both(scenario: impl Fn(&str)) {
    let folder = Site::new();
    scenario(&format!("sqlite:{}", folder.path("shared.db").display()));
    if let Some(schema) = PostgresSchema::new() {
        scenario(&schema.url);
    }
}

fn different_routes(store: &str) {
    let target = Target::start();
    let placed = site(store, &[hook(), routes(&["OrderPlaced"], &target)]);
    let paid = site(store, &[routes(&["OrderPaid"], &target)]);
    let (one, two) = (placed.run(), paid.run());
    post_mixed(&one, ["OrderPlaced", "OrderPaid"]);
    all_delivered(&placed, &target);
    one.stop();
    two.stop();
}

#[test]
fn two_programs_with_different_routes_on_one_file_make_no_dead_letters() {
    let folder = Site::new();
    different_routes(&format!("sqlite:{}", folder.path("shared.db").display()));
}

#[test]
fn two_programs_with_different_routes_on_one_schema_make_no_dead_letters() {
    let Some(schema) = PostgresSchema::new() else { return };
    different_routes(&schema.url);
}

#[test]
fn a_program_that_only_receives_leaves_the_inbox_to_the_one_with_the_routes() {
    on_both(receives_only);
}

fn receives_only(store: &str) {
    let target = Target::start();
    let receives = site(store, &[hook()]);
    let routed = site(store, &[routes(&["OrderPlaced", "OrderPaid"], &target)]);
    let (one, two) = (receives.run(), routed.run());
    post_mixed(&one, ["OrderPlaced", "OrderPaid"]);
    all_delivered(&routed, &target);
    one.stop();
    two.stop();
}

#[test]
fn a_rolling_deployment_that_adds_a_route_makes_no_dead_letters() {
    on_both(a_route_is_added);
}

fn a_route_is_added(store: &str) {
    let target = Target::start();
    let old = site(store, &[hook(), routes(&["OrderPlaced"], &target)]);
    let running_old = old.run();
    post_mixed(&running_old, ["OrderPlaced", "OrderPaid"]);
    let waiting = |status: &serde_json::Value| status["unknown_types"][0]["name"] == "OrderPaid";
    until(&old, "the new type waits", waiting);
    let said = old.relais(&["status"]);
    assert!(said.out.contains("wait for a worker that knows event type OrderPaid"), "{said:?}");
    let new = site(store, &[routes(&["OrderPlaced", "OrderPaid"], &target)]);
    let running_new = new.run();
    all_delivered(&new, &target);
    let said = running_old.stop();
    assert!(said.err.contains("no live worker knows event type `OrderPaid`"), "{said:?}");
    running_new.stop();
}

#[test]
fn programs_with_their_own_inboxes_handle_their_own_messages() {
    let Some(schema) = PostgresSchema::new() else { return };
    let (for_crm, for_billing) = (Target::start(), Target::start());
    let crm = site(&schema.url, &[hook(), routes(&["OrderPlaced"], &for_crm)]);
    let named = "[inbox]\nname = \"billing\"\n".to_owned();
    let invoices = routes(&["OrderPlaced"], &for_billing).replace("orders", "invoices");
    let billing = site(&schema.url, &[named, hook(), invoices]);
    let (one, two) = (crm.run(), billing.run());
    let send = |to: &Running, id: &str| {
        let body = "{\"type\": \"OrderPlaced\", \"orderId\": \"o-1\"}";
        assert_eq!(post(to.address("hook"), "/hook", &[("message-id", id)], body).0, 202);
    };
    for to in [&one, &two, &one, &two] {
        send(to, "m-1");
    }
    for_crm.next();
    for_billing.next();
    let status = crm.json(&["status"]);
    assert_eq!(rows(&status, "PROCESSED"), 2, "one of each inbox: {status}");
    // Without its program the inbox waits, and no other program touches it.
    send(&two, "m-2");
    for_billing.next();
    let address = two.address("hook");
    two.stop();
    assert!(std::net::TcpStream::connect(address).is_err());
    schema.execute(&format!(
        "INSERT INTO {}.relais_inbox (message_id, source_system, topic, partition_num, offset_num, \
         msg_key, event_type, payload) \
         VALUES ('m-3', 'billing::shop', '', 0, 0, 'o-1', 'OrderPlaced', '{{}}')",
        schema.name
    ));
    send(&one, "m-4");
    for_crm.next();
    let listed = crm.json(&["inbox", "list", "--status", "RECEIVED"]);
    assert_eq!(listed[0]["source_system"], "billing::shop", "{listed}");
    let again = billing.run();
    for_billing.next();
    one.stop();
    again.stop();
}
