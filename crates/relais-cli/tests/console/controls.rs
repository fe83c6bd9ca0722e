//! Pauses, limits and states as operators see them in the console, and an overview that hides nothing.

use serde_json::{Value, json};

use super::{OSKAR, TOKENS, VERA, place_badly, rows, sign_in, signed_in};
use crate::{
    browser::Browser,
    fixture::{LONG, OrderFixture},
    support::assert_said,
};

/// The attention list of the overview.
fn attention(browser: &Browser) -> String {
    let text = browser.script("return document.querySelector('.alarms')?.innerText ?? ''", &[]);
    text.as_str().unwrap_or_default().to_owned()
}

/// The page for Prometheus, with the session of the browser.
fn metrics(browser: &Browser) -> String {
    const LOAD: &str = "
        const request = new XMLHttpRequest();
        request.open('GET', '/metrics', false);
        request.send();
        return request.responseText";
    browser.script(LOAD, &[]).as_str().unwrap().to_owned()
}

#[test]
fn a_destination_is_paused_limited_and_resumed() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    browser.go("#/destinations");
    browser.until("two destinations", || (rows(&browser) == 2).then_some(()));
    browser.sees(&["not contacted yet"]);
    browser.press("payments");
    browser.sees(&["No call has failed", "Concurrency in force"]);
    browser.press("Pause");
    browser.decide("Pause");
    browser.sees(&["Paused.", "Paused by oskar: a test in a browser", "Resume"]);
    browser.go("#/");
    browser.until("the pause on the overview", || {
        attention(&browser).contains("payments").then_some(())
    });
    assert_said(
        &fixture.site.relais(&["status"]),
        0,
        &["paused", "destination payments", "by oskar: a test in a browser"],
    );
    assert_said(&fixture.site.relais(&["top", "--once"]), 0, &["destination payments"]);
    fixture.place("o-1");
    browser.go("#/destinations?search=pay&show=paused");
    browser.until("the row that waits", || {
        (rows(&browser) == 1 && browser.text().contains("paused")).then_some(())
    });
    fixture.no_more_commands();
    browser.go("#/destinations/payments");
    browser.press("Change limits");
    browser.fill("Rate", "7/m");
    browser.fill("Concurrency", "3");
    browser.decide("Change limits");
    browser.sees(&["Limits changed", "7/m"]);
    browser.press("Resume");
    browser.decide("Resume");
    fixture.command("TakePayment");
    browser.sees(&["reachable"]);
    browser.go("#/audit?target=payments");
    browser.sees(&["destination.paused", "destination.limited", "destination.resumed"]);
    let metrics = metrics(&browser);
    assert!(metrics.contains("relais_destination_paused{destination=\"payments\"} 0"), "{metrics}");
}

#[test]
fn a_source_and_a_process_type_are_paused_and_resumed() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    browser.go("#/sources");
    browser.press("hook");
    browser.press("Pause");
    browser.decide("Pause");
    browser.sees(&["Paused.", "Resume"]);
    let order = json!({"type": "OrderPlaced", "orderId": "o-1", "cents": 1}).to_string();
    fixture.wait("503 for senders", || {
        let headers = [("message-id", "m-1")];
        let (status, answer) = crate::support::post(fixture.hook(), "/hook", &headers, &order);
        (status == 503 && answer.to_string().contains("PAUSED")).then_some(())
    });
    browser.press("Resume");
    browser.decide("Resume");
    browser.go("#/processes");
    browser.press("Pause order");
    browser.decide("Pause");
    browser.sees(&["by oskar: a test in a browser", "Resume order"]);
    fixture.wait("the source to receive again", || {
        let headers = [("message-id", "m-1")];
        let (status, _) = crate::support::post(fixture.hook(), "/hook", &headers, &order);
        (status == 202).then_some(())
    });
    // A message that came before every process had read of the pause is handled.
    let number = std::cell::Cell::new(1);
    let held = fixture.wait("a message that waits", || {
        number.set(number.get() + 1);
        let order = format!("held-{}", number.get());
        let id = format!("m-{}", number.get());
        fixture.send(&id, &[], &json!({"type": "OrderPlaced", "orderId": order, "cents": 1}));
        let story = fixture.wait("its story", || {
            let story = fixture.site.relais(&["explain", &id]).out;
            let words = ["ProcessStarted", "process started", "is paused since"];
            words.iter().any(|word| story.contains(word)).then_some(story)
        });
        story.contains("process type order is paused since").then_some(order)
    });
    browser.go("#/processes");
    browser.press("Resume order");
    browser.decide("Resume");
    fixture.wait("the message that waited", || {
        (fixture.command("TakePayment").payload["order"] == held.as_str()).then_some(())
    });
}

