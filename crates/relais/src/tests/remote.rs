//! A bulk target in memory: jobs with phases, every effect counted, faults on demand.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use relais_core::{
    async_trait,
    bulk::{BulkTarget, CallProblem, EncodedRows, Remote},
    delivery::{Delivery, Problem},
    outbox::OutboxRow,
};
use tokio::sync::Notify;

/// The fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing happens, and no answer comes.
    LostBefore,
    /// It happens, and no answer comes.
    LostAfter,
    /// Nothing happens until the gate opens.
    HangsBefore,
    /// It happens, and the answer comes when the gate opens.
    HangsAfter,
    Outage,
    Refused,
    Panics,
}

/// The calls that can go wrong, in the order of a job's life.
pub(super) const CALLS: [&str; 7] =
    ["encode", "create", "upload", "close", "state", "results", "abort"];

/// The outcome of a row, by its payload.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Success,
    /// Fails this many times, then succeeds.
    Fails(usize, Delivery),
    /// Left out by `encode`.
    LeftOut(Delivery),
    /// In no result file the first time; the effect happens.
    Missing,
    /// Forgotten by `encode` the first time.
    Forgotten,
    /// `encode` hangs, as if it killed its worker.
    KillsWorker,
    /// `encode` panics.
    Panics,
}

#[derive(Debug, Default)]
struct Job {
    state: State,
    body: Option<Vec<(String, String)>>,
    /// External id → outcome.
    done: HashMap<String, Option<Delivery>>,
    looks: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Running,
    Complete,
    Failed,
    Aborted,
}

#[derive(Debug, Default)]
pub(super) struct World {
    jobs: BTreeMap<String, Job>,
    /// (external id, payload) → how often it was applied.
    effects: BTreeMap<(String, String), usize>,
    /// Payloads in the order they were applied.
    applied: Vec<String>,
    outcomes: HashMap<String, Outcome>,
    /// Faults of the next calls, by name.
    faults: Vec<(&'static str, Fault)>,
    /// Workers and their calls.
    calls: Vec<(String, &'static str)>,
    /// Rows of a job that succeed before it fails as a whole; `None`: it does not fail.
    fails_after: Option<usize>,
    /// A job with such a payload fails as a whole; `*`: every job.
    poison: Option<String>,
    /// Jobs that are polled do not exist any more.
    forgotten: bool,
    swept: Vec<String>,
}

/// The target, as one worker calls it.
#[derive(Clone)]
pub(super) struct RemoteTarget {
    world: Arc<Mutex<World>>,
    gate: Arc<Notify>,
    /// Notified when a call begins to hang.
    hung: Arc<Notify>,
    name: String,
    rows_max: usize,
}

impl RemoteTarget {
    pub(super) fn new() -> Self {
        Self {
            world: Arc::default(),
            gate: Arc::default(),
            hung: Arc::default(),
            name: "w".into(),
            rows_max: 100,
        }
    }

    /// Returns the same target for another worker.
    pub(super) fn of(&self, name: &str) -> Self {
        Self { name: name.into(), ..self.clone() }
    }

    pub(super) fn rows_max(&self, rows_max: usize) -> Self {
        Self { rows_max, ..self.clone() }
    }

    /// Makes every job with this payload fail before any of its rows is tried; `*`: every job.
    pub(super) fn poison(&self, payload: &str) {
        self.with(|world| world.poison = Some(payload.to_owned()));
    }

    pub(super) fn outcome(&self, payload: &str, outcome: Outcome) {
        self.with(|world| world.outcomes.insert(payload.to_owned(), outcome));
    }

    pub(super) fn fault(&self, call: &'static str, fault: Fault) {
        self.with(|world| world.faults.push((call, fault)));
    }

    pub(super) fn clear_faults(&self) {
        self.with(|world| world.faults.clear());
    }

    pub(super) fn fails_after(&self, rows: usize) {
        self.with(|world| world.fails_after = Some(rows));
    }

    pub(super) fn forget_jobs(&self) {
        self.with(|world| world.forgotten = true);
    }

    /// Lets calls that hang continue.
    pub(super) fn open_gate(&self) {
        self.gate.notify_waiters();
    }

    /// Resolves when a call hangs.
    pub(super) async fn hung(&self) {
        self.hung.notified().await;
    }

    async fn hang(&self) {
        let gate = self.gate.notified();
        self.hung.notify_one();
        gate.await;
    }

    /// Returns whether a fault has not happened yet.
    pub(super) fn has_faults(&self) -> bool {
        self.with(|world| !world.faults.is_empty())
    }

    /// Returns how often each payload was applied.
    pub(super) fn effects(&self) -> BTreeMap<String, usize> {
        self.with(|world| {
            let of = |((_, payload), count): (&(String, String), &usize)| (payload.clone(), *count);
            world.effects.iter().map(of).collect()
        })
    }

    pub(super) fn applied(&self) -> Vec<String> {
        self.with(|world| world.applied.clone())
    }

    pub(super) fn open_jobs(&self) -> usize {
        self.with(|world| {
            let open = |job: &&Job| matches!(job.state, State::Open | State::Running);
            world.jobs.values().filter(open).count()
        })
    }

    pub(super) fn jobs(&self) -> usize {
        self.with(|world| world.jobs.len())
    }

    pub(super) fn calls(&self, name: &str) -> Vec<&'static str> {
        self.with(|world| {
            world.calls.iter().filter(|(who, _)| who == name).map(|(_, call)| *call).collect()
        })
    }

    pub(super) fn swept(&self) -> Vec<String> {
        self.with(|world| world.swept.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        work(&mut self.world.lock().unwrap())
    }

    /// Makes a call: its fault, then its effect, then its fault again.
    async fn call<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut World) -> Result<T, CallProblem>,
    ) -> Result<T, CallProblem> {
        let fault = self.with(|world| {
            world.calls.push((self.name.clone(), name));
            let at = world.faults.iter().position(|(call, _)| *call == name)?;
            Some(world.faults.remove(at).1)
        });
        let problem = || Problem::new("ON_PURPOSE", name);
        tokio::task::yield_now().await;
        match fault {
            Some(Fault::LostBefore) => return Err(CallProblem::Unclear(problem())),
            Some(Fault::Outage) => {
                return Err(CallProblem::Outage { problem: problem(), after: None });
            }
            Some(Fault::Refused) => return Err(CallProblem::Refused(problem())),
            Some(Fault::Panics) => panic!("on purpose"),
            Some(Fault::HangsBefore) => self.hang().await,
            _ => {}
        }
        let answer = self.with(effect);
        tokio::task::yield_now().await;
        match fault {
            Some(Fault::LostAfter) => Err(CallProblem::Unclear(problem())),
            Some(Fault::HangsAfter) => {
                self.hang().await;
                answer
            }
            _ => answer,
        }
    }
}

