//! `relais check`: what it refuses, how it exits, and what `--connect` tries against real servers.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "kafka")]
#[allow(dead_code)]
#[path = "support/broker.rs"]
mod broker;
// Each of these files uses its part of them.
#[allow(dead_code)]
#[path = "support/org.rs"]
mod org;
#[allow(dead_code)]
mod support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

use rustls::pki_types::PrivateKeyDer;
use salesforce_sim::{AuthConfig, SimulatorConfig};
use serde_json::Value;

use org::{Base, Org, members_created, settings, until};
use support::{Site, Target, assert_said, post, postgres::PostgresSchema};

/// The result for one setting of `relais check --connect --json`.
fn connection(site: &Site, setting: &str) -> (bool, String) {
    let said = site.relais(&["check", "--connect", "--json"]);
    let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let all = report["connections"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    let found = all.iter().find(|tried| tried["setting"] == setting);
    let found = found.unwrap_or_else(|| panic!("no {setting}: {report:#}"));
    let ok = found["ok"].as_bool().unwrap();
    assert_eq!(said.code, i32::from(!all.iter().all(|tried| tried["ok"] == true)), "{report:#}");
    (ok, found["detail"].as_str().unwrap().to_owned())
}

fn assert_fails(site: &Site, setting: &str, texts: &[&str]) {
    let (ok, detail) = connection(site, setting);
    assert!(!ok, "{setting}: {detail}");
    for text in texts {
        assert!(detail.contains(text), "{text}: {detail}");
    }
}

#[test]
fn an_unreadable_certificate_is_found() {
    let admin = "[store]\nurl = \"sqlite:relais.db\"\n\
                 [admin]\nlisten = \"127.0.0.1:0\"\ntls_certificate = \"no.pem\"\ntls_key = \"no.key\"\n";
    let site = Site::with(admin);
    let wanted = ["admin: cannot read the TLS certificate from", "no.pem", "PEM format"];
    assert_said(&site.relais(&["check"]), 2, &wanted);
    assert_said(&site.relais(&["check", "--connect"]), 2, &wanted);
    // Without looking at the machine it runs on.
    assert_said(&site.relais(&["check", "--offline"]), 0, &["ok; next:"]);
}

#[test]
fn a_wrong_configuration_exits_with_2_and_a_wrong_world_with_1() {
    let route = "[[route]]\non = \"A\"\ndestination = \"warehuose\"\n\
                 [[destination]]\nname = \"warehouse\"\nkind = \"log\"\n";
    for (text, wanted) in [
        (route, "did you mean `warehouse`?"),
        ("", "relais would do nothing"),
        ("[store]\nurl = \"sqlite:x.db\"\n", "`relais init` writes an example"),
        ("[[destination]]\nname = \"far\"\nexternal = true\n", "relais would do nothing"),
    ] {
        let site = Site::with(text);
        for command in ["check", "run"] {
            assert_said(&site.relais(&[command]), 2, &[wanted]);
        }
    }
    assert_said(&Site::new().relais(&["check"]), 2, &["relais init"]);
    for (query, wanted) in [
        ("sslmode=verifyfull", "`sslmode` must be"),
        ("passfile=x", "`passfile` is not supported"),
        ("target_session_attrs=standby", "`target_session_attrs` must be"),
    ] {
        let site =
            Site::with(&format!("[store]\nurl = \"postgres://u:CANARY@127.0.0.1:1/db?{query}\"\n"));
        for command in [&["check"][..], &["check", "--offline"], &["run"]] {
            let said = site.relais(command);
            assert_said(&said, 2, &[wanted, "store.url", "relais.toml:2"]);
            assert!(!format!("{said:?}").contains("CANARY"), "{said:?}");
        }
    }
    for (sql, wanted) in [
        ("UPDATE members SET id = 1 WHERE id IN (:ids)", "must begin with SELECT or WITH"),
        ("SELECT * FROM members", ":ids"),
    ] {
        let site = Site::with(&format!(
            "[[destination]]\nname = \"contacts\"\nkind = \"salesforce\"\nobject = \"Contact\"\n\
             login_url = \"https://acme.my.salesforce.com\"\nclient_id = \"app\"\nclient_secret = \"x\"\n\
             external_id = \"Id__c\"\nhydrate = \"{sql}\"\n"
        ));
        for command in [&["check"][..], &["check", "--offline"], &["run"]] {
            assert_said(&site.relais(command), 2, &[wanted, "hydrate"]);
        }
    }
    let log = "[[destination]]\nname = \"warehouse\"\nkind = \"log\"\n";
    for (store, wanted) in [
        ("sqlite:missing/x.db", "does not exist"),
        ("postgres://u@127.0.0.1:1/db", "cannot reach the database at 127.0.0.1:1"),
    ] {
        let site = Site::with(&format!("[store]\nurl = \"{store}\"\n{log}"));
        assert_said(&site.relais(&["check"]), 1, &[wanted]);
    }
    assert_said(&Site::with(log).relais(&["check"]), 0, &["ok; next:"]);
}

#[test]
fn commands_name_the_database_that_does_not_answer_and_a_missing_folder_at_once() {
    let site =
        Site::with("[store]\nurl = \"postgres://u@127.0.0.1:1/db\"\nwait = \"1h\"\n[admin]\n");
    assert_said(&site.relais(&["status"]), 1, &["127.0.0.1:1", "check `store.url`"]);
    // It would wait for an hour.
    let site = Site::with("[store]\nurl = \"sqlite:missing/x.db\"\nwait = \"1h\"\n[admin]\n");
    assert_said(&site.relais(&["run"]), 1, &["there is no folder", "missing", "create it"]);
}

#[test]
fn the_ports_of_the_relais_that_runs_are_no_error() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let site = Site::with(&format!(
        "[admin]\nlisten = \"{}\"\n[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"{}\"\n\
         [[route]]\non = \"A\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"log\"\n",
        free(),
        free()
    ));
    let running = site.run();
    for setting in ["admin.listen", "source[hook].listen"] {
        until(|| connection(&site, setting).0);
    }
    running.stop();
}