/// The colour of the text of an element; without a selector the colour that means "needs an operator".
fn colour(browser: &Browser, selector: &str) -> Value {
    const COLOUR: &str = "
        let [element] = [arguments[0] && document.querySelector(arguments[0])];
        if (arguments[0]) return element && getComputedStyle(element).color;
        element = document.createElement('i');
        element.style.color = 'var(--bad)';
        document.body.append(element);
        const red = getComputedStyle(element).color;
        element.remove();
        return red";
    browser.script(COLOUR, &[json!(selector)])
}

fn assert_red(browser: &Browser, selector: &str) {
    let red = colour(browser, "");
    assert!(red.as_str().is_some_and(|red| red.starts_with("rgb")), "{red}");
    browser
        .until(&format!("{selector} in red"), || (colour(browser, selector) == red).then_some(()));
}

#[test]
fn a_process_that_needs_an_operator_is_red_everywhere() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    fixture.place("o-1");
    fixture.reply(&fixture.command("TakePayment"), "PaymentTaken", json!({"id": "p-1"}));
    fixture.reply(&fixture.command("Ship"), "NotShippable", json!({"why": "out of stock"}));
    fixture.reply(
        &fixture.command("RefundPayment"),
        "RefundRefused",
        json!({"why": "closed account"}),
    );
    fixture.wait("a dead letter", || fixture.dead_letters().pop());
    browser.go("#/");
    browser.until("the overview to say so", || {
        attention(&browser).contains("needs an operator").then_some(())
    });
    const TILE: &str =
        "return [...document.querySelectorAll('.tile')].find((one) => one.innerText.startsWith('stuck'))
        ?.classList.contains('attention') ?? false";
    assert_eq!(browser.script(TILE, &[]), true);
    const BADGE: &str = "return document.querySelector('a[href=\"#/processes\"] .badge').innerText";
    assert_eq!(browser.script(BADGE, &[]), "1");
    assert_red(&browser, ".places a[href='#/processes'] .badge");
    assert_red(&browser, ".tile[href='#/processes'] .tile-value");
    assert_red(&browser, ".tile[href='#/processes'] .tile-word");
    assert_red(&browser, ".alarms .status");
    // What needs no operator is not red.
    assert_ne!(colour(&browser, ".tile[href='#/repair'] .tile-value"), colour(&browser, ""));
    const TOO_WIDE: &str = "
        const right = (one) => one.getBoundingClientRect().right;
        return [...document.querySelectorAll('.flow .box')]
            .filter((box) => [...box.querySelectorAll('*')].some((one) => right(one) > right(box)))
            .map((box) => box.innerText)";
    for (width, height) in [(1440, 900), (1280, 960)] {
        browser.resize(width, height);
        assert_eq!(browser.script(TOO_WIDE, &[]), json!([]), "no text leaves its box");
    }
    browser.go("#/processes");
    browser.sees(&["1 process needs an operator", "needs an operator (compensating)"]);
    assert_red(&browser, "main .notice");
    assert_red(&browser, "tr[data-key] .status");
    browser.press("o-1");
    browser.sees(&["This process needs an operator", "Retry the step", "Skip the step"]);
    assert_red(&browser, "main .notice");
    assert_red(&browser, ".side-part .status");
    let status = ["--color", "always", "status"];
    let red = "\u{1b}[31m1 needs an operator";
    assert_said(&fixture.site.relais(&status), 0, &[red]);
    let list = fixture.site.relais(&["--color", "always", "process", "list"]).out;
    let line = list.lines().find(|line| line.contains("! COMPENSATING")).unwrap();
    let before = line.split("! COMPENSATING").next().unwrap();
    assert!(before.ends_with("\u{1b}[38;5;9m"), "{line:?}");
    assert_said(
        &fixture.site.relais(&["explain", "order/o-1"]),
        0,
        &["needs an operator", "retry"],
    );
    let metrics = metrics(&browser);
    assert!(metrics.contains("relais_processes_need_operator 1\n"), "{metrics}");
    browser.press("Skip the step");
    browser.decide("Skip the step");
    browser.until("no banner", || {
        (!browser.text().contains("This process needs an operator")).then_some(())
    });
    assert_said(&fixture.site.relais(&["process", "list"]), 0, &["COMPENSATED"]);
}

