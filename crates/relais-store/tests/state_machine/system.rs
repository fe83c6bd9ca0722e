//! The real store: makes the model's calls, checks their answers and compares what is stored.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use relais_core::{
    dead_letter::{DeadLetter, DecisionAction, DecisionResult, OperatorDecision, Resolution},
    inbox::{AcceptOutcome, InboxFate, InboxSettlement, SourcePosition},
    inspect::InspectExt,
    lane::{LaneRelease, LaneRequest, OwnedLane, Scope},
    message::NewMessage,
    outbox::{OutboxFate, OutboxSettlement},
    query::{CleanupMode, Filter, PAGE_MAX, Retention},
    store::{Fetch, RowMark, StoreDriver},
    text::sha256_hex,
};
use relais_store_tests::fixture::{Fixture, quote};
use relais_testkit::build;
use uuid::Uuid;

use crate::{
    model::{Call, DESTINATIONS, Fate, INBOX, Ident, KEYS, Model, SCOPES, Settle, Time, WORKERS},
    names::{
        HOUR, all_lanes, arrival, fence, is_of_variant, message, message_id, origin, owned, pause,
        place, scope,
    },
};

/// More passes than a cleanup that remembers its place can need.
const PASSES_MAX: usize = 5;

pub(crate) struct System {
    fixture: Box<dyn Fixture>,
    store: Arc<dyn StoreDriver>,
    /// Another node's: what it remembers must not matter.
    second: Arc<dyn StoreDriver>,
    /// The ids of the model's rows, and of its dead letters.
    ids: BTreeMap<usize, i64>,
    dead: HashMap<usize, Uuid>,
    /// Message ids of conflicting contents that were let in, by row.
    let_in: HashMap<usize, String>,
}

impl System {
    pub(crate) fn new(fixture: Box<dyn Fixture>) -> Self {
        let (store, second) = (fixture.store(), fixture.second());
        Self {
            fixture,
            store,
            second,
            ids: BTreeMap::new(),
            dead: HashMap::new(),
            let_in: HashMap::new(),
        }
    }

    /// Makes the model's last call, and learns the ids of what it wrote.
    pub(crate) async fn call(&mut self, model: &Model) {
        match &model.call {
            Call::Enqueue(rows) => self.enqueue(model, rows).await,
            Call::Resolve { dead, resolution, answer, lets_in } => {
                self.resolve(*dead, *resolution, *answer, *lets_in).await;
            }
            other => self.call_lasting(model, other).await,
        }
        self.learn_rows(model).await;
        self.learn_dead_letters(model).await;
    }

    /// The calls that make no new names.
    async fn call_lasting(&self, model: &Model, call: &Call) {
        match call {
            Call::Nothing | Call::Enqueue(_) | Call::Resolve { .. } => {}
            Call::Accept(messages) => self.accept(messages).await,
            Call::Lease { scope, worker, grant } => {
                let request = LaneRequest::new(fence(*scope, *worker), HOUR);
                let mut answer = self.second.lease_lanes(request).await.expect("lease");
                answer.lanes.sort_unstable();
                answer.term = grant.term;
                assert_eq!(answer, *grant);
            }
            Call::Expire { worker, .. } => self.expire(*worker).await,
            Call::Release { scope, worker, lanes, leaving } => {
                let fence = fence(*scope, *worker);
                let lanes = LaneRelease::Lanes(lanes.clone());
                let release = if *leaving { LaneRelease::All } else { lanes };
                self.store.release_lanes(fence, release).await.expect("release");
            }
            Call::Settle { scope, worker, rows, answer } => {
                let fence = fence(*scope, *worker);
                let settled = if *scope == INBOX {
                    self.store.settle_inbox(fence, self.inbox_settlements(model, rows)).await
                } else {
                    self.store.settle_outbox(fence, self.outbox_settlements(model, rows)).await
                };
                assert_eq!(settled.expect("settle"), *answer);
            }
            Call::NoteLoss { scope, worker, rows, answer } => {
                let lane = |(row, epoch): &(usize, i64)| {
                    let lane = model.lane(*row);
                    (self.ids[row], OwnedLane { lane, epoch: *epoch, unclean: false })
                };
                let rows = rows.iter().map(lane).collect();
                let noted = self
                    .store
                    .mark_rows(RowMark::LostWorker { fence: fence(*scope, *worker), rows })
                    .await;
                assert_eq!(noted.expect("note"), *answer);
            }
            Call::MakeDue(scope) => self.make_due(*scope).await,
            Call::Cleanup { removed } => self.cleanup(*removed).await,
        }
    }

