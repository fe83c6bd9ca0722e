//! Processes written in Rust: steps over a type of the user's.
