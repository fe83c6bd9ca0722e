//! The heart of relais: what a message is, which states its row can be in, and every decision that
//! depends on values alone.
//!
//! Invariant: nothing here does I/O, reads a clock or knows a runtime. Time and randomness are
//! arguments; the database's time decides, so durations go out and the store adds them to *its* now.
//!
//! Read in this order: a message is described ([`message`]), received ([`source`], [`decode`],
//! [`extract`], [`inbox`], [`repair`]), handled ([`handler`] for a [`cause`], [`route`], [`process`]), sent ([`outbox`], [`publisher`],
//! [`delivery`], [`fault`], [`retry`], [`limits`],
//! [`breaker`], [`quarantine`]; many at once: [`bulk`]; with fresh data: [`hydrate`]), and
//! all of it is kept by a [`store`] whose rows are shared out by [`lane`]. Operators change what runs by
//! [`control`]; processes [`report`] what they did. [`setting`] describes the keys of the configuration.
//!
//! Modules that are not listed below serve the other packages of relais, and change without notice.

#![warn(missing_docs)]

mod setters;

pub mod message;

pub mod decode;
pub mod extract;
pub mod inbox;
pub mod repair;
pub mod source;
#[doc(hidden)]
pub mod unknown;

#[doc(hidden)]
pub mod cause;
pub mod handler;
pub mod process;
pub mod remote_handler;
pub mod route;

pub mod breaker;
pub mod bulk;
#[doc(hidden)]
pub mod credential;
pub mod delivery;
#[doc(hidden)]
pub mod fault;
pub mod hydrate;
#[doc(hidden)]
pub mod limits;
pub mod outbox;
pub mod publisher;
#[doc(hidden)]
pub mod quarantine;
pub mod retry;

#[doc(hidden)]
pub mod control;
pub mod dead_letter;
pub mod id_prefix;
pub mod inspect;
#[doc(hidden)]
pub mod lane;
pub mod query;
#[doc(hidden)]
pub mod report;
pub mod store;
mod store_error;

#[doc(hidden)]
pub mod json;
#[doc(hidden)]
pub mod setting;
#[doc(hidden)]
pub mod text;
pub mod time;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
// Shared files of `fuzz` name this crate as others do.
#[cfg(any(test, fuzzing))]
extern crate self as relais_core;

mod invalid_settings;

use std::{future::Future, pin::Pin};

/// Allows `async fn` in the seams and in their implementations. Exported so that an implementation needs no
/// dependency of its own.
pub use async_trait::async_trait;
pub use invalid_settings::InvalidSettings;

/// Futures are boxed at every seam: the body is compiled once, in its own crate.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
