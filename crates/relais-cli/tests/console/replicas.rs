//! Three replicas on one PostgreSQL: a limit that is changed at one of them, or on the command line, is in force at
//! all of them, and each of them shows the sum of their figures.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{OSKAR, TOKENS, VERA, grid::facts, rows, sign_in};
use crate::{
    browser::Browser,
    client::Client,
    support::{Running, Site, Target, assert_said, post, postgres::PostgresSchema},
};

const REPLICAS: usize = 3;
/// Messages of a test, each of a key of its own: each replica owns the lanes of some of them.
const MESSAGES: usize = 64;
/// Time limit of a condition, and the pause between two checks.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

struct Replicas {
    target: Target,
    site: Site,
    running: Vec<Running>,
    /// Dropped last.
    _schema: PostgresSchema,
}

impl Replicas {
    /// Starts the replicas, and waits until each of them owns lanes of the destination.
    fn start() -> Option<Self> {
        let schema = PostgresSchema::new()?;
        let target = Target::start();
        let site = Site::with(&format!(
            "[store]\nurl = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
             source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n\
             [[route]]\non = \"OrderPlaced\"\ndestination = \"orders\"\n\
             [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
             url = \"http://{}/in\"\n{TOKENS}",
            schema.url, target.address
        ));
        let running = (0..REPLICAS).map(|_| site.run()).collect();
        let replicas = Self { target, site, running, _schema: schema };
        replicas.until_each("all own lanes", |overview| {
            let all = overview["workers"].as_array().unwrap();
            let of_orders = all.iter().filter(|row| row["scope"] == "outbox:orders");
            let owners = of_orders.filter(|row| row["lanes"].as_u64() >= Some(64 / 4)).count();
            owners == REPLICAS
        });
        Some(replicas)
    }

    fn admin(&self, replica: usize) -> std::net::SocketAddr {
        self.running[replica].logged("admin http://")
    }

    /// The API of one replica, with the token of an operator.
    fn api(&self, replica: usize) -> Client {
        Client::at(self.admin(replica)).with("authorization", &format!("Bearer {OSKAR}"))
    }

