//! What a request says: its query, its path, its JSON body; and how what is wrong with them is said.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, rejection::BytesRejection},
    http::{StatusCode, request::Parts},
    response::IntoResponse,
};
use relais::desk::By;
use relais_core::query::PAGE_MAX;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{error::Category, value::RawValue};

use crate::{
    access::{Caller, Identity},
    problem::Problem,
};

/// Entries of a page unless the request says otherwise.
const PAGE: usize = 50;
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Longest name of a person, and longest reason.
const ACTOR_MAX: usize = 200;
const REASON_MAX: usize = 2_000;
/// Longest text of a filter.
const TEXT_MAX: usize = 1_000;
/// Longest time ago that is asked for: a hundred years, in seconds.
const SINCE_MAX: i64 = 100 * 366 * 86_400;

/// The query of a request.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        no_nul(parts.uri.query().unwrap_or_default())?;
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(Problem::bad_request(in_words(&rejection.body_text()))),
        }
    }
}

/// No database takes it as text.
fn no_nul(encoded: &str) -> Result<(), Problem> {
    if encoded.contains("%00") {
        return Err(Problem::bad_request("the character NUL (%00) is in no name and no id"));
    }
    Ok(())
}

/// What is wrong with a query, without the words of the library that reads it.
fn in_words(text: &str) -> String {
    let wrong = text.rsplit_once("query string: ").map_or(text, |(_, wrong)| wrong);
    match wrong.split_once("unknown field ") {
        Some((_, rest)) => format!("unknown parameter {rest}"),
        None => format!("the query is wrong: {wrong}"),
    }
}

/// The parts of the path that stand for something.
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        no_nul(parts.uri.path())?;
        match Path::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Self(named)),
            Err(rejection) => Err(Problem::bad_request(rejection.body_text())),
        }
    }
}

/// The JSON body of a request.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = tokio::time::timeout(BODY_TIME, Bytes::from_request(request, state)).await;
        let late =
            |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", "the body came too slowly");
        let bytes = read.map_err(late)?.map_err(unreadable)?;
        object(&bytes)?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| match error.classify() {
            Category::Data => Problem::unprocessable("INVALID", error),
            _ => Problem::bad_request(format_args!("the body is not JSON: {error}")),
        })
    }
}

/// A derived reader takes the fields of a struct from an array too, in their order: such a body is
/// refused, because it is a mistake.
fn object(bytes: &[u8]) -> Result<(), Problem> {
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::unprocessable("INVALID", "the body must be a JSON object"));
    }
    Ok(())
}

/// A JSON object inside a body, and nothing that only looks like one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Box<RawValue>", bound = "T: DeserializeOwned")]
pub(crate) struct Object<T>(pub(crate) T);

impl<T: DeserializeOwned> TryFrom<Box<RawValue>> for Object<T> {
    type Error = String;

    fn try_from(raw: Box<RawValue>) -> Result<Self, String> {
        if !raw.get().starts_with('{') {
            return Err("must be a JSON object".to_owned());
        }
        serde_json::from_str(raw.get()).map(Self).map_err(|error| error.to_string())
    }
}

fn unreadable(rejection: BytesRejection) -> Problem {
    let detail = rejection.body_text();
    if rejection.into_response().status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", "the body is too large");
    }
    Problem::bad_request(detail)
}

/// How much of a list.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Limit(Option<usize>);

impl Limit {
    pub(crate) fn get(self) -> Result<usize, Problem> {
        let limit = self.0.unwrap_or(PAGE);
        if (1..=PAGE_MAX).contains(&limit) {
            return Ok(limit);
        }
        Err(Problem::bad_request(format_args!("`limit` must be from 1 to {PAGE_MAX}")))
    }
}

/// What a filter compares with: bounded, and something every database takes.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Text(pub(crate) String);

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.chars().count() > TEXT_MAX || text.contains('\0') {
            return Err(format!("a text must have at most {TEXT_MAX} characters, and no NUL"));
        }
        Ok(Self(text))
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

/// A whole number in JSON; some write one as `5.0`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Whole(pub(crate) u32);

impl TryFrom<f64> for Whole {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        // Checked: whole, and in the range.
        fits.then_some(Self(number as u32))
            .ok_or_else(|| format!("`{number}` is not a whole number from 0 to {}", u32::MAX))
    }
}

/// How long ago, in seconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Since(Option<i64>);

impl Since {
    pub(crate) fn of(seconds: Option<Whole>) -> Self {
        Self(seconds.map(|seconds| seconds.0.into()))
    }

    pub(crate) fn get(self) -> Result<Option<i64>, Problem> {
        match self.0 {
            Some(seconds) if !(0..=SINCE_MAX).contains(&seconds) => Err(Problem::bad_request(
                format_args!("`since_seconds` must be from 0 to {SINCE_MAX}"),
            )),
            since => Ok(since),
        }
    }
}

/// One of the words a parameter may be, whatever its case.
pub(crate) fn known(
    name: &str,
    given: Option<String>,
    words: &[&str],
) -> Result<Option<String>, Problem> {
    let Some(given) = given else { return Ok(None) };
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(&given));
    let Some(word) = found else {
        let words = words.join(", ");
        return Err(Problem::bad_request(format_args!("`{name}` must be one of {words}")));
    };
    Ok(Some((*word).to_owned()))
}

/// A part of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Page<T> {
    items: Vec<T>,
    /// What to give as `before` for the next page; absent if this one is the last.
    next: Option<String>,
}

