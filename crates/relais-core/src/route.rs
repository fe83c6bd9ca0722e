//! The process manager without code: an event becomes outbox messages by rule.
//!
//! Pure: the same inbox row gives the same messages, ids included, so a repeated run after a crash
//! writes the same thing.

use uuid::Uuid;

use crate::{
    delivery::Problem,
    inbox::InboxRow,
    json,
    message::{Category, HEADER_AGGREGATE_ID, HEADER_VALUE, Headers, MessageIdOrigin, NewMessage},
    text,
};

/// Most messages one event may become.
pub const FAN_OUT_MAX: usize = 10_000;

/// A rule that makes outbox messages of an inbox message: `[[route]]`.
///
/// ```
/// use relais_core::route::Route;
///
/// let route = Route::new("OrderPlaced", "warehouse")
///     .event_type("PickOrder")
///     .payload(r#"{"order": {{/order_id}}}"#);
/// assert_eq!(route.on, "OrderPlaced");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The event type it is for.
    pub on: String,
    /// The destination of its messages.
    pub destination: String,
    /// Pointer to an array: one message for each element. Absent: one for the event.
    pub each: Option<String>,
    /// Absent: the event's type.
    pub event_type: Option<String>,
    /// Absent: the source system.
    pub aggregate_type: Option<String>,
    /// Pointer to a version: messages older than the last seen for their aggregate are ignored.
    pub version: Option<String>,
    /// A JSON template in which `{{/pointer}}` stands for the value there and `{{each}}` for the
    /// element.
    pub payload: Option<String>,
    /// Pointer to the version of the event's contract; an event without one has version 1.
    pub event_version: Option<String>,
    /// Names of headers that the messages get from the event.
    pub headers: Vec<String>,
    /// The role of the messages. A reply is addressed to the sender of the event, which is a command then.
    pub category: Category,
}

impl Route {
    /// Returns a route that sends the event on as it is.
    pub fn new(on: &str, destination: &str) -> Self {
        Self {
            on: on.to_owned(),
            destination: destination.to_owned(),
            each: None,
            event_type: None,
            aggregate_type: None,
            version: None,
            payload: None,
            event_version: None,
            headers: Vec::new(),
            category: Category::Event,
        }
    }

    /// Sends one message for each element of the array at this JSON pointer.
    #[must_use]
    pub fn each(mut self, pointer: &str) -> Self {
        self.each = Some(pointer.to_owned());
        self
    }

    /// Sets the event type of the messages.
    #[must_use]
    pub fn event_type(mut self, name: &str) -> Self {
        self.event_type = Some(name.to_owned());
        self
    }

    /// Sets the aggregate type of the messages.
    #[must_use]
    pub fn aggregate_type(mut self, name: &str) -> Self {
        self.aggregate_type = Some(name.to_owned());
        self
    }

    /// Ignores messages whose version at this JSON pointer is older than the last seen of their aggregate.
    #[must_use]
    pub fn version(mut self, pointer: &str) -> Self {
        self.version = Some(pointer.to_owned());
        self
    }

    /// Sets the template of the payload: `{{/pointer}}` is replaced by the value there, `{{each}}` by the
    /// element.
    #[must_use]
    pub fn payload(mut self, template: &str) -> Self {
        self.payload = Some(template.to_owned());
        self
    }

    /// Takes the version of the event's contract from this JSON pointer.
    #[must_use]
    pub fn event_version(mut self, pointer: &str) -> Self {
        self.event_version = Some(pointer.to_owned());
        self
    }

