//! The address of a message at a broker: text with places of the message in it.
//!
//! Pure. A broker's own rules for such names are checked by its connector. `{{event_type}}`,
//! `{{aggregate_type}}`, `{{aggregate_id}}`, `{{key}}`, `{{destination}}`, `{{header:NAME}}` and `{{payload:/JSON/POINTER}}` are replaced; everything else stays.

use std::{fmt, str::FromStr};

use relais_core::{InvalidSettings, json, outbox::OutboxRow};

const PLACES: &str = "use `{{event_type}}`, `{{aggregate_type}}`, `{{aggregate_id}}`, `{{key}}`, \
                      `{{destination}}`, `{{header:NAME}}` or `{{payload:/JSON/POINTER}}`";

/// A name that is made for each message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingTemplate(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    EventType,
    AggregateType,
    AggregateId,
    Key,
    Destination,
    Header(String),
    Payload(String),
}

impl RoutingTemplate {
    /// Returns whether every message has the same name.
    pub fn is_fixed(&self) -> bool {
        self.0.iter().all(|part| matches!(part, TemplatePart::Text(_)))
    }

    /// Returns the bytes that every name has.
    pub(crate) fn fixed_bytes(&self) -> usize {
        let bytes = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.len(),
            _ => 0,
        };
        self.0.iter().map(bytes).sum()
    }

    /// Returns the name for one message. The error says which place it does not have.
    pub(crate) fn fill(&self, row: &OutboxRow) -> Result<String, String> {
        let mut name = String::new();
        for part in &self.0 {
            name.push_str(&part.of(row).ok_or_else(|| {
                format!("the message has no value for `{{{{{part}}}}}`, or it is no text or number")
            })?);
        }
        Ok(name)
    }
}

impl TemplatePart {
    fn of(&self, row: &OutboxRow) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::EventType => Some(row.event_type.clone()),
            Self::AggregateType => Some(row.aggregate_type.clone()),
            Self::AggregateId => Some(row.aggregate_id.clone()),
            Self::Key => Some(row.msg_key.clone()),
            Self::Destination => Some(row.destination.clone()),
            Self::Header(name) => row.headers.get(name).map(str::to_owned),
            Self::Payload(pointer) => json::pointer(&row.payload, pointer)
                .filter(|found| !found.starts_with(['{', '[']))
                .and_then(json::text),
        }
    }
}

impl FromStr for TemplatePart {
    type Err = InvalidSettings;

    fn from_str(place: &str) -> Result<Self, InvalidSettings> {
        match place.split_once(':') {
            Some(("header", name)) if !name.is_empty() => Ok(Self::Header(name.to_owned())),
            Some(("payload", pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                Ok(Self::Payload(pointer.to_owned()))
            }
            None if place == "event_type" => Ok(Self::EventType),
            None if place == "aggregate_type" => Ok(Self::AggregateType),
            None if place == "aggregate_id" => Ok(Self::AggregateId),
            None if place == "key" => Ok(Self::Key),
            None if place == "destination" => Ok(Self::Destination),
            _ => Err(format!("has an unknown place; {PLACES}").into()),
        }
    }
}

impl FromStr for RoutingTemplate {
    type Err = InvalidSettings;

    /// Errors do not repeat the text: it may come from the environment.
    fn from_str(text: &str) -> Result<Self, InvalidSettings> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let (place, after) = after.split_once("}}").ok_or("has `{{` without `}}`")?;
            if !before.is_empty() {
                parts.push(TemplatePart::Text(before.to_owned()));
            }
            parts.push(place.trim().parse()?);
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }
}

impl fmt::Display for TemplatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::EventType => f.write_str("event_type"),
            Self::AggregateType => f.write_str("aggregate_type"),
            Self::AggregateId => f.write_str("aggregate_id"),
            Self::Key => f.write_str("key"),
            Self::Destination => f.write_str("destination"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Payload(pointer) => write!(f, "payload:{pointer}"),
        }
    }
}

impl fmt::Display for RoutingTemplate {
    /// Writes it as it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => f.write_str(text)?,
                place => write!(f, "{{{{{place}}}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::row;

    #[test]
    fn places_are_replaced_and_text_stays() {
        let mut row = row(r#"{"region":"eu","n":7,"list":[1]}"#);
        row.headers.set("tenant", "acme");
        for (template, name) in [
            ("orders", "orders"),
            ("", ""),
            ("{{event_type}}", "OrderCreated"),
            ("{{ aggregate_type }}.{{aggregate_id}}.{{key}}", "Order.7.7"),
            ("x.{{header:tenant}}.{{payload:/region}}.{{payload:/n}}", "x.acme.eu.7"),
            ("{{destination}}}", "orders}"),
        ] {
            let parsed: RoutingTemplate = template.parse().unwrap();
            assert_eq!(parsed.fill(&row).as_deref(), Ok(name), "{template}");
            assert_eq!(parsed.to_string().replace(' ', ""), template.replace(' ', ""));
        }
        for (template, place) in
            [("{{payload:/list}}", "payload:/list"), ("{{header:none}}", "header:none")]
        {
            let parsed: RoutingTemplate = template.parse().unwrap();
            assert!(parsed.fill(&row).unwrap_err().contains(place));
        }
    }

    #[test]
    fn an_unknown_place_is_an_error_that_does_not_repeat_the_text() {
        for text in ["{{secret}}", "{{header:}}", "{{payload:secret}}", "{{secret"] {
            let why = text.parse::<RoutingTemplate>().unwrap_err().to_string();
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn only_a_template_without_places_is_fixed() {
        assert!("orders".parse::<RoutingTemplate>().unwrap().is_fixed());
        assert!(!"a.{{key}}".parse::<RoutingTemplate>().unwrap().is_fixed());
    }
}