#[test]
fn a_port_in_use_is_named_with_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let site = Site::with(&format!(
        "[admin]\nlisten = \"{address}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         [[route]]\non = \"A\"\ndestination = \"out\"\n\
         [[destination]]\nname = \"out\"\nkind = \"log\"\npath = \"missing/out.jsonl\"\n"
    ));
    let texts = [address.to_string(), "stop the program that uses".to_owned()];
    assert_fails(&site, "admin.listen", &texts.each_ref().map(String::as_str));
    assert!(connection(&site, "source[hook].listen").0);
    assert_fails(&site, "destination[out].path", &["there is no folder missing"]);
    let said = site.relais(&["check", "--connect"]);
    assert_said(&said, 1, &["FAIL admin.listen", "ok   source[hook].listen", "not ok"]);
    assert!(!site.path("relais.db").exists(), "it must not make the database");
}

#[test]
fn an_http_target_is_reached_and_its_certificate_checked() {
    let target = Target::start();
    let at = |url: &str| {
        Site::with(&format!(
            "[[destination]]\nname = \"out\"\nkind = \"http\"\nurl = \"{url}\"\nallow_private = true\n"
        ))
    };
    let site = at(&format!("http://{}/hook", target.address));
    let (ok, detail) = connection(&site, "destination[out].url");
    assert!(ok, "{detail}");
    assert!(!detail.contains("/hook"), "the path may be a secret: {detail}");
    assert_fails(&at("http://127.0.0.1:1/x"), "destination[out].url", &["Connection refused"]);
    let (secure, ca) = https();
    let site = at(&format!("https://{secure}/x"));
    assert_fails(&site, "destination[out].url", &["UnknownIssuer", "SSL_CERT_FILE"]);
    // What the advice says helps.
    site.write("ca.pem", &ca);
    let trusting = |site: &Site| {
        let mut command = site.command(&["check", "--connect"]);
        command.env("SSL_CERT_FILE", "ca.pem").output().unwrap().into()
    };
    assert_said(&trusting(&site), 0, &["its certificate is valid"]);
    let site = at(&format!("https://localhost:{}/x", secure.port()));
    site.write("ca.pem", &ca);
    assert_said(
        &trusting(&site),
        1,
        &["FAIL destination[out].url", "use a host name that is in the certificate"],
    );
    let site = at(&format!("https://{}/x", target.address));
    assert_fails(&site, "destination[out].url", &["does not use TLS"]);
}