    /// Copies these headers of the event to the messages.
    #[must_use]
    pub fn headers(mut self, names: &[&str]) -> Self {
        self.headers = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Sets the role of the messages.
    #[must_use]
    pub fn category(mut self, category: Category) -> Self {
        self.category = category;
        self
    }

    /// Returns the messages that an event becomes, or why it cannot become any.
    pub fn apply(&self, row: &InboxRow) -> Result<Vec<NewMessage>, Problem> {
        let event = row.payload.as_deref().unwrap_or("null");
        let version = self.version_of(event)?;
        let common = RouteCommon {
            event_version: self.event_version_of(event)?,
            headers: self.headers_of(&row.headers),
            as_of_version: version,
        };
        let Some(each) = &self.each else {
            if let Some(why) = row.headers.get(HEADER_AGGREGATE_ID) {
                return Err(Problem::new("AGGREGATE_ID_INVALID", why));
            }
            let aggregate_id = row.aggregate_id.clone().unwrap_or_else(|| row.msg_key.clone());
            let payload = match &self.payload {
                None => event.to_owned(),
                Some(template) => fill(template, event, None)?,
            };
            let mut message = self.message(row, 0, aggregate_id, payload, &common);
            if let (None, Some(absence)) = (&self.payload, row.headers.get(HEADER_VALUE)) {
                // A tombstone that is sent on as it is stays one.
                message.headers.set(HEADER_VALUE, absence);
            }
            return Ok(vec![message]);
        };
        let elements = json::pointer(event, each).and_then(json::items).ok_or_else(|| {
            Problem::new("ROUTE_EACH", &format!("payload has no array at `{each}`"))
        })?;
        if elements.len() > FAN_OUT_MAX {
            let found = elements.len();
            return Err(Problem::new(
                "ROUTE_FAN_OUT",
                &format!("`{each}` has {found} elements, at most {FAN_OUT_MAX} are sent"),
            ));
        }
        elements
            .into_iter()
            .enumerate()
            .map(|(index, element)| {
                let id = json::text(element).ok_or_else(|| {
                    Problem::new("ROUTE_EACH", &format!("element {index} of `{each}` is null"))
                })?;
                text::aggregate_id(&id)
                    .map_err(|why| Problem::new("AGGREGATE_ID_INVALID", &why))?;
                let payload = match (&self.payload, version) {
                    (Some(template), _) => fill(template, event, Some(element))?,
                    (None, Some(version)) => format!("{{\"id\":{element},\"version\":{version}}}"),
                    (None, None) => format!("{{\"id\":{element}}}"),
                };
                Ok(self.message(row, index, id, payload, &common))
            })
            .collect()
    }

    fn version_of(&self, event: &str) -> Result<Option<i64>, Problem> {
        let Some(pointer) = &self.version else { return Ok(None) };
        let found = json::pointer(event, pointer).and_then(json::text);
        match found.as_deref().map(str::parse::<i64>) {
            Some(Ok(version)) => Ok(Some(version)),
            _ => Err(Problem::new(
                "ROUTE_VERSION",
                &format!("payload has no whole number at `{pointer}`"),
            )),
        }
    }

    /// Returns the version of the contract: 1 if the event does not name one.
    fn event_version_of(&self, event: &str) -> Result<i32, Problem> {
        let Some(pointer) = &self.event_version else { return Ok(1) };
        let Some(found) = json::pointer(event, pointer).and_then(json::text) else {
            return Ok(1);
        };
        found.parse().ok().filter(|version| *version > 0).ok_or_else(|| {
            let what = format!("the value at `{pointer}` is not a whole number from 1 on");
            Problem::new("ROUTE_EVENT_VERSION", &what)
        })
    }

    /// Returns the headers of the messages: the trace, and those that the route names.
    fn headers_of(&self, received: &Headers) -> Headers {
        let mut headers = trace_headers(received);
        for name in &self.headers {
            let found = received.0.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
            headers.0.extend(found.map(|(name, values)| (name.clone(), values.clone())));
        }
        headers
    }

    /// Returns true if the messages of both routes would have the same ids, and so could not both be sent.
    pub fn shares_ids(&self, other: &Self) -> bool {
        let ids = |route: &Self| {
            let Self { on, destination, event_type, aggregate_type, each, .. } = route.clone();
            (on, destination, event_type, aggregate_type, each)
        };
        ids(self) == ids(other)
    }

    /// A stable id: the same event, route and element always give the same one.
    fn message_id(&self, row: &InboxRow, index: usize) -> Uuid {
        let Self { destination, event_type, aggregate_type, each, .. } = self;
        let name = format!(
            "{}\n{}\n{destination}\n{event_type:?}\n{aggregate_type:?}\n{each:?}\n{index}",
            row.source_system, row.message_id
        );
        text::stable_uuid(&[&name])
    }

    fn message(
        &self,
        row: &InboxRow,
        index: usize,
        aggregate_id: String,
        payload: String,
        common: &RouteCommon,
    ) -> NewMessage {
        let mut message = NewMessage {
            message_id: self.message_id(row, index),
            id_origin: MessageIdOrigin::Given,
            category: self.category,
            aggregate_type: self
                .aggregate_type
                .clone()
                .unwrap_or_else(|| row.source_system.clone()),
            msg_key: if self.each.is_some() { aggregate_id.clone() } else { row.msg_key.clone() },
            aggregate_id,
            event_type: self.event_type.clone().unwrap_or_else(|| self.on.clone()),
            event_version: common.event_version,
            payload,
            headers: common.headers.clone(),
            destination: self.destination.clone(),
            delay: None,
            causation_id: Some(row.message_id.clone()),
            correlation_id: row.headers.get("correlation-id").map(str::to_owned),
            as_of_version: common.as_of_version,
        };
        if self.category == Category::Reply {
            message.answer(&row.message_id, &row.headers);
        }
        message
    }
}

/// The values that all messages of one event share.
struct RouteCommon {
    event_version: i32,
    headers: Headers,
    as_of_version: Option<i64>,
}

/// The headers that join what follows from a message to its trace.
pub(crate) fn trace_headers(received: &Headers) -> Headers {
    let mut headers = Headers::default();
    for name in ["traceparent", "tracestate"] {
        if let Some(value) = received.get(name) {
            headers.set(name, value);
        }
    }
    headers
}

/// `{{/pointer}}` stands for the value there and `{{each}}` for the element; what is not there is
/// `null`.
fn fill(template: &str, event: &str, element: Option<&str>) -> Result<String, Problem> {
    let find = |name: &str| {
        let value = match name {
            "each" => element,
            pointer => json::pointer(event, pointer),
        };
        Ok(value.unwrap_or("null"))
    };
    json::fill(template, find).map_err(|error| Problem::new("ROUTE_TEMPLATE", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::NewInbox;

    fn row(payload: &str) -> InboxRow {
        let message = NewInbox::new("ihub", "m-1", "MembersCreated", "{}").aggregate("F-8842");
        InboxRow { payload: Some(payload.into()), ..InboxRow::received(1, message) }
    }

    fn route() -> Route {
        Route {
            on: "MembersCreated".into(),
            destination: "sf".into(),
            each: None,
            event_type: None,
            aggregate_type: None,
            version: None,
            payload: None,
            event_version: None,
            headers: Vec::new(),
            category: Category::Event,
        }
    }

    #[test]
    fn a_reply_has_the_address_and_the_correlation_of_its_command() {
        let route = route().category(Category::Reply);
        let mut command = row("{}");
        let reply = route.apply(&command).unwrap().remove(0);
        assert_eq!((reply.category, reply.headers.get("reply-to")), (Category::Reply, None));
        assert_eq!(reply.correlation_id.as_deref(), Some("m-1"), "the command itself");
        command.headers.set("Reply-To", "replies");
        command.headers.set("correlation-id", "c-1");
        let reply = route.apply(&command).unwrap().remove(0);
        assert_eq!(reply.headers.get("reply-to"), Some("replies"));
        assert_eq!(reply.correlation_id.as_deref(), Some("c-1"));
        assert_eq!(reply.causation_id.as_deref(), Some("m-1"));
        let event = route.category(Category::Event).apply(&command).unwrap().remove(0);
        assert_eq!(event.headers.get("reply-to"), None);
    }

    #[test]
    fn an_event_passes_unchanged_and_always_under_the_same_id() {
        let event = r#"{ "n": 9007199254740993 }"#;
        let messages = route().apply(&row(event)).unwrap();
        assert_eq!(messages[0].payload, event);
        assert_eq!(messages[0].msg_key, "F-8842");
        assert_eq!(messages, route().apply(&row(event)).unwrap());
    }

    #[test]
    fn each_element_becomes_a_message_with_its_own_key_and_version() {
        let route = Route {
            each: Some("/memberIds".into()),
            version: Some("/asOfVersion".into()),
            ..route()
        };
        let messages = route.apply(&row(r#"{"memberIds":["M-1",2],"asOfVersion":7}"#)).unwrap();
        assert_eq!(messages[0].payload, r#"{"id":"M-1","version":7}"#);
        assert_eq!((messages[1].msg_key.as_str(), messages[1].as_of_version), ("2", Some(7)));
        assert_ne!(messages[0].message_id, messages[1].message_id);
        let missing = route.apply(&row(r#"{"asOfVersion":7}"#)).unwrap_err();
        assert_eq!(missing.code, "ROUTE_EACH");
    }

    #[test]
    fn an_id_goes_as_it_is_or_the_event_is_refused_with_its_name() {
        let each = Route { each: Some("/ids".into()), ..route() };
        let event = |id: &str| row(&serde_json::json!({ "ids": ["a", id] }).to_string());
        let long = "z".repeat(1_000);
        let messages = each.apply(&event(&long)).unwrap();
        assert_eq!((&messages[1].aggregate_id, &messages[1].msg_key), (&long, &long));
        for (id, says) in [(format!("{long}z"), "\"zzz"), ("a\0b".to_owned(), "\"a\\0b\"")] {
            let problem = each.apply(&event(&id)).unwrap_err();
            assert_eq!(problem.code, "AGGREGATE_ID_INVALID");
            assert!(problem.message.contains(says), "{problem:?}");
        }
        let mut lost = InboxRow { aggregate_id: None, ..row("{}") };
        lost.headers.set(HEADER_AGGREGATE_ID, "the id \"a\\0b\" contains U+0000");
        let problem = route().apply(&lost).unwrap_err();
        assert_eq!(problem.code, "AGGREGATE_ID_INVALID");
        assert!(each.apply(&InboxRow { headers: lost.headers, ..event("b") }).is_ok());
    }

    #[test]
    fn a_template_is_filled_with_json_and_must_stay_json() {
        let route = Route { payload: Some(r#"{"who":{{/a/name}},"no":{{/x}}}"#.into()), ..route() };
        let messages = route.apply(&row(r#"{"a":{"name":"q\"x"}}"#)).unwrap();
        assert_eq!(messages[0].payload, r#"{"who":"q\"x","no":null}"#);
        let broken = Route { payload: Some("[{{/a}}".into()), ..route };
        assert_eq!(broken.apply(&row("{}")).unwrap_err().code, "ROUTE_TEMPLATE");
    }

    #[test]
    fn a_tombstone_that_is_sent_on_as_it_is_stays_one() {
        let mut event = row("null");
        event.headers.set(HEADER_VALUE, "tombstone");
        let sent = route().apply(&event).unwrap().remove(0);
        assert_eq!(sent.headers.get(HEADER_VALUE), Some("tombstone"));
        let made = route().payload(r#"{"deleted":true}"#).apply(&event).unwrap().remove(0);
        assert_eq!(made.headers.get(HEADER_VALUE), None, "it has a value of its own");
        let sent = route().apply(&row("null")).unwrap().remove(0);
        assert_eq!(sent.headers.get(HEADER_VALUE), None, "null is a value");
    }

    #[test]
    fn the_version_of_the_contract_comes_from_the_event() {
        let route = route().event_version("/eventVersion");
        let version = |event: &str| route.apply(&row(event)).map(|made| made[0].event_version);
        assert_eq!(version(r#"{"eventVersion":2}"#), Ok(2));
        assert_eq!(version(r#"{"eventVersion":"3"}"#), Ok(3));
        assert_eq!(version(r#"{"eventVersion":null}"#), Ok(1));
        assert_eq!(version("{}"), Ok(1));
        for wrong in
            [r#"{"eventVersion":"v2"}"#, r#"{"eventVersion":0}"#, r#"{"eventVersion":3000000000}"#]
        {
            assert_eq!(version(wrong).unwrap_err().code, "ROUTE_EVENT_VERSION", "{wrong}");
        }
    }

    #[test]
    fn only_the_named_headers_and_the_trace_are_carried_over() {
        let mut event = row(r#"{"ids":["a","b"]}"#);
        for (name, value) in [("user", "ann"), ("tenant", "t1"), ("traceparent", "00-1-2-01")] {
            event.headers.set(name, value);
        }
        let route = route().headers(&["user", "absent"]).each("/ids");
        for message in route.apply(&event).unwrap() {
            assert_eq!(message.headers.get("user"), Some("ann"));
            assert_eq!(message.headers.get("traceparent"), Some("00-1-2-01"));
            assert_eq!(message.headers.0.len(), 2);
        }
    }
}
