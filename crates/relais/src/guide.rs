//! The guide, page by page. The code on these pages is compiled or run by the tests.
//!
//! Start with [`concepts`] and [`tutorial_rust`]; [`library`] has every part of the API, and [`examples`]
//! lists small programs.

#[doc = include_str!("../guide/aggregates.md")]
pub mod aggregates {}

#[doc = include_str!("../guide/concepts.md")]
pub mod concepts {}

#[doc = include_str!("../guide/dead-letters.md")]
pub mod dead_letters {}

#[doc = include_str!("../guide/examples.md")]
pub mod examples {}

#[doc = include_str!("../guide/failures.md")]
pub mod failures {}

#[doc = include_str!("../guide/glossary.md")]
pub mod glossary {}

#[doc = include_str!("../guide/library.md")]
pub mod library {}

#[doc = include_str!("../guide/processes.md")]
pub mod processes {}

#[doc = include_str!("../guide/tutorial-rust.md")]
pub mod tutorial_rust {}

#[doc = include_str!("../guide/upgrade.md")]
pub mod upgrade {}
