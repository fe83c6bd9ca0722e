//! Keys of the configuration whose effect is seen from the outside.

use serde_json::Value;

use super::{
    PATIENCE,
    support::{Running, Site, Target, post, postgres::PostgresSchema},
};

fn settings(store: &str, target: &Target, more: &str) -> String {
    format!(
        "[store]\nurl = \"{store}\"\npoll = \"1s\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n\
         [[route]]\non = \"OrderPlaced\"\ndestination = \"orders\"\n\
         event_version = \"payload:/version\"\nheaders = [\"user\"]\n\
         [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n{more}",
        target.address
    )
}

/// Runs a check with a file of SQLite, and with a schema of PostgreSQL if there is a server.
fn on_both_databases(check: impl Fn(&str)) {
    check("sqlite:relais.db");
    if let Some(schema) = PostgresSchema::new() {
        check(&schema.url);
    }
}

fn place(running: &Running, id: &str) {
    let headers = [("message-id", id), ("user", "ann"), ("desk", "7")];
    let body = r#"{"type":"OrderPlaced","orderId":"o-1","version":2}"#;
    let (status, answer) = post(running.address("hook"), "/hook", &headers, body);
    assert_eq!(status, 202, "{answer}");
}

/// Waits until the only outbox row has this state, and returns it.
fn outbox_row(site: &Site, status: &str) -> Value {
    let started = std::time::Instant::now();
    loop {
        let rows = site.json(&["outbox", "list"]);
        if rows[0]["status"] == status {
            return rows[0].clone();
        }
        assert!(started.elapsed() < PATIENCE, "not {status}: {rows}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_route_passes_on_the_version_of_the_event_and_the_headers_that_it_names() {
    on_both_databases(|store| {
        let target = Target::start();
        let site = Site::with(&settings(store, &target, ""));
        let running = site.run();
        place(&running, "m-1");
        let head = target.next().head.to_lowercase();
        assert!(head.contains("user: ann") && !head.contains("desk"), "{head}");
        let row = outbox_row(&site, "DISPATCHED");
        assert_eq!(
            (row["event_version"].as_i64(), &row["headers"]["user"]),
            (Some(2), &"ann".into())
        );
        running.stop();
    });
}

#[test]
fn a_destination_without_dead_letters_sends_a_refused_message_until_it_is_accepted() {
    on_both_databases(|store| {
        let target = Target::start();
        target.answers(400);
        let more = "on_dead_letter = \"retry\"\n\
                    [destination.retry]\nattempts = 2\nfirst = \"10ms\"\nmax = \"20ms\"\n";
        let site = Site::with(&settings(store, &target, more));
        let running = site.run();
        place(&running, "m-1");
        // More calls than attempts.
        (0..4).for_each(|_| drop(target.next()));
        assert_eq!(site.json(&["dead-letter", "list"]), serde_json::json!([]));
        assert_eq!(outbox_row(&site, "PENDING")["error_code"], "HTTP_400");
        target.answers(200);
        outbox_row(&site, "DISPATCHED");
        running.stop();
    });
}

#[test]
fn rows_of_another_program_are_delivered_with_a_long_pause_between_polls() {
    let insert = "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
                  VALUES ('Order', 'o-1', 'OrderPaid', 'orders', '[1]')";
    let delivers = |store: &str, insert: &dyn Fn(&Site)| {
        let target = Target::start();
        let site = Site::with(&settings(store, &target, ""));
        let running = site.run();
        running.address("hook");
        insert(&site);
        assert_eq!(target.next().body, "[1]");
        running.stop();
    };
    delivers("sqlite:relais.db", &|site| {
        rusqlite::Connection::open(site.path("relais.db")).unwrap().execute(insert, []).unwrap();
    });
    if let Some(schema) = PostgresSchema::new() {
        delivers(&schema.url, &|_| drop(schema.texts(insert)));
    }
}