    async fn accept(&self, messages: &[(u8, u8, AcceptOutcome)]) {
        let arrivals = messages.iter().map(|(m, variant, _)| arrival(*m, *variant)).collect();
        let position = i64::try_from(self.ids.len()).expect("few rows");
        let (source, partition) = ("s".to_owned(), "0".to_owned());
        let positions = vec![SourcePosition { source, partition, position }];
        let answer = self.store.accept(arrivals, positions.clone()).await.expect("accept");
        let right: Vec<_> = messages.iter().map(|(_, _, accepted)| *accepted).collect();
        assert_eq!(answer, right);
        assert_eq!(self.store.positions("s".into()).await.expect("positions"), positions);
    }

    async fn enqueue(&mut self, model: &Model, rows: &[(usize, bool)]) {
        let messages = rows.iter().map(|(row, delayed)| {
            let it = &model.rows[*row];
            let Ident::Sent(id) = it.ident else { panic!("only sent messages are enqueued") };
            let delay = delayed.then_some(HOUR);
            NewMessage { delay, ..message(id, it.scope - 1, it.key) }
        });
        let answer = self.store.enqueue(messages.collect()).await.expect("enqueue");
        self.learn_rows(model).await;
        let right: Vec<i64> = rows.iter().map(|(row, _)| self.ids[row]).collect();
        assert_eq!(answer, right);
    }

    fn inbox_settlements(&self, model: &Model, rows: &[Settle]) -> Vec<InboxSettlement> {
        let fate = |settle: &Settle| match settle.fate {
            Fate::Done | Fate::Untouched => InboxFate::Processed {
                messages: settle.sends.iter().map(|(id, key)| message(*id, 0, *key)).collect(),
                changes: Vec::new(),
                copies: Vec::new(),
            },
            Fate::Retry { attempts, due } => {
                InboxFate::Retry { attempts, pause: pause(due), problem: build::problem() }
            }
            Fate::Wait { lost: lost_workers, due } => {
                InboxFate::Wait { pause: pause(due), problem: build::problem(), lost_workers }
            }
            Fate::Dead { attempts, park } => {
                InboxFate::Dead { attempts, problem: build::problem(), park }
            }
        };
        let settlement = |settle: &Settle| InboxSettlement {
            id: self.ids[&settle.row],
            lane: model.lane(settle.row),
            epoch: settle.epoch,
            fate: fate(settle),
        };
        rows.iter().map(settlement).collect()
    }

    fn outbox_settlements(&self, model: &Model, rows: &[Settle]) -> Vec<OutboxSettlement> {
        let fate = |fate: Fate| match fate {
            Fate::Done => OutboxFate::Dispatched,
            Fate::Retry { attempts, due } => {
                OutboxFate::Retry { attempts, pause: pause(due), problem: build::problem() }
            }
            Fate::Wait { lost: lost_workers, due } => {
                OutboxFate::Wait { pause: pause(due), problem: build::problem(), lost_workers }
            }
            Fate::Dead { attempts, park } => {
                OutboxFate::Dead { attempts, problem: build::problem(), park }
            }
            Fate::Untouched => OutboxFate::Untouched,
        };
        let settlement = |settle: &Settle| OutboxSettlement {
            id: self.ids[&settle.row],
            lane: model.lane(settle.row),
            epoch: settle.epoch,
            fate: fate(settle.fate),
        };
        rows.iter().map(settlement).collect()
    }

