//! The program on PostgreSQL as each of the roles that `relais migrate --roles` makes.

use serde_json::json;

use crate::{
    PATIENCE, calls, settings,
    support::{Site, Target, assert_said, postgres::PostgresSchema},
};

const ROLES: [&str; 4] = ["owner", "runtime", "producer", "reader"];
/// The statement of a service in docs/outbox-from-any-language.md.
const SEND: &str = "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, \
                    payload) VALUES ('Order', '42', 'OrderCreated', 'orders', '{\"orderId\":\"42\"}')";

/// A schema with roles, which are dropped afterwards.
struct Cast {
    schema: PostgresSchema,
}

impl Cast {
    fn new() -> Option<Self> {
        let cast = Self { schema: PostgresSchema::new()? };
        cast.grant();
        for role in ROLES {
            let name = format!("{}_{role}", cast.schema.name);
            cast.schema.execute(&format!("ALTER ROLE {name} LOGIN PASSWORD 'relais'"));
        }
        Some(cast)
    }

    /// Runs what the program prints for that.
    fn grant(&self) {
        let name = &self.schema.name;
        let said = Site::new().relais(&["migrate", "--roles", name, "--schema", name]);
        assert_eq!(said.code, 0, "{said:?}");
        self.schema.execute(&said.out);
    }

    fn url(&self, role: &str) -> String {
        let (start, place) = self.schema.url.split_once('@').expect("a URL with a user");
        let start = start.split_once("://").expect("a URL").0;
        format!("{start}://{}_{role}:relais@{place}", self.schema.name)
    }

    /// The program with that role's settings.
    fn site(&self, role: &str, target: &Target) -> Site {
        Site::with(&settings(target).replace("sqlite:relais.db", &self.url(role)))
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        let roles = ROLES.map(|role| format!("{}_{role}", self.schema.name)).join(", ");
        self.schema.execute(&format!("DROP OWNED BY {roles} CASCADE; DROP ROLE {roles}"));
    }
}

#[test]
fn the_owner_makes_the_tables_and_runtime_does_the_work() {
    let Some(cast) = Cast::new() else { return };
    let target = Target::start();
    let (owner, runtime) = (cast.site("owner", &target), cast.site("runtime", &target));
    let advice = "run `relais migrate` as the role that owns relais's tables";
    for command in ["run", "migrate", "check"] {
        assert_said(&runtime.relais(&[command]), 1, &[advice]);
    }
    assert_eq!(
        owner.json(&["migrate"])["applied"],
        json!([
            "relais",
            "worker_lease",
            "adopt",
            "lean_outbox",
            "sql_interface",
            "business_keys",
            "adopted_inbox",
            "other_programs"
        ])
    );
    let schema = &cast.schema.name;
    let needs = format!("GRANT SELECT, INSERT ON {schema}.relais_audit TO {schema}_runtime");
    assert_said(&runtime.relais(&["check"]), 1, &[&needs]);
    assert_said(&runtime.relais(&["run"]), 1, &["relais migrate --roles"]);
    cast.grant();
    assert_eq!(runtime.relais(&["check"]).code, 0);

    // With leave to migrate, where there is nothing to do; and without.
    for migrate in ["", "migrate = false\n"] {
        let text = std::fs::read_to_string(runtime.path("relais.toml")).unwrap();
        let text = text.replacen("[admin]", &format!("{migrate}[admin]"), 1);
        runtime.write("relais.toml", &text);
        let running = runtime.run();
        send(&cast);
        assert_eq!(target.next().body, "{\"orderId\":\"42\"}");
        running.stop();
    }
    assert_eq!(runtime.json(&["migrate"])["applied"], json!([]));
}

/// Writes as the producer, whose role allows only this.
fn send(cast: &Cast) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = cast.url("producer");
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(SEND).await.unwrap();
        client.batch_execute("DELETE FROM relais_outbox").await.unwrap_err();
    });
}

#[test]
fn a_reader_role_sees_everything_and_its_actions_are_refused() {
    let Some(cast) = Cast::new() else { return };
    let target = Target::start();
    assert_eq!(cast.site("owner", &target).relais(&["migrate"]).code, 0);
    cast.grant();
    let runtime = cast.site("runtime", &target);
    target.answers(400);
    let running = runtime.run();
    send(&cast);
    let body = r#"{"type":"CheckoutStarted","orderId":"o-2"}"#;
    crate::post(running.address("hook"), "/hook", &[("message-id", "m-1")], body);
    let started = std::time::Instant::now();
    while runtime.json(&["dead-letter", "list"]).as_array().unwrap().len() < 2 {
        assert!(started.elapsed() < PATIENCE, "no dead letters");
    }
    running.stop();

    let reader = cast.site("reader", &target);
    let letters = reader.json(&["dead-letter", "list"]);
    let id = letters[0]["id"].as_str().unwrap();
    let looks = ["status", "top", "list", "show", "log", "explain", "keys", "diagram"];
    let mut looked = 0;
    for (command, args) in calls(id) {
        let words: Vec<&str> = command.split(' ').chain(args).collect();
        if looks.contains(command.split(' ').next_back().as_ref().unwrap()) {
            looked += 1;
            let said = reader.relais(&words);
            assert_eq!(said.code, 0, "{words:?}: {said:?}");
        }
    }
    assert!(looked >= 12, "{looked}");
    let shown = reader.relais(&["outbox", "show", "outbox:1"]);
    assert!(shown.out.contains("orderId"), "payloads are readable: {shown:?}");

    for act in [
        &["dead-letter", "replay", id, "--yes"][..],
        &["process", "pause", "checkout/o-2", "--reason", "look"],
        &["run"],
    ] {
        let said = reader.relais(act);
        assert_eq!(said.code, 1, "{act:?}: {said:?}");
        let text = format!("{}{}", said.out, said.err);
        assert!(
            text.contains("permission denied") || text.contains("lacks privileges"),
            "{said:?}"
        );
    }
    assert_eq!(runtime.json(&["dead-letter", "list"]), letters, "nothing was decided");
}
