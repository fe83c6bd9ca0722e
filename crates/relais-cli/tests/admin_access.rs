//! Access to the HTTP server: tokens, roles, sessions, and the responses to refused requests.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "admin/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "admin/controls.rs"]
mod controls;
#[path = "admin/live.rs"]
mod live;
#[allow(dead_code)]
mod support;

use client::{Answer, Client};
use serde_json::{Value, json};
use support::{Running, Site, post};

/// A relais with tokens, and the tokens by their names.
struct Guarded {
    site: Site,
    running: Running,
    tokens: Vec<(&'static str, String)>,
}

const SETTINGS: &str = "[store]\nurl = \"sqlite:relais.db\"\n\
    [inbox]\nunknown_type_wait = \"0s\"\n\
    [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\nsource_system = \"shop\"\n\
    [[route]]\non = \"Order\"\ndestination = \"out\"\n\
    [[destination]]\nname = \"out\"\nkind = \"log\"\npath = \"out.jsonl\"\n\
    [admin]\nlisten = \"127.0.0.1:0\"\n";

impl Guarded {
    fn start() -> Self {
        Self::with(SETTINGS)
    }

    /// With this configuration, which ends with `[admin]`.
    fn with(settings: &str) -> Self {
        let site = Site::new();
        let mut settings = format!("{settings}token = \"the-shared-one\"\n");
        let mut tokens = vec![("admin", "the-shared-one".to_owned())];
        for (name, role) in
            [("mona", "monitor"), ("vic", "viewer"), ("olga", "operator"), ("ada", "admin")]
        {
            let said = site.relais(&["token", name, "--role", role]);
            let (token, block) = said.out.split_once("\n\n").unwrap();
            settings.push_str(block);
            tokens.push((name, token.to_owned()));
        }
        let expires = |day| site.relais(&["token", "expired", "--role", "admin", "--expires", day]);
        assert_eq!(expires("2020-01-31").code, 2);
        let expired = expires("2999-01-31");
        let (token, block) = expired.out.split_once("\n\n").unwrap();
        settings.push_str(&block.replace("2999", "2020"));
        tokens.push(("expired", token.to_owned()));
        site.write("relais.toml", &settings);
        let running = site.run();
        Self { site, running, tokens }
    }

    fn without_token(&self) -> Client {
        Client::at(self.running.logged("admin http://"))
    }

    fn token(&self, name: &str) -> &str {
        &self.tokens.iter().find(|(of, _)| *of == name).unwrap().1
    }

    fn with_token(&self, name: &str) -> Client {
        self.without_token().with("authorization", &format!("Bearer {}", self.token(name)))
    }

