//! The example "Request and reply" on the page of a connector: a shop whose process sends a command, and a
//! service that answers it. Both are programs of their own, and only the broker connects them.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{Running, Site, post};

/// Time limit of the reply.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
const HEADING: &str = "## Request and reply";

/// The two programs of a page.
pub(crate) struct OrderReply {
    pub(crate) shop: Site,
    pub(crate) service: Site,
}

impl OrderReply {
    /// Reads the two files of a page, with other names and addresses in them.
    pub(crate) fn of_page(page: &str, replaced: &[(&str, &str)]) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let text = fs::read_to_string(path).unwrap();
        let section = text.split_once(HEADING).expect(HEADING).1;
        let mut files = section.split("```toml\n").skip(1).map(|rest| {
            let file = rest.split("```").next().unwrap().to_owned();
            replaced.iter().fold(file, |file, (from, to)| {
                assert!(file.contains(from) || !from.contains("://"), "{from}: {file}");
                file.replace(from, to)
            })
        });
        let mut site = || {
            let file = files.next().expect("two files");
            let listen = "\n[admin]\nlisten = \"127.0.0.1:0\"\n";
            let file = match file.contains("[admin]") {
                true => file.replace("127.0.0.1:7072", "127.0.0.1:0"),
                false => {
                    file.replacen("kind = \"http\"", "kind = \"http\"\nlisten = \"127.0.0.1:0\"", 1)
                        + listen
                }
            };
            let site = Site::with(&file);
            let said = site.relais(&["check", "--connect"]);
            assert_eq!(said.code, 0, "{file}: {said:?}");
            site
        };
        Self { shop: site(), service: site() }
    }

    pub(crate) fn run(&self) -> [Running; 2] {
        [self.shop.run(), self.service.run()]
    }

    /// Places an order and returns its process once it has succeeded.
    pub(crate) fn order(&self, shop: &Running, order: &str) -> Value {
        let placed = json!({"type": "OrderPlaced", "orderId": order, "cents": 4200}).to_string();
        let headers = [("message-id", order), ("content-type", "application/json")];
        let (status, answer) = post(shop.address("hook"), "/hook", &headers, &placed);
        assert_eq!(status, 202, "{answer}");
        let started = Instant::now();
        loop {
            let said = self.shop.relais(&["process", "show", &format!("order/{order}"), "--json"]);
            let process: Value = serde_json::from_str(&said.out).unwrap_or_default();
            if process["status"] == "SUCCEEDED" {
                return process;
            }
            assert!(started.elapsed() < PATIENCE, "no reply: {said:?}");
            thread::sleep(PAUSE);
        }
    }

    /// Checks an order from the outside to the end.
    pub(crate) fn proves_itself(&self) {
        let [shop, service] = self.run();
        let process = self.order(&shop, "o-1");
        let data: Value = serde_json::from_str(process["data"].as_str().unwrap()).unwrap();
        assert_eq!(data["steps"]["payment"], json!({"order": "o-1", "cents": 4200}), "{data}");
        let sent = self.service.json(&["outbox", "list"]);
        assert_eq!(sent[0]["status"], "DISPATCHED", "{sent}");
        let reply = self.service.json(&["outbox", "show", &sent[0]["id"].to_string()]);
        assert_eq!(reply["category"], "reply", "{reply}");
        assert_eq!(reply["correlation_id"], process["process_id"], "{reply}");
        for (running, site) in [(shop, &self.shop), (service, &self.service)] {
            assert_eq!(running.stop().code, 0);
            assert_eq!(site.json(&["dead-letter", "list"]), json!([]));
        }
    }
}