    /// Waits until the overview of each replica is so.
    fn until_each(&self, what: &str, is: impl Fn(&Value) -> bool) {
        for replica in 0..REPLICAS {
            let api = self.api(replica);
            let started = Instant::now();
            loop {
                let answer = api.get("/overview");
                // No answer before the rows were counted for the first time.
                if answer.status == 200 && is(&answer.ok()) {
                    break;
                }
                assert!(started.elapsed() < PATIENCE, "replica {replica}: {what}: {answer:?}");
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Waits until these limits are in force at each replica.
    fn until_limited(&self, rate: &Value, concurrency: u32) {
        self.until_each(&format!("{rate}, {concurrency} calls"), |overview| {
            // What is in force is not summed: each replica reports its own.
            let orders = &overview["destinations"]["orders"];
            orders.get("rate").unwrap_or(&Value::Null) == rate
                && orders["concurrency"] == concurrency
        });
    }

    /// Posts an order to one replica.
    fn place(&self, replica: usize, number: usize) {
        let order = format!("o-{number}");
        let body = json!({"type": "OrderPlaced", "orderId": order}).to_string();
        let hook = self.running[replica].address("hook");
        let (status, answer) = post(hook, "/hook", &[("message-id", &order)], &body);
        assert_eq!(status, 202, "{answer}");
    }

    /// Waits until the target has got exactly this number of further messages, and the others wait.
    fn until_delivered(&self, more: usize, waiting: usize) {
        for _ in 0..more {
            self.target.next();
        }
        self.until_each(&format!("{waiting} rows wait"), |overview| {
            count(&overview["inbox"], "PROCESSED") == MESSAGES as u64
                && count(&overview["outbox"], "PENDING") == waiting as u64
        });
        assert_eq!(self.target.unseen(), 0, "a replica exceeds its limit");
    }
}

fn count(counts: &Value, name: &str) -> u64 {
    let mut counts = counts.as_array().unwrap().iter();
    counts.find(|count| count["name"] == name).unwrap()["rows"].as_u64().unwrap()
}

#[test]
fn a_rate_changed_by_command_line_api_or_console_is_in_force_at_all_replicas() {
    let Some(replicas) = Replicas::start() else { return };
    let Some(browser) = Browser::open(replicas.admin(2)) else { return };
    replicas.until_limited(&Value::Null, 10);
    let limit = |more: &[&str]| {
        let args = ["destination", "limit", "orders", "--reason", "a test"];
        assert_said(&replicas.site.relais(&[&args[..], more].concat()), 0, &["orders is"]);
    };
    limit(&["--rate", "1/h"]);
    replicas.until_limited(&json!("1/h"), 10);
    for number in 0..MESSAGES {
        replicas.place(number % REPLICAS, number);
    }
    // Within the hour each replica delivers one.
    let mut left = MESSAGES - REPLICAS;
    replicas.until_delivered(REPLICAS, left);

    let body = json!({"rate": "2/h", "concurrency": 3, "reason": "a test"});
    let answer = replicas.api(1).post("/destinations/orders/limit", &body).ok();
    assert_eq!(answer["result"], "done");
    replicas.until_limited(&json!("2/h"), 3);
    left -= 2 * REPLICAS;
    replicas.until_delivered(2 * REPLICAS, left);

    sign_in(&browser, OSKAR);
    browser.go("#/destinations/orders");
    browser.press("Change limits");
    browser.fill("Rate", "3/h");
    browser.fill("Concurrency", "5");
    browser.decide("Change limits");
    replicas.until_limited(&json!("3/h"), 5);
    left -= 3 * REPLICAS;
    replicas.until_delivered(3 * REPLICAS, left);

    limit(&["--reset"]);
    replicas.until_limited(&Value::Null, 10);
    replicas.until_delivered(left, 0);
}

#[test]
fn each_replica_shows_the_figures_of_all_together() {
    let Some(replicas) = Replicas::start() else { return };
    // Each receives another number of messages.
    for number in 0..MESSAGES {
        replicas.place(if number < 10 { 0 } else { 1 + number % 2 }, number);
    }
    replicas.until_delivered(MESSAGES, 0);
    let all = MESSAGES as u64;
    replicas.until_each("the sums", |overview| {
        let (hook, orders) = (&overview["sources"][0], &overview["destinations"]["orders"]);
        assert_eq!(hook["name"], "hook", "{overview:#}");
        hook["stored"] == all && orders["dispatched"] == all && orders["lanes"] == 64
    });
    replicas.until_each("the replicas", |overview| {
        let all = overview["instances"].as_array().unwrap();
        all.iter().filter(|one| one["alive"] == true).count() == REPLICAS
    });
    for replica in 0..REPLICAS {
        let Some(browser) = Browser::open(replicas.admin(replica)) else { return };
        sign_in(&browser, VERA);
        browser.sees(&["3 processes"]);
        for (page, panel, name) in [
            ("#/sources/hook", "Figures", "Received since start"),
            ("#/destinations/orders", "", "Delivered since start"),
        ] {
            browser.go(page);
            browser.until(name, || {
                let shown = facts(&browser).get(panel)?.get(name)?.clone();
                (shown == all.to_string()).then_some(())
            });
        }
        browser.go("#/workers");
        browser
            .until("a line for each replica", || (rows(&browser) == REPLICAS as u64).then_some(()));
        for one in &replicas.running {
            assert!(browser.text().contains(&format!("· {}", one.pid())), "{}", browser.text());
        }
    }
}

#[test]
fn a_pause_is_obeyed_by_all_replicas_also_after_a_restart() {
    let Some(mut replicas) = Replicas::start() else { return };
    let reason = json!({"reason": "a test"});
    let answer = replicas.api(1).post("/destinations/orders/pause", &reason).ok();
    assert_eq!(answer["result"], "done");
    let applied = |overview: &Value| overview["destinations"]["orders"]["paused"] == true;
    // The figure is true once each process applies the pause.
    replicas.until_each("the pause in force", applied);
    let restarted = replicas.running.remove(0);
    assert_eq!(restarted.stop().code, 0);
    replicas.running.push(replicas.site.run());
    for number in 0..MESSAGES {
        replicas.place(number % REPLICAS, number);
    }
    replicas.until_delivered(0, MESSAGES);
    replicas.until_each("the pause in force after a restart", applied);
    replicas.api(0).post("/destinations/orders/resume", &reason).ok();
    replicas.until_delivered(MESSAGES, 0);

    let pause = ["source", "pause", "hook", "--reason", "a test"];
    assert_said(&replicas.site.relais(&pause), 0, &["is paused"]);
    for replica in 0..REPLICAS {
        let started = Instant::now();
        loop {
            let hook = replicas.running[replica].address("hook");
            let body = r#"{"type": "OrderPlaced", "orderId": "late"}"#;
            let (status, answer) = post(hook, "/hook", &[("message-id", "late")], body);
            if status == 503 && answer.contains("PAUSED") {
                break;
            }
            // Before it has read of the pause, it receives.
            assert!(status == 202 && started.elapsed() < PATIENCE, "{status}: {answer}");
            std::thread::sleep(PAUSE);
        }
    }
}
