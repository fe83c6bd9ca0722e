//! Whatever happens to a process, in whatever order: what must always hold, holds.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use super::*;
use crate::process::create;

const CALLS: [&str; 5] = ["pay", "pack", "ship", "refund", "recall"];

/// One thing that may happen. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Happening {
    /// A reply to one of the commands sent, or, if `None`, without saying to which.
    Reply {
        call: usize,
        kind: usize,
        command: Option<usize>,
    },
    Timer,
    OldTimer(usize),
    Act(Action),
}

fn happening() -> impl Strategy<Value = Happening> {
    let command = prop_oneof![1 => Just(None), 3 => (0..50_usize).prop_map(Some)];
    let reply = (0..CALLS.len(), 0..3_usize, command);
    prop_oneof![
        8 => reply.prop_map(|(call, kind, command)| Happening::Reply { call, kind, command }),
        4 => Just(Happening::Timer),
        1 => (0..50_usize).prop_map(Happening::OldTimer),
        2 => (0..Action::ALL.len()).prop_map(|n| Happening::Act(Action::ALL[n])),
    ]
}

/// The state according to the log alone, computed without the code that is tested.
#[derive(Default)]
struct Told {
    done: BTreeSet<String>,
    undone: BTreeMap<String, u32>,
    commands: BTreeSet<Uuid>,
    timers: Vec<Timer>,
}

