//! Processes written in Rust: steps over a type of the user's.
//!
//! ```
//! use std::time::Duration;
//!
//! use relais_core::process::{
//!     definition::Meaning,
//!     typed::{command_named, define},
//! };
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order {
//!     id: String,
//!     payment: Option<String>,
//! }
//! #[derive(Deserialize)]
//! struct OrderPlaced {
//!     id: String,
//! }
//! #[derive(Deserialize)]
//! struct PaymentTaken {
//!     payment: String,
//! }
//! #[derive(Deserialize)]
//! struct Empty {}
//!
//! let take = command_named("payments", "TakePayment", |order: &Order| json!({"order": order.id}))
//!     .on_named("PaymentTaken", |order, taken: PaymentTaken| order.payment = Some(taken.payment))
//!     .on_named("PaymentDeclined", |_, _: Empty| Meaning::failed("declined"))
//!     .timeout(Duration::from_secs(30));
//! let refund = command_named("payments", "Refund", |order: &Order| json!({"payment": order.payment}))
//!     .on_named("Refunded", |_, _: Empty| ());
//! let ship = command_named("shipping", "Ship", |order: &Order| json!({"order": order.id}))
//!     .on_named("Shipped", |_, _: Empty| ())
//!     .on_named("ShippingBusy", |_, _: Empty| Meaning::retryable("busy"));
//!
//! let definition = define::<Order>("Order", 1)
//!     .starts_on_named("OrderPlaced", |placed: OrderPlaced| {
//!         (placed.id.clone(), Order { id: placed.id, payment: None })
//!     })
//!     .reversible_step("payment", take, refund)
//!     .step("shipment", ship)
//!     .build()
//!     .unwrap();
//! assert_eq!(definition.step_names(), ["payment", "shipment"]);
//! ```
//!
//! Types that derive `Message` need no names: `command`, `on` and `starts_on` take theirs.

use std::{fmt, marker::PhantomData, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    PROCESS_STATE,
    definition::{
        Call, CallTarget, Correlate, Definition, DefinitionParts, JudgeFn, KeyUse, Meaning,
        PayloadFn, ProcessStart, Reply, StartEvent, Step,
    },
    handler_step::{HANDLER_DONE, HANDLER_FAILED, HandlerFailure},
};
use crate::{
    delivery::Problem,
    inbox::InboxRow,
    message::Message,
    retry::RetryPolicy,
    text::{self, MESSAGE_ID_MAX},
};

/// The data of a process: any type that can be written to JSON and read back.
pub trait Data: Serialize + DeserializeOwned + 'static {}

impl<T: Serialize + DeserializeOwned + 'static> Data for T {}

/// Begins the definition of a process whose data is a `T`. Raise the version with every change to its
/// steps, and keep the old definition registered as long as processes of it run.
pub fn define<T: Data>(process_type: &str, version: i32) -> Define<T> {
    Define {
        process_type: process_type.to_owned(),
        version,
        starts: Vec::new(),
        key_use: KeyUse::default(),
        steps: Vec::new(),
        data: PhantomData,
    }
}

/// A definition in the making.
pub struct Define<T> {
    process_type: String,
    version: i32,
    starts: Vec<StartEvent>,
    key_use: KeyUse,
    steps: Vec<Step>,
    data: PhantomData<fn() -> T>,
}

/// Everything that is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process `{process_type}`: {}", problems.join("; "))]
pub struct InvalidDefinition {
    /// The name of the type of process.
    pub process_type: String,
    /// All errors of the definition.
    pub problems: Vec<String>,
}

impl<T: Data> Define<T> {
    /// Starts one with each such event; `begin` gives its business key (`None::<String>` if it has
    /// none) and its first data.
    pub fn starts_on<E, K>(self, begin: impl Fn(E) -> (K, T) + Send + Sync + 'static) -> Self
    where
        E: Message + DeserializeOwned + 'static,
        K: Into<Option<String>> + 'static,
    {
        self.starts_on_named(E::NAME, begin)
    }

    /// The same for an event type given by name.
    pub fn starts_on_named<E, K>(
        mut self,
        event_type: &str,
        begin: impl Fn(E) -> (K, T) + Send + Sync + 'static,
    ) -> Self
    where
        E: DeserializeOwned + 'static,
        K: Into<Option<String>> + 'static,
    {
        let begin = move |row: &InboxRow| {
            let (business_key, data) = begin(read_payload::<E>(row)?);
            let business_key: Option<String> = business_key.into();
            Ok(ProcessStart {
                business_key: business_key.map(|key| text::identity(&key, MESSAGE_ID_MAX)),
                data: write(&data)?,
            })
        };
        self.starts.push(StartEvent { event_type: event_type.to_owned(), begin: Box::new(begin) });
        self
    }

    /// Sets when a business key can be used for another process; by default when its process is cleaned up.
    pub fn key_use(self, key_use: KeyUse) -> Self {
        Self { key_use, ..self }
    }

    /// The next step. It stands even if a later one fails.
    pub fn step(mut self, name: &str, command: Command<T>) -> Self {
        let call = command.into_call();
        self.steps.push(Step { name: name.to_owned(), call, compensation: None });
        self
    }

    /// The next step, undone by `undo` if a later one fails.
    pub fn reversible_step(mut self, name: &str, command: Command<T>, undo: Command<T>) -> Self {
        let (call, compensation) = (command.into_call(), Some(undo.into_call()));
        self.steps.push(Step { name: name.to_owned(), call, compensation });
        self
    }

    /// Checks the definition. Returns all its errors at once.
    pub fn build(self) -> Result<Definition, InvalidDefinition> {
        let process_type = self.process_type.clone();
        let parts = DefinitionParts {
            process_type: self.process_type,
            version: self.version,
            starts: self.starts,
            key_use: self.key_use,
            adopt: Box::new(|data| write(&read_data::<T>(data)?)),
            steps: self.steps,
            replay_data: None,
        };
        Definition::new(parts).map_err(|problems| InvalidDefinition { process_type, problems })
    }
}

/// A command, the replies it may get, and what to do without one.
pub struct Command<T> {
    target: CallTarget,
    name: String,
    payload: PayloadFn,
    replies: Vec<(String, JudgeFn)>,
    correlate: Correlate,
    timeout: Option<Duration>,
    retry: RetryPolicy,
    data: PhantomData<fn() -> T>,
}

/// A command to `destination`, made from the data of the process. If it cannot be made (an `Err`), the
/// process is paused until an operator has fixed what is missing.
pub fn command<T: Data, C: IntoCommand>(
    destination: &str,
    payload: impl Fn(&T) -> C + Send + Sync + 'static,
) -> Command<T> {
    let payload = move |data: &str| {
        let made = payload(&read_data(data)?).into_command();
        write(&made?)
    };
    Command::new(CallTarget::Destination(destination.to_owned()), C::Command::NAME, payload)
}

/// The same for a command given by name; its payload is whatever can be written to JSON.
pub fn command_named<T: Data, C: Serialize>(
    destination: &str,
    name: &str,
    payload: impl Fn(&T) -> C + Send + Sync + 'static,
) -> Command<T> {
    let payload = move |data: &str| write(&payload(&read_data(data)?));
    Command::new(CallTarget::Destination(destination.to_owned()), name, payload)
}

/// A command that a handler in another process carries out (`App::remote_handler`): relais calls it, and its
/// answer is the reply. `done` completes the step; [`Command::on_done`] takes its data. `fail` fails the step
/// permanently.
pub fn handler_command<T: Data, C: Serialize>(
    handler: &str,
    name: &str,
    payload: impl Fn(&T) -> C + Send + Sync + 'static,
) -> Command<T> {
    let payload = move |data: &str| write(&payload(&read_data(data)?));
    Command::new(CallTarget::Handler(handler.to_owned()), name, payload)
}

impl<T> Command<T> {
    fn new(
        target: CallTarget,
        name: &str,
        payload: impl Fn(&str) -> Result<String, Problem> + Send + Sync + 'static,
    ) -> Self {
        Self {
            target,
            name: name.to_owned(),
            payload: Box::new(payload),
            replies: Vec::new(),
            correlate: Correlate::default(),
            timeout: None,
            retry: RetryPolicy::default(),
            data: PhantomData,
        }
    }

    /// Waits for such a reply; `judge` takes it into the data and says what it means: a [`Meaning`], or
    /// nothing for [`Meaning::Completed`].
    pub fn on<R, M>(self, judge: impl Fn(&mut T, R) -> M + Send + Sync + 'static) -> Self
    where
        T: Data,
        R: Message + DeserializeOwned + 'static,
        M: Into<Meaning> + 'static,
    {
        self.on_named(R::NAME, judge)
    }

    /// The same for a reply type given by name.
    pub fn on_named<R, M>(
        mut self,
        event_type: &str,
        judge: impl Fn(&mut T, R) -> M + Send + Sync + 'static,
    ) -> Self
    where
        T: Data,
        R: DeserializeOwned + 'static,
        M: Into<Meaning> + 'static,
    {
        let judge = move |data: &str, row: &InboxRow| {
            let mut data: T = read_data(data)?;
            let meaning = judge(&mut data, read_payload::<R>(row)?).into();
            Ok((write(&data)?, meaning))
        };
        self.replies.push((event_type.to_owned(), Box::new(judge)));
        self
    }

    /// Takes the data of an answer `done` of a handler. Without this the data is only in the log.
    pub fn on_done<R, M>(self, judge: impl Fn(&mut T, R) -> M + Send + Sync + 'static) -> Self
    where
        T: Data,
        R: DeserializeOwned + 'static,
        M: Into<Meaning> + 'static,
    {
        self.on_named(HANDLER_DONE, judge)
    }

    /// Sets the rule by which replies find the process; by default the header `correlation-id` is the process id.
    pub fn correlate(self, correlate: Correlate) -> Self {
        Self { correlate, ..self }
    }

    /// Without a reply for so long, an attempt counts as failed for now.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets the number of attempts and the pauses between them.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    fn into_call(mut self) -> Call {
        if let CallTarget::Handler(_) = &self.target {
            self.answer_of_handler();
        }
        let Self { target, name, payload, correlate, timeout, retry, .. } = self;
        let replies = self.replies.into_iter().map(|(event_type, judge)| Reply {
            event_type,
            correlate: correlate.clone(),
            judge,
        });
        Call { target, command: name, payload, replies: replies.collect(), timeout, retry }
    }

    /// Waits for the answers of a handler, which name the process by its id.
    fn answer_of_handler(&mut self) {
        self.correlate = Correlate::default();
        if !self.replies.iter().any(|(event_type, _)| event_type == HANDLER_DONE) {
            let done: JudgeFn = Box::new(|data, _| Ok((data.to_owned(), Meaning::Completed)));
            self.replies.push((HANDLER_DONE.to_owned(), done));
        }
        let failed: JudgeFn = Box::new(|data, row| {
            let failure: HandlerFailure = read_payload(row)?;
            Ok((data.to_owned(), Meaning::failed(failure.message)))
        });
        self.replies.push((HANDLER_FAILED.to_owned(), failed));
    }
}

impl<T> fmt::Debug for Define<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process_type, version, .. } = self;
        f.debug_struct("Define")
            .field("process_type", process_type)
            .field("version", version)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Command<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, name, .. } = self;
        f.debug_struct("Command")
            .field("target", target)
            .field("name", name)
            .finish_non_exhaustive()
    }
}