    async fn expire(&self, worker: usize) {
        let (worker, past) = (quote(WORKERS[worker]), self.fixture.past());
        let sql = format!("UPDATE relais_lease SET lease_until = {past} WHERE worker = {worker}");
        self.fixture.run(&sql).await;
    }

    /// Now, not earlier: a time before the row's creation has a meaning of its own.
    async fn make_due(&self, scope: usize) {
        let now = self.fixture.dialect().ago(0);
        let (table, place) = match scope {
            INBOX => ("relais_inbox", "TRUE".to_owned()),
            _ => ("relais_outbox", format!("destination = {}", quote(DESTINATIONS[scope - 1]))),
        };
        let sql = format!(
            "UPDATE {table} SET next_attempt_at = {now} WHERE next_attempt_at > {now} AND {place}"
        );
        self.fixture.run(&sql).await;
        if scope != INBOX {
            let due = format!(
                "UPDATE relais_waiting SET due_at = {now} WHERE due_at > {now} AND {place}"
            );
            self.fixture.run(&due).await;
        }
    }

    async fn resolve(
        &mut self,
        dead: usize,
        resolution: Resolution,
        answer: bool,
        lets_in: Option<usize>,
    ) {
        let id = self.dead[&dead];
        let action = DecisionAction::Resolve { dead_letter: id, resolution };
        let decision = OperatorDecision { action, actor: "ann".into(), reason: "a test".into() };
        let decided = self.store.decide(decision).await.expect("resolve");
        assert_eq!(decided == DecisionResult::Done, answer);
        if let Some(row) = lets_in {
            let letter = self.store.find_dead_letter(id).await.expect("find").expect("it stays");
            let payload = letter.payload.expect("a conflict keeps its payload");
            let hash = &sha256_hex(payload.as_bytes())[..8];
            self.let_in.insert(row, format!("{}#{hash}", letter.message_id));
        }
    }

    async fn cleanup(&self, removed: u64) {
        let past = self.fixture.past();
        let sql =
            format!("UPDATE relais_outbox SET dispatched_at = {past} WHERE status = 'DISPATCHED'");
        self.fixture.run(&sql).await;
        let retention = Retention::default().dispatched_seconds(0);
        let mut total = 0;
        for _ in 0..PASSES_MAX {
            let cleaned = self
                .store
                .cleanup(retention, CleanupMode::Remove { rows_max: PAGE_MAX })
                .await
                .expect("cleanup");
            assert_eq!(cleaned.total(), cleaned.outbox, "only dispatched rows are past retention");
            total += cleaned.outbox;
        }
        assert_eq!(total, removed);
    }

    /// Remembers the ids of dead letters that the last call made.
    async fn learn_dead_letters(&mut self, model: &Model) {
        if model.dead.len() == self.dead.len() {
            return;
        }
        let open = self.dead_letters("open").await;
        for (number, dead) in model.dead.iter().enumerate().filter(|(_, dead)| !dead.resolved) {
            let letter = open.iter().find(|letter| {
                let same_row = letter.origin == origin(model.rows[dead.row].scope)
                    && letter.origin_id == Some(self.ids[&dead.row]);
                let same_kind = match dead.conflict {
                    None => letter.failed_status == "FAILED",
                    Some(variant) => {
                        letter.failed_status == "CONFLICT"
                            && is_of_variant(letter.payload.as_deref(), variant)
                    }
                };
                same_row && same_kind
            });
            let letter = letter.unwrap_or_else(|| panic!("no dead letter for {dead:?}"));
            self.dead.insert(number, letter.id);
        }
    }

    /// Everything that is stored, and what would be fetched next.
    pub(crate) async fn compare(&self, model: &Model) {
        self.compare_dead_letters(model).await;
        let parked = self.store.parked_keys(PAGE_MAX).await.expect("parked keys");
        let stored: BTreeSet<(String, String)> = parked
            .into_iter()
            .map(|key| (key.destination.unwrap_or_default(), key.msg_key))
            .collect();
        let right = model.parked.iter().map(|(scope, key)| (place(*scope), KEYS[*key].to_owned()));
        assert_eq!(stored, right.collect(), "parked keys");
        for number in 0..SCOPES {
            let fetched = Self::fetch_all(&self.store, number, all_lanes()).await;
            self.assert_fetched(model, (number, None), &fetched, "over all lanes");
        }
        // One scope in turn: the rest comes with the next steps.
        let number = (model.rows.len() + model.dead.len()) % SCOPES;
        self.compare_limited(model, number).await;
        self.compare_workers(model, number).await;
    }