/// A server that answers everything with 204, with a certificate for 127.0.0.1 by a CA of its own; its
/// address and the certificate of the CA.
fn https() -> (SocketAddr, String) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = own.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            // A client that does not trust us goes away here.
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    (address, ca)
}

#[test]
fn an_org_is_logged_in_to_and_its_object_compared() {
    const NAME: &str = "HTTP:SFDC:BulkV2:Contact";
    let auth = AuthConfig { client_secret: Some("hush-hush".into()), ..AuthConfig::default() };
    let org = Org::start(SimulatorConfig { auth, ..SimulatorConfig::default() });
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    base.members(3);
    let text = settings(&base, &org, "auto", "");
    site.write("relais.toml", &text);
    let at = |key: &str| format!("destination[{NAME}].{key}");
    for key in ["login_url", "object", "external_id", "columns", "hydrate"] {
        let (ok, detail) = connection(&site, &at(key));
        assert!(ok, "{key}: {detail}");
    }
    let before = org.records("Contact").len();
    assert!(connection(&site, &at("hydrate")).1.contains("no message yet"));
    for (from, to, key, wanted) in [
        ("hush-hush", "wrong", "login_url", "check the credentials"),
        ("LastName = ", "LastNme = ", "columns", "no field `LastNme`"),
        ("api = \"auto\"", "api = \"auto\"\nobject = \"Kontact\"", "object", "no object `Kontact`"),
        (
            "api = \"auto\"",
            "api = \"auto\"\nexternal_id = \"Birthdate\"",
            "external_id",
            "is not an external id",
        ),
        ("FROM members", "FROM memebrs", "hydrate", "correct the statement"),
    ] {
        site.write("relais.toml", &text.replace(from, to));
        assert_fails(&site, &at(key), &[wanted]);
    }
    assert_eq!(org.records("Contact").len(), before, "a check writes nothing");
    site.write("relais.toml", &text);
    let running = site.run();
    let headers = [("content-type", "application/json"), ("message-id", "e-1")];
    let body = members_created(1..=3, 1);
    assert_eq!(post(running.address("hook"), "/hook", &headers, &body).0, 202);
    until(|| base.outbox("DISPATCHED") == 3);
    running.stop();
    let (ok, detail) = connection(&site, &at("hydrate"));
    assert!(ok && detail.contains("a row for 3 of the 3 newest messages"), "{detail}");
    base.execute("UPDATE members SET id = 'other-' || id");
    assert_fails(&site, &at("hydrate"), &["gives no row", "`id`"]);
}

#[test]
fn an_unusable_private_key_is_explained() {
    let site = |key: &str| {
        Site::with(&format!(
            "[[destination]]\nname = \"crm\"\nkind = \"salesforce\"\nobject = \"Contact\"\n\
             external_id = \"Ref__c\"\ncolumns = {{ LastName = \"name\" }}\nusername = \"u\"\n\
             login_url = \"https://x.my.salesforce.com\"\nclient_id = \"a\"\n\
             private_key = '''{key}'''\n"
        ))
    };
    assert_said(&site("/etc/key.pem").relais(&["check"]), 2, &["destination[crm]", "-----BEGIN"]);
    let other = include_str!("../../relais-connect/tests/http/untrusted-key.pem");
    assert_said(&site(other).relais(&["check"]), 2, &["must be an RSA key", "openssl genrsa"]);
}