impl World {
    /// Returns the fault of every upload that has this row.
    fn fault_of(&self, row: &OutboxRow) -> Option<Fault> {
        match self.outcomes.get(&name_of(row))? {
            Outcome::KillsWorker => Some(Fault::HangsBefore),
            Outcome::Panics => Some(Fault::Panics),
            _ => None,
        }
    }

    fn job(&mut self, id: &str) -> &mut Job {
        self.jobs.get_mut(id).expect("a job that was made")
    }

    /// Applies the rows of a job, or some of them before it fails.
    fn process(&mut self, id: &str) {
        let rows = self.job(id).body.clone().unwrap_or_default();
        let poison =
            |poison: &String| poison == "*" || rows.iter().any(|(_, payload)| payload == poison);
        let poisoned = self.poison.as_ref().is_some_and(poison).then_some(0);
        let stop = poisoned.or_else(|| self.fails_after.take());
        for (external, payload) in rows.iter().take(stop.unwrap_or(usize::MAX)) {
            let outcome = self.outcomes.get_mut(payload);
            let result = match outcome {
                Some(Outcome::Fails(left, answer)) if *left > 0 => {
                    *left -= 1;
                    Some(answer.clone())
                }
                Some(missing @ Outcome::Missing) => {
                    *missing = Outcome::Success;
                    None
                }
                _ => Some(Delivery::Accepted),
            };
            if matches!(result, None | Some(Delivery::Accepted)) {
                *self.effects.entry((external.clone(), payload.clone())).or_default() += 1;
                self.applied.push(payload.clone());
            }
            self.job(id).done.insert(external.clone(), result);
        }
        self.job(id).state = if stop.is_some() { State::Failed } else { State::Complete };
    }

    fn look(&mut self, id: &str) -> Remote {
        if self.forgotten {
            return Remote::Gone;
        }
        let job = self.job(id);
        job.looks += 1;
        if job.state == State::Running && job.looks > 1 {
            self.process(id);
        }
        match self.job(id).state {
            State::Open => Remote::Open,
            State::Running => Remote::Running,
            State::Complete => Remote::Complete,
            State::Failed => Remote::Failed(Problem::new("FAILED", "as a whole")),
            State::Aborted => Remote::Aborted,
        }
    }
}