    /// Compares the rows that each worker fetches from the lanes it remembers.
    async fn compare_workers(&self, model: &Model, number: usize) {
        for (worker, memory) in model.memory[number].iter().enumerate() {
            let lane = |(lane, epoch): (&i16, &i64)| OwnedLane { epoch: *epoch, ..owned(*lane) };
            let lanes = memory.iter().map(lane).collect();
            let fetched = Self::fetch_all(&self.second, number, lanes).await;
            self.assert_fetched(model, (number, Some(memory)), &fetched, WORKERS[worker]);
        }
    }

    /// Inbox rows are exactly those of the model. Of the outbox the first row of each key comes, and none before
    /// an earlier one of its key.
    fn assert_fetched(
        &self,
        model: &Model,
        (number, lanes): (usize, Option<&BTreeMap<i16, i64>>),
        fetched: &[i64],
        by: &str,
    ) {
        let place = scope(number);
        if number == INBOX {
            let right = model.fetch(number, lanes);
            let right: Vec<i64> = right.iter().map(|row| self.ids[row]).collect();
            assert_eq!(fetched, right, "fetch of {place}: {by}");
            return;
        }
        assert!(fetched.is_sorted(), "{fetched:?}");
        let (must, may) = model.fetch_outbox(number, lanes);
        let rows = self.rows_of(model, number, fetched);
        assert!(must.is_subset(&rows), "fetch of {place}: {by}: {rows:?} without some of {must:?}");
        assert!(rows.is_subset(&may), "fetch of {place}: {by}: {rows:?} not within {may:?}");
        for row in rows.iter().filter(|row| !model.rows[**row].delayed) {
            for earlier in model.earlier(*row) {
                assert!(rows.contains(&earlier), "{row} came before {earlier} of its key");
            }
        }
    }

    /// The numbers of a scope's rows in the model; tables count their ids apart.
    fn rows_of(&self, model: &Model, number: usize, ids: &[i64]) -> BTreeSet<usize> {
        let is_one =
            |(row, id): &(&usize, &i64)| model.rows[**row].scope == number && ids.contains(id);
        self.ids.iter().filter(is_one).map(|(row, _)| *row).collect()
    }

    /// A limit may choose among keys, but never turns a key's rows round; one sent with a delay has
    /// no place among them. Of a key to be left out nothing comes.
    async fn compare_limited(&self, model: &Model, number: usize) {
        const LIMIT: usize = 2;
        let (rows, ids) = (&model.rows, &self.ids);
        let left_out = model.dead.len() % KEYS.len();
        let whole = Self::fetch_all(&self.second, number, all_lanes()).await;
        let mut full: Vec<usize> = self.rows_of(model, number, &whole).into_iter().collect();
        full.retain(|row| rows[*row].key != left_out);
        let skip_keys = vec![KEYS[left_out].to_owned()];
        let fetch = Fetch { skip_keys, ..Fetch::new(scope(number), all_lanes(), LIMIT) };
        let some = Self::fetch(&self.second, fetch).await;
        assert_eq!(some.len(), full.len().min(LIMIT), "a limit is used up");
        assert!(some.is_sorted());
        for id in &some {
            let row = *full.iter().find(|row| ids[row] == *id).expect("a row of the whole fetch");
            let alike = |e: &&usize| **e < row && rows[**e].key == rows[row].key;
            let in_order = |e: &&usize| model.holds(**e) || rows[**e].time == Time::None;
            for earlier in full.iter().filter(alike).filter(in_order) {
                assert!(some.contains(&ids[earlier]), "{id} came before an earlier row of its key");
            }
        }
    }

