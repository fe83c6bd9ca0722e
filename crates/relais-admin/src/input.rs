//! Query, path and JSON body of requests, and the errors for invalid ones.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{
        FromRequest, FromRequestParts, Path, Query, Request,
        path::ErrorKind,
        rejection::{BytesRejection, PathRejection},
    },
    http::{StatusCode, request::Parts},
    response::IntoResponse,
};
use relais::dead_letters::DecisionAuthor;
use relais_core::query::PAGE_MAX;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{error::Category, value::RawValue};

use crate::{
    access::{AdminCaller, CallerIdentity},
    problem::ApiProblem,
};

/// Entries of a page by default.
const PAGE: usize = 50;
/// Time limit for reading a body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Longest name of an actor.
const ACTOR_MAX: usize = 200;
/// Longest reason.
const REASON_MAX: usize = 2_000;
/// Longest text of a filter.
const TEXT_MAX: usize = 1_000;
/// Largest `since_seconds`: a hundred years.
const SINCE_MAX: i64 = 100 * 366 * 86_400;

/// The query parameters of a request.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        no_nul(parts.uri.query().unwrap_or_default())?;
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(ApiProblem::bad_request(in_words(&rejection.body_text()))),
        }
    }
}

/// Rejects NUL, which no database accepts in a text.
fn no_nul(encoded: &str) -> Result<(), ApiProblem> {
    if encoded.contains("%00") {
        return Err(ApiProblem::bad_request("names and ids cannot contain NUL (%00)"));
    }
    Ok(())
}

/// Returns the cause of an invalid query, without the wording of the library.
fn in_words(text: &str) -> String {
    let wrong = text.rsplit_once("query string: ").map_or(text, |(_, wrong)| wrong);
    match wrong.split_once("unknown field ") {
        Some((_, rest)) => format!("unknown parameter {rest}"),
        None => format!("invalid query: {}", plain_types(wrong)),
    }
}

/// The path parameters of a request.
pub(crate) struct PathParams<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParams<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        no_nul(parts.uri.path())?;
        match Path::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Self(named)),
            Err(rejection) => Err(ApiProblem::bad_request(format_args!(
                "invalid path: {}",
                path_problem(rejection)
            ))),
        }
    }
}

/// Returns the cause of an invalid path, without the wording of the library.
fn path_problem(rejection: PathRejection) -> String {
    let PathRejection::FailedToDeserializePathParams(error) = rejection else {
        return rejection.body_text();
    };
    match error.into_kind() {
        ErrorKind::ParseError { value, expected_type, .. }
        | ErrorKind::ParseErrorAtKey { value, expected_type, .. }
        | ErrorKind::ParseErrorAtIndex { value, expected_type, .. } => {
            let wanted = match expected_type {
                "i64" | "i32" | "u32" | "u64" | "usize" => "a whole number",
                other => other,
            };
            format!("`{value}` must be {wanted}")
        }
        other => other.to_string(),
    }
}

/// The JSON body of a request.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        let read = tokio::time::timeout(BODY_TIME, Bytes::from_request(request, state)).await;
        let late = |_| {
            ApiProblem::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", "the body arrived too slowly")
        };
        let bytes = read.map_err(late)?.map_err(body_problem)?;
        object(&bytes)?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| match error.classify() {
            Category::Data => ApiProblem::unprocessable("INVALID", plain_types(&error.to_string())),
            _ => ApiProblem::bad_request(format_args!("the body is not JSON: {error}")),
        })
    }
}