#[test]
fn figures_are_dimmed_when_relais_does_not_answer() {
    let Some((mut fixture, browser)) = signed_in(VERA) else { return };
    browser.go("#/destinations");
    browser.sees(&["payments"]);
    assert!(!browser.text().contains("No connection to relais"));
    fixture.stop();
    browser.sees(&["No connection to relais", "may be out of date"]);
    let stale = "return document.querySelector('main').classList.contains('stale')";
    assert_eq!(browser.script(stale, &[]), true);
}

/// Names of destinations whose targets do not exist; they are the last by name.
const BROKEN: [&str; 3] = ["zz-broken", "zz-broken-billing-europe-west", "zz-broken-ledger"];

/// Log destinations, and three whose targets do not exist.
fn many(count: usize) -> String {
    let mut settings = String::new();
    for number in 0..count {
        settings.push_str(&format!("[[destination]]\nname = \"d-{number:03}\"\nkind = \"log\"\n"));
    }
    for name in BROKEN {
        settings.push_str(&format!(
            "[[destination]]\nname = \"{name}\"\nkind = \"http\"\nallow_private = true\n\
             url = \"http://127.0.0.1:1/\"\n[[route]]\non = \"Lost\"\ndestination = \"{name}\"\n"
        ));
    }
    settings
}

#[test]
fn the_overview_fits_one_screen_and_hides_nothing_that_is_broken() {
    for count in [1, 300] {
        let mut fixture = OrderFixture::sqlite();
        fixture.settle(&format!("{}{}{TOKENS}", fixture.settings(LONG), many(count)));
        fixture.start();
        let Some(browser) = Browser::open(fixture.admin()) else { return };
        sign_in(&browser, VERA);
        for number in 0..3 {
            fixture.send(
                &format!("lost-{number}"),
                &[],
                &json!({"type": "Lost", "number": number}),
            );
        }
        place_badly(&fixture, "m-1");
        let paused = ["destination", "pause", "shipping", "--reason", "a test"];
        assert_said(&fixture.site.relais(&paused), 0, &[]);
        browser.resize(1440, 900);
        browser.until("all that is broken, and one line for the rest", || {
            let text = attention(&browser);
            let whole = text.starts_with("needs an operator")
                && text.contains("1 dead letter")
                && browser.text().contains("and 1 more");
            // A slow machine counts the rows of many destinations rarely; their breakers need no count.
            let rows = count > 1 || whole;
            (rows && BROKEN.iter().all(|name| text.contains(name))).then_some(())
        });
        let height: Value = browser.script("return document.documentElement.scrollHeight", &[]);
        assert!(height.as_u64().unwrap() <= 900, "{count} destinations: {height} pixels");
        const CUT: &str = "return [...document.querySelectorAll('.alarms a')]
            .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)";
        assert_eq!(browser.script(CUT, &[]), json!([]), "names have priority over reasons");
        browser.go("#/destinations");
        browser.until("every destination", || {
            (rows(&browser) == u64::try_from(count).unwrap() + 5).then_some(())
        });
        let first = "return document.querySelector('tr[data-key]').dataset.key";
        // A breaker that probes at this moment is not the first.
        browser.until("what is broken, first", || {
            let name = browser.script(first, &[]);
            BROKEN.iter().any(|broken| name == *broken).then_some(())
        });
        browser.press("Destination");
        browser.press("Destination");
        assert_eq!(browser.script(first, &[]), BROKEN[2], "the last by name");
        browser.fill("Search", "d-000");
        browser.until("one row", || (rows(&browser) == 1).then_some(()));
        browser.go("#/workers");
        browser.until("one process", || (rows(&browser) == 1).then_some(()));
    }
}

#[test]
fn a_worker_shows_the_lanes_of_each_scope() {
    let Some((fixture, browser)) = signed_in(VERA) else { return };
    browser.go("#/workers");
    let served = "return document.querySelector('tr[data-key]')?.innerText.includes('outbox:payments') ?? false";
    browser
        .until("the names of its scopes", || (browser.script(served, &[]) == true).then_some(()));
    browser.script("document.querySelector('tr[data-key] a').click()", &[]);
    browser.sees(&["Leased lanes", "inbox", "outbox:payments", "outbox:shipping"]);
    browser.sees(&["Process id", &fixture.pid().to_string()]);
}

