//! The pictures of the documentation: `RELAIS_SCREENSHOTS=docs/images cargo test … pictures` writes them again.
//! Without that variable there is nothing to do here.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{ANN, TOKENS, sign_in};
use crate::{
    browser::Browser,
    fixture::{Command, LONG, OrderFixture},
    support::{Target, post},
};

/// Duration of traffic before the first picture and before each further one.
const TRAFFIC: Duration = Duration::from_secs(100);
const STIR: Duration = Duration::from_secs(4);

const BILLING: &str = r#"
[[route]]
on = "InvoiceIssued"
destination = "billing"
aggregate_type = "Invoice"
[[route]]
on = "InvoiceIssued"
destination = "ledger"
aggregate_type = "Invoice"
[[destination]]
name = "billing"
kind = "http"
allow_private = true
url = "http://BILLING/invoices"
[[destination]]
name = "ledger"
kind = "http"
allow_private = true
url = "http://LEDGER/entries"
"#;

#[test]
fn pictures_for_the_documentation() {
    let Some(folder) = std::env::var_os("RELAIS_SCREENSHOTS").map(PathBuf::from) else { return };
    let (billing, ledger) = (Target::start(), Target::start());
    let mut fixture = OrderFixture::sqlite();
    let more = BILLING
        .replace("BILLING", &billing.address.to_string())
        .replace("LEDGER", &ledger.address.to_string());
    let settings = fixture.settings(LONG).replace(
        "source_system = \"shop\"\n",
        "source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n",
    );
    fixture.settle(&format!("{settings}{more}{TOKENS}"));
    fixture.start();
    let Some(browser) = Browser::open(fixture.admin()) else { return };
    sign_in(&browser, ANN);
    let mut market =
        Market { fixture: &fixture, billing: &billing, began: Instant::now(), number: 1_000 };
    market.trade_for(TRAFFIC / 2);
    let id = market.have_one_refused();
    market.trade_for(TRAFFIC / 2);
    garble(&fixture);
    let mut take = |name: &str, theme: &str, size: (u32, u32), place: &str, words: &str| {
        show(&browser, theme, size, place, words);
        // Numbers and charts are worth seeing while something moves.
        market.trade_for(STIR);
        picture(&browser, &folder.join(name));
    };
    take("console-overview.png", "light", (1280, 960), "#/", "Throughput");
    take("console-overview-dark.png", "dark", (1280, 960), "#/", "Throughput");
    take("console-phone.png", "light", (360, 780), "#/", "Flow");
    take(
        "console-dead-letter.png",
        "light",
        (1280, 900),
        &format!("#/dead-letters/{id}"),
        "Last error",
    );
    let process = fixture.process("o-1013")["process_id"].as_str().unwrap().to_owned();
    take("console-process.png", "light", (1280, 860), &format!("#/processes/{process}"), "Steps");
    browser.go("#/repair");
    let href = browser.until("an undecodable row", || {
        let first = "return document.querySelector('tr[data-key] a')?.getAttribute('href') ?? null";
        browser.script(first, &[]).as_str().map(str::to_owned)
    });
    take("console-repair.png", "dark", (1280, 860), &href, "Bytes");
}

/// Undecodable bodies: Latin-1 among UTF-8, and a truncated one.
fn garble(fixture: &OrderFixture) {
    let text =
        "{\"type\":\"OrderPlaced\",\"orderId\":\"o-9\",\"name\":\"Ren\u{e9}e\",\"cents\":4200";
    let (status, answer) = post(fixture.hook(), "/hook", &[("message-id", "evt-77120")], text);
    assert_eq!(status, 202, "{answer}");
}

/// Orders of all fates, invoices that billing takes, refuses, and then cannot take at all.
struct Market<'a> {
    fixture: &'a OrderFixture,
    billing: &'a Target,
    began: Instant,
    number: u32,
}

impl Market<'_> {
    fn trade_for(&mut self, long: Duration) {
        let until = Instant::now() + long;
        while Instant::now() < until {
            self.trade();
        }
    }

    fn trade(&mut self) {
        let number = self.number;
        self.number += 1;
        let order = format!("o-{number}");
        self.fixture.place(&order);
        handle_order(self.fixture, number);
        let is_down = self.began.elapsed() > TRAFFIC * 4 / 5;
        self.billing.answers(if is_down { 503 } else { 200 });
        self.issue(number);
    }

    fn issue(&self, number: u32) {
        let order = format!("o-{number}");
        let invoice =
            json!({"type": "InvoiceIssued", "orderId": order, "cents": 4200, "currency": "XXX"});
        self.fixture.send(&format!("invoice-{number}"), &[("traceparent", TRACE)], &invoice);
    }

    /// Waits for an invoice that billing refuses, and returns the id of its dead letter.
    fn have_one_refused(&mut self) -> String {
        self.billing.answers(422);
        self.number += 1;
        self.issue(self.number);
        self.fixture.wait("an invoice that billing refused", || {
            let letters = self.fixture.dead_letters();
            let letter = letters.into_iter().find(|one| one["destination"] == "billing")?;
            letter["id"].as_str().map(str::to_owned)
        })
    }
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Most orders are paid and shipped; some are not.
fn handle_order(fixture: &OrderFixture, number: u32) {
    let answer = |command: &Command, event: &str, more| fixture.reply(command, event, more);
    let pay = fixture.command("TakePayment");
    if number % 50 == 7 {
        answer(&pay, "PaymentDeclined", json!({"why": "the card has expired"}));
        return;
    }
    answer(&pay, "PaymentTaken", json!({"id": format!("p-{number}")}));
    let ship = fixture.command("Ship");
    match number % 50 {
        13 => {}
        19 => {
            answer(&ship, "NotShippable", json!({"why": "out of stock"}));
            let refund = fixture.command("RefundPayment");
            answer(&refund, "PaymentRefunded", json!({}));
        }
        _ => drop(answer(&ship, "Shipped", json!({}))),
    }
}

fn show(browser: &Browser, theme: &str, (width, height): (u32, u32), place: &str, words: &str) {
    browser.resize(width, height);
    browser.script("localStorage.setItem('relais.theme', arguments[0])", &[json!(theme)]);
    browser.go(place);
    browser.reload();
    browser.sees(&[words]);
    browser.until("an end of loading", || {
        let ready = "return document.querySelector('main[aria-busy]') === null
            && document.querySelector('.live-state').dataset.state === 'live'";
        (browser.script(ready, &[]) == true).then_some(())
    });
}

fn picture(browser: &Browser, file: &Path) {
    let png = STANDARD.decode(browser.picture()).unwrap();
    fs::write(file, png).unwrap();
}
