//! Orders: processes of the service `ledger`. Each must end as its script says, with a log that has no
//! gap and no fork, and with the effects that end asks for.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    FlowContext, rate,
    services::{OrderScript, OrderServices, key},
};
use crate::{
    base::DatabaseClient,
    check::Findings,
    rng::Rng,
    writers::{self, Letter, SharedState},
};

/// Orders placed in a second.
const ORDERS_A_SECOND: u64 = 3;

/// The task that places orders, and the services.
pub(crate) struct Orders {
    services: OrderServices,
    placer: Option<JoinHandle<u64>>,
    placed: u64,
}

impl Orders {
    /// Starts the services; where they listen.
    pub(crate) async fn start(
        shared: &Arc<SharedState>,
        context: &FlowContext,
    ) -> Result<(Self, SocketAddr)> {
        let (services, address) = OrderServices::start(shared, context).await?;
        Ok((Self { services, placer: None, placed: 0 }, address))
    }

    /// From now on orders are placed.
    pub(crate) fn go(&mut self, context: &FlowContext) {
        let rng = Rng::new(context.plan.seed, 61);
        self.placer = Some(tokio::spawn(place(self.services.clone(), context.clone(), rng)));
    }

    /// No more orders are placed.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        if let Some(placer) = self.placer.take() {
            self.placed = placer.await?;
        }
        Ok(())
    }

    /// Orders that have not come to their end, and answers on their way.
    pub(crate) async fn open(&self, client: &mut DatabaseClient) -> Result<Vec<String>> {
        // In this order: a command that comes while the tables are read shows in the second count.
        let before = self.services.record().commands;
        let mut open = client.texts(OPEN).await?;
        let waiting = self.services.waiting.load(SeqCst);
        let came = self.services.record().commands - before;
        open.extend((0..waiting + came).map(|_| "answer".to_owned()));
        Ok(open)
    }

    pub(crate) async fn check(
        &self,
        client: &mut DatabaseClient,
        findings: &mut Findings,
    ) -> Result<()> {
        self.compare(&client.texts(ENDS).await?, findings);
        findings.add("log not linear", client.texts(NOT_LINEAR).await?);
        findings.add("log not linear", strange_logs(&client.texts(LOG).await?));
        findings.add("stranded", client.texts(OPEN).await?);
        let failed =
            (0..self.placed).filter(|order| OrderScript::of(*order).end() == "FAILED").count();
        let letters = client.texts(DEAD_LETTERS).await?;
        if letters.len() != failed {
            let text = format!("{} dead letters of {failed} failed orders", letters.len());
            findings.add("stranded", [text]);
        }
        Ok(())
    }

    /// Compares ends and effects of processes with their scripts.
    fn compare(&self, processes: &[String], findings: &mut Findings) {
        let mut ends = BTreeMap::new();
        for row in processes {
            let (key, status) = row.split_once(' ').unwrap_or_default();
            if ends.insert(key.to_owned(), status.to_owned()).is_some() {
                findings.add("double effect", [format!("two processes of order {key}")]);
            }
        }
        let record = self.services.record();
        for order in 0..self.placed {
            let (key, script) = (key(order), OrderScript::of(order));
            match ends.remove(&key).as_deref() {
                None => findings.add("lost", [format!("order {key}")]),
                Some(end) if end == script.end() => {}
                Some(end) => findings.add("wrong end", [format!("{script:?} {key} {end}")]),
            }
            let had = record.effects.get(&order).cloned().unwrap_or_default();
            findings.add("wrong effects", wrong(order, &had));
        }
        findings.add("phantom", ends.into_keys());
    }

    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        let record = self.services.record();
        [("orders", self.placed), ("commands", record.commands), ("command copies", record.copies)]
    }
}

/// Processes that have not ended, and timers.
const OPEN: &str = "SELECT 'order ' || business_key || ' ' || status FROM relais_process \
    WHERE status NOT IN ('SUCCEEDED', 'FAILED', 'COMPENSATED') \
    UNION ALL SELECT 'timer ' || step FROM relais_timer";
const ENDS: &str = "SELECT business_key || ' ' || status FROM relais_process";
/// Entries are numbered from 1 without a gap, up to the version; each process ends once.
const NOT_LINEAR: &str = "SELECT p.business_key FROM relais_process AS p \
    LEFT JOIN (SELECT process_id, count(*) AS n, min(seq) AS first, max(seq) AS last, \
                      count(CASE WHEN event_type = 'ProcessCompleted' THEN 1 END) AS completed, \
                      count(CASE WHEN event_type = 'ProcessFailed' THEN 1 END) AS failed \
               FROM relais_process_log GROUP BY process_id) AS l ON l.process_id = p.process_id \
    WHERE l.n IS NULL OR l.first <> 1 OR l.last <> p.version OR l.n <> p.version \
       OR l.completed <> CASE p.status WHEN 'SUCCEEDED' THEN 1 ELSE 0 END \
       OR l.failed <> CASE p.status WHEN 'FAILED' THEN 1 ELSE 0 END";