#[cfg(feature = "kafka")]
#[test]
fn a_broker_is_reached_and_its_topics_found() {
    let Some(broker) = broker::Broker::from_environment() else { return };
    let topic = broker.topic("check", 1);
    let at = |brokers: &str, topic: &str, options: &str| {
        Site::with(&format!(
            "[[source]]\nname = \"in\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             topics = [\"{topic}\"]\ngroup = \"g\"\nmessage_id = \"header:id\"\n{options}\
             [[route]]\non = \"A\"\ndestination = \"out\"\n\
             [[destination]]\nname = \"out\"\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             topic = \"{topic}\"\n{options}"
        ))
    };
    let settings = ["source[in].brokers", "destination[out].brokers"];
    let site = at(&broker.address, &topic.name, "");
    for setting in settings {
        let (ok, detail) = connection(&site, setting);
        assert!(ok && detail.contains(&topic.name), "{detail}");
    }
    let site = at(&broker.address, "relais-check-missing", "");
    for setting in settings {
        assert_fails(&site, setting, &["no topic `relais-check-missing`", "create it"]);
    }
    // The check must not have created it.
    assert_fails(&site, settings[1], &["no topic"]);
    let site = at("127.0.0.1:1", &topic.name, "");
    assert_fails(&site, settings[0], &["127.0.0.1:1", "refused", "check `brokers`"]);
    let tls = "options = { \"security.protocol\" = \"ssl\" }\n";
    let site = at(&broker.address, &topic.name, tls);
    assert_fails(&site, settings[0], &["SSL", "check `brokers` and `options`"]);
}

/// A server without TLS in front of the one that the environment names; returns its address.
fn without_tls(server: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut server = TcpStream::connect(&server).unwrap();
            let mut head = [0; 8];
            // The request for TLS is its length and a number.
            if client.read_exact(&mut head).is_ok() && head == [0, 0, 0, 8, 4, 210, 22, 47] {
                client.write_all(b"N").unwrap();
            } else {
                server.write_all(&head).unwrap();
            }
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    address
}

#[test]
fn a_connection_that_prefer_leaves_unencrypted_is_a_warning() {
    let Some(schema) = PostgresSchema::new() else { return };
    let (_, rest) = schema.url.split_once('@').unwrap();
    let (server, _) = rest.split_once('/').unwrap();
    let plain = without_tls(server.to_owned()).to_string();
    let site = |mode: &str| {
        let url = schema.url.replace("sslmode=disable", "").replace(server, &plain);
        let log = "[[destination]]\nname = \"warehouse\"\nkind = \"log\"\n";
        Site::with(&format!("[store]\nurl = \"{url}&sslmode={mode}\"\n{log}"))
    };
    let wanted = "connected to PostgreSQL without encryption";
    for command in [&["check"][..], &["check", "--connect"]] {
        assert_said(&site("prefer").relais(command), 0, &["warning: ", wanted, "verify-full"]);
        let report = site("prefer").json(command);
        assert!(report["warnings"][0].as_str().unwrap().contains(wanted), "{report:#}");
        let intended = site("disable").relais(command);
        assert!(intended.code == 0 && !format!("{intended:?}").contains(wanted), "{intended:?}");
        assert_said(&site("require").relais(command), 1, &["turn `ssl` on"]);
    }
    // It is in the log too, where a deployment shows it.
    let run = ["run", "--log", "json"];
    let said = site("prefer").run_args(&run, &[], wanted).stop();
    let line = said.err.lines().find(|line| line.contains(wanted)).unwrap();
    assert!(line.contains("WARN") && line.contains("verify-full"), "{line}");
    let intended = site("disable").run().stop();
    assert!(intended.code == 0 && !intended.err.contains(wanted), "{intended:?}");
}