fn other_state() -> CallProblem {
    CallProblem::OtherState(Problem::new("INVALIDJOBSTATE", "not in this state"))
}

fn name_of(row: &OutboxRow) -> String {
    row.payload.trim_matches('"').to_owned()
}

#[async_trait]
impl BulkTarget for RemoteTarget {
    fn rows_max(&self) -> usize {
        self.rows_max
    }

    async fn encode(&self, rows: &[OutboxRow], _: usize) -> Result<EncodedRows, CallProblem> {
        let fault = self.with(|world| rows.iter().find_map(|row| world.fault_of(row)));
        let encode = self.call("encode", move |world| {
            let mut encoded = EncodedRows::default();
            let mut lines = Vec::new();
            for row in rows {
                match world.outcomes.get_mut(&name_of(row)) {
                    Some(Outcome::LeftOut(answer)) => {
                        encoded.left_out.push((row.id, answer.clone()));
                    }
                    Some(forgotten @ Outcome::Forgotten) => *forgotten = Outcome::Success,
                    _ => lines.push((row.aggregate_id.clone(), name_of(row))),
                }
            }
            encoded.count = lines.len() as u64;
            encoded.body = serde_json::to_vec(&lines).expect("plain text");
            Ok(encoded)
        });

        match fault {
            Some(Fault::Panics) => panic!("on purpose"),
            Some(_) => self.hang().await,
            None => {}
        }
        encode.await
    }

    async fn create(&self) -> Result<String, CallProblem> {
        self.call("create", |world| {
            let id = format!("job-{}", world.jobs.len() + 1);
            world.jobs.insert(id.clone(), Job::default());
            Ok(id)
        })
        .await
    }

    async fn upload(&self, id: &str, parts: Vec<Vec<u8>>) -> Result<(), CallProblem> {
        self.call("upload", move |world| {
            let job = world.job(id);
            assert!(job.body.is_none(), "a second upload poisons the job");
            if job.state != State::Open {
                return Err(other_state());
            }
            let lines = |part: &Vec<u8>| -> Vec<(String, String)> {
                serde_json::from_slice(part).expect("our lines")
            };
            let lines: Vec<_> = parts.iter().flat_map(lines).collect();
            let mut ids: Vec<_> = lines.iter().map(|(id, _)| id.to_ascii_lowercase()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), lines.len(), "one row for each external id");
            job.body = Some(lines);
            Ok(())
        })
        .await
    }

    async fn close(&self, id: &str) -> Result<(), CallProblem> {
        self.call("close", move |world| {
            let job = world.job(id);
            if job.state != State::Open {
                return Err(other_state());
            }
            assert!(job.body.is_some(), "closed without an upload");
            job.state = State::Running;
            job.looks = 0;
            Ok(())
        })
        .await
    }

    async fn abort(&self, id: &str) -> Result<(), CallProblem> {
        self.call("abort", move |world| {
            let job = world.job(id);
            if job.state != State::Open {
                return Err(other_state());
            }
            job.state = State::Aborted;
            Ok(())
        })
        .await
    }

    async fn state(&self, id: &str) -> Result<Remote, CallProblem> {
        self.call("state", move |world| Ok(world.look(id))).await
    }

    async fn results(
        &self,
        id: &str,
        external_ids: &[String],
    ) -> Result<Vec<Delivery>, CallProblem> {
        self.call("results", move |world| {
            if world.forgotten {
                return Err(other_state());
            }
            let job = world.job(id);
            let answer = |id: &String| match job.done.get(id) {
                Some(Some(answer)) => answer.clone(),
                Some(None) => Delivery::retry("MISSING", "in no result"),
                None => Delivery::Held,
            };
            Ok(external_ids.iter().map(answer).collect())
        })
        .await
    }

    async fn sweep(&self, known: &[String]) -> Result<usize, CallProblem> {
        self.call("sweep", move |world| {
            let mut aborted = 0;
            for (id, job) in &mut world.jobs {
                if job.state == State::Open && !known.contains(id) {
                    job.state = State::Aborted;
                    world.swept.push(id.clone());
                    aborted += 1;
                }
            }
            Ok(aborted)
        })
        .await
    }
}