impl<T> Page<T> {
    /// `id` is what the next page starts after.
    pub(crate) fn of(items: Vec<T>, limit: usize, id: impl Fn(&T) -> String) -> Self {
        let next = items.last().filter(|_| items.len() >= limit).map(id);
        Self { items, next }
    }

    /// Where to look on if the list may go on although this page is not full.
    pub(crate) fn or_next(mut self, next: Option<String>) -> Self {
        self.next = self.next.or(next);
        self
    }

    pub(crate) fn map<U>(self, make: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(make).collect(), next: self.next }
    }
}

/// Who wants it and why, for the log and the audit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Who {
    /// Not needed where the token says who it is.
    pub(crate) actor: Option<String>,
    pub(crate) reason: String,
}

impl Who {
    pub(crate) fn new(actor: Option<String>, reason: String) -> Self {
        Self { actor, reason }
    }

    /// The person who acts: whom the token names, or who they say they are where it names nobody.
    pub(crate) fn by(self, caller: &Caller) -> Result<By, Problem> {
        let actor = match (&caller.identity, self.actor) {
            (Identity::Anybody, None) => {
                return Err(Problem::unprocessable(
                    "INVALID",
                    "`actor` is missing: say who you are",
                ));
            }
            (Identity::Anybody | Identity::Shared { .. }, Some(actor)) => actor,
            (Identity::Shared { name, .. } | Identity::Named { name, .. }, None) => name.clone(),
            (Identity::Named { name, .. }, Some(actor)) if actor == *name => actor,
            (Identity::Named { name, .. }, Some(_)) => {
                return Err(Problem::unprocessable(
                    "ACTOR",
                    format_args!("this token is of `{name}`: leave `actor` out, or say `{name}`"),
                ));
            }
        };
        bounded("actor", &actor, ACTOR_MAX)?;
        bounded("reason", &self.reason, REASON_MAX)?;
        Ok(By { actor, reason: self.reason })
    }
}

fn bounded(name: &str, text: &str, max: usize) -> Result<(), Problem> {
    let is_blank = text.chars().all(|c| c.is_whitespace() || c.is_control());
    if is_blank || text.chars().count() > max || text.contains('\0') {
        return Err(Problem::unprocessable(
            "INVALID",
            format_args!("`{name}` must have 1 to {max} characters, no NUL, and not be blank"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn the_last_page_names_no_next_one() {
        let page = |limit| Page::of(vec![3, 2, 1], limit, ToString::to_string).next;
        assert_eq!((page(3), page(4)), (Some("1".into()), None));
        assert_eq!(Page::of(Vec::<u8>::new(), 1, ToString::to_string).next, None);
    }

    #[test]
    fn pages_are_bounded() {
        assert_eq!(Limit(None).get().unwrap(), PAGE);
        assert_eq!(Limit(Some(PAGE_MAX)).get().unwrap(), PAGE_MAX);
        assert!(Limit(Some(0)).get().is_err() && Limit(Some(PAGE_MAX + 1)).get().is_err());
    }

    fn caller(identity: Identity) -> Caller {
        Caller { role: Role::Admin, identity }
    }

    fn who(actor: Option<&str>, reason: &str) -> Who {
        Who { actor: actor.map(str::to_owned), reason: reason.to_owned() }
    }

    #[test]
    fn somebody_must_give_a_reason() {
        let anybody = caller(Identity::Anybody);
        assert!(who(Some("ann"), "late").by(&anybody).is_ok());
        let long = "x".repeat(REASON_MAX + 1);
        for (actor, reason) in
            [(None, "late"), (Some(""), "late"), (Some("ann"), "  "), (Some("ann"), &long)]
        {
            assert!(who(actor, reason).by(&anybody).is_err(), "{actor:?} {reason}");
        }
    }

    #[test]
    fn the_token_says_who_acts_unless_several_share_it() {
        let named = caller(Identity::Named { name: "bob".into(), session: None });
        let by = |actor, caller| who(actor, "late").by(caller).map(|by| by.actor).ok();
        assert_eq!(by(None, &named).as_deref(), Some("bob"));
        assert_eq!(by(Some("bob"), &named).as_deref(), Some("bob"));
        assert_eq!(by(Some("ann"), &named), None);
        let shared = caller(Identity::Shared { name: "admin".into(), session: None });
        assert_eq!(by(Some("ann"), &shared).as_deref(), Some("ann"));
        assert_eq!(by(None, &shared).as_deref(), Some("admin"));
    }

    #[test]
    fn what_is_wrong_with_a_query_is_said_in_words() {
        let said = in_words(
            "Failed to deserialize query string: colour: unknown field `colour`, expected `limit`",
        );
        assert_eq!(said, "unknown parameter `colour`, expected `limit`");
        assert_eq!(in_words("odd"), "the query is wrong: odd");
    }

    #[test]
    fn words_are_known_in_any_case() {
        let known = |text: &str| known("status", Some(text.to_owned()), &["OPEN", "DONE"]);
        assert_eq!(known("done").unwrap().as_deref(), Some("DONE"));
        assert!(known("gone").is_err());
    }

    #[test]
    fn how_long_ago_is_bounded() {
        assert_eq!(Since(Some(5)).get().unwrap(), Some(5));
        assert!(Since(Some(-1)).get().is_err() && Since(Some(i64::MAX)).get().is_err());
    }
}