/// The return value of a function that makes a command: a message, or a `Result` of one.
pub trait IntoCommand {
    /// The message that is sent.
    type Command: Message;
    /// Returns the command, or the reason why there is none.
    fn into_command(self) -> Result<Self::Command, Problem>;
}

impl<M: Message> IntoCommand for M {
    type Command = M;
    fn into_command(self) -> Result<M, Problem> {
        Ok(self)
    }
}

impl<M: Message, E: fmt::Display> IntoCommand for Result<M, E> {
    type Command = M;
    fn into_command(self) -> Result<M, Problem> {
        self.map_err(|error| Problem::new(PROCESS_COMMAND, &error.to_string()))
    }
}

/// Code of a command that the user's function could not make.
const PROCESS_COMMAND: &str = "PROCESS_COMMAND";

fn read_data<T: DeserializeOwned>(data: &str) -> Result<T, Problem> {
    serde_json::from_str(data).map_err(|error| {
        let text = format!("the data of the process does not fit its definition: {error}");
        Problem::new(PROCESS_STATE, &text)
    })
}

fn read_payload<T: DeserializeOwned>(row: &InboxRow) -> Result<T, Problem> {
    serde_json::from_str(row.payload.as_deref().unwrap_or("null")).map_err(|error| {
        let event_type = row.event_type.as_deref().unwrap_or_default();
        let text = format!("payload of `{event_type}` does not fit the definition: {error}");
        Problem::new("PAYLOAD_SHAPE", &text)
    })
}

fn write<T: Serialize>(value: &T) -> Result<String, Problem> {
    serde_json::to_string(value).map_err(|error| {
        Problem::new(PROCESS_COMMAND, &format!("cannot be written as JSON: {error}"))
    })
}