/// Without a call nothing is known about a target, and an unreachable one is never called reachable.
#[test]
fn a_destination_is_reachable_only_after_a_successful_call() {
    const STATES: &str = "return Object.fromEntries([...document.querySelectorAll('tr[data-key]')]
        .map((row) => [row.dataset.key, row.innerText.replaceAll('unreachable', '')]))";
    let mut fixture = OrderFixture::sqlite();
    fixture.settle(&format!("{}{}{TOKENS}", fixture.settings(LONG), many(0)));
    fixture.start();
    let Some(browser) = Browser::open(fixture.admin()) else { return };
    sign_in(&browser, VERA);
    browser.go("#/destinations");
    let state = |name: &str, words: &str| {
        browser.script(STATES, &[])[name].as_str().is_some_and(|row| row.contains(words))
    };
    browser.until("five destinations that were not called", || {
        let names = ["payments", "shipping"].iter().chain(&BROKEN);
        names.into_iter().all(|name| state(name, "not contacted yet")).then_some(())
    });
    assert!(!browser.text().contains("reachable"));
    fixture.place("o-1");
    fixture.command("TakePayment");
    fixture.send("lost-1", &[], &json!({"type": "Lost"}));
    browser.until("the result of the calls", || {
        let tried = BROKEN.iter().all(|name| !state(name, "not contacted yet"));
        (tried && state("payments", "reachable")).then_some(())
    });
    assert!(BROKEN.iter().all(|name| !state(name, "reachable")));
    assert!(state("shipping", "not contacted yet"), "its target has not got a call");
}

/// The items of a state that no test brings about at once.
#[test]
fn attention_is_ordered_by_severity_and_lost_workers_are_one_item() {
    const ITEMS: &str = "
        const [overview, done] = arguments;
        import(new URL('console/state.js', location)).then(({ attention }) =>
            done(attention(overview).map((one) => [one.state.words, one.links, one.page[1]])))";
    let Some((_fixture, browser)) = signed_in(VERA) else { return };
    let lost =
        |pid: u64| json!({"worker": format!("w-{pid}"), "host": "h", "pid": pid, "alive": false});
    let open = json!({"served": true, "breaker": "open", "cause": "unreachable"});
    let pause = json!({"served": true, "pause": {"by": "ann", "reason": "a test"}});
    let works = json!({"served": true, "breaker": "closed", "contacted": true, "succeeded": true});
    let error = json!({"code": "HTTP_500", "message": "no"});
    let errors =
        json!({"served": true, "breaker": "closed", "contacted": true, "last_error": error});
    let silent = json!({"served": true, "breaker": "closed", "last_error": error});
    let failing = |name: &str, since: &str| {
        let row = json!({"id": 1, "msg_key": "k", "since": since, "attempts": 3});
        json!({"destination": name, "pending": 1, "failing_keys": 1, "failing": row})
    };
    let overview = json!({
        "instances": [lost(1), lost(2), lost(3), lost(4)],
        "destinations": {
            "billing": open, "archive": pause, "crm": works, "erp": errors, "fax": silent, "mail": works,
        },
        // One fails for long, the other may recover by itself.
        "backlogs": [failing("crm", "2020-01-01T00:00:00Z"), failing("mail", "2999-01-01T00:00:00Z")],
        "processes_need_operator": 2,
        "dead_letters_open": 1,
        "serde_errors": 0,
    });
    let (attention, workers) = ("#/destinations?show=attention", "#/workers?show=lost");
    assert_eq!(
        browser.script_later(ITEMS, &[overview]),
        json!([
            [
                "needs an operator",
                [["2 processes", "#/processes"], ["1 dead letter", "#/dead-letters"]],
                "#/processes"
            ],
            ["breaker open: unreachable", [["billing", "#/destinations/billing"]], attention],
            ["lost", [["4 workers", workers]], workers],
            ["paused", [["archive", "#/destinations/archive"]], attention],
            ["1 key is failing", [["crm", "#/destinations/crm"]], attention],
            ["answers with errors", [["erp", "#/destinations/erp"]], attention],
            ["no answer yet", [["fax", "#/destinations/fax"]], attention],
        ])
    );
}
