//! `[[handler]]`: handlers in another process, with their retry, limits and breaker.

use std::collections::HashSet;

use relais::{DestinationSettings, http::HttpHandlerKeys, remote_target};
use relais_core::{
    breaker::BreakerPolicy,
    inbox::{INBOX_SEPARATOR, SUBSCRIBER_SEPARATOR},
    outbox::OnDeadLetter,
    retry::RetryPolicy,
    setting::{NameList, NameText, SettingForm, Word},
    settings, text_kinds,
};

use super::{
    destination::{LimitKeys, breaker_policy},
    engine::retry,
    findings::FilePlace,
    reader::Section,
};

settings! {
    /// `[[handler]]`
    pub(super) struct HandlerKeys {
        /// unique. Do not change it: messages wait under it, and the idempotency keys of calls depend on it
        name: NameText;
        /// `"http"`
        kind: HandlerKind => "this version has: http";
        /// the event types. Not needed if steps of a process name the handler
        on: Option<NameList> => "none";
        /// the names of `[[destination]]`s to which an answer may send messages
        destinations: Option<NameList> => "none";
        /// `"park"`: later messages of the key wait for an operator. `"skip"`: they continue. `"retry"`: the call is repeated with the longest pause. An answer `park` always makes a dead letter and parks, an answer `fail` always makes one and never parks
        on_dead_letter: Word<OnDeadLetter> = OnDeadLetter::default();
    }
}

text_kinds! {
    /// The kinds of handlers in this version.
    pub(super) HandlerKind -> String, "text", |text| Ok(text.to_owned()),
        form SettingForm::Words(vec!["http"]);
}

/// One `[[handler]]`.
#[derive(Debug)]
pub(crate) struct HandlerConfig {
    pub(crate) place: FilePlace,
    pub(crate) name: String,
    pub(crate) on: Vec<String>,
    pub(crate) destinations: Vec<String>,
    pub(crate) http: HttpHandlerKeys,
    pub(crate) on_dead_letter: OnDeadLetter,
    pub(crate) retry: RetryPolicy,
    pub(crate) limits: LimitKeys,
    pub(crate) breaker: BreakerPolicy,
}

impl HandlerConfig {
    /// Returns the name under which operators pause and limit it.
    pub(crate) fn target(&self) -> String {
        remote_target(&self.name)
    }
}

/// Reads every handler that can be read.
pub(super) fn handlers(sections: Vec<Section<'_>>) -> Vec<HandlerConfig> {
    let mut names = HashSet::new();
    sections.into_iter().filter_map(|section| handler(section, &mut names)).collect()
}

fn handler(section: Section<'_>, names: &mut HashSet<String>) -> Option<HandlerConfig> {
    let keys = section.read::<HandlerKeys>();
    let name = section.peek("name").unwrap_or_default();
    if !names.insert(name.clone()) {
        let message = format_args!("another handler is named `{name}`; names are unique");
        section.error("name", message);
    }
    if name.contains(INBOX_SEPARATOR) || name.contains(SUBSCRIBER_SEPARATOR) {
        section.error("name", "must not contain `::` or `@`");
    }
    if section.peek("kind").as_deref() != Some("http") {
        // The known keys depend on the kind.
        return None;
    }
    let http = section.read::<HttpHandlerKeys>();
    if let Some(http) = &http {
        http.check(&mut |key, why| section.error(key, why));
    }
    let retry = retry(section.child("retry"), RetryPolicy::patient());
    let limits = section.child("limits");
    let breaker = section.child("breaker");
    let place = section.place();
    let guards = (limits.read_with(&DestinationSettings::default()), breaker_policy(&breaker));
    for section in [limits, breaker, section] {
        section.finish();
    }
    let (limits, breaker) = guards;
    let HandlerKeys { name, on, destinations, on_dead_letter, .. } = keys?;
    let (on, destinations) = (on.unwrap_or_default(), destinations.unwrap_or_default());
    let http = http?;
    Some(HandlerConfig {
        place,
        name,
        on,
        destinations,
        http,
        on_dead_letter,
        retry,
        limits,
        breaker,
    })
}
