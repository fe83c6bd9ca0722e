//! The pages Sources and Workers are searched, filtered and sorted, and a destination shows all that is known of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{OSKAR, TOKENS, rows, sign_in};
use crate::{
    browser::Browser,
    support::{Running, Site, Target, assert_said, post},
};

/// The names in the first column, in the order of the page.
fn names(browser: &Browser) -> Vec<String> {
    let keys =
        "return [...document.querySelectorAll('tr[data-key]')].map((row) => row.dataset.key)";
    serde_json::from_value(browser.script(keys, &[])).unwrap()
}

/// Waits until the page lists these rows in this order.
fn lists(browser: &Browser, expected: &[&str]) {
    browser.until(&format!("{expected:?}"), || (names(browser) == expected).then_some(()));
}

/// The direction of the column that sorts the page.
fn sorted(browser: &Browser) -> Value {
    let column = "return [...document.querySelectorAll('th[aria-sort]')]
        .map((one) => [one.innerText.trim(), one.getAttribute('aria-sort')])";
    browser.script(column, &[])
}

#[test]
fn sources_are_searched_filtered_and_sorted() {
    let source = |name: &str| {
        format!("[[source]]\nname = \"{name}\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n")
    };
    let sources: String = ["archive", "shop-eu", "shop-us"].map(source).concat();
    let site = Site::with(&format!(
        "[store]\nurl = \"sqlite:relais.db\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{sources}{TOKENS}"
    ));
    let running = site.run();
    let Some(browser) = Browser::open(running.logged("admin http://")) else { return };
    sign_in(&browser, OSKAR);
    for (name, messages) in [("archive", 1), ("shop-eu", 3), ("shop-us", 2)] {
        for number in 0..messages {
            let id = format!("{name}-{number}");
            let path = format!("/{name}");
            let body = "{\"type\": \"Order\"}";
            let (status, answer) = post(running.address(name), &path, &[("message-id", &id)], body);
            assert_eq!(status, 202, "{answer}");
        }
    }
    browser.go("#/sources");
    browser.sees(&["3 sources"]);
    browser.press("Received");
    lists(&browser, &["archive", "shop-us", "shop-eu"]);
    assert_eq!(sorted(&browser), json!([["Received", "ascending"]]));
    browser.press("Received");
    lists(&browser, &["shop-eu", "shop-us", "archive"]);
    assert_eq!(sorted(&browser), json!([["Received", "descending"]]));
    browser.fill("Search", "SHOP");
    lists(&browser, &["shop-eu", "shop-us"]);
    browser.sees(&["2 of 3 sources"]);
    assert_eq!(browser.address_bar(), "#/sources?search=SHOP&sort=-Received");
    browser.reload();
    lists(&browser, &["shop-eu", "shop-us"]);
    assert_eq!(sorted(&browser), json!([["Received", "descending"]]));
    let pause = ["source", "pause", "shop-us", "--reason", "a test"];
    assert_said(&site.relais(&pause), 0, &[]);
    browser.choose("Show", "paused");
    lists(&browser, &["shop-us"]);
    browser.fill("Search", "archive");
    browser.sees(&["No matches"]);
    // What needs attention is first again.
    browser.go("#/sources");
    lists(&browser, &["shop-us", "archive", "shop-eu"]);
}

/// A program on the same file with these destinations.
fn worker(store: &str, more: &str, destinations: &[&str]) -> (Site, Running) {
    let of = |name: &&str| format!("[[destination]]\nname = \"{name}\"\nkind = \"log\"\n");
    let destinations: String = destinations.iter().map(of).collect();
    let site = Site::with(&format!("[store]\nurl = \"{store}\"\n{more}{destinations}"));
    let running = site.run();
    (site, running)
}

#[test]
fn workers_are_searched_filtered_and_sorted() {
    let folder = Site::new();
    let store = format!("sqlite:{}", folder.path("shared.db").display());
    let admin = format!("[admin]\nlisten = \"127.0.0.1:0\"\n{TOKENS}");
    let (_site, one) = worker(&store, &admin, &["orders"]);
    let (_other, two) = worker(&store, "", &["billing", "crm", "ledger"]);
    let Some(browser) = Browser::open(one.logged("admin http://")) else { return };
    sign_in(&browser, OSKAR);
    browser.go("#/workers");
    let pids = || {
        let all = "return [...document.querySelectorAll('tr[data-key] td:first-child, tr[data-key] th:first-child')]
            .map((cell) => Number(cell.innerText.split('·').at(-1)))";
        serde_json::from_value::<Vec<u32>>(browser.script(all, &[])).unwrap_or_default()
    };
    let lists = |expected: &[u32]| {
        browser.until(&format!("{expected:?}"), || (pids() == expected).then_some(()));
    };
    browser.sees(&["2 processes", "outbox:orders", "outbox:ledger"]);
    browser.press("Serves");
    lists(&[one.pid(), two.pid()]);
    browser.press("Serves");
    lists(&[two.pid(), one.pid()]);
    assert_eq!(sorted(&browser), json!([["Serves", "descending"]]));
    browser.fill("Search", "outbox:crm");
    lists(&[two.pid()]);
    browser.sees(&["1 of 2 processes"]);
    browser.choose("Show", "lost");
    browser.sees(&["No matches"]);
    let lost = two.pid();
    // Without a clean shutdown.
    drop(two);
    browser.go("#/workers?show=lost");
    lists(&[lost]);
    browser.choose("Show", "alive");
    lists(&[one.pid()]);
    browser.go("#/workers");
    lists(&[lost, one.pid()]);
    let first = "document.querySelector('tr[data-key] a').click()";
    browser.script(first, &[]);
    browser.sees(&["This worker is lost", &lost.to_string()]);
}

