//! `[[route]]`.

use std::collections::HashSet;

use relais_core::{
    extract::Pick,
    json::{self, JsonError},
    route::Route,
};

use super::{reader::Section, types::RouteSettings};

/// Every route that can be read.
pub(super) fn routes(sections: Vec<Section<'_>>) -> Vec<RouteSettings> {
    let mut identities = HashSet::new();
    let mut routes = Vec::new();
    for section in sections {
        let Some(route) = route(&section) else {
            section.finish(|_| None);
            continue;
        };
        // What the ids of its messages are made of: an equal route would make the same messages.
        let Route { on, destination, event_type, aggregate_type, each, .. } = route.route.clone();
        if !identities.insert((on, destination, event_type, aggregate_type, each)) {
            section.error("", "an earlier route makes the same messages; remove one of the two");
        }
        section.finish(|_| None);
        routes.push(route);
    }
    routes
}

fn route(section: &Section<'_>) -> Option<RouteSettings> {
    let (on, destination) = (section.required_name("on"), section.required_name("destination"));
    let each = section.parsed("each", pointer);
    let mut route =
        Route::new(&on.clone().unwrap_or_default(), &destination.clone().unwrap_or_default());
    route.event_type = section.name("event_type");
    route.aggregate_type = section.name("aggregate_type");
    route.version = section.parsed("version", pointer);
    route.payload = section.text("payload").map(|text| text.value);
    route.each = each;
    if let Some(template) = &route.payload
        && let Err(error) = check_template(template, route.each.is_some())
    {
        section.error("payload", error);
    }
    let place = section.place_of("destination");
    on.and(destination).map(|_| RouteSettings { place, route })
}

/// The pointer of `payload:/pointer`.
fn pointer(text: &str) -> Result<String, String> {
    match text.parse() {
        Ok(Pick::Payload(pointer)) => Ok(pointer),
        _ => Err("is not a place in the payload; write `payload:/JSON/POINTER`".to_owned()),
    }
}

/// Fills the template with `null` everywhere: it must be JSON then, as it must be later.
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

/// Whether the text ends inside a JSON string.
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
