//! The guide of this package.

#[doc = include_str!("../guide/embedding.md")]
pub mod embedding {}
