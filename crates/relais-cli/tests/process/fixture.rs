//! A fixture whose orders are processes of a running relais, and the services they talk to, played by the
//! test: it takes each command and answers when and how it likes.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::support::{Running, Said, Site, Target, post, postgres::PostgresSchema};

/// Each scenario on each store.
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(super::fixture::OrderFixture::sqlite()); })*
        }
        mod postgres {
            $(#[test] fn $name() {
                if let Some(fixture) = super::fixture::OrderFixture::postgres() { super::$name(fixture) }
            })*
        }
    };
}

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);
/// A time-out that no test reaches.
pub(crate) const LONG: &str = "10m";

pub(crate) struct OrderFixture {
    pub(crate) site: Site,
    target: Target,
    store: String,
    running: Option<Running>,
    /// Dropped last.
    _schema: Option<PostgresSchema>,
}

/// A command as a service gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) event_type: String,
    pub(crate) message_id: String,
    pub(crate) process_id: String,
    pub(crate) payload: Value,
}

impl OrderFixture {
    pub(crate) fn sqlite() -> Self {
        Self::new("sqlite:relais.db".to_owned(), None)
    }

    pub(crate) fn postgres() -> Option<Self> {
        let schema = PostgresSchema::new()?;
        Some(Self::new(schema.url.clone(), Some(schema)))
    }

    fn new(store: String, schema: Option<PostgresSchema>) -> Self {
        let (site, target) = (Site::new(), Target::start());
        Self { site, target, store, running: None, _schema: schema }
    }

    /// Writes the settings with the time-out of each step, and starts.
    pub(crate) fn open(mut self, timeout: &str) -> Self {
        self.settle(&self.settings(timeout));
        self.start();
        self
    }

    pub(crate) fn settle(&self, settings: &str) {
        self.site.write("relais.toml", settings);
    }

    pub(crate) fn start(&mut self) {
        self.running = Some(self.site.run());
    }

    pub(crate) fn stop(&mut self) -> Said {
        self.running.take().expect("it runs").stop()
    }

    /// Reads the log in the background, for a program that logs much; see [`Running::drain`].
    pub(crate) fn drain(&self) {
        self.running.as_ref().expect("it runs").drain();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().expect("it runs").pid()
    }

    pub(crate) fn settings(&self, timeout: &str) -> String {
        let (store, address) = (&self.store, self.target.address);
        let destination = |name: &str| {
            format!(
                "[[destination]]\nname = \"{name}\"\nkind = \"http\"\nallow_private = true\n\
                 url = \"http://{address}/{name}\"\n"
            )
        };
        format!(
            "[store]\nurl = \"{store}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [inbox]\nunknown_type_wait = \"0s\"\n\
             [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
             source_system = \"shop\"\n{}{}{}",
            ORDER.replace("TIMEOUT", timeout),
            destination("payments"),
            destination("shipping"),
        )
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.running.as_ref().expect("it runs").logged("admin http://")
    }

    pub(crate) fn hook(&self) -> SocketAddr {
        self.running.as_ref().expect("it runs").address("hook")
    }

