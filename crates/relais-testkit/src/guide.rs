//! The guide of this package.

#[doc = include_str!("../guide/testing.md")]
pub mod testing {}
