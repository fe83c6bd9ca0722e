//! Both doors over TLS, by the configuration.

use std::net::SocketAddr;

use crate::support::{Site, post};

const CERTIFICATE: &str = include_str!("../../../relais-connect/tests/http/untrusted-cert.pem");
const KEY: &str = include_str!("../../../relais-connect/tests/http/untrusted-key.pem");

const SETTINGS: &str = "[store]\nurl = \"sqlite:relais.db\"\n\
    [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\nsource_system = \"shop\"\n\
    tls_certificate = \"cert.pem\"\ntls_key = \"key.pem\"\n\
    [[destination]]\nname = \"out\"\nkind = \"log\"\npath = \"out.jsonl\"\n\
    [[route]]\non = \"Order\"\ndestination = \"out\"\n\
    [admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"the-shared-one\"\n\
    tls_certificate = \"cert.pem\"\ntls_key = \"key.pem\"\n";

#[test]
fn both_doors_are_encrypted_by_the_configuration() {
    let site = Site::new();
    site.write("relais.toml", SETTINGS);
    let refused = site.relais(&["run"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("cert.pem"), "{refused:?}");
    site.write("cert.pem", CERTIFICATE);
    site.write("key.pem", KEY);
    let running = site.run();
    let (admin, hook) = (running.logged("admin https://"), running.logged("POST https://"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Which names the certificate has is not what is tested here.
        let builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true);
        let client = builder.no_proxy().build().unwrap();
        let healthy = client.get(format!("https://{admin}/healthz")).send().await.unwrap();
        assert_eq!(healthy.status(), 200);
        let sent = client.post(format!("https://{hook}/hook")).header("message-id", "m-1");
        let sent = sent.header("content-type", "application/json").body(r#"{"type":"Order"}"#);
        assert_eq!(sent.send().await.unwrap().status(), 202);
        let login = client.post(format!("https://{admin}/login"));
        let login = login.header("content-type", "application/json");
        let login = login.body(r#"{"token":"the-shared-one"}"#).send().await.unwrap();
        let cookie = login.headers()["set-cookie"].to_str().unwrap();
        assert!(cookie.contains("; Secure"), "{cookie}");
    });
    for address in [admin, hook] {
        assert!(is_deaf_to_plain_text(address));
    }
}

/// Returns true if a request without TLS gets no answer.
fn is_deaf_to_plain_text(address: SocketAddr) -> bool {
    std::panic::catch_unwind(|| post(address, "/hook", &[("message-id", "m-2")], "{}")).is_err()
}