/// Names of types in errors of serde, and the same in words.
const TYPE_WORDS: [(&str, &str); 12] = [
    ("expected f64", "expected a number"),
    ("expected u32", "expected a whole number"),
    ("expected u64", "expected a whole number"),
    ("expected usize", "expected a whole number"),
    ("expected i64", "expected a whole number"),
    ("invalid digit found in string", "it must be a whole number"),
    ("cannot parse integer from empty string", "it must be a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("expected a string", "expected a text"),
    ("expected a boolean", "expected true or false"),
    ("expected any valid JSON value", "expected a value"),
];

/// Returns an error of serde without the names of Rust types.
fn plain_types(error: &str) -> String {
    TYPE_WORDS.iter().fold(error.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Rejects arrays: serde would read the fields of a struct from an array in order, which hides mistakes.
fn object(bytes: &[u8]) -> Result<(), ApiProblem> {
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(ApiProblem::unprocessable("INVALID", "the body must be a JSON object"));
    }
    Ok(())
}

/// A JSON object inside a body; arrays are rejected.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Box<RawValue>", bound = "T: DeserializeOwned")]
pub(crate) struct JsonObject<T>(pub(crate) T);

impl<T: DeserializeOwned> TryFrom<Box<RawValue>> for JsonObject<T> {
    type Error = String;

    fn try_from(raw: Box<RawValue>) -> Result<Self, String> {
        if !raw.get().starts_with('{') {
            return Err("must be a JSON object".to_owned());
        }
        serde_json::from_str(raw.get()).map(Self).map_err(|error| error.to_string())
    }
}

fn body_problem(rejection: BytesRejection) -> ApiProblem {
    let detail = rejection.body_text();
    if rejection.into_response().status() == StatusCode::PAYLOAD_TOO_LARGE {
        return ApiProblem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "TOO_LARGE",
            "the body is too large",
        );
    }
    ApiProblem::bad_request(detail)
}

/// The parameter `limit`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Limit(Option<usize>);

impl Limit {
    pub(crate) fn get(self) -> Result<usize, ApiProblem> {
        let limit = self.0.unwrap_or(PAGE);
        if (1..=PAGE_MAX).contains(&limit) {
            return Ok(limit);
        }
        Err(ApiProblem::bad_request(format_args!("`limit` must be from 1 to {PAGE_MAX}")))
    }
}

/// The text of a filter: bounded, and without NUL.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct FilterText(pub(crate) String);

impl TryFrom<String> for FilterText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.chars().count() > TEXT_MAX || text.contains('\0') {
            return Err(format!("a text must have at most {TEXT_MAX} characters, and no NUL"));
        }
        Ok(Self(text))
    }
}

impl From<FilterText> for String {
    fn from(text: FilterText) -> Self {
        text.0
    }
}

/// A whole number in JSON; some clients write it as `5.0`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct WholeNumber(pub(crate) u32);

impl TryFrom<f64> for WholeNumber {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        // Checked: whole, and in the range.
        fits.then_some(Self(number as u32))
            .ok_or_else(|| format!("`{number}` is not a whole number from 0 to {}", u32::MAX))
    }
}

/// Distinguishes `null` from an absent field.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    value: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// The parameter `since_seconds`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Since(Option<i64>);

impl Since {
    pub(crate) fn of(seconds: Option<WholeNumber>) -> Self {
        Self(seconds.map(|seconds| seconds.0.into()))
    }

    pub(crate) fn get(self) -> Result<Option<i64>, ApiProblem> {
        match self.0 {
            Some(seconds) if !(0..=SINCE_MAX).contains(&seconds) => Err(ApiProblem::bad_request(
                format_args!("`since_seconds` must be from 0 to {SINCE_MAX}"),
            )),
            since => Ok(since),
        }
    }
}

/// Returns the allowed word that a parameter equals, ignoring case.
pub(crate) fn known(
    name: &str,
    given: Option<String>,
    words: &[&str],
) -> Result<Option<String>, ApiProblem> {
    let Some(given) = given else { return Ok(None) };
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(&given));
    let Some(word) = found else {
        let words = words.join(", ");
        return Err(ApiProblem::bad_request(format_args!("`{name}` must be one of {words}")));
    };
    Ok(Some((*word).to_owned()))
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(crate) struct ListPage<T> {
    items: Vec<T>,
    /// The value of `before` for the next page; absent on the last page.
    next: Option<String>,
}

impl<T> ListPage<T> {
    /// Builds a page; `id` returns the cursor of an item.
    pub(crate) fn of(items: Vec<T>, limit: usize, id: impl Fn(&T) -> String) -> Self {
        let next = items.last().filter(|_| items.len() >= limit).map(id);
        Self { items, next }
    }

    /// Sets the cursor for a page that is not full although more rows may match.
    pub(crate) fn or_next(mut self, next: Option<String>) -> Self {
        self.next = self.next.or(next);
        self
    }

    pub(crate) fn map<U>(self, make: impl FnMut(T) -> U) -> ListPage<U> {
        ListPage { items: self.items.into_iter().map(make).collect(), next: self.next }
    }
}

/// Actor and reason of a decision, for the audit log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActorAndReason {
    /// Optional with a personal token.
    pub(crate) actor: Option<String>,
    pub(crate) reason: String,
}

impl ActorAndReason {
    pub(crate) fn new(actor: Option<String>, reason: String) -> Self {
        Self { actor, reason }
    }

