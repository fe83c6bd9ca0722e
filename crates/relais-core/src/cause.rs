//! The message that a handler works on, for what the handler sends.
//!
//! Invariant: a cause is visible only while the code of its handler runs: inside a poll of its future, or
//! inside the call of its function.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    BoxFuture,
    inbox::InboxRow,
    message::{Category, HEADER_REPLY_TO, Headers, NewMessage},
    route::trace_headers,
    time::Timestamp,
};

thread_local! {
    static CURRENT: RefCell<Option<Cause>> = const { RefCell::new(None) };
}

/// The ids and headers that a message passes on to the messages it causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    correlation_id: String,
    causation_id: String,
    headers: Headers,
    /// The address of replies, which other messages do not get.
    reply_to: Option<String>,
}

impl Cause {
    /// The correlation continues; a message without one begins it with its own id.
    pub fn new(message_id: &str, headers: &Headers, received_at: Timestamp) -> Self {
        let correlation_id = headers.get("correlation-id").unwrap_or(message_id).to_owned();
        let reply_to = headers.get(HEADER_REPLY_TO).map(str::to_owned);
        let mut headers = trace_headers(headers);
        headers.set_received_at(received_at);
        Self { correlation_id, causation_id: message_id.to_owned(), headers, reply_to }
    }

    /// Returns the cause that an inbox row is for the messages of its handler.
    pub fn of(row: &InboxRow) -> Self {
        Self::new(&row.message_id, &row.headers, row.received_at)
    }

    /// Writes on a message what it does not say itself.
    pub fn pass_on(&self, message: &mut NewMessage) {
        message.correlation_id.get_or_insert_with(|| self.correlation_id.clone());
        message.causation_id.get_or_insert_with(|| self.causation_id.clone());
        for (name, value) in &self.headers.0 {
            message.headers.0.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if message.category == Category::Reply
            && message.headers.get(HEADER_REPLY_TO).is_none()
            && let Some(address) = &self.reply_to
        {
            message.headers.set(HEADER_REPLY_TO, address);
        }
    }

    /// Runs a function with this cause.
    pub fn with<T>(self, function: impl FnOnce() -> T) -> T {
        let _set = Set::new(self);
        function()
    }

    /// Runs a future with this cause.
    pub fn scope<'a, T>(
        self,
        future: BoxFuture<'a, T>,
    ) -> impl Future<Output = T> + Send + use<'a, T> {
        CauseScope { cause: self, future }
    }

    /// Returns the cause of the code that runs now, if a handler runs.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }
}

/// Sets the cause, and the one before when it is dropped, also by a panic.
struct Set(Option<Cause>);

impl Set {
    fn new(cause: Cause) -> Self {
        Self(CURRENT.replace(Some(cause)))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

struct CauseScope<'a, T> {
    cause: Cause,
    future: BoxFuture<'a, T>,
}

impl<T> Future for CauseScope<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let _set = Set::new(self.cause.clone());
        self.future.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn message() -> NewMessage {
        NewMessage::new(Uuid::nil(), ("Order", "o-1"), "OrderPaid", "orders", "{}".to_owned())
    }

    fn cause(headers: &[(&str, &str)]) -> Cause {
        let mut all = Headers::default();
        headers.iter().for_each(|(name, value)| all.set(name, value));
        Cause::new("m-1", &all, Timestamp(5))
    }

    #[test]
    fn correlation_causation_and_trace_are_passed_on_where_nothing_is_said() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let cause = cause(&[("correlation-id", "c-1"), ("traceparent", trace), ("other", "x")]);
        let mut sent = message();
        cause.pass_on(&mut sent);
        assert_eq!(sent.correlation_id.as_deref(), Some("c-1"));
        assert_eq!(sent.causation_id.as_deref(), Some("m-1"));
        assert_eq!(sent.headers.get("traceparent"), Some(trace));
        assert_eq!(
            (sent.headers.get("other"), sent.headers.received_at()),
            (None, Some(Timestamp(5)))
        );
        let mut own = NewMessage { correlation_id: Some("mine".into()), ..message() };
        own.headers.set("traceparent", "own");
        cause.pass_on(&mut own);
        assert_eq!(own.correlation_id.as_deref(), Some("mine"));
        assert_eq!(own.headers.get("traceparent"), Some("own"));
    }

    #[test]
    fn only_a_reply_gets_the_address_of_replies_and_it_may_name_another() {
        let cause = cause(&[("Reply-To", "replies"), ("correlation-id", "c-1")]);
        let sent = |category, own: Option<&str>| {
            let mut sent = NewMessage { category, ..message() };
            own.into_iter().for_each(|own| sent.headers.set(HEADER_REPLY_TO, own));
            cause.pass_on(&mut sent);
            sent.headers.get(HEADER_REPLY_TO).map(str::to_owned)
        };
        assert_eq!(sent(Category::Reply, None).as_deref(), Some("replies"));
        assert_eq!(sent(Category::Reply, Some("other")).as_deref(), Some("other"));
        assert_eq!(sent(Category::Event, None), None);
        assert_eq!(sent(Category::Command, None), None);
    }

    #[test]
    fn a_message_without_a_correlation_begins_one() {
        let mut sent = message();
        cause(&[]).pass_on(&mut sent);
        assert_eq!(sent.correlation_id.as_deref(), Some("m-1"));
    }

    #[test]
    fn a_cause_is_unset_while_its_code_does_not_run() {
        let cause = cause(&[]);
        assert_eq!(cause.clone().with(Cause::current), Some(cause.clone()));
        assert_eq!(Cause::current(), None);
        let caught = std::panic::catch_unwind(|| cause.clone().with(|| panic!("handler")));
        assert!(caught.is_err() && Cause::current().is_none());
        let mut polled = 0;
        let future = Box::pin(std::future::poll_fn(move |_| {
            polled += 1;
            assert!(Cause::current().is_some());
            if polled < 2 { Poll::Pending } else { Poll::Ready(()) }
        }));
        let mut scoped = Box::pin(cause.scope(future));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(scoped.as_mut().poll(&mut context).is_pending());
        assert_eq!(Cause::current(), None);
        assert!(scoped.as_mut().poll(&mut context).is_ready());
    }
}
