//! relais is killed again and again while an application inserts: every row is delivered, and every row says so.

use std::collections::HashSet;

use super::*;
use crate::node::kill_until;

const ROWS: u32 = 4_000;

on_both_databases!(every_row_is_delivered_and_marked_while_relais_is_killed,);

fn every_row_is_delivered_and_marked_while_relais_is_killed(on: Backend) {
    let adopt = adopt("outbox", "order-service", "") + "[lanes]\nlease = \"2s\"\n";
    let Some(shop) = Shop::new(on, ORDER_SERVICE, &adopt) else { return };
    assert_eq!(shop.site.relais(&["migrate"]).code, 0);
    let statements = (0..ROWS).map(|n| {
        let end = if n % 10 == 9 { "ROLLBACK" } else { "COMMIT" };
        format!("BEGIN; {}; {end}", insert(n, &format!("[{n}]")))
    });
    let application = shop.database.run_beside(statements.collect());
    let sent =
        || shop.one("SELECT count(*) FROM outbox WHERE status = 'SENT'").parse::<u32>().unwrap();
    let started = Instant::now();
    let mut seen_at_start = 0;
    let kills = kill_until(
        &shop.site,
        |node| {
            node.assert_alive();
            let now = sent();
            let works = now > seen_at_start;
            if works {
                seen_at_start = now;
            }
            works
        },
        || {
            assert!(started.elapsed() < 4 * PATIENCE, "{} sent", sent());
            sent() == ROWS / 10 * 9
        },
    );
    application.join().unwrap();
    assert!(kills.at_work >= 2, "{kills:?}");
    let mut bodies = HashSet::new();
    while bodies.len() < (ROWS / 10 * 9) as usize {
        bodies.insert(shop.target.next().body);
    }
    assert!(!bodies.contains("[9]") && bodies.contains("[8]"), "only what was committed");
    assert_eq!(shop.one("SELECT count(*) FROM relais_outbox WHERE status <> 'DISPATCHED'"), "0");
}