    /// Logs in, as the console does.
    fn session(&self, name: &str) -> Client {
        let answer = self.log_in(self.token(name));
        assert_eq!(answer.status, 200, "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
        self.without_token().with("cookie", cookie.split(';').next().unwrap())
    }

    fn log_in(&self, token: &str) -> Answer {
        self.without_token().post_page("/login", &json!({ "token": token }))
    }
}

fn reason() -> Value {
    json!({ "reason": "a test" })
}

#[test]
fn every_route_has_a_role_and_each_role_has_its_permissions() {
    let guarded = Guarded::start();
    let described = guarded.with_token("vic").page("/api/openapi.json").ok();
    let ranks = ["monitor", "viewer", "operator", "admin"];
    let rank = |role: &Value| ranks.iter().position(|one| role == one).unwrap();
    let mut seen = 0;
    for (path, operations) in described["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let needs = rank(&operation["x-role"]);
            let looks = if path.ends_with("/payload") { 1 } else { 0 };
            assert_eq!(method == "get", needs == looks, "a GET changes nothing: {method} {path}");
            seen += 1;
            if path.ends_with("/live") {
                continue;
            }
            let path = path
                .replace("{id}", "9999")
                .replace("{row}", "9999")
                .replace("{uuid}", "01890a5d-ac96-774b-bcce-b302099a8057")
                .replace("{process}", "order%2Fnobody")
                .replace("{action}", "pause");
            let ask = |client: &Client| match method.as_str() {
                "get" => client.page(&path),
                _ => client.post_page(&path, &reason()),
            };
            assert_eq!(ask(&guarded.without_token()).status, 401, "{method} {path}");
            assert_eq!(ask(&guarded.with_token("expired")).status, 401, "{method} {path}");
            for (has, name) in ["mona", "vic", "olga", "ada"].into_iter().enumerate() {
                let answer = ask(&guarded.with_token(name));
                if has < needs {
                    answer.problem(403, "ROLE");
                } else {
                    let status = answer.status;
                    assert!(![401, 403, 405, 500].contains(&status), "{name} {path}: {answer:?}");
                }
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn a_monitor_sees_everything_but_payloads_and_headers() {
    let guarded = Guarded::start();
    let hook = guarded.running.address("hook");
    let sent = [("message-id", "m-1"), ("x-note", "CANARY")];
    assert_eq!(post(hook, "/hook", &sent, r#"{"type":"Order","id":"CANARY"}"#).0, 202);
    let (viewer, monitor) = (guarded.with_token("vic"), guarded.with_token("mona"));
    let row = wait_for(|| viewer.get("/outbox").ok()["items"][0]["id"].as_i64());
    for path in ["/inbox", "/inbox/m-1", "/outbox", &format!("/outbox/{row}"), "/explain/m-1"] {
        let shown = viewer.get(path).ok();
        let hidden = monitor.get(path).ok();
        assert!(!hidden.to_string().contains("CANARY"), "{path}: {hidden}");
        assert_eq!(shown["id"], hidden["id"], "{path}");
    }
    let whole = viewer.get(&format!("/outbox/{row}")).ok();
    assert!(whole.to_string().contains("CANARY"), "a viewer sees it: {whole}");
    monitor.get(&format!("/outbox/{row}/payload")).problem(403, "ROLE");
    monitor.get("/inbox/m-1/payload").problem(403, "ROLE");
    assert_eq!(monitor.page("/metrics").status, 200);
    assert_eq!(monitor.get("/session").ok()["role"], "monitor");
}

/// A process whose start, command and reply hold the marker.
const PROCESS: &str = "[[process]]\ntype = \"order\"\nstart = \"Placed\"\nbusiness_key = \"payload:/orderId\"\n\
    [[process.step]]\nname = \"payment\"\ndestination = \"out\"\ncommand = \"TakePayment\"\n\
    payload = '{\"note\": {{/input/note}}}'\ncompleted = \"PaymentTaken\"\nfailed = \"PaymentDeclined\"\n\
    error = \"payload:/why\"\ntimeout = \"10m\"\n\
    [[process.step]]\nname = \"shipment\"\ndestination = \"out\"\ncommand = \"Ship\"\n\
    payload = '{\"note\": {{/steps/payment/note}}}'\ncompleted = \"Shipped\"\nfailed = \"NotShippable\"\n\
    error = \"payload:/why\"\ntimeout = \"10m\"\n";

#[test]
fn no_page_shows_a_monitor_what_a_message_or_a_process_holds() {
    let guarded = Guarded::with(&SETTINGS.replace("[admin]", &format!("{PROCESS}[admin]")));
    let hook = guarded.running.address("hook");
    let send = |id: &str, headers: &[(&str, &str)], body: &str| {
        let headers = [&[("message-id", id), ("x-note", "CANARY")], headers].concat();
        assert_eq!(post(hook, "/hook", &headers, body).0, 202, "{id}");
    };
    send("m-1", &[], r#"{"type":"Order","note":"CANARY"}"#);
    send("m-2", &[], r#"{"type":"Unheard","note":"CANARY"}"#);
    send("m-3", &[], r#"{"note":"CANARY"#);
    send("m-4", &[], r#"{"type":"Placed","orderId":"o-1","note":"CANARY"}"#);
    let (viewer, monitor) = (guarded.with_token("vic"), guarded.with_token("mona"));
    let first = |path: &str, id: &str| {
        let found = wait_for(|| {
            Some(viewer.get(path).ok()["items"][0][id].clone()).filter(|id| !id.is_null())
        });
        found.as_str().map_or_else(|| found.to_string(), str::to_owned)
    };
    let command = first("/outbox?type=TakePayment", "message_id");
    let process = first("/processes", "process_id");
    let cause = [("correlation-id", process.as_str()), ("causation-id", command.as_str())];
    send("m-5", &cause, r#"{"type":"PaymentTaken","note":"CANARY"}"#);
    let sent = first("/outbox?type=Ship", "id");
    let letter = first("/dead-letters?type=Unheard", "id");
    let undecodable = first("/serde-errors", "id");

    let described = viewer.page("/api/openapi.json").ok();
    let mut found = Vec::new();
    for (path, operations) in described["paths"].as_object().unwrap() {
        // A stream never ends; it repeats the overview.
        if operations.get("get").is_none() || path.ends_with("/live") {
            continue;
        }
        let ids: &[&str] = match path {
            path if path.contains("/inbox/") => &["m-1", "m-2", "m-3", "m-4", "m-5"],
            path if path.contains("/outbox/") => &[&sent, &command],
            path if path.contains("/destinations/") => &["out"],
            path if path.contains("/sources/") => &["hook"],
            _ => &["m-1", "m-2", "m-3", "m-4", "order%2Fo-1"],
        };
        for id in ids {
            let path = path
                .replace("{id}", id)
                .replace("{name}", id)
                .replace("{row}", &undecodable)
                .replace("{uuid}", &letter)
                .replace("{process}", "order%2Fo-1");
            assert!(!path.contains('{'), "{path}");
            let shown = viewer.page(&path);
            assert_eq!(shown.status, 200, "{shown:?}");
            let hidden = monitor.page(&path);
            assert!(!hidden.body.contains("CANARY"), "{path}: {}", hidden.body);
            assert!(!hidden.body.contains("Q0FOQVJZ"), "{path} in Base64: {}", hidden.body);
            if shown.body.contains("CANARY") {
                found.push(path);
            }
        }
    }
    for place in ["/inbox/", "/outbox/", "/dead-letters/", "/serde-errors/", "/log", "/explain/"] {
        assert!(found.iter().any(|path| path.contains(place)), "{place}: {found:?}");
    }
}

#[test]
fn without_a_token_only_the_console_and_the_probes_answer() {
    let guarded = Guarded::start();
    let client = guarded.without_token();
    for page in ["/", "/healthz", "/readyz", "/console/app.js"] {
        assert_eq!(client.page(page).status, 200, "{page}");
    }
    for page in ["/metrics", "/api/openapi.json", "/api/v1/overview", "/api/v1/nowhere"] {
        assert_eq!(client.page(page).status, 401, "{page}");
    }
    assert_eq!(guarded.with_token("vic").page("/metrics").status, 200);
}

#[test]
fn a_session_reads_with_its_cookie_and_acts_with_its_csrf_token() {
    let guarded = Guarded::start();
    let client = guarded.session("olga");
    let session = client.get("/session").ok();
    assert_eq!(
        (&session["name"], &session["role"], &session["loopback"]),
        (&json!("olga"), &json!("operator"), &json!(false))
    );
    assert!(session["expires"].as_str().unwrap().ends_with('Z'));
    let act = |client: &Client| client.post("/inbox/9999/retry", &reason());
    act(&client).problem(403, "CSRF");
    act(&client.with("x-csrf-token", "guessed")).problem(403, "CSRF");
    let csrf = session["csrf"].as_str().unwrap();
    act(&client.with("x-csrf-token", csrf)).problem(404, "NOT_FOUND");
    act(&client.with("x-csrf-token", csrf).with("origin", "http://evil.example"))
        .problem(403, "CROSS_SITE");
    let other = guarded.session("olga").get("/session").ok()["csrf"].clone();
    act(&client.with("x-csrf-token", other.as_str().unwrap())).problem(403, "CSRF");

    let out = client.post_page("/logout", &json!({}));
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").unwrap().contains("relais_session=; "), "{out:?}");
}

#[test]
fn an_expired_or_changed_session_is_refused() {
    let guarded = Guarded::start();
    let client = guarded.without_token();
    // Signed by another key, and long past.
    let cookie = "relais_session=b2xnYQ.1000000000.c2b1b9b8f5f84f35a3b1d4b3a0c0f4d2.AAAA";
    client.with("cookie", cookie).get("/session").problem(401, "SESSION_ENDED");
    client.with("cookie", "relais_session=").get("/session").problem(401, "SESSION_ENDED");
    client.with("cookie", "other=1").get("/session").problem(401, "UNAUTHORIZED");
}

#[test]
fn a_session_ends_with_its_token() {
    let guarded = Guarded::start();
    let cookie = guarded.log_in(guarded.token("olga")).header("set-cookie").unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let Guarded { site, running, .. } = guarded;
    running.stop();
    let settings = std::fs::read_to_string(site.path("relais.toml")).unwrap();
    let again = site.run();
    let client = Client::at(again.logged("admin http://")).with("cookie", &cookie);
    assert_eq!(client.get("/session").ok()["name"], "olga", "it lives through a restart");
    again.stop();
    site.write("relais.toml", &settings.replace("\"olga\"", "\"olga2\""));
    let again = site.run();
    let client = Client::at(again.logged("admin http://")).with("cookie", &cookie);
    client.get("/session").problem(401, "SESSION_ENDED");
}

#[test]
fn too_many_wrong_tokens_are_throttled() {
    let guarded = Guarded::start();
    for _ in 0..10 {
        guarded.log_in("wrong").problem(401, "WRONG_TOKEN");
    }
    let answer = guarded.log_in("wrong");
    answer.problem(429, "TOO_MANY_ATTEMPTS");
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() <= 61, "{answer:?}");
    let right = guarded.log_in(guarded.token("vic"));
    assert_eq!(right.status, 200, "wrong tokens do not block the right one: {right:?}");
    assert_eq!(guarded.with_token("vic").get("/session").status, 200, "tokens are not held up");
}

#[test]
fn a_log_in_is_refused_to_pages_of_other_sites_and_to_forms() {
    let guarded = Guarded::start();
    let body = json!({ "token": guarded.token("vic") });
    let client = guarded.without_token();
    client
        .with("origin", "http://evil.example")
        .post_page("/login", &body)
        .problem(403, "CROSS_SITE");
    client
        .with("content-type", "application/x-www-form-urlencoded")
        .post_page("/login", &body)
        .problem(415, "UNSUPPORTED_MEDIA_TYPE");
    client.post_page("/login", &json!({ "token": "x", "more": 1 })).problem(422, "INVALID");
    let secure = client.with("x-forwarded-proto", "https").post_page("/login", &body);
    assert!(secure.header("set-cookie").unwrap().contains("; Secure"), "{secure:?}");
}

#[test]
fn actions_are_recorded_under_the_name_of_the_token() {
    let guarded = Guarded::start();
    let hook = guarded.running.address("hook");
    for id in ["m-1", "m-2"] {
        assert_eq!(post(hook, "/hook", &[("message-id", id)], r#"{"type":"Unheard"}"#).0, 202);
    }
    let olga = guarded.with_token("olga");
    let letters = wait_for(|| {
        let letters = olga.get("/dead-letters").ok()["items"].as_array().unwrap().clone();
        (letters.len() == 2).then_some(letters)
    });
    let discard = |client: &Client, letter: &Value, body: Value| {
        client.post(&format!("/dead-letters/{}/discard", letter["id"].as_str().unwrap()), &body)
    };
    let as_ann = json!({ "actor": "ann", "reason": "a test" });
    discard(&olga, &letters[0], as_ann.clone()).problem(422, "ACTOR");
    discard(&olga, &letters[0], reason()).ok();
    discard(&olga, &letters[0], reason()).problem(409, "RESOLVED_BEFORE");
    discard(&guarded.with_token("admin"), &letters[1], as_ann).ok();
    let audit = olga.get("/audit").ok();
    let actors: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|e| e["actor"].as_str().unwrap()).collect();
    assert_eq!(actors, ["ann", "olga"], "{audit}");
}

#[test]
fn every_answer_carries_the_strict_headers() {
    let guarded = Guarded::start();
    let client = guarded.with_token("vic");
    for page in ["/", "/api/v1/overview", "/api/v1/nowhere", "/metrics", "/healthz", "/nowhere"] {
        let answer = client.page(page);
        let policy = answer.header("content-security-policy").unwrap_or_default();
        for part in ["default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for"] {
            assert!(policy.contains(part), "{page}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{page}: {policy}");
        assert_eq!(answer.header("x-content-type-options").as_deref(), Some("nosniff"), "{page}");
        assert_eq!(answer.header("x-frame-options").as_deref(), Some("deny"), "{page}");
        assert_eq!(answer.header("referrer-policy").as_deref(), Some("no-referrer"), "{page}");
    }
    let api = client.get("/overview").header("cache-control");
    assert_eq!(api.as_deref(), Some("no-store"));
}

#[test]
fn an_open_address_without_any_token_is_refused() {
    let open =
        SETTINGS.replace("[admin]\nlisten = \"127.0.0.1:0\"", "[admin]\nlisten = \"0.0.0.0:0\"");
    let said = Site::with(&open).relais(&["run"]);
    assert!(said.code != 0 && said.err.contains("admin.listen"), "{said:?}");
    let site = Site::new();
    let token = site.json(&["token", "vic", "--role", "viewer"]);
    let (name, hash) = (token["name"].as_str().unwrap(), token["sha256"].as_str().unwrap());
    let block =
        format!("[[admin.tokens]]\nname = \"{name}\"\nrole = \"viewer\"\nsha256 = \"{hash}\"\n");
    site.write("relais.toml", &format!("{open}{block}"));
    let said = site.run().stop();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.err.contains(token["token"].as_str().unwrap()));
}

#[test]
fn wrong_token_settings_are_reported_without_their_values() {
    let check = |block: &str| {
        let said = Site::with(&format!("{SETTINGS}{block}")).relais(&["check", "--offline"]);
        assert_ne!(said.code, 0, "{said:?}");
        format!("{}{}", said.out, said.err)
    };
    let said = check("[[admin.tokens]]\nname = \"a\"\nrole = \"king\"\nsha256 = \"CANARY\"\n");
    assert!(said.contains("role") && said.contains("sha256"), "{said}");
    assert!(!said.contains("CANARY"), "{said}");
    let said = check("[[admin.tokens]]\nname = \"admin\"\n");
    assert!(said.contains("admin.token") && said.contains("relais token"), "{said}");
    let hash = "0".repeat(64);
    let block = format!("[[admin.tokens]]\nname = \"a\"\nrole = \"viewer\"\nsha256 = \"{hash}\"\n");
    let said = check(&format!("{block}expires = \"soon\"\n"));
    assert!(said.contains("2027-01-31"), "{said}");
    assert!(check(&format!("{block}{block}")).contains("another token has this name"));
}

fn wait_for<T>(check: impl Fn() -> Option<T>) -> T {
    let started = std::time::Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(started.elapsed().as_secs() < 60, "not in time");
    }
}
