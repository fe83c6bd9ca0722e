//! Attacks of a sender in every field that the console shows. None of them may run, and all of them must be shown
//! as text.

use serde_json::{Value, json};

use super::{ANN, nothing_ran, signed_in};
use crate::{browser::Browser, fixture::OrderFixture, support::post};

/// Each calls `xss()` if anything of it is taken for more than text.
const CORPUS: [&str; 26] = [
    "<script>xss()</script>",
    "<img src=x onerror=xss()>",
    "<svg onload=xss()>",
    "<svg><script>xss()</script></svg>",
    "\"><script>xss()</script>",
    "'><img src=x onerror=xss()>",
    "</script><script>xss()</script>",
    "</pre><script>xss()</script>",
    "</textarea><script>xss()</script>",
    "</title><script>xss()</script>",
    "<iframe srcdoc='<script>parent.xss()</script>'></iframe>",
    "<a href=javascript:xss()>press</a>",
    "javascript:xss()",
    "data:text/html,<script>opener.xss()</script>",
    "<body onload=xss()>",
    "<details open ontoggle=xss()>",
    "<input autofocus onfocus=xss()>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=xss()>",
    "<noscript><p title=\"</noscript><img src=x onerror=xss()>\">",
    "<template><script>xss()</script></template>",
    "<style>@import 'javascript:xss()';</style>",
    "<meta http-equiv=refresh content='0;url=javascript:xss()'>",
    "<base href=//evil.example/>",
    "${xss()} {{xss()}} {{constructor.constructor('xss()')()}}",
    "__proto__",
    "%3Cscript%3Exss()%3C/script%3E",
];

#[test]
fn the_page_itself_refuses_to_make_markup_of_text() {
    let Some((_shop, browser)) = signed_in(ANN) else { return };
    nothing_ran(&browser, "the overview");
    const CARELESS: &str = "
        try { document.querySelector('main').innerHTML = '<img src=x onerror=xss()>'; } catch { return 'refused' }
        return 'taken'";
    assert_eq!(browser.script(CARELESS, &[]), "refused");
    const INLINE: &str = "
        const script = document.createElement('script');
        try { script.text = 'xss()'; document.head.append(script); } catch { return 'refused' }
        return window.ran.length ? 'ran' : 'refused'";
    assert_eq!(browser.script(INLINE, &[]), "refused");
    browser.until("a report of it", || {
        let violations = browser.script("return window.violations.length", &[]);
        (violations.as_u64()? > 0).then_some(())
    });
}

#[test]
fn no_message_can_become_a_part_of_the_page() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    let numbered: Vec<(usize, &str)> = CORPUS.into_iter().enumerate().collect();
    // Few at a time: a target that refuses five and takes none is paused.
    for few in numbered.chunks(4) {
        fixture.refuses(400);
        for (number, evil) in few {
            send(&fixture, *number, evil);
        }
        // One for each unknown type, and one for each command that is refused.
        let sent = few.last().map_or(0, |(number, _)| number + 1);
        fixture.wait("the dead letters", || (letters(&fixture).len() == 2 * sent).then_some(()));
        fixture.refuses(200);
        let order = format!("good-{sent}");
        fixture.place(&order);
        fixture.wait("a command that is taken", || {
            let waiting = fixture.site.json(&["outbox", "list", "--status", "pending"]);
            let shown = fixture.site.relais(&["process", "show", &format!("order/{order}")]);
            (waiting.as_array()?.is_empty() && shown.code == 0).then_some(())
        });
    }
    lists(&browser);
    details(&fixture, &browser);
}

fn letters(fixture: &OrderFixture) -> Vec<Value> {
    fixture.site.json(&["dead-letter", "list", "--limit", "200"]).as_array().unwrap().clone()
}

/// Sends it as type, key, header, part of the payload, id, and in undecodable bytes.
fn send(fixture: &OrderFixture, number: usize, evil: &str) {
    let payload = json!({"type": evil, evil: evil, "list": [evil]});
    fixture.send(&format!("type-{number}-{evil}"), &[("x-evil", evil)], &payload);
    let order = json!({"type": "OrderPlaced", "orderId": format!("{number}{evil}"), "cents": evil});
    fixture.send(&format!("order-{number}"), &[], &order);
    let id = format!("broken-{number}");
    let (status, answer) =
        post(fixture.hook(), "/hook", &[("message-id", &id), ("x-evil", evil)], evil);
    assert_eq!(status, 202, "{answer}");
}

fn lists(browser: &Browser) {
    for place in
        ["#/dead-letters", "#/inbox", "#/outbox", "#/processes", "#/parked-keys", "#/repair"]
    {
        browser.go(place);
        browser.until("rows", || (super::rows(browser) > 0).then_some(()));
        nothing_ran(browser, place);
    }
    // What is in the address is shown in the fields, and is as little to be trusted.
    for evil in CORPUS {
        let value =
            evil.replace('%', "%25").replace('&', "%26").replace('#', "%23").replace('+', "%2B");
        let place = format!("#/inbox?type={}", value.replace('"', "%22").replace('<', "%3C"));
        browser.go(&place);
        browser.until("the field with it", || {
            let field = "return document.getElementById('filter-type')?.value ?? null";
            (browser.script(field, &[]) == evil.trim()).then_some(())
        });
        nothing_ran(browser, &place);
    }
}

fn details(fixture: &OrderFixture, browser: &Browser) {
    for letter in letters(fixture) {
        let place = format!("#/dead-letters/{}", letter["id"].as_str().unwrap());
        browser.go(&place);
        browser.sees(&["Last error", letter["message_id"].as_str().unwrap()]);
        nothing_ran(browser, &place);
    }
    for number in [0, 5, 10, 17, CORPUS.len() - 1] {
        let evil = CORPUS[number];
        browser.go(&format!("#/explain/{}", encoded(&format!("type-{number}-{evil}"))));
        browser.sees(&["Timeline", evil]);
        nothing_ran(browser, evil);
        browser.go(&format!("#/processes/{}", encoded(&format!("order/{number}{evil}"))));
        browser.sees(&["State", evil]);
        nothing_ran(browser, evil);
    }
    browser.go("#/repair");
    let first = "return document.querySelector('tr[data-key] a')?.getAttribute('href') ?? null";
    let href = browser.until("a row", || browser.script(first, &[]).as_str().map(str::to_owned));
    browser.go(&href);
    browser.sees(&["Decoding error", CORPUS[CORPUS.len() - 1]]);
    nothing_ran(browser, &href);
}

/// Encodes an id as the console does in addresses.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let write = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(write).collect()
}