    async fn fetch_all(
        store: &Arc<dyn StoreDriver>,
        number: usize,
        lanes: Vec<OwnedLane>,
    ) -> Vec<i64> {
        let fetch = Fetch::new(scope(number), lanes, PAGE_MAX);
        Self::fetch(store, fetch).await
    }

    async fn fetch(store: &Arc<dyn StoreDriver>, fetch: Fetch) -> Vec<i64> {
        if fetch.scope == Scope::Inbox {
            let rows = store.fetch_inbox(fetch).await.expect("fetch");
            rows.into_iter().map(|row| row.id).collect()
        } else {
            let rows = store.fetch_outbox(fetch).await.expect("fetch");
            rows.into_iter().map(|row| row.id).collect()
        }
    }

    async fn compare_dead_letters(&self, model: &Model) {
        for (status, resolved) in [("open", false), ("resolved", true)] {
            let letters = self.dead_letters(status).await;
            let stored: BTreeMap<Uuid, u32> =
                letters.iter().map(|letter| (letter.id, letter.attempts)).collect();
            let right = model.dead.iter().enumerate().filter(|(_, dead)| dead.resolved == resolved);
            let right: BTreeMap<Uuid, u32> =
                right.map(|(number, dead)| (self.dead[&number], dead.attempts)).collect();
            assert_eq!(stored, right, "{status} dead letters");
        }
    }

    async fn dead_letters(&self, status: &str) -> Vec<DeadLetter> {
        let filter =
            Filter { status: Some(status.to_owned()), limit: PAGE_MAX, ..Filter::default() };
        self.store.list_dead_letters(filter).await.expect("list dead letters")
    }

    /// Compares all rows, learning the ids of new ones: each as the model says, and no row more.
    async fn learn_rows(&mut self, model: &Model) {
        let mut stored = self.stored_rows().await;
        for (number, row) in model.rows.iter().enumerate() {
            let Some(status) = row.status() else { continue };
            let name = match row.ident {
                Ident::Sent(id) => Uuid::from_u128(id).to_string(),
                Ident::Received(message) => message_id(message),
                Ident::LetIn { .. } => self.let_in[&number].clone(),
            };
            let it = stored.remove(&name).unwrap_or_else(|| panic!("{row:?} is missing"));
            assert_eq!((it.status, it.attempts), (status, row.attempts), "{row:?}");
            assert!(it.lost == row.lost || !row.is_open(), "{row:?}");
            assert_eq!(it.lane, model.lane(number), "{row:?}");
            assert_eq!(it.has_time, row.time != Time::None, "{row:?}");
            let known = *self.ids.entry(number).or_insert(it.id);
            assert_eq!(known, it.id, "{row:?}");
        }
        assert!(stored.is_empty(), "rows that should not be there: {:?}", stored.keys());
    }

    async fn stored_rows(&self) -> HashMap<String, Stored> {
        let filter = Filter { limit: PAGE_MAX, ..Filter::default() };
        let inbox = self.store.list_inbox(filter.clone()).await.expect("list inbox");
        let outbox = self.store.list_outbox(filter).await.expect("list outbox");
        let inbox = inbox.into_iter().map(|row| {
            let (status, has_time) = (row.status.as_str(), row.next_attempt_at.is_some());
            let (id, lane, attempts, lost) = (row.id, row.lane, row.attempts, row.lost_workers);
            (row.message_id, Stored { id, lane, status, attempts, lost, has_time })
        });
        let outbox = outbox.into_iter().map(|row| {
            let (status, has_time) = (row.status.as_str(), row.next_attempt_at.is_some());
            let (id, lane, attempts, lost) = (row.id, row.lane, row.attempts, row.lost_workers);
            (row.message_id.to_string(), Stored { id, lane, status, attempts, lost, has_time })
        });
        inbox.chain(outbox).collect()
    }
}

/// The compared columns of a row.
struct Stored {
    id: i64,
    lane: i16,
    status: &'static str,
    attempts: u32,
    lost: u32,
    has_time: bool,
}
