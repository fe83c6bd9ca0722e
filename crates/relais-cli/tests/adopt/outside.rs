//! What other programs do beside relais: publishers of external destinations, and operators who change functions.

use super::*;

/// Claims the only message, and settles it with a call of a function that has its id and fence as first parameters.
fn settle(shop: &Shop, function: &str, more: &str) {
    let claim = "SELECT id || ', ' || fence FROM relais_sweep_batch('theirs', 1, 'publisher')";
    let claim = shop.one(claim);
    assert_ne!(claim, "", "a message is due");
    assert_eq!(shop.one(&format!("SELECT {function}({claim}{more})::text")), "true");
}

#[test]
fn results_of_a_publisher_that_is_not_relais_are_written_into_the_table() {
    let config = "[[destination]]\nname = \"theirs\"\nexternal = true\n\
                  [[adopt]]\ntable = 'outbox'\npreset = \"order-service\"\ndestination = \"theirs\"\n";
    let Some(shop) = Shop::new(Backend::Postgres, ORDER_SERVICE, config) else { return };
    let running = shop.run();
    assert_said(&shop.site.relais(&["check"]), 0, &[]);
    shop.order(1, "[1]");
    settle(&shop, "relais_mark_published", "");
    shop.order_is(1, "SENT t");
    shop.order(2, "[2]");
    settle(&shop, "relais_mark_failed", ", 'theirs answered 400'");
    shop.order_is(2, "FAILED f 400");
    // A reset lets the publisher claim it again.
    shop.sql(&format!("UPDATE outbox SET status = 'NEW' WHERE id = '{}'", id(2)));
    shop.wait("SELECT status FROM relais_outbox WHERE payload = '[2]'", "PENDING");
    settle(&shop, "relais_mark_published", "");
    shop.order_is(2, "SENT t");
    shop.wait("SELECT count(*) FROM relais_adopted_change", "0");
    running.stop();
}
