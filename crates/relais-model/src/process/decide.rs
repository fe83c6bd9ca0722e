//! The real decisions, between the rows of the model and those of the store.

use std::time::Duration;

use relais_core::{
    extract::Pick,
    inbox::{InboxRow, NewInbox},
    message::NewMessage,
    process::{
        Action, Change, Definition, Input, KeyHold, Process, TimerChange, advance,
        declared::{DeclaredCall, DeclaredProcess, DeclaredStep},
        definition::{CallTarget, Correlate, KeyUse, ProcessStart},
    },
    retry::RetryPolicy,
    time::Timestamp,
};
use uuid::Uuid;

use super::{STEPS, SagaAnswer, SagaCommand, SagaInput, SagaRow};

const NAMES: [&str; STEPS] = ["first", "second"];
const PROCESS_ID: Uuid = Uuid::from_u128(1);

/// The result of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SagaDecision {
    pub row: SagaRow,
    pub commands: Vec<SagaCommand>,
    pub timer: TimerNext,
}

/// The next state of the timer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TimerNext {
    Keep,
    Clear,
    Set(usize, Uuid),
}

/// Two steps, each with a compensation and time-outs everywhere.
pub(super) fn definition(attempts_max: u32) -> Definition {
    let retry = RetryPolicy::default().attempts_max(attempts_max);
    let call = |name: &str, undo: bool| DeclaredCall {
        target: CallTarget::Destination("service".into()),
        command: event(name, undo, "do"),
        payload: Some("null".into()),
        completed: vec![event(name, undo, "done")],
        failed: vec![event(name, undo, "refused")],
        retryable: vec![event(name, undo, "busy")],
        error: None,
        correlate: Correlate::ProcessId(Pick::Header("correlation-id".into())),
        timeout: Some(Duration::from_secs(1)),
        retry,
    };
    let step = |name: &str| DeclaredStep {
        name: name.into(),
        call: call(name, false),
        compensation: Some(call(name, true)),
    };
    let declared = DeclaredProcess {
        process_type: "Model".into(),
        version: 1,
        starts: vec!["Begin".into()],
        business_key: None,
        key_use: KeyUse::Once,
        steps: NAMES.into_iter().map(step).collect(),
    };
    declared.build().expect("the model's definition is right")
}

pub(super) fn begin(definition: &Definition) -> SagaDecision {
    let begun = ProcessStart { business_key: None, data: r#"{"input":null,"steps":{}}"#.into() };
    decided(advance::begin(definition, PROCESS_ID, begun, None))
}

/// Returns the decision of a worker about an inbox row.
pub(super) fn handle(
    definition: &Definition,
    process: &SagaRow,
    waiting: SagaInput,
) -> SagaDecision {
    let process = stored(process);
    let change = match waiting {
        SagaInput::Reply { command, says, .. } => {
            let says = match says {
                SagaAnswer::Done => "done",
                SagaAnswer::Refused => "refused",
                SagaAnswer::Busy => "busy",
            };
            let event = event(NAMES[command.step], command.undo, says);
            let row = row(&event, Some(command.id));
            advance(definition, &process, &Input::Reply(&row), 0.0)
        }
        SagaInput::Timer { step, id } => {
            let input = Input::Timer { step: NAMES[step], command_id: id, message_id: "timer" };
            advance(definition, &process, &input, 0.0)
        }
    };
    decided(change.expect("every reply of the model is one the definition knows"))
}

/// Returns the result of an operator's action; `None` if it does not fit.
pub(super) fn act(
    definition: &Definition,
    process: &SagaRow,
    action: Action,
) -> Option<SagaDecision> {
    let input = Input::Action { action, actor: "operator", reason: "model" };
    advance(definition, &stored(process), &input, 0.0).ok().map(decided)
}

fn event(name: &str, undo: bool, says: &str) -> String {
    format!("{name}-{}{says}", if undo { "undo-" } else { "" })
}

fn decided(change: Change) -> SagaDecision {
    assert_eq!(change.process.version, change.from + change.log.len() as i64, "the log is linear");
    let Process { status, current_step, data, retries, progress, .. } = change.process;
    let place = |step: &str| NAMES.iter().position(|name| *name == step).expect("a known step");
    let command = |message: &NewMessage| {
        let name = message.event_type.trim_end_matches("-do").trim_end_matches("-undo");
        let undo = message.event_type.ends_with("-undo-do");
        SagaCommand { id: message.message_id, step: place(name), undo }
    };
    SagaDecision {
        row: SagaRow { status, current_step, data, retries, progress },
        commands: change.messages.iter().map(command).collect(),
        timer: match change.timer {
            TimerChange::Keep => TimerNext::Keep,
            TimerChange::Clear => TimerNext::Clear,
            TimerChange::Set(timer) => TimerNext::Set(place(&timer.step), timer.command_id),
        },
    }
}

fn stored(row: &SagaRow) -> Process {
    let SagaRow { status, current_step, data, retries, progress } = row.clone();
    Process {
        process_id: PROCESS_ID,
        process_type: "Model".into(),
        definition: 1,
        business_key: None,
        key_hold: KeyHold::Once,
        status,
        current_step,
        data,
        retries,
        progress,
        version: 1,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    }
}

fn row(event_type: &str, answers: Option<Uuid>) -> InboxRow {
    let row = InboxRow::received(1, NewInbox::new("model", "m", event_type, "null"));
    let mut headers = row.headers.clone();
    if let Some(command) = answers {
        headers.set("causation-id", &command.to_string());
    }
    InboxRow { headers, ..row }
}
