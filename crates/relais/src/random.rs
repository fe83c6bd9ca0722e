//! Random numbers for jitter, fair choices and span ids. Not for secrets.

/// Returns a number in `0.0..1.0`.
pub(crate) fn random() -> f64 {
    fastrand::f64()
}

/// Returns a span id, which is never zero.
pub(crate) fn span_id() -> [u8; 8] {
    fastrand::u64(1..).to_be_bytes()
}
