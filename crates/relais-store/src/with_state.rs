//! A handler function with its state.

use std::sync::Arc;

/// A function with its state; both are shared by the calls for all messages.
pub(crate) struct WithState<S, F> {
    pub(crate) state: Arc<S>,
    pub(crate) function: F,
}

impl<S, F: Clone> Clone for WithState<S, F> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), function: self.function.clone() }
    }
}