const LOG: &str = "SELECT business_key || ' ' || event_type || ' ' || CAST(event AS TEXT) \
    FROM relais_process_log AS l JOIN relais_process AS p ON p.process_id = l.process_id \
    ORDER BY p.process_id, seq";
/// A process that failed without anything to compensate waits for an operator.
const DEAD_LETTERS: &str = "SELECT message_id FROM relais_dead_letter \
    WHERE origin = 'process' AND error_class = 'STEP_FAILED'";

fn wrong(order: u64, had: &[String]) -> Option<String> {
    let script = OrderScript::of(order);
    let (mut had, mut wanted) = (had.to_vec(), script.effects());
    if script == OrderScript::InDoubt {
        had.sort_unstable();
        wanted.sort_unstable();
    }
    (had != wanted).then(|| format!("{script:?} o{order} {had:?}"))
}

/// Orders with a step that was completed or undone twice, or undone before a later one.
fn strange_logs(log: &[String]) -> Vec<String> {
    let mut steps = BTreeMap::<&str, Vec<(&str, String)>>::new();
    for line in log {
        let [key, event_type, event] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let event: Value = serde_json::from_str(event).unwrap_or_default();
        let note = event["note"].as_str().unwrap_or_default();
        let is_end = ["StepCompleted", "CompensationCompleted"].contains(&event_type);
        if is_end && !note.starts_with("ignored") {
            let step = event["step"].as_str().unwrap_or_default().to_owned();
            steps.entry(key).or_default().push((event_type, step));
        }
    }
    let strange = steps.into_iter().filter(|(key, steps)| {
        let of = |wanted| steps.iter().filter(move |(kind, _)| *kind == wanted);
        let done: Vec<_> = of("StepCompleted").map(|(_, step)| step).collect();
        let undone: Vec<_> = of("CompensationCompleted").map(|(_, step)| step).collect();
        let twice = |all: &[&String]| (1..all.len()).any(|n| all[..n].contains(&all[n]));
        let order = key.get(1..).and_then(|number| number.parse().ok()).map(OrderScript::of);
        let backwards = done.iter().rev().eq(undone.iter());
        twice(&done)
            || twice(&undone)
            || !(undone.is_empty() || backwards || order == Some(OrderScript::InDoubt))
    });
    strange.map(|(key, steps)| format!("{key} {steps:?}")).collect()
}

/// Places orders; how many.
async fn place(services: OrderServices, context: FlowContext, mut rng: Rng) -> u64 {
    let (orders, pace) = rate(&context.plan, ORDERS_A_SECOND);
    for order in 0..orders {
        if services.shared.closed.load(SeqCst) {
            return order;
        }
        let body = json!({ "type": OrderScript::of(order).start(), "key": key(order) }).to_string();
        let letter = Letter { id: key(order), answers: None, body };
        for _ in 0..=u64::from(rng.percent(10)) {
            writers::deliver(&services.shared, &services.http, &letter, &mut rng).await;
        }
        context.event_log.note(format_args!("placed {}", key(order)));
        tokio::time::sleep(Duration::from_micros(1_000_000 / pace)).await;
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(order: &str, event_type: &str, step: &str) -> String {
        format!("{order} {event_type} {}", json!({ "step": step }))
    }

    #[test]
    fn effects_are_compared_in_their_order() {
        let had = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(wrong(0, &had(&["Reserve", "Charge", "Ship"])), None);
        assert!(wrong(0, &had(&["Charge", "Reserve", "Ship"])).is_some());
        assert!(wrong(0, &had(&["Reserve", "Charge"])).is_some());
        // Order 5 is refused at last, so it must be undone, backwards.
        assert_eq!(wrong(5, &had(&["Reserve", "Charge", "UndoCharge", "UndoReserve"])), None);
        assert!(wrong(5, &had(&["Reserve", "Charge", "UndoReserve", "UndoCharge"])).is_some());
    }

    #[test]
    fn a_step_completed_or_undone_twice_or_in_the_wrong_order_is_strange() {
        let log = |ends: &[(&str, &str)]| -> Vec<String> {
            ends.iter().map(|(event_type, step)| line("o5", event_type, step)).collect()
        };
        let (done, undone) = ("StepCompleted", "CompensationCompleted");
        let good = [(done, "reserve"), (done, "charge"), (undone, "charge"), (undone, "reserve")];
        assert!(strange_logs(&log(&good)).is_empty());
        assert_eq!(strange_logs(&log(&[(done, "reserve"), (done, "reserve")])).len(), 1);
        let forwards = [good[0], good[1], good[3], good[2]];
        assert_eq!(strange_logs(&log(&forwards)).len(), 1);
        assert_eq!(strange_logs(&log(&good[..3])).len(), 1, "one is not undone");
        let mut twice = log(&good);
        let late = json!({ "step": "charge", "note": "ignored: the step was compensated before" });
        twice.push(format!("o5 {undone} {late}"));
        assert!(strange_logs(&twice).is_empty(), "a late answer changes nothing");
    }
}