    /// Sends a message in; the status it gets in the answer.
    pub(crate) fn send(&self, id: &str, headers: &[(&str, &str)], payload: &Value) -> String {
        let headers = [&[("message-id", id)], headers].concat();
        let (status, answer) = post(self.hook(), "/hook", &headers, &payload.to_string());
        assert_eq!(status, 202, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["status"].as_str().unwrap().to_owned()
    }

    pub(crate) fn place(&self, order: &str) {
        let placed = json!({"type": "OrderPlaced", "orderId": order, "cents": 4200});
        assert_eq!(self.send(&format!("place-{order}"), &[], &placed), "stored");
    }

    /// The next command that reaches a service; waits for it.
    pub(crate) fn command(&self, event_type: &str) -> Command {
        let seen = self.target.next();
        let header = |name: &str| {
            let found = seen.head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            });
            found.unwrap_or_else(|| panic!("no {name}: {seen:?}"))
        };
        let command = Command {
            event_type: header("event-type"),
            message_id: header("message-id"),
            process_id: header("correlation-id"),
            payload: serde_json::from_str(&seen.body).unwrap(),
        };
        assert_eq!(command.event_type, event_type, "{command:?}");
        command
    }

    /// From now on the services answer each command with this status.
    pub(crate) fn refuses(&self, status: u16) {
        self.target.answers(status);
    }

    /// The same, and each answer asks for a pause of one hour.
    pub(crate) fn refuses_for_an_hour(&self, status: u16) {
        self.target.answers_with_pause(status, 3_600);
    }

    pub(crate) fn no_more_commands(&self) {
        assert_eq!(self.target.unseen(), 0, "an unexpected command");
    }

    /// Answers a command; the reply's own id is made from both.
    pub(crate) fn reply(&self, command: &Command, event_type: &str, mut payload: Value) -> String {
        payload["type"] = event_type.into();
        let id = format!("{event_type}-{}", command.message_id);
        let headers = [
            ("correlation-id", command.process_id.as_str()),
            ("causation-id", command.message_id.as_str()),
        ];
        self.send(&id, &headers, &payload)
    }

    /// The process of an order, as `relais process show` has it.
    pub(crate) fn process(&self, order: &str) -> Value {
        self.site.json(&["process", "show", &format!("order/{order}")])
    }

    /// Waits until the process is in this state.
    pub(crate) fn until(&self, order: &str, status: &str) -> Value {
        self.wait(&format!("{order} {status}"), || {
            let said = self.site.relais(&["process", "show", &format!("order/{order}"), "--json"]);
            let process: Value = serde_json::from_str(&said.out).ok()?;
            (process["status"] == status).then_some(process)
        })
    }

    /// Waits until the log of the process has this entry.
    pub(crate) fn until_logged(&self, order: &str, is: impl Fn(&Value) -> bool) -> Value {
        self.wait(&format!("an entry in the log of {order}"), || {
            let process = self.process(order);
            process["log"].as_array().unwrap().iter().any(&is).then_some(process)
        })
    }

    pub(crate) fn wait<T>(&self, what: &str, check: impl Fn() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = check() {
                return found;
            }
            if started.elapsed() > PATIENCE {
                let status = self.site.relais(&["status"]).out;
                let list = self.site.relais(&["process", "list"]).out;
                let dead = self.site.relais(&["dead-letter", "list"]).out;
                panic!("no {what} in time\n{status}\n{list}\n{dead}");
            }
        }
    }

    /// An action on the process of an order, as JSON.
    pub(crate) fn act(&self, action: &str, order: &str) -> Value {
        let process = format!("order/{order}");
        self.site.json(&["process", action, &process, "--reason", "a test", "--actor", "ann"])
    }

    pub(crate) fn dead_letters(&self) -> Vec<Value> {
        self.site.json(&["dead-letter", "list"]).as_array().unwrap().clone()
    }
}

/// The names of the events in a log, oldest first.
pub(crate) fn events(process: &Value) -> Vec<&str> {
    let log = process["log"].as_array().unwrap();
    for (index, entry) in log.iter().enumerate() {
        assert_eq!(entry["seq"], index + 1, "{process}");
    }
    assert_eq!(process["version"], log.len(), "{process}");
    log.iter().map(|entry| entry["type"].as_str().unwrap()).collect()
}

const ORDER: &str = r#"
[[process]]
type = "order"
start = "OrderPlaced"
business_key = "payload:/orderId"
[[process.step]]
name = "payment"
destination = "payments"
command = "TakePayment"
payload = '{"order": {{/input/orderId}}, "cents": {{/input/cents}}}'
completed = "PaymentTaken"
failed = "PaymentDeclined"
retryable = "PaymentBusy"
error = "payload:/why"
timeout = "TIMEOUT"
[process.step.retry]
attempts = 2
first = "10ms"
[process.step.compensation]
destination = "payments"
command = "RefundPayment"
payload = '{"payment": {{/steps/payment/id}}}'
completed = "PaymentRefunded"
failed = "RefundRefused"
retryable = "RefundBusy"
error = "payload:/why"
timeout = "10m"
[process.step.compensation.retry]
attempts = 2
first = "10ms"
[[process.step]]
name = "shipment"
destination = "shipping"
command = "Ship"
payload = '{"order": {{/input/orderId}}, "payment": {{/steps/payment/id}}}'
completed = "Shipped"
failed = "NotShippable"
error = "payload:/why"
timeout = "10m"
"#;
