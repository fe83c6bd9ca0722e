//! The functions that sqlx handlers call, for every database of sqlx: `C` is its type of connection.

use std::future::Future;

use relais_core::{
    BoxFuture,
    handler::{IntoOutcome, Outcome, Received},
};

use crate::with_state::WithState;

/// A function of a connection and a message: `async fn(&mut C, Received<M>) -> Outcome`, or an async closure,
/// which is cloned for each message. `C` is `PgConnection` or `SqliteConnection`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for sqlx and `{C}`",
    label = "expected `async fn(&mut {C}, Received<M>) -> impl IntoOutcome`",
    note = "annotate the parameters of a closure: `async move |tx: &mut {C}, message: Received<Payment>| {{ … }}`",
    note = "captured values must be `Clone + Send + Sync`: wrap a shared value in `Arc`, and use no `Rc` or \
            `RefCell`",
    note = "the future must be `Send`, and its output an `Outcome`, `()` or a `Result` of these",
    note = "a method, or a function whose first argument is a state, goes to `sqlx_handler_with`"
)]
pub trait SqlxHandlerFn<'a, C, M>: Clone + Send + Sync {
    /// The future of the function.
    type Future: Future<Output = Self::Output> + Send + 'a;
    /// The return value of the function.
    type Output: IntoOutcome;

    /// Calls the function.
    fn call(self, transaction: &'a mut C, message: Received<M>) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<'a, C: 'a, M, F, R> SqlxHandlerFn<'a, C, M> for F
where
    F: FnOnce(&'a mut C, Received<M>) -> R + Clone + Send + Sync,
    R: Future + Send + 'a,
    R::Output: IntoOutcome,
{
    type Future = R;
    type Output = R::Output;

    fn call(self, transaction: &'a mut C, message: Received<M>) -> R {
        self(transaction, message)
    }
}

/// A function of a state, a connection and a message, such as a method:
/// `async fn(&S, &mut C, Received<M>) -> Outcome`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler with the state `{S}` for sqlx and `{C}`",
    label = "expected `async fn(&{S}, &mut {C}, Received<M>) -> impl IntoOutcome`",
    note = "the order is: state, transaction, message",
    note = "the future must be `Send`, and its output an `Outcome`, `()` or a `Result` of these"
)]
pub trait SqlxStateHandlerFn<'a, C, S, M>: Clone + Send + Sync {
    /// The future of the function.
    type Future: Future<Output = Self::Output> + Send + 'a;
    /// The return value of the function.
    type Output: IntoOutcome;

    /// Calls the function.
    fn call(self, state: &'a S, transaction: &'a mut C, message: Received<M>) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<'a, C: 'a, S: 'a, M, F, R> SqlxStateHandlerFn<'a, C, S, M> for F
where
    F: FnOnce(&'a S, &'a mut C, Received<M>) -> R + Clone + Send + Sync,
    R: Future + Send + 'a,
    R::Output: IntoOutcome,
{
    type Future = R;
    type Output = R::Output;

    fn call(self, state: &'a S, transaction: &'a mut C, message: Received<M>) -> R {
        self(state, transaction, message)
    }
}

impl<'a, C, S, M, F> SqlxHandlerFn<'a, C, M> for WithState<S, F>
where
    C: Send + 'static,
    M: Send + 'a,
    S: Send + Sync + 'static,
    F: for<'b> SqlxStateHandlerFn<'b, C, S, M> + 'static,
{
    type Future = BoxFuture<'a, Outcome>;
    type Output = Outcome;

    fn call(self, transaction: &'a mut C, message: Received<M>) -> Self::Future {
        Box::pin(async move {
            self.function.call(&self.state, transaction, message).await.into_outcome()
        })
    }
}
