//! The text format of Prometheus, version 0.0.4.
//!
//! Invariant: the samples of one metric are grouped under one header, and label values are escaped, so that the
//! content of a message cannot end its quotes.

use std::fmt::{Display, Write};

use relais::observe::Latency;

#[derive(Default)]
pub(super) struct MetricsPage(pub(super) String);

/// Name and value.
pub(super) type Label<'a> = (&'a str, &'a str);

impl MetricsPage {
    pub(super) fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    pub(super) fn line(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escape(text));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// One histogram of a metric, in seconds.
    pub(super) fn histogram(&mut self, name: &str, labels: &[Label<'_>], latency: &Latency) {
        let bucket = format!("{name}_bucket");
        let mut with_bound = |bound: &str, count: u64| {
            self.line(&bucket, &[labels, &[("le", bound)]].concat(), count);
        };
        for (bound, count) in latency.cumulative() {
            with_bound(&bound.as_secs_f64().to_string(), count);
        }
        with_bound("+Inf", latency.count());
        self.line(&format!("{name}_sum"), labels, latency.sum().as_secs_f64());
        self.line(&format!("{name}_count"), labels, latency.count());
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