impl Told {
    fn hear(&mut self, world: &World) {
        for message in &world.last.messages {
            assert!(self.commands.insert(message.message_id), "a command sent twice");
        }
        assert!(world.last.messages.len() <= 1, "two commands at once");
        for entry in &world.last.log {
            if entry.note.as_deref().is_some_and(|note| note.starts_with("ignored")) {
                continue;
            }
            match &entry.event {
                ProcessEvent::StepCompleted { step, .. } => {
                    self.done.insert(step.clone());
                }
                ProcessEvent::CompensationCompleted { step, .. } => {
                    *self.undone.entry(step.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
        if let TimerChange::Set(timer) = &world.last.timer {
            let before = self.timers.iter().all(|old| old.command_id != timer.command_id);
            assert!(before, "a timer with the id of another");
            self.timers.push(timer.clone());
        }
    }

    /// Checks the invariants that hold after every change.
    fn check(&self, world: &World) {
        for (step, times) in &self.undone {
            assert!(*times <= 1 && self.done.contains(step), "`{step}` undone {times} times");
        }
        let status = world.status();
        match status {
            ProcessStatus::Compensated => {
                let stands =
                    |step: &&str| self.done.contains(*step) && !self.undone.contains_key(*step);
                let standing: Vec<&str> = ["pay", "ship"].into_iter().filter(stands).collect();
                assert!(standing.is_empty(), "COMPENSATED with {standing:?} standing");
            }
            ProcessStatus::Succeeded => assert_eq!(self.done.len(), 3),
            _ => {}
        }
        let progress: serde_json::Value = serde_json::from_str(&world.process.progress).unwrap();
        let now = progress["at"]["at"]["now"].as_str();
        let waits = matches!(now, Some("sent" | "resting"));
        assert!(waits || world.timer.is_none(), "a timer that nothing waits for");
        assert!(now != Some("resting") || world.timer.is_some(), "a pause without an end");
        let needs_person = now == Some("stuck") && status == ProcessStatus::Compensating;
        assert!(!needs_person || world.dead_letter.is_some(), "stuck, without a dead letter");
        let runs = status == ProcessStatus::Running || status == ProcessStatus::Succeeded;
        assert!(!runs || world.dead_letter.is_none(), "running, with an open dead letter");
        if status == ProcessStatus::Paused {
            assert!(world.last.messages.is_empty(), "something new has begun");
        }
    }
}

/// Lets one thing happen; whether it could.
fn happen(world: &mut World, told: &Told, happening: &Happening) -> bool {
    match happening {
        Happening::Reply { call, kind, command } => {
            let name = CALLS[*call];
            let kind = ["Done", "Failed", "Busy"][*kind];
            let command = command.map(|nth| {
                let sent: Vec<_> = world.sent.iter().filter(|m| m.event_type == name).collect();
                sent.get(nth % sent.len().max(1)).map(|message| message.message_id)
            });
            world.try_reply(&format!("{name}{kind}"), command.flatten()).unwrap();
            true
        }
        Happening::Timer if world.timer.is_some() => {
            world.fire();
            true
        }
        Happening::OldTimer(nth) if !told.timers.is_empty() => {
            let timer = told.timers[nth % told.timers.len()].clone();
            // One that is still set fires only once.
            if world.timer.as_ref() == Some(&timer) {
                world.timer = None;
            }
            world.fire_again(&timer);
            true
        }
        Happening::Timer | Happening::OldTimer(_) => false,
        Happening::Act(action) => world.try_act(*action).is_ok(),
    }
}

/// A process that has ended continues only by an operator, or because of a late success that is compensated.
fn check_end(before: ProcessStatus, world: &World, happening: &Happening) {
    if !before.is_final() || world.status() == before {
        return;
    }
    let by_person = matches!(happening, Happening::Act(_));
    let by_late_success = before != ProcessStatus::Succeeded
        && matches!(&world.last.log[0].event, ProcessEvent::StepCompleted { .. })
        && world.note().starts_with("late: ");
    assert!(by_person || by_late_success, "{before:?} became {:?}", world.status());
}

/// Lets all of it happen to a process that is begun or only made; every status it had.
fn run(made: Made, happenings: &[Happening]) -> BTreeSet<ProcessStatus> {
    let mut world = match made {
        Made::Started => World::start(),
        Made::Templated => {
            let mut declared = declared();
            // A skipped payment leaves no data, so these commands cannot be made.
            for step in &mut declared.steps[1..] {
                step.call.payload = Some(r#"{"n":{{/steps/pay/n}}}"#.to_owned());
            }
            let start = row("m-0", "Placed", r#"{"id":"O-1"}"#);
            World::start_with(declared.build().unwrap(), &start)
        }
        Made::Created => {
            let definition = declared().build().unwrap();
            let begun = definition.begun(None, "{}").unwrap();
            let change = create(&definition, Uuid::from_u128(7), begun, None);
            World::of(definition, change)
        }
    };
    let mut told = Told::default();
    told.hear(&world);
    let mut seen = BTreeSet::from([world.status()]);
    for happening in happenings {
        let before = (world.status(), world.process.version);
        if happen(&mut world, &told, happening) {
            told.hear(&world);
            check_end(before.0, &world, happening);
        } else {
            assert_eq!((world.status(), world.process.version), before);
        }
        told.check(&world);
        seen.insert(world.status());
    }
    seen
}

#[derive(Clone, Copy, Debug)]
enum Made {
    Started,
    /// Commands of later steps need the data of the first.
    Templated,
    Created,
}

fn history() -> impl Strategy<Value = (Made, Vec<Happening>)> {
    let made = prop_oneof![
        3 => Just(Made::Started),
        2 => Just(Made::Templated),
        1 => Just(Made::Created),
    ];
    (made, proptest::collection::vec(happening(), 1..60))
}

#[test]
fn the_histories_tried_reach_every_status() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let (made, happenings) = history().new_tree(&mut runner).unwrap().current();
        seen.extend(run(made, &happenings));
    }
    assert_eq!(seen.len(), ProcessStatus::ALL.len(), "only {seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold((made, happenings) in history()) {
        run(made, &happenings);
    }

    #[test]
    fn no_stored_progress_makes_it_panic(
        text in "\\PC*",
        happening in happening(),
        flip in 0..200_usize,
    ) {
        let mut world = World::start();
        world.reply("payDone");
        let mut bytes = world.process.progress.clone().into_bytes();
        let place = flip % bytes.len();
        bytes[place] = b"x1\"{}[],tn"[flip % 10];
        for progress in [text, String::from_utf8(bytes).unwrap()] {
            world.process.progress = progress;
            let Happening::Reply { call, kind, .. } = &happening else { continue };
            let event_type = format!("{}{}", CALLS[*call], ["Done", "Failed", "Busy"][*kind]);
            let row = world.reply_row(&event_type, None);
            let _ = advance(&world.definition, &world.process, &Input::Reply(&row), 0.0);
            for action in Action::ALL {
                let input = Input::Action { action, actor: "a", reason: "b" };
                let _ = advance(&world.definition, &world.process, &input, 0.0);
            }
        }
    }
}