    /// Returns actor and reason: the actor is the name of a personal token, or `actor` of the request.
    pub(crate) fn by(self, caller: &AdminCaller) -> Result<DecisionAuthor, ApiProblem> {
        let actor = match (&caller.identity, self.actor) {
            (CallerIdentity::Local, None) => {
                return Err(ApiProblem::unprocessable(
                    "INVALID",
                    "`actor` is missing; pass your name",
                ));
            }
            (CallerIdentity::Local | CallerIdentity::Shared { .. }, Some(actor)) => actor,
            (CallerIdentity::Shared { name, .. } | CallerIdentity::Named { name, .. }, None) => {
                name.clone()
            }
            (CallerIdentity::Named { name, .. }, Some(actor)) if actor == *name => actor,
            (CallerIdentity::Named { name, .. }, Some(_)) => {
                return Err(ApiProblem::unprocessable(
                    "ACTOR",
                    format_args!("this token belongs to `{name}`; omit `actor`, or pass `{name}`"),
                ));
            }
        };
        bounded("actor", &actor, ACTOR_MAX)?;
        bounded("reason", &self.reason, REASON_MAX)?;
        Ok(DecisionAuthor { actor, reason: self.reason })
    }
}

fn bounded(name: &str, text: &str, max: usize) -> Result<(), ApiProblem> {
    let is_blank = text.chars().all(|c| c.is_whitespace() || c.is_control());
    if is_blank || text.chars().count() > max || text.contains('\0') {
        return Err(ApiProblem::unprocessable(
            "INVALID",
            format_args!("`{name}` must have 1 to {max} characters, without NUL, and not be blank"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn the_last_page_has_no_cursor() {
        let page = |limit| ListPage::of(vec![3, 2, 1], limit, ToString::to_string).next;
        assert_eq!((page(3), page(4)), (Some("1".into()), None));
        assert_eq!(ListPage::of(Vec::<u8>::new(), 1, ToString::to_string).next, None);
    }

    #[test]
    fn pages_are_bounded() {
        assert_eq!(Limit(None).get().unwrap(), PAGE);
        assert_eq!(Limit(Some(PAGE_MAX)).get().unwrap(), PAGE_MAX);
        assert!(Limit(Some(0)).get().is_err() && Limit(Some(PAGE_MAX + 1)).get().is_err());
    }

    fn caller(identity: CallerIdentity) -> AdminCaller {
        AdminCaller { role: Role::Admin, identity }
    }

    fn who(actor: Option<&str>, reason: &str) -> ActorAndReason {
        ActorAndReason { actor: actor.map(str::to_owned), reason: reason.to_owned() }
    }

    #[test]
    fn a_decision_needs_actor_and_reason() {
        let local = caller(CallerIdentity::Local);
        assert!(who(Some("ann"), "late").by(&local).is_ok());
        let long = "x".repeat(REASON_MAX + 1);
        for (actor, reason) in
            [(None, "late"), (Some(""), "late"), (Some("ann"), "  "), (Some("ann"), &long)]
        {
            assert!(who(actor, reason).by(&local).is_err(), "{actor:?} {reason}");
        }
    }

    #[test]
    fn a_personal_token_names_the_actor_and_a_shared_one_does_not() {
        let named = caller(CallerIdentity::Named { name: "bob".into(), session: None });
        let by = |actor, caller| who(actor, "late").by(caller).map(|by| by.actor).ok();
        assert_eq!(by(None, &named).as_deref(), Some("bob"));
        assert_eq!(by(Some("bob"), &named).as_deref(), Some("bob"));
        assert_eq!(by(Some("ann"), &named), None);
        let shared = caller(CallerIdentity::Shared { name: "admin".into(), session: None });
        assert_eq!(by(Some("ann"), &shared).as_deref(), Some("ann"));
        assert_eq!(by(None, &shared).as_deref(), Some("admin"));
    }

    #[test]
    fn an_invalid_query_is_explained() {
        let text = in_words(
            "Failed to deserialize query string: colour: unknown field `colour`, expected `limit`",
        );
        assert_eq!(text, "unknown parameter `colour`, expected `limit`");
        assert_eq!(in_words("odd"), "invalid query: odd");
        let text =
            in_words("Failed to deserialize query string: limit: invalid digit found in string");
        assert_eq!(text, "invalid query: limit: it must be a whole number");
    }

    #[test]
    fn a_wrong_type_is_explained_in_words() {
        let error = serde_json::from_str::<WholeNumber>("\"5\"").unwrap_err().to_string();
        assert!(error.contains("f64"), "the library names its type: {error}");
        let text = plain_types(&error);
        assert!(text.contains("expected a number") && !text.contains("f64"), "{text}");
    }

    #[test]
    fn words_are_matched_in_any_case() {
        let known = |text: &str| known("status", Some(text.to_owned()), &["OPEN", "DONE"]);
        assert_eq!(known("done").unwrap().as_deref(), Some("DONE"));
        assert!(known("other").is_err());
    }

    #[test]
    fn since_seconds_is_bounded() {
        assert_eq!(Since(Some(5)).get().unwrap(), Some(5));
        assert!(Since(Some(-1)).get().is_err() && Since(Some(i64::MAX)).get().is_err());
    }
}