/// The facts of each panel; those without a title are beside the panels.
pub(crate) fn facts(browser: &Browser) -> BTreeMap<String, BTreeMap<String, String>> {
    const FACTS: &str = "
        const all = {};
        for (const list of document.querySelectorAll('main dl.facts')) {
            const title = list.closest('section').querySelector('h2')?.innerText ?? '';
            all[title] = Object.fromEntries([...list.children].map((pair) =>
                [pair.children[0].innerText, pair.children[1].innerText]));
        }
        return all";
    serde_json::from_value(browser.script(FACTS, &[])).unwrap()
}

#[test]
fn a_destination_shows_error_breaker_rate_age_calls_and_configuration() {
    let target = Target::start();
    let site = Site::with(&format!(
        "[store]\nurl = \"sqlite:relais.db\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         aggregate_id = \"payload:/orderId\"\n\
         [[route]]\non = \"OrderPlaced\"\ndestination = \"orders\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n[destination.limits]\nrate = \"600/m\"\nconcurrency = 7\n{TOKENS}",
        target.address
    ));
    let running = site.run();
    let Some(browser) = Browser::open(running.logged("admin http://")) else { return };
    sign_in(&browser, OSKAR);
    let place = |order: &str| {
        let body = json!({"type": "OrderPlaced", "orderId": order}).to_string();
        let hook = running.address("hook");
        assert_eq!(post(hook, "/hook", &[("message-id", order)], &body).0, 202);
    };
    browser.go("#/destinations/orders");
    browser.sees(&["No call has failed"]);
    let until = |what: &str, panel: &str, expected: &[(&str, &str)]| {
        browser.until(what, || {
            let facts = facts(&browser);
            let facts = facts.get(panel)?;
            let has = |(name, value): &(&str, &str)| {
                facts.get(*name).is_some_and(|found| found.contains(value))
            };
            expected.iter().all(has).then_some(())
        });
    };
    target.answers(422);
    place("o-1");
    target.next();
    browser.sees(&["Last error", "HTTP_422"]);
    target.answers(200);
    // A call without an answer is in flight, and its row is the oldest.
    let held = target.hold();
    place("o-2");
    target.next();
    until("a call in flight", "", &[("In flight", "1"), ("Waiting", "1"), ("Oldest", "ago")]);
    drop(held);
    until("no row", "", &[("In flight", "0"), ("Waiting", "0"), ("Oldest", "–")]);
    until("the counts", "", &[("Delivered since start", "1"), ("Failed", "1")]);
    let limits = [
        ("Rate in force", "600/m"),
        ("Concurrency in force", "7"),
        ("Configured rate", "600/m"),
        ("Configured concurrency", "7"),
        ("Time limit of a call", "30 s"),
    ];
    until("the limits", "Limits of each process", &limits);
    until("a closed breaker", "Circuit breaker", &[("State", "closed")]);
    target.answers_with_pause(503, 3_600);
    for number in 3..20 {
        place(&format!("o-{number}"));
    }
    let reason = [("State", "open"), ("Reason", "HTTP_503"), ("Open until", ":")];
    until("an open breaker", "Circuit breaker", &reason);
    until(
        "the rows that wait",
        "",
        &[("State", "breaker open"), ("Waiting", "17"), ("Oldest", "ago")],
    );
    browser.sees(&["Configuration", &format!("POST http://{}/…", target.address)]);
    browser.go("#/destinations");
    browser.until("its line", || (rows(&browser) == 1).then_some(()));
    browser.sees(&["breaker open", "17", "HTTP_503"]);
}

/// The number of handled messages in the flow picture.
fn handled(browser: &Browser) -> Value {
    const HANDLED: &str = "
        const box = [...document.querySelectorAll('.box')]
            .find((one) => one.innerText.startsWith('Messages received'));
        const pairs = [...(box?.querySelectorAll('.box-numbers div') ?? [])];
        const pair = pairs.find((one) => one.querySelector('dt').innerText === 'handled');
        return pair?.querySelector('dd').innerText ?? null";
    browser.script(HANDLED, &[])
}

#[test]
fn the_number_of_finished_rows_of_a_large_table_is_marked_as_an_estimate() {
    let site = Site::with(&format!(
        "[store]\nurl = \"sqlite:relais.db\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n{TOKENS}"
    ));
    assert_said(&site.relais(&["migrate"]), 0, &[]);
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    let insert = |rows: u32| db.execute(HANDLED_ROWS, [rows]).unwrap();
    insert(20_000);
    let running = site.run();
    let Some(browser) = Browser::open(running.logged("admin http://")) else { return };
    sign_in(&browser, OSKAR);
    browser.until("an exact number", || (handled(&browser) == "20K").then_some(()));
    assert_said(&site.relais(&["status"]), 0, &[", 20000 PROCESSED"]);
    insert(400);
    browser.until("an estimate", || (handled(&browser) == "≈ 20.4K").then_some(()));
    assert_said(&site.relais(&["status"]), 0, &[", about 20400 PROCESSED", "0 RECEIVED"]);
}

/// Inserts this number of handled messages.
const HANDLED_ROWS: &str = "
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
    INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key,
                              event_type, payload, status, attempts, processed_at)
    SELECT hex(randomblob(16)), 'shop', '', 0, 0, 'k', 'Order', '{}', 'PROCESSED', 1,
           strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    FROM numbers";
