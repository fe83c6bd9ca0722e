//! `[[route]]`.

use std::collections::{HashMap, hash_map::Entry};

use relais_core::{
    json::{self, JsonError},
    message::{Category, is_reserved_header},
    route::Route,
    setting::{NameList, NameText, PayloadPointer, PlainText, Word},
    settings,
};

use super::{findings::FilePlace, reader::Section};

settings! {
    /// `[[route]]`
    pub(super) struct RouteKeys {
        /// the event type
        on: NameText;
        /// the name of a `[[destination]]`
        destination: NameText;
        /// an array of at most 10,000 elements: one message for each
        each: Option<PayloadPointer>;
        /// the event type of the messages
        event_type: Option<NameText> => "the `on`";
        /// the aggregate type of the messages
        aggregate_type: Option<NameText> => "the source system";
        /// a whole number. A message older than the last seen for its aggregate is ignored and counted in `relais_ignored_total`
        version: Option<PayloadPointer>;
        /// a template for the payload
        payload: Option<PlainText> => "see below";
        /// a whole number: the `event_version` of the messages. An event without one has version 1
        event_version: Option<PayloadPointer> => "1";
        /// headers of the event that its messages get too. `traceparent` and `tracestate` are always carried over
        headers: Option<NameList> => "none";
        /// `"event"`, `"command"` or `"reply"`. A reply gets the address and the correlation id of the event, which is a command then
        category: Word<Category> = Category::default();
    }
}

/// One `[[route]]`.
#[derive(Debug)]
pub(crate) struct RouteSettings {
    /// The place of its destination's name.
    pub(crate) place: FilePlace,
    pub(crate) route: Route,
}

/// Reads every route that can be read.
pub(super) fn routes(sections: Vec<Section<'_>>) -> Vec<RouteSettings> {
    let mut first_lines = HashMap::new();
    let mut routes = Vec::new();
    for section in sections {
        let keys = section.read::<RouteKeys>();
        if let Some(template) = section.peek("payload")
            && let Err(error) = check_template(&template, section.has("each"))
        {
            section.error("payload", error);
        }
        if let Some(route) = keys.map(route) {
            if let Some(name) = route.headers.iter().find(|name| is_reserved_header(name)) {
                section
                    .error("headers", format_args!("`{name}` is set by relais itself; remove it"));
            }
            // The ids of its messages are computed from these: an equal route would make the same messages.
            let Route { on, destination, event_type, aggregate_type, each, .. } = route.clone();
            match first_lines.entry((on, destination, event_type, aggregate_type, each)) {
                Entry::Vacant(first) => {
                    first.insert(section.place_of("").line);
                }
                Entry::Occupied(first) => section.error(
                    "",
                    format_args!(
                        "the route in line {} makes the same messages; remove one of the two",
                        first.get()
                    ),
                ),
            }
            routes.push(RouteSettings { place: section.place_of("destination"), route });
        }
        section.finish();
    }
    routes
}

fn route(keys: RouteKeys) -> Route {
    let RouteKeys { on, destination, each, event_type, aggregate_type, version, .. } = keys;
    let mut route = Route::new(&on, &destination);
    route.each = each;
    route.event_type = event_type;
    route.aggregate_type = aggregate_type;
    route.version = version;
    route.payload = keys.payload;
    route.event_version = keys.event_version;
    route.headers = keys.headers.unwrap_or_default();
    route.category = keys.category;
    route
}

/// Checks that the template is JSON once `null` stands for every value.
fn check_template(template: &str, has_each: bool) -> Result<(), String> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or("has `{{` without `}}`")?;
        match name.trim() {
            "each" if !has_each => {
                return Err("uses `{{each}}`, but the route has no `each`".into());
            }
            "each" | "" => {}
            pointer if pointer.starts_with('/') => {}
            other => return Err(format!("`{{{{{other}}}}}` is not `{{{{each}}}}` or a pointer")),
        }
        filled.push_str(before);
        if is_in_quotes(&filled) {
            return Err(format!(
                "has `{{{{{name}}}}}` in quotes; write it without them: a text brings its own quotes"
            ));
        }
        filled.push_str("null");
        rest = after;
    }
    filled.push_str(rest);
    json::check(filled.as_bytes()).map(drop).map_err(|error| match error {
        JsonError::Syntax(_) => "is not JSON once `{{…}}` is filled in".to_owned(),
        other => other.to_string(),
    })
}

/// Returns whether the text ends inside a JSON string.
fn is_in_quotes(json: &str) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_in_quotes_is_refused_with_the_way_out() {
        for template in [r#"{"a":"{{/x}}"}"#, r#"{"a":"no {{/x}}"}"#, r#"{"a\"":"\\\"{{/x}}"}"#] {
            let error = check_template(template, false).unwrap_err();
            assert!(error.starts_with("has `{{/x}}` in quotes; write it without them"), "{error}");
        }
        assert_eq!(check_template(r#"{"a \" b":{{/x}},"c\\":{{/y}}}"#, false), Ok(()));
    }

    #[test]
    fn templates_are_checked_before_they_are_used() {
        assert_eq!(check_template(r#"{"a":{{/x}},"b":{{each}}}"#, true), Ok(()));
        for (template, each) in [
            ("{{each}}", false),
            ("{{/x", false),
            ("[{{/x}}", false),
            ("{{x}}", false),
            ("", false),
        ] {
            assert!(check_template(template, each).is_err(), "{template}");
        }
    }
}
